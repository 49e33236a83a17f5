//! Bad mirrors of which another one is good.

use userbtrfs_format::{Logical, Physical};
use userbtrfs_mkfs::Profile;

use super::device::Failing;
use super::*;
use crate::units::{SECTOR, SECTOR_LEN};

/// Returns options with two copies of everything.
fn twice() -> Options {
    Options { nodesize: 4096, data: Profile::Dup, ..Options::default() }
}

/// Returns a filesystem with a file of `sectors` sectors, reopened after creating it.
fn lab_with_file(sectors: usize) -> Lab {
    let lab = Lab::of(256 << 20, &twice(), 32 << 20);
    lab.create("file").write_all_at(&pattern(1, sectors * SECTOR_LEN), 0).unwrap();
    lab.reopened()
}

/// Returns the places of the copies of a sector of a file.
fn copies_of_sector(fs: &Filesystem, name: &str, sector: usize) -> Vec<Physical> {
    let extents = fs.open_file(name).unwrap().extents().unwrap();
    let ExtentKind::Data { logical, .. } = extents[0].kind else { panic!("{extents:?}") };
    copies(fs, Logical(logical + (sector * SECTOR_LEN) as u64))
}

/// Returns the places of the copies of a sector, or of a tree block.
fn copies(fs: &Filesystem, logical: Logical) -> Vec<Physical> {
    let copies: Vec<_> = fs.volume().map(logical, SECTOR).unwrap().copies().collect();
    assert_eq!(copies.len(), 2);
    copies
}

fn damage(device: &dyn Device, at: Physical) {
    let mut bytes = device.read(at.0, SECTOR_LEN).unwrap();
    bytes[100] ^= 1;
    device.write(at.0, Arc::new(bytes), false).unwrap();
}

fn closed(lab: Lab) -> Arc<MemoryDevice> {
    lab.fs.close().unwrap();
    lab.device
}

#[test]
fn bad_mirror_found_by_read_is_repaired_if_writable() {
    let lab = lab_with_file(50);
    let mut places = copies_of_sector(&lab.fs, "file", 3);
    let files = lab.fs.inner.tree_roots().tree(TreeId::FS).unwrap().root().logical;
    places.extend([lab.fs.superblock().root, files].iter().flat_map(|at| copies(&lab.fs, *at)));
    let device = closed(lab);
    let sound = device.snapshot();
    // Damage one copy of each: the first, which is the one that is read.
    places.iter().step_by(2).for_each(|at| damage(&*device, *at));
    let damaged = device.snapshot();

    let reading = OpenOptions::new().open_devices(vec![Arc::clone(&device) as Arc<dyn Device>]);
    let reading = reading.unwrap();
    assert!(reading.read("file").unwrap() == pattern(1, 50 * SECTOR_LEN));
    let copies = reading.stats().copies;
    assert_eq!((copies.bad, copies.repaired), (3, 0));
    reading.close().unwrap();
    assert!(device.snapshot() == damaged, "nothing is written by who only reads");

    let lab = Lab::open(device, 32 << 20);
    assert!(lab.fs.read("file").unwrap() == pattern(1, 50 * SECTOR_LEN));
    let fs = lab.fs.clone();
    fs.finish().unwrap();
    let copies = fs.stats().copies;
    assert_eq!((copies.bad, copies.repaired), (3, 3));
    drop(fs);
    let device = closed(lab);
    assert!(device.snapshot() == sound);
}

#[test]
fn bad_mirror_is_repaired_on_close() {
    let lab = lab_with_file(5);
    let places = copies_of_sector(&lab.fs, "file", 4);
    let device = closed(lab);
    let sound = device.snapshot();
    damage(&*device, places[0]);
    let lab = Lab::open(device, 32 << 20);
    assert!(lab.fs.read("file").unwrap() == pattern(1, 5 * SECTOR_LEN));
    assert!(closed(lab).snapshot() == sound);
}

#[test]
fn bad_mirror_in_freed_space_is_not_repaired() {
    let lab = lab_with_file(5);
    let places = copies_of_sector(&lab.fs, "file", 4);
    damage(&*lab.device, places[0]);
    let damaged = lab.device.read(places[0].0, SECTOR_LEN).unwrap();
    assert!(lab.fs.read("file").unwrap() == pattern(1, 5 * SECTOR_LEN));
    lab.fs.remove_file("file").unwrap();
    let fs = lab.fs.clone();
    let device = closed(lab);
    assert_eq!(fs.stats().copies.bad, 1);
    fs.finish().unwrap();
    assert_eq!(fs.stats().copies.repaired, 0);
    assert!(device.read(places[0].0, SECTOR_LEN).unwrap()[..] == damaged[..]);
}

#[test]
fn failed_repair_does_no_harm() {
    let device = Failing::of(256, &twice());
    let fs = device.open(32 << 20);
    let content = vec![b'!'; 5 * SECTOR_LEN];
    fs.write("file", &content).unwrap();
    let places = copies_of_sector(&fs, "file", 4);
    fs.close().unwrap();
    damage(&device.memory, places[0]);
    let damaged = device.memory.snapshot();
    device.fail_writes(true);
    let fs = device.open(32 << 20);
    assert!(fs.read("file").unwrap() == content);
    fs.finish().unwrap();
    assert!(fs.is_writable());
    fs.close().unwrap();
    assert!(device.memory.snapshot() == damaged);
}
