//! The switch: std and parking_lot in an ordinary build, loom's or shuttle's in a model.
//!
//! 1. The names and signatures are the same in each build; only this module knows the difference.
//! 2. A wait with a limit waits without one in a model, which finds a wait without end itself.
//! 3. Nothing spins in a model: a spin is a schedule that another one covers.

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
