//! The filesystems that writing tests use: every kind that mkfs makes.

use std::path::Path;
use std::process::Command;

use userbtrfs::mkfs::{ChecksumKind, Options, Profile, make};
use userbtrfs::{BlockGroupFlags, Compress, Error, Filesystem, OpenOptions, SpaceUse, XattrMode};
use userbtrfs_testkit::devices::{SparseDevice, SparseImage};
use userbtrfs_testkit::linux::{btrfs_check, run};
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::Generator;
use userbtrfs_testkit::random::Random;

use super::{is_torture, seed};

pub(crate) const MIB: u64 = 1 << 20;
/// The size of a device on which random operations resize the filesystem, in bytes: half of it is
/// enough for their files, and more than the least size.
const LEN_TO_RESIZE: u64 = 560 * MIB;

/// A kind of filesystem.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) name: &'static str,
    pub(crate) options: Options,
    pub(crate) len: u64,
    /// The options of `mkfs.btrfs`, for a kind that our mkfs cannot make.
    progs: &'static [&'static str],
}

impl Made {
    pub(crate) fn new(name: &'static str, len: u64, options: Options) -> Self {
        Self { name, options, len, progs: &[] }
    }

    /// A kind made by `mkfs.btrfs` with these options, which must match `options`.
    pub(crate) fn by_progs(
        name: &'static str,
        len: u64,
        options: Options,
        progs: &'static [&'static str],
    ) -> Self {
        Self { name, options, len, progs }
    }

    /// Returns whether each hole of a file has an item.
    pub(crate) fn has_hole_items(&self) -> bool {
        self.progs.contains(&"^no-holes")
    }

    /// Returns the kind with another size.
    pub(crate) fn of_length(&self, len: u64) -> Self {
        Self { len, ..self.clone() }
    }

    /// Returns the kind with a size that random operations change.
    pub(crate) fn to_resize(&self) -> Self {
        self.of_length(LEN_TO_RESIZE)
    }

    /// Returns whether random operations change its size.
    pub(crate) fn is_resized(&self) -> bool {
        self.len == LEN_TO_RESIZE
    }

    /// Returns a generator with resizes, if these operations change the size.
    pub(crate) fn resizing(&self, generator: Generator) -> Generator {
        if self.is_resized() { generator.with_resizing(self.len) } else { generator }
    }

    /// Returns the model of the empty filesystem.
    pub(crate) fn model(&self) -> Model {
        Model::new(self.options.nodesize).on_device(self.len)
    }

    /// Returns an empty filesystem, in memory.
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

/// Returns all kinds.
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

/// Returns all kinds and more, for tests that choose some at random.
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

/// The minimum memory limit, in bytes.
const MEMORY_MIN: u64 = 4 * MIB;
/// The number of inodes that evict all others in so little memory, and the size of the xattr of
/// each in bytes.
const SQUEEZING: u32 = 700;
const SQUEEZING_VALUE: usize = 300;

/// Returns a memory limit from a seed: between the minimum and the default.
fn memory(seed: u64) -> u64 {
    let bounds = [MEMORY_MIN, 16 * MIB, 256 * MIB];
    bounds[Random::new(seed).index(bounds.len())]
}

/// Returns the option to compress all data by this method. Without force, files would get flags
/// that the model does not know.
pub(crate) fn forced(method: &str) -> Compress {
    Compress { method: method.parse().unwrap(), force: true }
}

/// Returns options with a memory limit from a seed, for some seeds with compression.
pub(crate) fn with_memory(seed: u64) -> OpenOptions {
    let methods = [None, None, Some("zlib:1"), Some("lzo"), Some("zstd:-5"), Some("zstd")];
    let method = methods[Random::new(seed ^ 1).index(methods.len())];
    OpenOptions::new().memory(memory(seed)).compress(method.map(forced)).clone()
}

/// If the memory limit of this seed is the minimum, merges delayed items into the trees and evicts
/// inodes, without visible changes.
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

/// The used space of a filesystem before it is filled, in bytes.
pub(crate) struct Baseline {
    /// By data in block groups of its own.
    data: u64,
    /// By everything else.
    rest: u64,
    /// The space that the first filling took.
    taken: Option<u64>,
    /// The space used by everything else after the first emptying.
    emptied: Option<u64>,
}

/// The maximum number of additional tree blocks compared with the time before filling: trees have
/// items for more block groups, and for fragmented space.
const MORE_THAN_BEFORE: u64 = 8;
/// The maximum number of additional tree blocks compared with the first emptying.
const MORE_THAN_FIRST: u64 = 3;

impl Baseline {
    pub(crate) fn of(filesystem: &Filesystem) -> Self {
        let usage = filesystem.usage().unwrap();
        let (data, rest): (Vec<_>, Vec<_>) =
            usage.kinds.iter().partition(|kind| kind.flags == BlockGroupFlags::DATA);
        let used = |kinds: &[&SpaceUse]| kinds.iter().map(|kind| kind.used).sum();
        Self { data: used(&data), rest: used(&rest), taken: None, emptied: None }
    }

    /// Checks that filling took at least nine tenths of the space that the first one took.
    pub(crate) fn assert_taken(&mut self, what: &str, taken: u64) {
        let first = *self.taken.get_or_insert(taken);
        assert!(taken >= first / 10 * 9, "{what}: {taken} were taken, {first} at first");
    }

    /// Checks that all space was freed, except for some blocks of this size.
    pub(crate) fn assert_back(&mut self, what: &str, filesystem: &Filesystem, block: u32) {
        let Self { data, rest, .. } = Self::of(filesystem);
        assert_eq!(data, self.data, "{what}: bytes of data in use");
        let before = self.rest;
        let first = *self.emptied.get_or_insert(rest);
        let most = u64::min(
            before + MORE_THAN_BEFORE * u64::from(block),
            first + MORE_THAN_FIRST * u64::from(block),
        );
        assert!(rest <= most, "{what}: {rest} bytes are in use, {before} before, {first} at first");
    }
}

/// Calls `work` with all kinds, each with a different seed, repeatedly; or with `count` random
/// kinds, unless this is torture.
pub(crate) fn by_kinds(count: usize, work: impl Fn(&Made, u64)) {
    let seed = seed();
    let rounds = if is_torture() { 40 } else { 1 };
    let all = all_kinds();
    for seed in seed..seed + rounds {
        // All seeds differ.
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

/// Checks an image with btrfs-progs: no errors and no warnings.
pub(crate) fn check_image(what: &str, image: &SparseImage) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    image.write_to(&file).unwrap();
    check_file(what, &file);
}

/// Like [`check_image`], with the second superblock.
pub(crate) fn check_image_by_copy(what: &str, image: &SparseImage) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    image.write_to(&file).unwrap();
    let mut check = Command::new("btrfs");
    run(check.args(["check", "--readonly", "--super", "1"]).arg(&file))
        .unwrap_or_else(|error| panic!("{what}: {error:#}"));
}

/// Like [`check_image`], for an image file.
pub(crate) fn check_file(what: &str, file: &Path) {
    let said = btrfs_check(file).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    assert!(!said.to_lowercase().contains("warning"), "{what}: {said}");
}
