//! Parts that most lanes and groups never need: nothing in memory until they are written to.
//!
//! A million lanes with one event each are the measure. Reading goes to a shared empty value; the first write makes one of their own, so
//! code on the common path asks [`Lazy::is_made`] before it writes.

use std::ops::{Deref, DerefMut};

/// Has an empty value that all can share.
pub(super) trait Empty: Sized + 'static {
    /// The empty value.
    const EMPTY: &'static Self;
    /// One to be written to.
    fn fresh() -> Self;
}

#[derive(Debug)]
pub(super) struct Lazy<T>(Option<Box<T>>);

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Lazy<T> {
    pub(super) fn is_made(&self) -> bool {
        self.0.is_some()
    }

    /// What is there, to be written to; nothing is made.
    pub(super) fn made(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: Empty> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: Empty> DerefMut for Lazy<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(T::fresh()))
    }
}
