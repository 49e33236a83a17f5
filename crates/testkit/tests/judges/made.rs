//! The filesystems that the writing judges work on: every kind that mkfs makes.

use std::path::Path;
use std::process::Command;

use userbtrfs::mkfs::{ChecksumKind, Options, Profile, make};
use userbtrfs::{BlockGroupFlags, Error, Filesystem, OpenOptions, SpaceUse, XattrMode};
use userbtrfs_testkit::devices::{SparseDevice, SparseImage};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::random::Random;

use super::ours::use_by_linux;
use super::{is_torture, seed};

pub(crate) const MIB: u64 = 1 << 20;

/// A kind of filesystem.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) name: &'static str,
    pub(crate) options: Options,
    pub(crate) len: u64,
    /// What `mkfs.btrfs` is told, where ours cannot make it.
    progs: &'static [&'static str],
}

impl Made {
    pub(crate) fn new(name: &'static str, len: u64, options: Options) -> Self {
        Self { name, options, len, progs: &[] }
    }

    /// What `mkfs.btrfs` makes with these options, which `options` must fit.
    pub(crate) fn by_progs(
        name: &'static str,
        len: u64,
        options: Options,
        progs: &'static [&'static str],
    ) -> Self {
        Self { name, options, len, progs }
    }

    /// Whether each hole of a file has an item.
    pub(crate) fn has_hole_items(&self) -> bool {
        self.progs.contains(&"^no-holes")
    }

    /// The same of another length.
    pub(crate) fn of_length(&self, len: u64) -> Self {
        Self { len, ..self.clone() }
    }

    /// An empty one, in memory.
    pub(crate) fn image(&self) -> SparseImage {
        if !self.progs.is_empty() {
            return self.image_by_progs();
        }
        let device = SparseDevice::new(self.len);
        make(&device, &self.options).unwrap();
        device.image()
    }

    fn image_by_progs(&self) -> SparseImage {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(self.len).unwrap();
        let mut mkfs = Command::new("mkfs.btrfs");
        mkfs.args(["-q", "-n", &self.options.nodesize.to_string()]).args(self.progs);
        run(mkfs.arg(file.path())).unwrap();
        SparseImage::from_file(file.path()).unwrap()
    }
}

/// All kinds.
pub(crate) fn kinds() -> Vec<Made> {
    let plain = Options::default;
    let nodes = |nodesize| Options { nodesize, ..plain() };
    let sums = |checksum| Options { checksum, ..nodes(4096) };
    let single = |options| Options { metadata: Profile::Single, ..options };
    let mixed_dup = Options { metadata: Profile::Dup, data: Profile::Dup, ..Options::mixed() };
    let group_tree = Options { block_group_tree: true, ..plain() };
    let no_free_space = Options { free_space_tree: false, ..plain() };
    vec![
        Made::new("default", 256 * MIB, plain()),
        Made::new("4k nodes", 256 * MIB, nodes(4096)),
        Made::new("64k nodes", 256 * MIB, nodes(64 << 10)),
        Made::new("4k nodes, single", 256 * MIB, single(nodes(4096))),
        Made::new("xxhash", 256 * MIB, sums(ChecksumKind::Xxhash64)),
        Made::new("sha256", 256 * MIB, sums(ChecksumKind::Sha256)),
        Made::new("blake2", 256 * MIB, sums(ChecksumKind::Blake2b)),
        Made::new("mixed", 128 * MIB, Options::mixed()),
        Made::new("mixed, dup", 256 * MIB, mixed_dup),
        Made::new("block group tree", 256 * MIB, group_tree),
        Made::new("no free space tree", 256 * MIB, no_free_space),
        Made::by_progs("hole items", 256 * MIB, nodes(4096), &["-O", "^no-holes"]),
    ]
}

/// The same, and more, for who takes some of them at random.
fn all_kinds() -> Vec<Made> {
    let nodes = |nodesize| Options { nodesize, ..Options::default() };
    let twice = |options| Options { data: Profile::Dup, ..options };
    let mut all = kinds();
    all.extend([
        Made::new("8k nodes", 256 * MIB, nodes(8 << 10)),
        Made::new("32k nodes, data twice", 256 * MIB, twice(nodes(32 << 10))),
        Made::new("4k nodes, data twice", 256 * MIB, twice(nodes(4096))),
    ]);
    all
}

/// The least bound of memory that there may be, in bytes.
const MEMORY_MIN: u64 = 4 * MIB;
/// Inodes that take the place of all others in so little memory, and the bytes of the attribute
/// that is set on each.
const SQUEEZING: u32 = 700;
const SQUEEZING_VALUE: usize = 300;

/// A bound of memory by a seed: from the least to the default.
fn memory(seed: u64) -> u64 {
    let bounds = [MEMORY_MIN, 16 * MIB, 256 * MIB];
    bounds[Random::new(seed).index(bounds.len())]
}

