//! Writing the planned filesystem.
//!
//! 1. Old superblocks are durably cleared before anything new is written.
//! 2. A superblock is written after all the blocks it refers to are durable; the primary
//!    superblock is written last.

use userbtrfs_device::{Buffer, Device, DeviceError};
use userbtrfs_format::{Physical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use userbtrfs_sync::Arc;

use crate::draft::Draft;
use crate::layout::RESERVED;
use crate::{MkfsError, probe};

pub(crate) fn write(device: &dyn Device, draft: &Draft<'_>) -> Result<Superblock, MkfsError> {
    wipe(device)?;
    for block in draft.blocks() {
        for copy in draft.copies(block.header().logical) {
            device.write(copy.0, Arc::clone(block.as_bytes().buffer()), false)?;
        }
    }
    device.flush()?;
    let superblock = draft.superblock();
    let [primary, mirrors @ ..] = SUPERBLOCK_OFFSETS;
    // Linux uses a mirror only if the device extends beyond it.
    let end = |at: Physical| at.0 + SUPERBLOCK_SIZE as u64;
    for at in mirrors.into_iter().filter(|&at| end(at) < draft.device_bytes) {
        device.write(at.0, sealed(&superblock, at), false)?;
    }
    device.flush()?;
    device.write(primary.0, sealed(&superblock, primary), true)?;
    let written = superblock.encode(primary);
    Ok(Superblock::parse(&written, primary).expect("what is written passes every check"))
}

/// Discards the whole device, if it supports that.
pub(crate) fn discard(device: &dyn Device) -> Result<(), MkfsError> {
    match device.discard(0, device.len()) {
        Err(DeviceError::Unsupported { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn sealed(superblock: &Superblock, at: Physical) -> Arc<Buffer> {
    Arc::new(Buffer::from(&superblock.encode(at)[..]))
}

/// Clears all traces of previous content: its signatures, the start of the device, and every copy
/// of a superblock.
fn wipe(device: &dyn Device) -> Result<(), MkfsError> {
    probe::clear(device)?;
    let start = usize::try_from(RESERVED).expect("1 MiB fits in memory");
    device.write(0, Arc::new(Buffer::zeroed(start)), false)?;
    for at in &SUPERBLOCK_OFFSETS[1..] {
        if at.0 + SUPERBLOCK_SIZE as u64 <= device.len() {
            device.write(at.0, Arc::new(Buffer::zeroed(SUPERBLOCK_SIZE)), false)?;
        }
    }
    Ok(device.flush()?)
}
