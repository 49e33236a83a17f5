//! The primitives of a model: loom's or shuttle's, with the interface of the native ones.
#![expect(clippy::unnecessary_wraps, reason = "the signatures are the native ones")]

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

#[cfg(loom)]
use loom::sync as model;
#[cfg(shuttle)]
use shuttle::sync as model;

pub(crate) use model::{RwLockReadGuard, RwLockWriteGuard};

/// A mutex.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(model::Mutex<T>);

/// The guard of a mutex; empty only while a condition variable has the lock.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T>(Option<model::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(model::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(sound(self.0.lock())))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        tried(self.0.try_lock()).map(|guard| MutexGuard(Some(guard)))
    }

    pub(crate) fn lock_within(&self, _: Option<Duration>) -> Option<MutexGuard<'_, T>> {
        Some(self.lock())
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        sound(self.0.get_mut())
    }

    pub(crate) fn into_inner(self) -> T {
        sound(self.0.into_inner())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("empty only in a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("empty only in a wait")
    }
}

/// A reader-writer lock.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(model::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(model::RwLock::new(value))
    }

    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        tried(self.0.try_read())
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        tried(self.0.try_write())
    }

    pub(crate) fn read_within(&self, _: Option<Duration>) -> Option<RwLockReadGuard<'_, T>> {
        Some(sound(self.0.read()))
    }

    pub(crate) fn write_within(&self, _: Option<Duration>) -> Option<RwLockWriteGuard<'_, T>> {
        Some(sound(self.0.write()))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        sound(self.0.get_mut())
    }

    pub(crate) fn into_inner(self) -> T {
        sound(self.0.into_inner())
    }
}

/// A condition variable.
#[derive(Debug)]
pub(crate) struct Condvar(model::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(model::Condvar::new())
    }

    /// Waits without a limit: time does not pass in a model.
    pub(crate) fn wait_within<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _: Option<Duration>,
    ) -> bool {
        let inner = guard.0.take().expect("empty only in a wait");
        guard.0 = Some(sound(self.0.wait(inner)));
        true
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A spin of no length.
#[derive(Debug)]
pub(crate) struct Spin;

impl Spin {
    pub(crate) fn new() -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the same call as the native one")]
    pub(crate) fn again(&mut self) -> bool {
        false
    }
}

fn sound<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

fn tried<T>(result: TryLockResult<T>) -> Option<T> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
