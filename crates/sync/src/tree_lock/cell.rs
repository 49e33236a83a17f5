//! The cell under a tree lock: std's, or in a loom model the one that checks each access.
//!
//! It returns pointers; the lock is responsible for their correct use. A pointer is valid as long
//! as the access that returned it.

#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(not(loom))]
use std::cell::UnsafeCell;

/// A value accessed by pointers.
#[derive(Debug)]
pub(super) struct Cell<T>(UnsafeCell<T>);

/// A shared access, which lasts until it is dropped.
#[derive(Debug)]
pub(super) struct SharedAccess<T> {
    pointer: *const T,
    #[cfg(loom)]
    _watch: loom::cell::ConstPtr<T>,
}

/// An exclusive access, which lasts until it is dropped.
#[derive(Debug)]
pub(super) struct ExclusiveAccess<T> {
    pointer: *mut T,
    #[cfg(loom)]
    _watch: loom::cell::MutPtr<T>,
}

impl<T> Cell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(super) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

#[cfg(not(loom))]
impl<T> Cell<T> {
    #[inline]
    pub(super) fn shared(&self) -> SharedAccess<T> {
        SharedAccess { pointer: self.0.get() }
    }

    #[inline]
    pub(super) fn exclusive(&self) -> ExclusiveAccess<T> {
        ExclusiveAccess { pointer: self.0.get() }
    }
}

#[cfg(loom)]
impl<T> Cell<T> {
    pub(super) fn shared(&self) -> SharedAccess<T> {
        let watch = self.0.get();
        SharedAccess { pointer: watch.with(|pointer| pointer), _watch: watch }
    }

    pub(super) fn exclusive(&self) -> ExclusiveAccess<T> {
        let watch = self.0.get_mut();
        ExclusiveAccess { pointer: watch.with(|pointer| pointer), _watch: watch }
    }
}

impl<T> SharedAccess<T> {
    #[inline]
    pub(super) fn pointer(&self) -> *const T {
        self.pointer
    }
}

impl<T> ExclusiveAccess<T> {
    #[inline]
    pub(super) fn pointer(&self) -> *mut T {
        self.pointer
    }
}
