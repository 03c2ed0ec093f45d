//! Text to settings.
