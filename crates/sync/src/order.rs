//! The lock order check: the list of locks that each thread holds, in builds with debug assertions.
//!
//! 1. An acquisition is checked before it waits, so that a wrong order panics even if it would not
//!    have deadlocked. An attempt that never waits (`try_`) is entered without a check.
//! 2. The check is against all locks that the thread holds, in whatever order they were taken.
//! 3. A [`Held`] leaves the list when it is dropped, in any order, on the thread that made it.
//! 4. Without debug assertions the types are empty and the functions do nothing.

mod checked;
mod name;
mod stack;
#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::time::{Duration, Instant};

use crate::class::Class;
use crate::nesting::{BlockLabel, Mode, Nesting};
use checked::Checked;
use name::{Key, Name};
use stack::Check;
pub use stack::WAIT_LIMIT;

/// The name of one lock: its class, and its key in the class if that orders or distinguishes them.
#[derive(Clone, Copy)]
pub struct Identity {
    name: Checked<Name>,
}

impl Identity {
    /// A lock that is named by its class alone.
    pub fn of(class: Class) -> Self {
        Self { name: Checked::new(|| Name { class, key: Key::None }) }
    }

    /// A lock of the inode `number` in `subvolume`; this pair orders sorted sets.
    pub fn of_inode(class: Class, subvolume: u64, number: u64) -> Self {
        Self { name: Checked::new(|| Name { class, key: Key::Inode(subvolume, number) }) }
    }

    /// The lock of a tree block.
    pub(crate) fn of_block(label: BlockLabel) -> Self {
        Self { name: Checked::new(|| Name { class: Class::TreeBlock, key: Key::Block(label) }) }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.get() {
            Some(name) => write!(f, "{name}"),
            None => f.write_str("lock"),
        }
    }
}

/// One entry of the thread's list; dropping it removes the entry. Not `Send`.
///
/// Guards contain one. Protocols that are not a lock of this crate (a range lock, a transaction
/// handle) contain one of their own, made by [`Held::acquire`].
#[derive(Debug)]
#[must_use = "the lock counts as held while this lives"]
pub struct Held {
    serial: Checked<u64>,
    this_thread: PhantomData<*const ()>,
}

impl Held {
    /// Checks that the lock may be taken now, and adds it to the list. Call it before waiting.
    #[track_caller]
    #[inline]
    pub fn acquire(identity: Identity) -> Self {
        Self::enter(identity, Mode::Write, Check::Order)
    }

    /// Adds a lock to the list that was taken without waiting.
    #[track_caller]
    #[inline]
    pub fn tried(identity: Identity) -> Self {
        Self::enter(identity, Mode::Write, Check::Nothing)
    }

    /// Like `acquire`, for a tree block.
    #[track_caller]
    #[inline]
    pub(crate) fn acquire_block(identity: Identity, mode: Mode, nesting: Nesting) -> Self {
        Self::enter(identity, mode, Check::Coupling(nesting))
    }

    /// Like `tried`, for a tree block.
    #[track_caller]
    #[inline]
    pub(crate) fn tried_block(identity: Identity, mode: Mode) -> Self {
        Self::enter(identity, mode, Check::Nothing)
    }

    /// Marks a tree block held for writing as held for reading.
    #[inline]
    pub(crate) fn downgrade(&self) {
        self.serial.map(stack::downgrade);
    }

    #[track_caller]
    #[inline]
    fn enter(identity: Identity, mode: Mode, check: Check) -> Self {
        let at = Location::caller();
        let serial = identity.name.map(|name| stack::push(name, mode, check, at));
        Self { serial, this_thread: PhantomData }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.serial.map(stack::pop);
    }
}

/// The clock of one wait: panics when the wait exceeds the limit.
#[derive(Debug)]
pub(crate) struct WaitLimit {
    name: Checked<Name>,
    since: Checked<Instant>,
}

impl WaitLimit {
    /// Starts the clock for the lock of this identity.
    #[inline]
    pub(crate) fn new(identity: Identity) -> Self {
        Self { name: identity.name, since: Checked::new(Instant::now) }
    }

    /// Returns how long the wait may continue; `None`, for no limit, in builds without checks.
    /// Panics when the limit is reached.
    #[inline]
    pub(crate) fn left(&self) -> Option<Duration> {
        let name = self.name.get()?;
        let since = self.since.get()?;
        let limit = stack::wait_limit();
        let left = limit.saturating_sub(since.elapsed());
        assert!(!left.is_zero(), "{}", stack::late(name, limit));
        Some(left)
    }
}

/// Changes the wait limit of this thread, in builds that have one.
pub fn set_wait_limit(limit: Duration) {
    if cfg!(debug_assertions) {
        stack::set_wait_limit(limit);
    }
}
