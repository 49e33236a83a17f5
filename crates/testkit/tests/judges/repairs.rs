//! A crash while bad mirrors are repaired: the other mirror of each is always good.
//!
//! 1. One mirror of every duplicated block of metadata and data is damaged, the first or the second
//!    one by stretches. Everything is read, another file is created and fsynced, and closing
//!    repairs the bad mirrors that were found.
//! 2. Everything can be read in any state that a crash may leave.
//! 3. At the end both mirrors are good, also for `btrfs check` and for Linux.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use userbtrfs::Filesystem;
use userbtrfs::mkfs::{Options, Profile};
use userbtrfs_format::SECTOR;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, states};
use userbtrfs_testkit::devices::{Recording, RecordingDevice, SparseImage};
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made, check_file};
use super::ours::judge_by_linux;
use super::{is_torture, open_device, open_to_write, seed};

/// The same mirror is damaged within each stretch of this many bytes: no tree block crosses its
/// end.
const STRETCH: u64 = 64 << 10;
/// The number of files, and their size in bytes: less than the limit on recorded bad mirrors.
const FILES: u32 = 15;
const LENGTH: usize = 200_000;
/// The number of reordered states in addition to all prefixes.
const REORDERED: usize = 100;
/// The number of additional images in torture.
const IMAGES_OF_TORTURE: u64 = 50;

fn name(number: u32) -> String {
    format!("/file {number}")
}

fn content(number: u32) -> Vec<u8> {
    pattern::bytes(number, 0, LENGTH)
}

/// Returns an image with all data and metadata duplicated.
fn image(nodesize: u32) -> SparseImage {
    let metadata = Profile::Dup;
    let data = Profile::Dup;
    let options = Options { nodesize, metadata, data, ..Options::default() };
    let device = Arc::new(Made::new("twice", 256 * MIB, options).image().to_device());
    let filesystem = open_to_write(device.clone());
    for number in 0..FILES {
        filesystem.write(name(number), content(number)).unwrap();
    }
    filesystem.close().unwrap();
    device.image()
}

/// Returns the sectors that are stored twice.
fn twins(image: &SparseImage) -> Vec<[u64; 2]> {
    let mut places: HashMap<Vec<u8>, Vec<u64>> = HashMap::new();
    for place in (0..image.len()).step_by(usize::try_from(SECTOR).unwrap()) {
        let mut sector = vec![0; usize::try_from(SECTOR).unwrap()];
        image.read(place, &mut sector);
        if sector.iter().any(|byte| *byte != 0) {
            places.entry(sector).or_default().push(place);
        }
    }
    let mut twins: Vec<[u64; 2]> =
        places.into_values().filter_map(|places| places.try_into().ok()).collect();
    twins.sort_unstable();
    twins
}

/// Damages one of each pair; returns the number of pairs.
fn damage(image: &mut SparseImage, random: &mut Random) -> usize {
    let twins = twins(image);
    for stretch in twins.chunk_by(|one, next| one[0] / STRETCH == next[0] / STRETCH) {
        let side = random.index(2);
        for twin in stretch {
            image.write(twin[side] + SECTOR / 2, b"damage");
        }
    }
    twins.len()
}

/// Checks that all files have their content.
fn check(filesystem: &Filesystem) -> Result<()> {
    for number in 0..FILES {
        let found = filesystem.read(name(number)).with_context(|| name(number))?;
        ensure!(found == content(number), "{}: another content", name(number));
    }
    Ok(())
}

/// Repairs an image, and writes another file.
fn repair(image: &SparseImage) -> Recording {
    let device = Arc::new(RecordingDevice::on(image));
    let filesystem = open_to_write(device.clone());
    check(&filesystem).unwrap();
    let file = filesystem.root().create(b"beside", 0o644).unwrap().open().unwrap();
    file.write_at(&[1; 10_000], 0).unwrap();
    file.sync_all().unwrap();
    filesystem.finish().unwrap();
    let copies = filesystem.stats().copies;
    // Space that was freed meanwhile is not repaired.
    assert!(copies.repaired > copies.bad / 2, "{copies:?}");
    drop(file);
    filesystem.close().unwrap();
    device.recording()
}

fn judge(linux: &Linux, nodesize: u32, seed: u64) {
    let what = format!("seed {seed}, nodes of {nodesize}");
    let mut random = Random::new(seed);
    let mut image = image(nodesize);
    let damaged = damage(&mut image, &mut random);
    assert!(damaged > 500, "{what}: only {damaged} sectors are there twice");
    let recording = repair(&image);
    let reordered = Choice::Reordered { seed, count: REORDERED };
    for state in states(&recording, Choice::EveryPrefix).chain(states(&recording, reordered)) {
        let left = open_device(Arc::new(state.image.to_device()));
        let checked = left.map_err(anyhow::Error::from).and_then(|left| check(&left));
        let events = state.completed;
        checked.unwrap_or_else(|error| panic!("{what}: {events} events: {error:#}"));
    }
    let end = recording.end();
    let left = open_device(Arc::new(end.to_device())).unwrap();
    check(&left).unwrap();
    assert_eq!(left.stats().copies.bad, 0, "{what}: something is left to repair");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    end.write_to(&file).unwrap();
    check_file(&what, &file);
    judge_by_linux(linux, &what, &file);
}

#[test]
fn a_repair_that_is_cut_leaves_a_good_copy_of_all() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let first = seed();
    let images = if is_torture() { IMAGES_OF_TORTURE } else { 1 };
    for seed in first..first + images {
        for nodesize in [4096, 16384] {
            judge(&linux, nodesize, seed);
        }
    }
}
