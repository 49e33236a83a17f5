//! Commits: `BTRFS_IOC_START_SYNC` and `_WAIT_SYNC`; and the wait for the space of deleted
//! subvolumes, `BTRFS_IOC_SUBVOL_SYNC_WAIT`.
//!
//! 1. START_SYNC returns when the commit is done, and Linux's when it has begun: a caller may not
//!    rely on that, and has to call WAIT_SYNC.
//! 2. A wait ends early if the caller is interrupted.

use userbtrfs_engine::api::{Filesystem, TreeId};
use userbtrfs_fuse::Errno;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};

use super::record::Reader;
use crate::errno;

/// The modes of a wait: for one subvolume, and for all that are deleted now.
const FOR_ONE: u32 = 0;
const FOR_QUEUED: u32 = 1;
/// The last mode. Those after `FOR_QUEUED` return data, in an argument that FUSE only passes in.
const LAST_MODE: u32 = 4;

/// The first id of a subvolume other than the top level.
const FIRST_ID: u64 = 256;

/// Commits, and returns the number of the transaction.
pub(super) fn start_sync(filesystem: &Filesystem) -> Result<Vec<u8>, Errno> {
    filesystem.commit().map_err(errno)?;
    Ok(filesystem.superblock().generation.to_le_bytes().to_vec())
}

/// Waits until a transaction is committed; 0 is the current one.
pub(super) fn wait_sync(filesystem: &Filesystem, input: &[u8]) -> Result<Vec<u8>, Errno> {
    let transaction = Reader(input).u64()?;
    if transaction > filesystem.superblock().generation {
        filesystem.commit().map_err(errno)?;
    }
    let is_committed = transaction <= filesystem.superblock().generation;
    if is_committed { Ok(Vec::new()) } else { Err(Errno::INVAL) }
}

/// Waits until the space of deleted subvolumes is freed.
pub(super) fn wait_for_deleted(
    filesystem: &Filesystem,
    input: &[u8],
    is_interrupted: &AtomicBool,
) -> Result<Vec<u8>, Errno> {
    let mut reader = Reader(input);
    let id = reader.u64()?;
    let mode = reader.u32()?;
    let mut ids: Vec<_> = filesystem.deleted_subvolumes().map_err(errno)?;
    match mode {
        FOR_ONE if id < FIRST_ID => return Err(Errno::INVAL),
        FOR_ONE if filesystem.subvolume(TreeId(id)).is_ok() => return Err(Errno::EXIST),
        FOR_ONE => ids.retain(|subvolume| subvolume.id.0 == id),
        FOR_QUEUED => {}
        _ if mode <= LAST_MODE => return Err(Errno::OPNOTSUPP),
        _ => return Err(Errno::INVAL),
    }
    if ids.is_empty() {
        return Err(Errno::NOENT);
    }
    let ids: Vec<_> = ids.iter().map(|subvolume| subvolume.id).collect();
    let may_wait = || !is_interrupted.load(Ordering::Relaxed);
    let are_gone = filesystem.wait_for_deleted(&ids, may_wait).map_err(errno)?;
    if are_gone { Ok(Vec::new()) } else { Err(Errno::INTR) }
}
