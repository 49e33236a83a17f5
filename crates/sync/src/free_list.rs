//! A list of values that are kept for reuse by the whole process.
//!
//! 1. Only pushes and pops are done under its lock: it needs no class, and may be used under any
//!    lock. Models do not explore it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A list of values that are kept for reuse by the whole process.
#[derive(Debug)]
pub struct FreeList<T>(Mutex<Vec<T>>);

impl<T> FreeList<T> {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Removes and returns the value that was added last, if there is one.
    pub fn take(&self) -> Option<T> {
        self.list().pop()
    }

    /// Adds a value.
    pub fn give(&self, spare: T) {
        self.list().push(spare);
    }

    /// Adds several values.
    pub fn give_all(&self, spares: impl IntoIterator<Item = T>) {
        self.list().extend(spares);
    }

    fn list(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for FreeList<T> {
    fn default() -> Self {
        Self::new()
    }
}
