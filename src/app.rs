//! Building and ending.
