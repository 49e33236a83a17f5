//! A filesystem of FUSE that does next to nothing: what the same transport and the same caches
//! cost by themselves. It is the one that the transport is tested with; its files are in memory.

#![expect(
    clippy::unwrap_used,
    dead_code,
    reason = "these are files of tests, which use more of them"
)]

#[path = "../../fuse/tests/integration/memory.rs"]
mod memory;
#[path = "../../fuse/tests/integration/sparse.rs"]
mod sparse;
#[path = "../../fuse/tests/integration/tree.rs"]
mod tree;

use anyhow::Result;
use userbtrfs_fuse::{Config, InitFlags, Mount, Session};
use userbtrfs_sync::Arc;

use memory::{Memory, Ways};

/// Serves it at a directory that was mounted.
pub(crate) fn serve(mount: Mount) -> Result<Session> {
    let flags = InitFlags::LOCAL_DISK.difference(InitFlags::EXPORT_SUPPORT);
    let config = Config { flags, ..Config::default() };
    Ok(Session::start(mount, Arc::new(Memory::new(Ways::default())), &config)?)
}
