//! The tree lock: a value behind the one fair sleeping reader-writer lock, and its guards.
//!
//! 1. `raw` decides which threads hold the lock; a guard exists exactly while its thread holds it.
//! 2. A read guard grants shared, a write guard exclusive access to the value.
//! 3. A guard stays on its thread, and releases before the lock is removed from that thread's list.
//! 4. A guard borrows its lock, or owns an `Arc` of it: the lock outlives the guard either way.
//! 5. There is no recursion and no upgrade; no writer can enter during a downgrade.
//!
//! This is the one file of the crate with unsafe code: the access to the cell.
#![expect(unsafe_code, reason = "a lock gives references to what it guards")]

mod cell;
#[cfg(feature = "experiments")]
mod hand_made;
#[cfg(all(test, loom))]
mod loom_models;
mod raw;
#[cfg(all(test, shuttle))]
mod shuttle_models;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod waiter;

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::nesting::{BlockLabel, Mode, Nesting};
use crate::order::{Held, Identity};
use crate::primitives::Arc;
use cell::{Cell, ExclusiveAccess, SharedAccess};
#[cfg(feature = "experiments")]
use hand_made::Lock;
#[cfg(not(feature = "experiments"))]
use raw::RawTreeLock as Lock;

/// A reader-writer lock for a tree block: fair, sleeping, with bounded spinning.
///
/// A block that is reused elsewhere in a tree gets a new lock: labels do not change.
pub struct TreeLock<T> {
    label: BlockLabel,
    raw: Lock,
    value: Cell<T>,
}

// SAFETY: by invariants 1 and 2 threads share `&T` (so `T: Sync`) or pass `&mut T` from one to
// the next (so `T: Send`), each transfer ordered by the acquire and release of `raw`.
unsafe impl<T: Send + Sync> Sync for TreeLock<T> {}

/// Shared access, for as long as the lock is borrowed.
pub type ReadGuard<'a, T> = Read<&'a TreeLock<T>>;
/// Exclusive access, for as long as the lock is borrowed.
pub type WriteGuard<'a, T> = Write<&'a TreeLock<T>>;
/// Shared access that keeps the lock alive.
pub type OwnedReadGuard<T> = Read<Arc<TreeLock<T>>>;
/// Exclusive access that keeps the lock alive.
pub type OwnedWriteGuard<T> = Write<Arc<TreeLock<T>>>;

/// Shared access to the value of the tree lock that `P` points to.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Read<P: Handle> {
    // The access ends before the hold: fields drop in this order.
    value: SharedAccess<P::Value>,
    hold: Hold<P>,
}

/// Exclusive access to the value of the tree lock that `P` points to.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Write<P: Handle> {
    value: ExclusiveAccess<P::Value>,
    hold: Hold<P>,
}

/// A pointer that keeps a lock in place while it is held: a borrow or an `Arc`. Sealed.
pub trait Handle: sealed::Sealed {
    /// The value that the lock guards.
    type Value;

    /// Returns the lock; the same one each time.
    fn lock(&self) -> &TreeLock<Self::Value>;
}

impl<T> Handle for &TreeLock<T> {
    type Value = T;

    fn lock(&self) -> &TreeLock<T> {
        self
    }
}

impl<T> Handle for Arc<TreeLock<T>> {
    type Value = T;

    fn lock(&self) -> &TreeLock<T> {
        self
    }
}

mod sealed {
    /// Implemented only by pointers whose target stays in place when they move.
    pub trait Sealed {}
    impl<T> Sealed for &super::TreeLock<T> {}
    impl<T> Sealed for super::Arc<super::TreeLock<T>> {}
}

impl<T> TreeLock<T> {
    /// Creates a free lock of a block.
    pub fn new(label: BlockLabel, value: T) -> Self {
        Self { label, raw: Lock::new(), value: Cell::new(value) }
    }

    /// Creates a free lock that waits as before S4 of docs/seeds.md.
    #[cfg(feature = "experiments")]
    pub fn hand_made(label: BlockLabel, value: T) -> Self {
        Self { label, raw: Lock::hand_made(), value: Cell::new(value) }
    }

    /// Returns the label of the block.
    pub fn label(&self) -> BlockLabel {
        self.label
    }

