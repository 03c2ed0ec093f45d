//! Joining decisions to effects.
