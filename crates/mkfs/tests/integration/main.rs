//! Tests of new filesystems with this crate, btrfs-progs and Linux, and of refused options.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod image;
mod linux;
mod refused;
mod unmade;
mod written;

use std::fs::File;
use std::path::PathBuf;

use tempfile::TempDir;
use userbtrfs_device::{FileDevice, FileOptions};
use userbtrfs_format::Superblock;
use userbtrfs_mkfs::{ChecksumKind, MkfsError, Options, Profile, make};

const MIB: u64 = 1 << 20;

/// An image file, which is removed when dropped.
struct Image {
    folder: TempDir,
}

impl Image {
    /// Creates a sparse file of zeros.
    fn empty(len: u64) -> Self {
        let image = Self { folder: tempfile::tempdir().unwrap() };
        File::create(image.path()).unwrap().set_len(len).unwrap();
        image
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn device(&self) -> FileDevice {
        let options = FileOptions { writable: true, ..FileOptions::default() };
        FileDevice::open(self.path(), options).unwrap()
    }

    fn make(&self, options: &Options) -> Result<Superblock, MkfsError> {
        make(&self.device(), options)
    }
}

/// Options with a name, and a suitable device size.
struct Case {
    name: &'static str,
    options: Options,
    len: u64,
}

fn case(name: &'static str, len: u64, options: Options) -> Case {
    Case { name, options, len }
}

/// Test cases that cover every option and every relevant size.
fn cases() -> Vec<Case> {
    let plain = Options::default;
    let nodes = |nodesize| Options { nodesize, ..plain() };
    let sums = |checksum| Options { checksum, ..plain() };
    let single = Options { metadata: Profile::Single, ..plain() };
    let both_dup = Options { data: Profile::Dup, ..plain() };
    let mixed_dup = Options { metadata: Profile::Dup, data: Profile::Dup, ..Options::mixed() };
    let group_tree = Options { block_group_tree: true, ..plain() };
    let no_free_space = Options { free_space_tree: false, ..plain() };
    let labelled = Options { label: vec![b'x'; 255], ..nodes(4096) };
    vec![
        case("default", 256 * MIB, plain()),
        case("least", 57 * MIB, plain()),
        case("nearly two mirrors", 64 * MIB + 4096, plain()),
        case("two mirrors, odd length", 64 * MIB + 8192 + 511, plain()),
        case("large", 300 << 30, plain()),
        case("4k nodes", 256 * MIB, labelled),
        case("32k nodes", 256 * MIB, nodes(32 << 10)),
        case("64k nodes", 256 * MIB, nodes(64 << 10)),
        case("xxhash", 256 * MIB, sums(ChecksumKind::Xxhash64)),
        case("sha256", 256 * MIB, sums(ChecksumKind::Sha256)),
        case("blake2", 256 * MIB, sums(ChecksumKind::Blake2b)),
        case("single", 256 * MIB, single.clone()),
        case("single, least", 29 * MIB, single),
        case("dup data", 256 * MIB, both_dup),
        case("mixed", 64 * MIB, Options::mixed()),
        case("mixed, least", 13 * MIB, Options::mixed()),
        case("mixed dup", 256 * MIB, mixed_dup),
        case("block group tree", 256 * MIB, group_tree),
        case("no free space tree", 256 * MIB, no_free_space),
    ]
}
