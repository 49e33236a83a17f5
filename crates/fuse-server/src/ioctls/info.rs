//! Describes a filesystem, its device and its subvolumes.
//!
//! `struct btrfs_ioctl_fs_info_args`, `btrfs_ioctl_dev_info_args` and
//! `btrfs_ioctl_get_subvol_info_args` of `linux/btrfs.h`. Every caller may use them.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use userbtrfs_engine::api::{Filesystem, Inode, Timestamp};
use userbtrfs_fuse::Errno;

use super::record::{Reader, Writer};
use crate::errno;

/// The sizes of the structures.
const FS_INFO_BYTES: usize = 1024;
const SUBVOL_INFO_BYTES: usize = 504;
/// The offset of the path of a device, and its size with the terminating NUL.
const PATH_AT: usize = 3072;
const PATH_BYTES: usize = 1024;
/// The size of the name of a subvolume, with the terminating NUL.
const NAME_BYTES: usize = 256;

/// The fields that are filled besides the old ones: `BTRFS_FS_INFO_FLAG_CSUM_INFO`, `_GENERATION`
/// and `_METADATA_UUID`.
const FS_INFO_FLAGS: u64 = 0b111;

/// Returns all fields. The request does not contain the caller's selection, since the command
/// is encoded as one that only returns data.
pub(super) fn fs_info(filesystem: &Filesystem) -> Result<Vec<u8>, Errno> {
    let superblock = filesystem.superblock();
    let checksum = superblock.checksum_kind;
    let checksum_bytes = u16::try_from(checksum.size()).map_err(|_| Errno::OVERFLOW)?;
    let metadata_uuid =
        if superblock.metadata_uuid.is_nil() { superblock.fsid } else { superblock.metadata_uuid };
    let mut writer = Writer::default();
    writer.u64(superblock.device.id).u64(superblock.num_devices);
    writer.bytes(superblock.fsid.as_bytes());
    writer.u32(superblock.nodesize).u32(superblock.sectorsize).u32(superblock.sectorsize);
    writer.u16(checksum.to_disk()).u16(checksum_bytes);
    writer.u64(FS_INFO_FLAGS).u64(superblock.generation).bytes(metadata_uuid.as_bytes());
    Ok(writer.pad_to(FS_INFO_BYTES).finish())
}

/// Describes the device with this id, or with this id and UUID.
pub(super) fn dev_info(
    filesystem: &Filesystem,
    path: &Path,
    input: &[u8],
) -> Result<Vec<u8>, Errno> {
    let superblock = filesystem.superblock();
    let device = &superblock.device;
    let mut reader = Reader(input);
    let id = reader.u64()?;
    let uuid = reader.array::<16>()?;
    if id != device.id || (uuid != [0; 16] && uuid != *device.uuid.as_bytes()) {
        return Err(Errno::NODEV);
    }
    let used = filesystem.usage().map_err(errno)?.device_allocated;
    let mut writer = Writer::default();
    writer.u64(device.id).bytes(device.uuid.as_bytes()).u64(used).u64(device.total_bytes);
    writer.bytes(superblock.fsid.as_bytes()).pad_to(PATH_AT);
    Ok(writer.text(path.as_os_str().as_bytes(), PATH_BYTES).finish())
}

/// Describes the subvolume that an inode is in.
pub(super) fn get_subvol_info(filesystem: &Filesystem, inode: &Inode) -> Result<Vec<u8>, Errno> {
    let info = filesystem.subvolume(inode.id().subvolume).map_err(errno)?;
    let mut writer = Writer::default();
    writer.u64(info.id.0).text(&info.name, NAME_BYTES);
    writer.u64(info.parent.map_or(0, |parent| parent.0)).u64(info.dir.unwrap_or(0));
    writer.u64(info.root.generation).u64(info.root.flags.bits());
    // Fields that an old filesystem does not have are zero.
    if let Some(more) = &info.root.extended {
        for uuid in [&more.uuid, &more.parent_uuid, &more.received_uuid] {
            writer.bytes(uuid.as_bytes());
        }
        writer.u64(more.ctransid).u64(more.otransid).u64(more.stransid).u64(more.rtransid);
        let times: [&Timestamp; 4] = [&more.ctime, &more.otime, &more.stime, &more.rtime];
        for time in times {
            writer.time(time);
        }
    }
    Ok(writer.pad_to(SUBVOL_INFO_BYTES).finish())
}
