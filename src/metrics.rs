//! Names and numbers.
