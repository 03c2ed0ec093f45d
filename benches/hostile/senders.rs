//! What `tests/hostile_senders.rs` sends, too.
#![expect(dead_code, reason = "the tests use more of it")]
#![expect(clippy::unwrap_used, reason = "written for tests: what cannot be made is their end")]

#[path = "../../tests/senders/bombs.rs"]
pub(crate) mod bombs;
#[path = "../../tests/senders/h2.rs"]
pub(crate) mod h2;
