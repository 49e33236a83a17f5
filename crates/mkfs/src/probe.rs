//! Detection of existing content of a device by the signatures of filesystems, volumes and
//! partition tables, at the offsets that libblkid uses.

use std::ops::RangeInclusive;

use userbtrfs_device::{Buffer, Device};
use userbtrfs_format::SUPERBLOCK_OFFSETS;
use userbtrfs_sync::Arc;

use crate::MkfsError;

const KIB: u64 = 1 << 10;

/// Number of bytes at the start of a device that contain most signatures.
const START: u64 = (1 << 20) + 64;

/// The offset of the magic in a superblock.
const MAGIC_AT: u64 = 0x40;

/// The magic of a Linux software RAID superblock.
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";

/// The description of a btrfs filesystem.
pub const BTRFS: &str = "a btrfs filesystem";

const RAID: &str = "a part of a RAID";
const TABLE: &str = "a partition table";
const LVM: &str = "a physical volume of LVM";
const SWAP: &str = "swap space";
const REISERFS: &str = "a ReiserFS filesystem";
const MINIX: &str = "a Minix filesystem";
const UFS: &str = "a UFS filesystem";
const OCFS2: &str = "an OCFS2 filesystem";
const HFS: &str = "an HFS or HFS+ filesystem";
const OPTICAL: &str = "a filesystem of an optical disc";

/// Signatures: offset, bytes, and a description of the content.
const SIGNS: &[(u64, &[u8], &str)] = &[
    (0, b"XFSB", "an XFS filesystem"),
    (0, b"LUKS\xba\xbe", "an encrypted volume"),
    (0, b"hsqs", "a SquashFS filesystem"),
    (0, b"\x45\x3d\xcd\x28", "a cramfs filesystem"),
    (0, b"-rom1fs-", "a romfs filesystem"),
    (0, b"\xce\xfa\xad\x1b", "a BFS filesystem"),
    (0, b"bluestore block device", "a device of Ceph"),
    (0, b"dmvdo001", "a VDO volume"),
    (0, b"verity\0\0", "a tree of dm-verity"),
    (0, b"integrt\0", "a volume of dm-integrity"),
    (0, MD, RAID),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (3, b"EXFAT   ", "an exFAT filesystem"),
    (3, b"-FVE-FS-", "an encrypted volume"),
    (32, b"NXSB", "an APFS container"),
    (510, b"\x55\xaa", "a partition table or a FAT filesystem"),
    (512, b"EFI PART", TABLE),
    (4 * KIB, b"EFI PART", TABLE),
    (512, b"PM\0\0", TABLE),
    (64, b"\x57\x45\x56\x82", TABLE),
    (512, b"\x57\x45\x56\x82", TABLE),
    (0, b"LABELONE", LVM),
    (512, b"LABELONE", LVM),
    (KIB, b"LABELONE", LVM),
    (KIB + 512, b"LABELONE", LVM),
    (516, b"!Stra0tis\x86\xff\x02^\x41rh", "a device of Stratis"),
    (KIB, b"\x10\x20\xf5\xf2", "an F2FS filesystem"),
    (KIB, b"\xe2\xe1\xf5\xe0", "an EROFS filesystem"),
    (KIB, b"H+", HFS),
    (KIB, b"HX", HFS),
    (KIB, b"BD", HFS),
    (KIB, b"OCFSV2", OCFS2),
    (2 * KIB, b"OCFSV2", OCFS2),
    (4 * KIB, b"OCFSV2", OCFS2),
    (8 * KIB, b"OCFSV2", OCFS2),
    (KIB + 6, b"\x34\x34", "a NILFS2 filesystem"),
    (KIB + 16, b"\x7f\x13", MINIX),
    (KIB + 16, b"\x8f\x13", MINIX),
    (KIB + 16, b"\x68\x24", MINIX),
    (KIB + 16, b"\x78\x24", MINIX),
    (KIB + 24, b"\x5a\x4d", MINIX),
    (KIB + 56, b"\x53\xef", "an ext2, ext3 or ext4 filesystem"),
    (4 * KIB, MD, RAID),
    (4 * KIB + 24, b"\xc6\x85\x73\xf6", "a device of bcache or bcachefs"),
    (4 * KIB - 10, b"SWAPSPACE2", SWAP),
    (4 * KIB - 10, b"SWAP-SPACE", SWAP),
    (8 * KIB - 10, b"SWAPSPACE2", SWAP),
    (16 * KIB - 10, b"SWAPSPACE2", SWAP),
    (32 * KIB - 10, b"SWAPSPACE2", SWAP),
    (64 * KIB - 10, b"SWAPSPACE2", SWAP),
    (8 * KIB + 52, b"ReIsEr", REISERFS),
    (64 * KIB + 52, b"ReIsEr", REISERFS),
    (8 * KIB + 1372, b"\x19\x01\x54\x19", UFS),
    (64 * KIB + 1372, b"\x19\x01\x54\x19", UFS),
    (32 * KIB, b"JFS1", "a JFS filesystem"),
    (32 * KIB + 1, b"CD001", OPTICAL),
    (32 * KIB + 1, b"BEA01", OPTICAL),
    (64 * KIB, b"\x01\x16\x19\x70", "a GFS2 filesystem"),
    (1024 * KIB, b"\x0d\xd0\x01\xc0", "a VMFS volume"),
];

