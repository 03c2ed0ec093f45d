//! `fairlane run --upgrade`: a new process takes the place of the one that runs, and no sender notices.
//!
//! # The course of it
//!
//! The one that runs (the *predecessor*) listens at `upgrade.sock` in its data folder; the new one (the *successor*) has looked at
//! everything that can fail by then: configuration, certificates, store, token, what people changed.
//!
//! | successor says | predecessor says | what it means |
//! | --- | --- | --- |
//! | `hello` | | here is somebody who would take over |
//! | | `offer`, with the listening sockets | these would be yours; nothing is changed yet |
//! | `go` | | everything I need is there |
//! | | | *making way*: senders are served as ever, each answer being the last of its connection; then no event is attempted any more, and attempts under way end |
//! | | | *the gap*: nothing is accepted, who comes waits in the kernel; what was read is stored and answered; the store is closed |
//! | | `closed` | the store is yours |
//! | `serving` | | it is open, and the sockets are served |
//! | | | the predecessor gives the last answers of `respond: upstream`, and ends |
//!
//! `refused` instead of an answer says why not.
//!
//! # What holds
//!
//! 1. One process at a time has the store: its lock says so, whatever is said here.
//! 2. Until `closed` a successor that goes away leaves the predecessor as it was. After that it takes the sockets, which it never closed,
//!    and opens the store again, with the configuration that it had.
//! 3. A predecessor that dies after `go` leaves the sockets in good hands: the successor goes on.
//! 4. The length of the gap depends on no upstream and, beyond [`GAP`], on no sender.

mod check;
mod door;
mod handover;
mod predecessor;
mod socket;
mod talk;
mod words;

use std::time::Duration;

pub(super) use check::check;
pub(super) use door::Door;
pub(super) use handover::Way;
pub(super) use predecessor::Predecessor;

/// How long the other side may take for a word that needs no work.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long requests that are being read when nothing is accepted any more may hold up the hand-over. Those that were there
/// before it began had `shutdown.drain`; a sender that takes longer than this gets 503 and sends again.
const GAP: Duration = Duration::from_secs(2);

/// How long attempts that were ended may take to be settled.
const CUT: Duration = Duration::from_secs(2);
