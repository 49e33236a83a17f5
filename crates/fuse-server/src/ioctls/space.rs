//! The use of space by type and profile: `BTRFS_IOC_SPACE_INFO`.
//!
//! 1. `struct btrfs_ioctl_space_args` of `linux/btrfs.h` is followed by as many `struct
//!    btrfs_ioctl_space_info` as it has slots, but FUSE passes only the bytes that the number of an
//!    ioctl encodes. The number of Linux's ioctl thus returns the count of entries to callers
//!    without slots. A number that encodes a larger size, else the same, returns the entries.

use userbtrfs_engine::api::{Filesystem, SpaceUse};
use userbtrfs_fuse::Errno;

use super::record::{Reader, Writer};
use crate::errno;

/// The number of the ioctl without the bits of the size of its argument, and these bits.
const SPACE_INFO: u32 = 0xc000_9414;
const SIZE_BITS: u32 = 0x3fff_0000;

/// The sizes of the head and of an entry.
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 24;

/// `BTRFS_SPACE_INFO_GLOBAL_RSV`.
const GLOBAL_RESERVE: u64 = 1 << 49;

/// Returns true if a command is SPACE_INFO, with an argument of any size.
pub(super) fn is_space_info(command: u32) -> bool {
    command & !SIZE_BITS == SPACE_INFO
}

/// Returns the number of entries, or the entries: flags, total and used bytes.
pub(super) fn space_info(filesystem: &Filesystem, input: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut reader = Reader(input);
    let slots = reader.u64()?;
    let _total = reader.u64()?;
    let usage = filesystem.usage().map_err(errno)?;
    let flags = |row: &SpaceUse| (row.flags | row.profile.flag()).bits();
    let rows = usage.kinds.iter().map(|row| [flags(row), row.total, row.used]);
    let rows = rows.chain([[GLOBAL_RESERVE, usage.global_reserve, 0]]);
    let capacity = input.len().saturating_sub(HEAD_BYTES) / ENTRY_BYTES;
    let wanted = usize::try_from(slots).unwrap_or(usize::MAX);
    if wanted > capacity {
        return Err(Errno::OPNOTSUPP);
    }
    let mut writer = Writer::default();
    let count = rows.clone().count();
    // Without slots it is the number of entries, else of those that are returned.
    let total = if wanted == 0 { count } else { count.min(wanted) };
    writer.u64(slots).u64(u64::try_from(total).map_err(|_| Errno::OVERFLOW)?);
    for word in rows.take(wanted).flatten() {
        writer.u64(word);
    }
    Ok(writer.pad_to(input.len()).finish())
}