/// Options with a bound of memory by a seed.
pub(crate) fn with_memory(seed: u64) -> OpenOptions {
    OpenOptions::new().memory(memory(seed)).clone()
}

/// Where the bound of memory that a seed gives is the least, has what is in memory of inodes merged
/// into the trees and leave it. What is to be seen stays.
pub(crate) fn squeeze(filesystem: &Filesystem, seed: u64) {
    if memory(seed) > MEMORY_MIN {
        return;
    }
    let one = |number: u32| {
        let inode = filesystem.root().create_unnamed(0o600)?;
        let value = [number.to_le_bytes()[0]; SQUEEZING_VALUE];
        inode.set_xattr(b"user.squeezing", &value, XattrMode::Either)?;
        Ok::<_, Error>(inode)
    };
    let all: Vec<_> = (0..SQUEEZING).map(|number| one(number).unwrap()).collect();
    for inode in &all {
        inode.metadata().unwrap();
    }
}

/// What is in use of a filesystem before it is filled, in bytes.
pub(crate) struct Baseline {
    /// By data that has block groups of its own.
    data: u64,
    /// By all else.
    rest: u64,
    /// What was taken the first time that it was filled.
    taken: Option<u64>,
    /// What all else had in use after that.
    emptied: Option<u64>,
}

/// How many blocks more than before it was filled may be in use by trees: they know of more block
/// groups, and of space in pieces.
const MORE_THAN_BEFORE: u64 = 8;
/// How many more than after the first time.
const MORE_THAN_FIRST: u64 = 3;

impl Baseline {
    pub(crate) fn of(filesystem: &Filesystem) -> Self {
        let usage = filesystem.usage().unwrap();
        let (data, rest): (Vec<_>, Vec<_>) =
            usage.kinds.iter().partition(|kind| kind.flags == BlockGroupFlags::DATA);
        let used = |kinds: &[&SpaceUse]| kinds.iter().map(|kind| kind.used).sum();
        Self { data: used(&data), rest: used(&rest), taken: None, emptied: None }
    }

    /// It was filled again: with as much as the first time, but for a tenth.
    pub(crate) fn assert_taken(&mut self, what: &str, taken: u64) {
        let first = *self.taken.get_or_insert(taken);
        assert!(taken >= first / 10 * 9, "{what}: {taken} were taken, {first} at first");
    }

    /// All that was taken came back, but for some blocks of this size.
    pub(crate) fn assert_back(&mut self, what: &str, filesystem: &Filesystem, block: u32) {
        let Self { data, rest, .. } = Self::of(filesystem);
        assert_eq!(data, self.data, "{what}: bytes of data in use");
        let (before, first) = (self.rest, *self.emptied.get_or_insert(rest));
        let most = u64::min(
            before + MORE_THAN_BEFORE * u64::from(block),
            first + MORE_THAN_FIRST * u64::from(block),
        );
        assert!(rest <= most, "{what}: {rest} bytes are in use, {before} before, {first} at first");
    }
}

/// Has images of all kinds worked on, each by a seed of its own, over and over; or of so many kinds
/// alone, by chance, where not every count is done in full.
pub(crate) fn by_kinds(count: usize, work: impl Fn(&Made, u64)) {
    let (seed, rounds) = (seed(), if is_torture() { 40 } else { 1 });
    let all = all_kinds();
    for seed in seed..seed + rounds {
        // No two of them are given the same.
        let mut kinds: Vec<_> = all.iter().zip((seed..).step_by(1000)).collect();
        if !is_torture() {
            Random::new(seed).shuffle(&mut kinds);
            kinds.truncate(count);
        }
        for (made, seed) in kinds {
            work(made, seed);
        }
    }
}

/// Has btrfs-progs look at an image: it finds no error and warns of nothing.
pub(crate) fn check_image(what: &str, image: &SparseImage) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    image.write_to(&file).unwrap();
    check_file(what, &file);
}

/// The same for one that is full, which Linux uses then, too.
pub(crate) fn check_full_image(what: &str, image: &SparseImage) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    image.write_to(&file).unwrap();
    check_file(what, &file);
    let linux = Linux::lock().unwrap();
    use_by_linux(&linux, what, &file);
    linux.assert_no_complaints().unwrap_or_else(|error| panic!("{what}: {error:#}"));
}

/// As [`check_image`], starting from the second superblock.
pub(crate) fn check_image_by_copy(what: &str, image: &SparseImage) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    image.write_to(&file).unwrap();
    let mut check = Command::new("btrfs");
    run(check.args(["check", "--readonly", "--super", "1"]).arg(&file))
        .unwrap_or_else(|error| panic!("{what}: {error:#}"));
}

/// As [`check_image`], for an image file.
pub(crate) fn check_file(what: &str, file: &Path) {
    let said = btrfs_check(file).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    assert!(!said.to_lowercase().contains("warning"), "{what}: {said}");
}
