//! The primitives of the build: std's and parking_lot's in an ordinary build, loom's or shuttle's
//! in a model.
//!
//! 1. The names and signatures are the same in each build; only this module is different.
//! 2. A wait with a limit has none in a model, which detects endless waits itself.
//! 3. Nothing spins in a model: other schedules cover that of a spin.

#[cfg(any(loom, shuttle))]
mod modelled;
#[cfg(not(any(loom, shuttle)))]
mod native;

#[cfg(loom)]
pub use loom::sync::{Arc, atomic};
#[cfg(shuttle)]
pub use shuttle::sync::{Arc, atomic};
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::{Arc, atomic};

#[cfg(loom)]
pub use loom::thread;
#[cfg(shuttle)]
pub use shuttle::thread;
#[cfg(not(any(loom, shuttle)))]
pub use std::thread;

#[cfg(loom)]
pub(crate) use loom::thread_local;
#[cfg(shuttle)]
pub(crate) use shuttle::thread_local;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread_local;

#[cfg(any(loom, shuttle))]
pub(crate) use modelled::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Spin,
};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use native::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Spin,
};
