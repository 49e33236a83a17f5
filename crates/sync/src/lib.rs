//! Every lock, condition variable, atomic and thread the other crates use.
//!
//! 1. A lock names its [`Class`] when it is made; the order in which classes may be taken is the
//!    order in which `class.rs` declares them, and is defined nowhere else.
//! 2. In builds with debug assertions each acquisition is checked against the locks that the
//!    thread holds, before it waits; a violation panics and names both locks. Other builds have no
//!    overhead.
//! 3. In the same builds a wait for a lock or a condition of more than [`WAIT_LIMIT`] panics and
//!    names the lock. Waiting for work is exempt: [`Condvar::wait_idle`].
//! 4. Tree blocks are guarded by [`TreeLock`], and coupled only by the tokens of [`Nesting`].
//! 5. No lock is poisoned: a panic that unwinds through a guard releases the lock.
//! 6. A lock is released by the thread that took it: guards are not `Send`.
//! 7. Under `cfg(loom)` and `cfg(shuttle)` the same types are built on loom's and shuttle's
//!    primitives, so that these tools can explore the protocols built on this crate.
//!
//! Not part of this crate: range locks, transaction handles and other protocols are defined in the
//! crates that use them, which enter them in the order check by [`order::Held`].
//!
//! # Models
//!
//! ```text
//! RUSTFLAGS="--cfg loom"    cargo test -p userbtrfs-sync --release --lib loom_models
//! RUSTFLAGS="--cfg shuttle" cargo test -p userbtrfs-sync --lib shuttle_models
//! ```
//!
//! Use a separate target directory for each (`CARGO_TARGET_DIR`), as the flags rebuild everything.
//! `USERBTRFS_TORTURE=1` makes the stress tests of the ordinary build run their full counts.

mod class;
mod condvar;
mod free_list;
mod mutex;
mod nesting;
mod oneshot;
pub mod order;
mod primitives;
mod rwlock;
mod tree_lock;

pub use class::Class;
pub use condvar::Condvar;
pub use free_list::FreeList;
pub use mutex::{Mutex, MutexGuard};
pub use nesting::{BlockLabel, Nesting};
pub use oneshot::{OneshotReceiver, OneshotSender};
pub use order::WAIT_LIMIT;
pub use primitives::{Arc, atomic, thread};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
/// A cell that is set once: std's in every build, since models do not explore its initialisation.
pub use std::sync::OnceLock;
pub use tree_lock::{OwnedReadGuard, OwnedWriteGuard, ReadGuard, TreeLock, WriteGuard};
