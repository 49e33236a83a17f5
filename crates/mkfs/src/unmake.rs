//! Removal of a filesystem that was just created.

use userbtrfs_device::{Buffer, Device};
use userbtrfs_format::{Physical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use userbtrfs_sync::Arc;
use uuid::Uuid;

use crate::MkfsError;

/// Durably clears every copy of the superblock of the filesystem with this fsid, and returns true.
/// Returns false, and changes nothing, if the primary superblock is not that of this filesystem.
///
/// The primary copy is cleared last, so that an interrupted call can be repeated.
pub fn unmake(device: &dyn Device, fsid: Uuid) -> Result<bool, MkfsError> {
    let [primary, mirrors @ ..] = SUPERBLOCK_OFFSETS;
    if !holds(device, primary, fsid)? {
        return Ok(false);
    }
    for mirror in mirrors {
        if holds(device, mirror, fsid)? {
            clear(device, mirror)?;
        }
    }
    device.flush()?;
    clear(device, primary)?;
    device.flush()?;
    Ok(true)
}

/// Returns true if the superblock copy at `at` is valid and belongs to the filesystem `fsid`.
fn holds(device: &dyn Device, at: Physical, fsid: Uuid) -> Result<bool, MkfsError> {
    if at.0 + SUPERBLOCK_SIZE as u64 > device.len() {
        return Ok(false);
    }
    let bytes = device.read(at.0, SUPERBLOCK_SIZE)?;
    Ok(Superblock::parse(&bytes, at).is_ok_and(|found| found.fsid == fsid))
}

fn clear(device: &dyn Device, at: Physical) -> Result<(), MkfsError> {
    Ok(device.write(at.0, Arc::new(Buffer::zeroed(SUPERBLOCK_SIZE)), false)?)
}
