//! Taking a filesystem back that was just made.

use userbtrfs_device::{Buffer, Device};
use userbtrfs_format::{Physical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use userbtrfs_sync::Arc;
use uuid::Uuid;

use crate::MkfsError;

/// Clears every copy of the superblock of the filesystem with this fsid, durably, and tells
/// whether it was there: where something else is on the device by now, that stays as it is.
///
/// The primary copy goes last. Who is stopped before that may try again.
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

/// Whether there is a superblock of the filesystem at a place.
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
