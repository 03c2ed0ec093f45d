//! Is it genuine.

/// A source's verifier.
#[derive(Debug)]
pub struct Verifier;
