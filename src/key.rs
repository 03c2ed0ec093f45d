//! Whose is it.

/// A rule that finds a key.
#[derive(Clone, Debug)]
pub struct Rule;
