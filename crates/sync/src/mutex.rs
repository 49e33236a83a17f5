//! A mutex that knows its class.

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

/// The lock is held while this lives.
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard<'a, T> {
    // Released before the thread's list forgets it: fields drop in this order.
    inner: primitives::MutexGuard<'a, T>,
    identity: Identity,
    _held: Held,
}

impl<T> Mutex<T> {
    /// A mutex of this class.
    pub fn new(class: Class, value: T) -> Self {
        Self::with_identity(Identity::of(class), value)
    }

    /// A mutex of this name: for classes that are taken as sorted sets.
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

    /// Takes the lock if that needs no waiting.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, identity: self.identity, _held: Held::tried(self.identity) })
    }

    /// The value, by the only reference there is to the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// The value, without the mutex.
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
    /// What a condition variable needs: the guard below, and the name to complain with.
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
