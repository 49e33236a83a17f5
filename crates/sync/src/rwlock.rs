//! A reader-writer lock that knows its class.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::class::Class;
use crate::order::{Held, Identity, WaitLimit};
use crate::primitives;

/// Many readers or one writer. Not recursive, also for readers: one queues behind a writer.
pub struct RwLock<T> {
    identity: Identity,
    inner: primitives::RwLock<T>,
}

/// The lock is held, shared, while this lives.
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockReadGuard<'a, T> {
    // Released before the thread's list forgets it: fields drop in this order.
    inner: primitives::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// The lock is held, alone, while this lives.
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockWriteGuard<'a, T> {
    inner: primitives::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// A lock of this class.
    pub fn new(class: Class, value: T) -> Self {
        Self::with_identity(Identity::of(class), value)
    }

    /// A lock of this name: for classes that are taken as sorted sets.
    pub fn with_identity(identity: Identity, value: T) -> Self {
        Self { identity, inner: primitives::RwLock::new(value) }
    }

    /// Takes the lock with other readers, waiting for it.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = Held::acquire(self.identity);
        let wait = || self.wait(|limit| self.inner.read_within(limit));
        RwLockReadGuard { inner: self.inner.try_read().unwrap_or_else(wait), _held: held }
    }

    /// Takes the lock alone, waiting for it.
    #[track_caller]
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = Held::acquire(self.identity);
        let wait = || self.wait(|limit| self.inner.write_within(limit));
        RwLockWriteGuard { inner: self.inner.try_write().unwrap_or_else(wait), _held: held }
    }

    /// Takes the lock with other readers if that needs no waiting.
    #[track_caller]
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        Some(RwLockReadGuard { inner, _held: Held::tried(self.identity) })
    }

    /// Takes the lock alone if that needs no waiting.
    #[track_caller]
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        Some(RwLockWriteGuard { inner, _held: Held::tried(self.identity) })
    }

    /// The value, by the only reference there is to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// The value, without the lock.
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
