//! What stands on a device already: a look at the places where its first bytes say so.

use userbtrfs_device::Device;
use userbtrfs_format::SUPERBLOCK_OFFSETS;

use crate::MkfsError;

/// Where in a superblock its magic stands.
const MAGIC_AT: u64 = 0x40;

/// Bytes at an offset, and what they are the sign of.
const SIGNS: &[(u64, &[u8], &str)] = &[
    (0, b"XFSB", "an XFS filesystem"),
    (0, b"LUKS\xba\xbe", "an encrypted volume"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (510, b"\x55\xaa", "a partition table or a FAT filesystem"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS filesystem"),
    (1024 + 56, b"\x53\xef", "an ext2, ext3 or ext4 filesystem"),
    (4086, b"SWAPSPACE2", "swap space"),
];

/// Fails where a sign of content is found.
pub(crate) fn refuse_content(device: &dyn Device) -> Result<(), MkfsError> {
    let copies = SUPERBLOCK_OFFSETS
        .map(|at| (at.0 + MAGIC_AT, &b"_BHRfS_M"[..], "a btrfs filesystem, or a part of one,"));
    for (offset, sign, found) in copies.into_iter().chain(SIGNS.iter().copied()) {
        if offset + sign.len() as u64 > device.len() {
            continue;
        }
        if device.read(offset, sign.len())?[..] == *sign {
            return Err(MkfsError::NotEmpty { found });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use userbtrfs_device::MemoryDevice;

    use super::*;

    #[test]
    fn zeros_and_small_devices_hold_nothing() {
        for len in [0, 1, 511, 2 << 20] {
            assert!(refuse_content(&MemoryDevice::new(len)).is_ok(), "{len}");
        }
    }

    #[test]
    fn each_sign_is_found() {
        let btrfs = (SUPERBLOCK_OFFSETS[1].0 + MAGIC_AT, &b"_BHRfS_M"[..], "a btrfs");
        for &(offset, sign, name) in SIGNS.iter().chain([&btrfs]) {
            let mut bytes = vec![0; 65 << 20];
            let at = usize::try_from(offset).unwrap();
            bytes[at..at + sign.len()].copy_from_slice(sign);
            let refused = refuse_content(&MemoryDevice::from_bytes(bytes)).unwrap_err();
            assert!(refused.to_string().contains(name), "{refused}");
        }
    }
}
