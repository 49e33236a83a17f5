//! The FUSE wire: mounting, requests and replies, threads.
//!
//! A filesystem implements [`Server`], is mounted by [`Mount`], and served by a [`Session`]:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use userbtrfs_fuse::{Config, Mount, MountOptions, Server, Session};
//! use userbtrfs_sync::Arc;
//!
//! struct Empty;
//! impl Server for Empty {}
//!
//! let mount = Mount::new(Path::new("/mnt"), &MountOptions::default())?;
//! let session = Session::start(mount, Arc::new(Empty), &Config::default())?;
//! session.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! 1. What the kernel sends is judged once, by [`parse`]; behind it there are no raw numbers.
//! 2. A request is done on the thread that received it. It can be answered from any other, later.
//! 3. Every request that can be answered is answered once, also where a server panics.
//! 4. A session ends when its filesystem is unmounted; it need not be asked to.
//!
//! What this crate does not do: it keeps no table of nodes or handles, checks no permissions, and
//! knows no filesystem.

mod answer;
mod channel;
mod clone;
mod counts;
mod dispatch;
mod flags;
mod interrupts;
mod listing;
mod load_estimate;
mod mount;
mod negotiate;
mod notify;
mod opcode;
mod operation;
mod parse;
mod readahead;
mod reply;
mod server;
mod session;
mod values;
mod wire;
mod worker_pool;

pub use answer::{
    Answer, Attributes, Block, Copied, Created, Entry, Events, ExtendedStat, Opened, Position,
    Stat, Statistics, Written,
};
pub use flags::{InitFlags, OpenedFlags};
pub use listing::{DirectoryEntry, Entries, EntryList, NameList, Names};
pub use mount::{Mount, MountError, MountFlags, MountMethod, MountOptions};
pub use negotiate::{Config, HandshakeError, Negotiated};
pub use notify::{Invalidation, Notifier};
pub use opcode::Opcode;
pub use operation::*;
pub use parse::{Fault, Malformed, parse};
pub use reply::{Bytes, IoctlData, Reply, Value};
/// Flags and kinds of the system that requests and answers speak of.
pub use rustix::fs::{Access, FallocateFlags, FileType, OFlags, RenameFlags, XattrFlags};
/// What requests fail with.
pub use rustix::io::Errno;
pub use server::Server;
pub use session::{Session, SessionError, StartError};
pub use values::{Caller, DeviceNumber, FOREVER, Handle, LockOwner, Name, NodeId, Timestamp};
pub use worker_pool::{may_sleep, may_wait};
