//! Text to settings.
mod check;
mod fields;
mod nearest;
mod problem;
mod providers;
mod raw;
mod scalar;
mod secret;
mod text;
mod value;
pub use problem::{Place, Problem};
pub use scalar::Rate;