    /// Consumes the lock and returns its value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Takes the lock for reading, waiting in turn.
    #[track_caller]
    #[inline]
    pub fn read(&self, nesting: Nesting) -> ReadGuard<'_, T> {
        Read::new(Hold::wait(self, Mode::Read, nesting))
    }

    /// Takes the lock for writing, waiting in turn.
    #[track_caller]
    #[inline]
    pub fn write(&self, nesting: Nesting) -> WriteGuard<'_, T> {
        Write::new(Hold::wait(self, Mode::Write, nesting))
    }

    /// Takes the lock for reading if it is available without waiting.
    #[track_caller]
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        Hold::attempt(self, Mode::Read).map(Read::new)
    }

    /// Takes the lock for writing if it is available without waiting.
    #[track_caller]
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        Hold::attempt(self, Mode::Write).map(Write::new)
    }

    /// Like `read`, with a guard that keeps the lock alive.
    #[track_caller]
    #[inline]
    pub fn read_owned(this: &Arc<Self>, nesting: Nesting) -> OwnedReadGuard<T> {
        Read::new(Hold::wait(Arc::clone(this), Mode::Read, nesting))
    }

    /// Like `write`, with a guard that keeps the lock alive.
    #[track_caller]
    #[inline]
    pub fn write_owned(this: &Arc<Self>, nesting: Nesting) -> OwnedWriteGuard<T> {
        Write::new(Hold::wait(Arc::clone(this), Mode::Write, nesting))
    }

    /// Like `try_read`, with a guard that keeps the lock alive.
    #[track_caller]
    #[inline]
    pub fn try_read_owned(this: &Arc<Self>) -> Option<OwnedReadGuard<T>> {
        Hold::attempt(Arc::clone(this), Mode::Read).map(Read::new)
    }

    /// Like `try_write`, with a guard that keeps the lock alive.
    #[track_caller]
    #[inline]
    pub fn try_write_owned(this: &Arc<Self>) -> Option<OwnedWriteGuard<T>> {
        Hold::attempt(Arc::clone(this), Mode::Write).map(Write::new)
    }
}

impl<T> fmt::Debug for TreeLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreeLock({})", self.label)
    }
}

/// One thread's hold of a lock; dropping it releases.
struct Hold<P: Handle> {
    handle: P,
    mode: Mode,
    held: Held,
}

impl<P: Handle> Hold<P> {
    #[track_caller]
    #[inline]
    fn wait(handle: P, mode: Mode, nesting: Nesting) -> Self {
        let identity = Identity::of_block(handle.lock().label);
        let held = Held::acquire_block(identity, mode, nesting);
        handle.lock().raw.lock(mode, identity);
        Self { handle, mode, held }
    }

    #[track_caller]
    #[inline]
    fn attempt(handle: P, mode: Mode) -> Option<Self> {
        if !handle.lock().raw.try_lock(mode) {
            return None;
        }
        let held = Held::tried_block(Identity::of_block(handle.lock().label), mode);
        Some(Self { handle, mode, held })
    }

    fn downgrade(&mut self) {
        self.handle.lock().raw.downgrade();
        self.mode = Mode::Read;
        self.held.downgrade();
    }
}

impl<P: Handle> Drop for Hold<P> {
    #[inline]
    fn drop(&mut self) {
        self.handle.lock().raw.unlock(self.mode);
    }
}

impl<P: Handle> Read<P> {
    #[inline]
    fn new(hold: Hold<P>) -> Self {
        Self { value: hold.handle.lock().value.shared(), hold }
    }

    /// Returns the label of the block.
    pub fn label(&self) -> BlockLabel {
        self.hold.handle.lock().label
    }
}

impl<P: Handle> Write<P> {
    #[inline]
    fn new(hold: Hold<P>) -> Self {
        Self { value: hold.handle.lock().value.exclusive(), hold }
    }

    /// Returns the label of the block.
    pub fn label(&self) -> BlockLabel {
        self.hold.handle.lock().label
    }

    /// Admits other readers; no writer can enter before this thread has released the lock.
    pub fn downgrade(self) -> Read<P> {
        let mut hold = self.into_hold();
        hold.downgrade();
        Read::new(hold)
    }

    /// Ends the access, keeps the hold.
    fn into_hold(self) -> Hold<P> {
        self.hold
    }
}

impl<P: Handle> Deref for Read<P> {
    type Target = P::Value;

    #[inline]
    fn deref(&self) -> &P::Value {
        // SAFETY: the hold is shared, so nobody has exclusive access while `self` lives, and the
        // lock stays in place (invariants 1, 2, 4).
        unsafe { &*self.value.pointer() }
    }
}

impl<P: Handle> Deref for Write<P> {
    type Target = P::Value;

    #[inline]
    fn deref(&self) -> &P::Value {
        // SAFETY: the hold is exclusive, so the only access is through `self`, which is borrowed
        // shared here, and the lock stays in place (invariants 1, 2, 4).
        unsafe { &*self.value.pointer() }
    }
}

impl<P: Handle> DerefMut for Write<P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut P::Value {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { &mut *self.value.pointer() }
    }
}

impl<P: Handle<Value: fmt::Debug>> fmt::Debug for Read<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        P::Value::fmt(self, f)
    }
}

impl<P: Handle<Value: fmt::Debug>> fmt::Debug for Write<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        P::Value::fmt(self, f)
    }
}
