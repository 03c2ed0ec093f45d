//! Which node owns which shard.
pub mod plan;
