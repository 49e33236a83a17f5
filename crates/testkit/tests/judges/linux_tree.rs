//! Trees made by Linux: real files, random changes, snapshots and shared extents.
//!
//! 1. Linux, with a read-only mount of the image, and userbtrfs show the same.
//! 2. An export of it, walked by Linux, is the same except attributes that no copy keeps.
//! 3. `btrfs check` finds no errors, and the kernel log has no complaints.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use tempfile::TempDir;
use userbtrfs::copy::{Copier, CopyOptions, ImageSource, Progress};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::manifest::{Manifest, diff};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::random_workload::RandomWorkload;
use userbtrfs_testkit::sample::Sample;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::{walk_linux, walk_ours};

use super::parallel::read_from_threads;
use super::{assert_none, assert_same, is_torture, open, seed};

/// The source of real files.
const SOURCE: &str = "/usr";
/// The total size of the sample, in bytes, and the number of subvolumes.
const SAMPLE_BYTES: u64 = 64 << 20;
const SUBVOLUMES: u64 = 12;
/// The number of random changes.
const CHANGES: u64 = 600;
/// Attributes that no copy keeps. Flags are not copied either, as with `cp -a`.
const NOT_COPIED: &[&str] = &["inode", "subvolume", "ctime", "btime", "flags"];

const CHECKSUMS: &[&str] = &["crc32c", "xxhash", "sha256", "blake2"];
const COMPRESSIONS: &[&str] = &["", ",compress-force=zlib", ",compress=lzo", ",compress=zstd"];
const NODE_SIZES: &[u32] = &[4096, 16384, 32768, 65536];
const PROFILES: &[&[&str]] = &[&["-d", "single", "-m", "single"], &["-d", "dup", "-m", "dup"]];
const MIXED: &[&str] = &["--mixed"];

/// The parameters of an image.
#[derive(Clone, Copy, Debug)]
struct Combination {
    checksum: &'static str,
    compression: &'static str,
    node_size: u32,
    profile: &'static [&'static str],
}

/// Combinations with each value at least once.
const FEW: &[Combination] = &[
    Combination {
        checksum: CHECKSUMS[0],
        compression: COMPRESSIONS[0],
        node_size: NODE_SIZES[1],
        profile: &[],
    },
    Combination {
        checksum: CHECKSUMS[1],
        compression: COMPRESSIONS[1],
        node_size: NODE_SIZES[0],
        profile: PROFILES[0],
    },
    Combination {
        checksum: CHECKSUMS[2],
        compression: COMPRESSIONS[2],
        node_size: NODE_SIZES[3],
        profile: PROFILES[1],
    },
    Combination {
        checksum: CHECKSUMS[3],
        compression: COMPRESSIONS[3],
        node_size: NODE_SIZES[2],
        profile: PROFILES[0],
    },
    Combination {
        checksum: CHECKSUMS[0],
        compression: COMPRESSIONS[3],
        node_size: NODE_SIZES[0],
        profile: MIXED,
    },
];

fn every() -> Vec<Combination> {
    let mut every = Vec::new();
    for checksum in CHECKSUMS {
        for compression in COMPRESSIONS {
            let with =
                |node_size, profile| Combination { checksum, compression, node_size, profile };
            every.push(with(NODE_SIZES[0], MIXED));
            for node_size in NODE_SIZES {
                every.extend(PROFILES.iter().map(|profile| with(*node_size, profile)));
            }
        }
    }
    every
}

#[test]
fn changed_tree_shows_the_same_as_in_linux() {
    skip_unless_linux!();
    let seed = seed();
    let sample = Sample::of(Path::new(SOURCE)).unwrap();
    let combinations = if is_torture() { every() } else { FEW.to_vec() };
    for (number, combination) in combinations.into_iter().enumerate() {
        println!("{combination:?}");
        let seed = seed + number as u64;
        let site = Site::new(combination, 4 << 30);
        site.fill(|mount| {
            let random = &mut Random::new(seed);
            let subvolumes = make_subvolumes(mount);
            for subvolume in &subvolumes {
                sample.copy_some(subvolume, SAMPLE_BYTES / SUBVOLUMES, random).unwrap();
            }
            RandomWorkload::new(mount, subvolumes, seed).unwrap().run(CHANGES).unwrap();
        });
        site.judge(seed);
    }
}

