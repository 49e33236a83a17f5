//! Images that userbtrfs refuses with an error that names the reason; they have no manifest.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::everyday::everyday;
use crate::golden::recipe::{Recipe, Session, Shows};

/// The offset and the size of the primary superblock, in bytes.
const SUPER: u64 = 64 << 10;
const SUPER_SIZE: usize = 4096;
/// The offset of `incompat_flags` in the superblock.
const INCOMPAT: usize = 188;
/// The size of the checksum field at the start of the superblock, which it does not cover.
const CHECKSUM: usize = 32;
/// `BTRFS_FEATURE_INCOMPAT_RAID_STRIPE_TREE`.
const RAID_STRIPE_TREE: u64 = 1 << 14;

/// The base of these recipes, without a manifest.
const REFUSED: Recipe =
    Recipe { sessions: &[Session::clean("", everyday)], shows: Shows::Nothing, ..Recipe::USUAL };

/// One image for each reason.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "raid1",
        covers: "the first of two devices, RAID1",
        devices: 2,
        mkfs: &["-d", "raid1", "-m", "raid1"],
        ..REFUSED
    },
    Recipe {
        name: "sectorsize-16k",
        covers: "sectors of 16 KiB",
        mkfs: &["-s", "16384"],
        sessions: &[],
        ..REFUSED
    },
    Recipe {
        name: "raid-stripe-tree",
        covers: "the feature bit of the RAID stripe tree, forged on an image without one",
        after: |image| set_incompat(image, RAID_STRIPE_TREE),
        ..REFUSED
    },
];

/// Sets feature bits in the primary superblock and updates its checksum.
fn set_incompat(image: &Path, bits: u64) -> anyhow::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    let mut block = [0; SUPER_SIZE];
    file.read_exact_at(&mut block, SUPER)?;
    let field = &mut block[INCOMPAT..INCOMPAT + 8];
    let flags = u64::from_le_bytes((&*field).try_into()?) | bits;
    field.copy_from_slice(&flags.to_le_bytes());
    let covered = &block[CHECKSUM..];
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, covered);
    block[..4].copy_from_slice(&u32::try_from(checksum)?.to_le_bytes());
    Ok(file.write_all_at(&block, SUPER)?)
}
