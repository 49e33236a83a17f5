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
//! 1. Messages of the kernel are validated once, by [`parse`]; the other modules see no raw
//!    numbers.
//! 2. A request is handled on the thread that received it. Any thread can answer it, also later.
//! 3. Every request that expects an answer is answered once, even if a server panics.
//! 4. A session ends by itself when its filesystem is unmounted.
//!
//! This crate keeps no table of nodes or handles, checks no permissions, and knows no filesystem.

mod answer;
mod channel;
mod clone;
mod counts;
mod dispatch;
mod error;
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
pub use error::{SessionError, StartError};
pub use flags::{InitFlags, OpenedFlags};
pub use listing::{DirectoryEntry, Entries, EntryList, NameList, Names};
pub use mount::{Mount, MountError, MountFlags, MountMethod, MountOptions};
pub use negotiate::{Config, HandshakeError, Negotiated};
pub use notify::{Invalidation, Notifier};
pub use opcode::Opcode;
pub use operation::*;
pub use parse::{Fault, Malformed, parse};
pub use reply::{Bytes, IoctlData, Reply, Value};
/// System types that requests and answers use.
pub use rustix::fs::{Access, FallocateFlags, FileType, OFlags, RenameFlags, XattrFlags};
/// The error of a request.
pub use rustix::io::Errno;
pub use server::Server;
pub use session::Session;
pub use values::{
    Caller, DeviceNumber, FOREVER, Handle, LockOwner, Name, NodeId, STATX_DONT_SYNC, Timestamp,
};
pub use worker_pool::{may_sleep, may_wait};