/// With each compression: all files of the system, next to changing ones.
#[test]
fn whole_system_shows_the_same_as_in_linux() {
    skip_unless_linux!();
    if !is_torture() {
        println!("SKIPPED: only with USERBTRFS_TORTURE=1");
        return;
    }
    let seed = seed();
    for (number, combination) in FEW[..4].iter().enumerate() {
        println!("{combination:?}");
        let site = Site::new(*combination, 40 << 30);
        site.fill(|mount| {
            let subvolumes = make_subvolumes(mount);
            let whole = Path::new(SOURCE).join(".");
            run(Command::new("cp").arg("-a").arg(whole).arg(mount.join("whole"))).unwrap();
            RandomWorkload::new(mount, subvolumes, seed + number as u64)
                .unwrap()
                .run(10 * CHANGES)
                .unwrap();
        });
        site.judge(seed);
    }
}

fn make_subvolumes(mount: &Path) -> Vec<PathBuf> {
    let subvolumes: Vec<_> = (0..SUBVOLUMES).map(|n| mount.join(format!("volume{n}"))).collect();
    for subvolume in &subvolumes {
        let mut create = Command::new("btrfs");
        run(create.args(["subvolume", "create"]).arg(subvolume)).unwrap();
    }
    subvolumes
}

/// An image and its parameters.
struct Site {
    linux: Linux,
    combination: Combination,
    folder: TempDir,
    size: u64,
}

impl Site {
    fn new(combination: Combination, size: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { linux: Linux::lock().unwrap(), combination, folder, size }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Creates the image, and calls `fill` while it is mounted.
    fn fill(&self, fill: impl FnOnce(&Path)) {
        let Combination { checksum, compression, node_size, profile } = self.combination;
        let image = self.image();
        File::create(&image).unwrap().set_len(self.size).unwrap();
        let mut mkfs = Command::new("mkfs.btrfs");
        mkfs.args(["-q", "--csum", checksum, "-n", &node_size.to_string()]).args(profile);
        run(mkfs.arg(&image)).unwrap();
        let mount = self.linux.mount(&image, &format!("noatime{compression}")).unwrap();
        fill(mount.path());
    }

    fn judge(&self, seed: u64) {
        btrfs_check(&self.image()).unwrap();
        let mount = self.linux.mount(&self.image(), "ro,noatime,subvolid=5").unwrap();
        let linux = walk_linux::walk(mount.path()).unwrap();
        drop(mount);
        self.compare_walks(&linux);
        self.compare_copies(&linux);
        read_from_threads(&open(&self.image(), 4).unwrap(), &linux, seed);
        self.linux.assert_no_complaints().unwrap();
    }

    fn compare_walks(&self, linux: &Manifest) {
        let ours = walk_ours::walk(&open(&self.image(), 256).unwrap()).unwrap();
        assert_same("our walk", linux, &ours);
    }

    /// Exports everything to another filesystem that keeps all attributes.
    fn compare_copies(&self, linux: &Manifest) {
        let other = self.folder.path().join("copy");
        File::create(&other).unwrap().set_len(self.size).unwrap();
        run(Command::new("mkfs.btrfs").arg("-q").arg(&other)).unwrap();
        let mount = self.linux.mount(&other, "noatime").unwrap();
        let target = mount.path().join("copy");
        extract(&self.image(), &target);
        let copy = walk_linux::walk(&target).unwrap();
        assert_none("a copy", &diff(linux, &copy, NOT_COPIED));
        drop(mount);
        fs::remove_file(other).unwrap();
    }
}

fn extract(image: &Path, target: &Path) {
    let progress = Progress::default();
    let failed = Mutex::new(Vec::new());
    let filesystem = open(image, 64).unwrap();
    let report = |error| failed.lock().unwrap().push(format!("{error}"));
    let root = filesystem.root();
    let source = ImageSource { inode: root.inode(), path: b"/" };
    Copier::new(CopyOptions::default(), &progress).get(&source, target, &report);
    let failed = failed.into_inner().unwrap();
    assert_eq!(failed, [""; 0], "extraction");
    assert_eq!(progress.not_kept(), 0);
}