/// The magic of a ZFS uberblock. The uberblocks are in the second half of each of four labels, two
/// at either end of the device; the number of them in use depends on the age of the pool.
const ZFS: &[u8] = b"\x0c\xb1\xba\0\0\0\0\0";
const ZFS_LABEL: u64 = 256 * KIB;

/// The second header of a LUKS2 volume is at one of several powers of two.
const LUKS2: &[u8] = b"SKUL\xba\xbe";
const LUKS2_SHIFTS: RangeInclusive<u32> = 14..=22;

type Sign = (u64, &'static [u8], &'static str);

/// All signatures that fit on a device of `len` bytes.
fn signs(len: u64) -> impl Iterator<Item = Sign> {
    let copies = SUPERBLOCK_OFFSETS.map(|at| (at.0 + MAGIC_AT, &b"_BHRfS_M"[..], BTRFS));
    let end = len & !(ZFS_LABEL - 1);
    let last = [2, 1].map(|labels| end.checked_sub(labels * ZFS_LABEL));
    let labels = [Some(0), Some(ZFS_LABEL)].into_iter().chain(last).flatten();
    let pools = labels.flat_map(|label| (label + ZFS_LABEL / 2..label + ZFS_LABEL).step_by(1024));
    let pools = pools.map(|at| (at, ZFS, "a ZFS pool"));
    let volumes = LUKS2_SHIFTS.map(|shift| (1 << shift, LUKS2, "an encrypted volume"));
    // The last two: 8 KiB before the end, aligned to 4 KiB; 64 KiB before the end, with the end
    // aligned to 64 KiB.
    let ends: [(Option<u64>, &'static [u8], &'static str); 5] = [
        (len.checked_sub(512), b"EFI PART", TABLE),
        (len.checked_sub(512), b"\xde\x11\xde\x11", RAID),
        (len.checked_sub(KIB), b"Intel Raid ISM Cfg Sig. ", RAID),
        (len.checked_sub(8 * KIB).map(|at| at & !(4 * KIB - 1)), MD, RAID),
        ((len & !(64 * KIB - 1)).checked_sub(64 * KIB), MD, RAID),
    ];
    let ends = ends.into_iter().filter_map(|(at, sign, name)| Some((at?, sign, name)));
    let all = copies.into_iter().chain(SIGNS.iter().copied()).chain(pools);
    let all = all.chain(volumes).chain(ends);
    all.filter(move |(at, sign, _)| at + sign.len() as u64 <= len)
}

/// Returns the signatures found on a device.
fn found(device: &dyn Device) -> Result<Vec<Sign>, MkfsError> {
    let len = usize::try_from(device.len().min(START)).expect("the start fits in memory");
    let start = device.read(0, len)?;
    let mut found = Vec::new();
    for (at, sign, name) in signs(device.len()) {
        let here = usize::try_from(at).ok().and_then(|at| start.get(at..at + sign.len()));
        let is_there = match here {
            Some(bytes) => bytes == sign,
            None => device.read(at, sign.len())?[..] == *sign,
        };
        if is_there {
            found.push((at, sign, name));
        }
    }
    Ok(found)
}

/// Returns the description of the first signature of existing content.
pub(crate) fn content(device: &dyn Device) -> Result<Option<&'static str>, MkfsError> {
    Ok(found(device)?.first().map(|(_, _, found)| *found))
}

/// Fails if a signature of existing content is found.
pub(crate) fn refuse_content(device: &dyn Device) -> Result<(), MkfsError> {
    match content(device)? {
        Some(found) => Err(MkfsError::NotEmpty { found }),
        None => Ok(()),
    }
}

/// Clears all signatures that are found.
pub(crate) fn clear(device: &dyn Device) -> Result<(), MkfsError> {
    for (at, sign, _) in found(device)? {
        device.write(at, Arc::new(Buffer::zeroed(sign.len())), false)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use userbtrfs_device::MemoryDevice;

    use super::*;

    const LEN: usize = (65 << 20) + 5000;

    #[test]
    fn zeros_and_small_devices_hold_nothing() {
        for len in [0, 1, 511, 512, 5000, 2 << 20] {
            assert!(refuse_content(&MemoryDevice::new(len)).is_ok(), "{len}");
        }
    }

    #[test]
    fn each_sign_is_found_and_cleared() {
        // A few of the many uberblock offsets are enough.
        let is_one = |(at, sign, _): &Sign| *sign != ZFS || at % (64 * KIB) == 0;
        for (at, sign, name) in signs(LEN as u64).filter(is_one) {
            let mut bytes = vec![0; LEN];
            let at = usize::try_from(at).unwrap();
            bytes[at..at + sign.len()].copy_from_slice(sign);
            let device = MemoryDevice::from_bytes(bytes);
            let refused = refuse_content(&device).unwrap_err();
            assert!(refused.to_string().contains(name), "{refused}");
            clear(&device).unwrap();
            refuse_content(&device).unwrap();
        }
    }
}
