//! A mutex with a [`Class`](crate::Class).

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::class::Class;
use crate::order::{Held, Identity, WaitLimit};
use crate::primitives;

/// Mutual exclusion. Not recursive, not poisoned, not fair.
pub struct Mutex<T> {
    identity: Identity,
    inner: primitives::Mutex<T>,
}

/// A guard that holds the lock until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard<'a, T> {
    // Released before it is removed from the thread's list: fields drop in this order.
    inner: primitives::MutexGuard<'a, T>,
    identity: Identity,
    _held: Held,
}

impl<T> Mutex<T> {
    /// Creates a mutex of this class.
    pub fn new(class: Class, value: T) -> Self {
        Self::with_identity(Identity::of(class), value)
    }

    /// Creates a mutex of this name, for classes that are taken as sorted sets.
    pub fn with_identity(identity: Identity, value: T) -> Self {
        Self { identity, inner: primitives::Mutex::new(value) }
    }

    /// Takes the lock, waiting for it.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::acquire(self.identity);
        let inner = self.inner.try_lock().unwrap_or_else(|| self.wait());
        MutexGuard { inner, identity: self.identity, _held: held }
    }

    /// Takes the lock if it is available without waiting.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, identity: self.identity, _held: Held::tried(self.identity) })
    }

    /// Returns the value, without locking: the borrow is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    #[cold]
    fn wait(&self) -> primitives::MutexGuard<'_, T> {
        let patience = WaitLimit::new(self.identity);
        loop {
            if let Some(guard) = self.inner.lock_within(patience.left()) {
                return guard;
            }
        }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutex({:?})", self.identity)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Returns the parts for a condition variable: the inner guard, and the name for messages.
    pub(crate) fn parts(&mut self) -> (&mut primitives::MutexGuard<'a, T>, Identity) {
        (&mut self.inner, self.identity)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}
