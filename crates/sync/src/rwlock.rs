//! A reader-writer lock with a [`Class`](crate::Class).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::class::Class;
use crate::order::{Held, Identity, WaitLimit};
use crate::primitives;

/// A reader-writer lock. Not recursive, not even for readers: a reader queues behind a writer.
pub struct RwLock<T> {
    identity: Identity,
    inner: primitives::RwLock<T>,
}

/// A guard that holds the lock, shared, until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockReadGuard<'a, T> {
    // Released before it is removed from the thread's list: fields drop in this order.
    inner: primitives::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// A guard that holds the lock, exclusively, until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockWriteGuard<'a, T> {
    inner: primitives::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// Creates a lock of this class.
    pub fn new(class: Class, value: T) -> Self {
        Self::with_identity(Identity::of(class), value)
    }

    /// Creates a lock of this name, for classes that are taken as sorted sets.
    pub fn with_identity(identity: Identity, value: T) -> Self {
        Self { identity, inner: primitives::RwLock::new(value) }
    }

    /// Takes the lock for reading, waiting for it.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = Held::acquire(self.identity);
        let wait = || self.wait(|limit| self.inner.read_within(limit));
        RwLockReadGuard { inner: self.inner.try_read().unwrap_or_else(wait), _held: held }
    }

    /// Takes the lock for writing, waiting for it.
    #[track_caller]
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = Held::acquire(self.identity);
        let wait = || self.wait(|limit| self.inner.write_within(limit));
        RwLockWriteGuard { inner: self.inner.try_write().unwrap_or_else(wait), _held: held }
    }

    /// Takes the lock for reading if it is available without waiting.
    #[track_caller]
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        Some(RwLockReadGuard { inner, _held: Held::tried(self.identity) })
    }

    /// Takes the lock for writing if it is available without waiting.
    #[track_caller]
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        Some(RwLockWriteGuard { inner, _held: Held::tried(self.identity) })
    }

    /// Returns the value, without locking: the borrow is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Consumes the lock and returns its value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    #[cold]
    fn wait<G>(&self, within: impl Fn(Option<Duration>) -> Option<G>) -> G {
        let patience = WaitLimit::new(self.identity);
        loop {
            if let Some(guard) = within(patience.left()) {
                return guard;
            }
        }
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RwLock({:?})", self.identity)
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}
