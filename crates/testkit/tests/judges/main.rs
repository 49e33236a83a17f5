//! Tests with oracles: userbtrfs shows the same state of images as Linux.
//!
//! 1. Comparisons with the golden images need no privilege. Tests that use Linux are skipped, with
//!    a message, if that is not possible.
//! 2. Random tests print their seed; `USERBTRFS_SEED` repeats a run.
//! 3. With `USERBTRFS_TORTURE=1`, tests run with their full counts.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backups;
mod changed;
mod changed_data;
mod clones;
mod compressed;
mod contended;
mod crafted;
mod crash_points;
mod cut_states;
mod cuts;
mod data;
mod default_acls;
mod defragmented;
mod dump;
mod experiments;
mod faults;
mod fill;
mod fill_compressed;
mod fill_data;
mod fsx;
mod fsync_cuts;
mod fsync_faults;
mod fsync_lost_data;
mod fsync_reasons;
mod fsync_rewritten;
mod fsync_threads;
mod fsync_trees;
mod fsynced;
mod golden;
mod handed;
mod hole_items;
mod host_full;
mod linux_seek;
mod linux_tree;
mod listing;
mod log_order;
mod log_stories;
mod made;
mod model;
mod ours;
mod overwritten;
mod parallel;
mod pressure;
mod repairs;
mod replay;
mod resize;
mod shared_golden;
mod sharing_faults;
mod space_cache;
mod statfs;
mod subvolume_names;
mod subvolumes;
mod threads;
mod trim_cuts;
mod turns;
mod warnings;
mod writers;

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use userbtrfs::device::Device;
use userbtrfs::{Filesystem, OpenOptions, PathResult, TreeId};
use userbtrfs_format::SECTOR_SIZE;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::manifest::{Difference, Manifest, diff};
use userbtrfs_testkit::random::seed;
use userbtrfs_testkit::test_env::is_torture;

/// The maximum number of differences that are shown.
const SHOWN: usize = 20;

/// The length of a sector in memory, in bytes.
const SECTOR_LEN: usize = SECTOR_SIZE as usize;

/// A golden image, unpacked.
struct Unpacked {
    _folder: TempDir,
    image: PathBuf,
}

impl Unpacked {
    fn new(golden: &Golden) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join(format!("{}.img", golden.name()));
        golden.unpack(&image).unwrap();
        Self { _folder: folder, image }
    }
}

/// Opens the top-level subvolume, as in the manifests, with a memory limit in MiB.
fn open(image: &Path, memory: u64) -> PathResult<Filesystem> {
    OpenOptions::new().subvolume_id(TreeId::FS).memory(memory << 20).open(image)
}

/// Opens the top-level subvolume on a device.
fn open_device(device: Arc<dyn Device>) -> userbtrfs::Result<Filesystem> {
    OpenOptions::new().subvolume_id(TreeId::FS).memory(16 << 20).open_devices(vec![device])
}

/// Opens it for writing, with default memory and without periodic commits.
fn open_to_write(device: Arc<dyn Device>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0);
    options.open_devices(vec![device]).unwrap()
}

/// Returns the golden images that Linux could mount, with their manifests.
fn shown() -> Vec<(Golden, Manifest)> {
    let all = Golden::all().unwrap().into_iter();
    let shown = all.filter_map(|image| image.manifest().unwrap().map(|shown| (image, shown)));
    let shown: Vec<_> = shown.collect();
    assert!(shown.len() >= 30, "only {} golden images with a manifest", shown.len());
    shown
}

/// Panics if we and Linux show different states.
fn assert_same(what: &str, linux: &Manifest, ours: &Manifest) {
    assert_none(what, &diff(linux, ours, &[]));
}

fn assert_none(what: &str, differences: &[Difference]) {
    let shown: Vec<_> = differences.iter().take(SHOWN).map(ToString::to_string).collect();
    let count = differences.len();
    assert!(count == 0, "{what}: {count} differences, Linux's first:\n{}", shown.join("\n"));
}
