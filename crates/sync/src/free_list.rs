//! Things that are kept to be used again, by the whole process.
//!
//! 1. What is done under the lock is a push or a pop, and nothing else: it needs no class, and
//!    may be used under any lock. Models do not explore it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module's text.
#[derive(Debug)]
pub struct FreeList<T>(Mutex<Vec<T>>);

impl<T> FreeList<T> {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// One of them, if there is one: the one that was given last.
    pub fn take(&self) -> Option<T> {
        self.list().pop()
    }

    /// Keeps one.
    pub fn give(&self, spare: T) {
        self.list().push(spare);
    }

    /// Keeps several.
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
