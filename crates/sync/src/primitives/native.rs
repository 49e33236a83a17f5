//! The primitives of an ordinary build: parking_lot's, and a spin with a bound.

use std::hint;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A mutex. A limit of `None` means no limit.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    #[inline]
    pub(crate) fn lock_within(&self, limit: Option<Duration>) -> Option<MutexGuard<'_, T>> {
        limit.map_or_else(|| Some(self.0.lock()), |limit| self.0.try_lock_for(limit))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// A reader-writer lock. A limit of `None` means no limit.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    #[inline]
    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    #[inline]
    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }

    #[inline]
    pub(crate) fn read_within(&self, limit: Option<Duration>) -> Option<RwLockReadGuard<'_, T>> {
        limit.map_or_else(|| Some(self.0.read()), |limit| self.0.try_read_for(limit))
    }

    #[inline]
    pub(crate) fn write_within(&self, limit: Option<Duration>) -> Option<RwLockWriteGuard<'_, T>> {
        limit.map_or_else(|| Some(self.0.write()), |limit| self.0.try_write_for(limit))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Waits; returns false if the limit passed first.
    pub(crate) fn wait_within<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        limit: Option<Duration>,
    ) -> bool {
        let Some(limit) = limit else {
            self.0.wait(guard);
            return true;
        };
        !self.0.wait_for(guard, limit).timed_out()
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// The maximum length of a spin: about the cost of a sleep and a wake-up, so longer spins cannot
/// be faster.
const SPIN_LIMIT: Duration = Duration::from_micros(8);

/// The number of pauses between two checks of the clock and the lock.
const PAUSES: u32 = 8;

/// One bounded spin. With one CPU it ends at once: the owner cannot run during a spin.
#[derive(Debug)]
pub(crate) struct Spin {
    end: Option<Instant>,
}

impl Spin {
    pub(crate) fn new() -> Self {
        Self { end: has_many_cpus().then(|| Instant::now() + SPIN_LIMIT) }
    }

    /// Pauses; returns false if the spin is over.
    pub(crate) fn again(&mut self) -> bool {
        for _ in 0..PAUSES {
            hint::spin_loop();
        }
        self.end.is_some_and(|end| Instant::now() < end)
    }
}

fn has_many_cpus() -> bool {
    static MANY: OnceLock<bool> = OnceLock::new();
    *MANY.get_or_init(|| thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1))
}
