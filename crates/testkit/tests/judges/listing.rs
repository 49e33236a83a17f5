//! A very large directory, listed while it changes.
//!
//! 1. An entry that exists during the whole listing is listed once, with its name.
//! 2. An entry removed before the listing is not in it.
//! 3. Positions ascend, also if a listing is interrupted and resumed at its last position.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use userbtrfs::mkfs::{Options, Profile};
use userbtrfs::{Dir, OpenOptions, RenameMode, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::random::Random;

use super::made::{MIB, Made, check_image};
use super::{is_torture, seed};

/// The maximum number of entries before a listing is interrupted.
const PART_MAX: u64 = 5000;
/// The number of listings by each reader.
const LISTINGS: usize = 3;

fn staying(number: u64) -> Vec<u8> {
    format!("stays {number}").into_bytes()
}

fn going(number: u64) -> Vec<u8> {
    format!("goes {number}").into_bytes()
}

/// Lists a directory in parts; returns the names in order.
fn list(dir: &Dir, random: &mut Random) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut position = 0;
    loop {
        let part = usize::try_from(1 + random.below(PART_MAX)).unwrap();
        let before = position;
        for entry in dir.entries_from(before).take(part) {
            let entry = entry.unwrap();
            assert!(entry.position() > position, "places ascend");
            position = entry.position();
            names.push(entry.name().to_vec());
        }
        if position == before {
            return names;
        }
    }
}

/// Removes, renames and adds entries; the first `gone` removable ones are removed already.
fn change(dir: &Dir, entries: u64, gone: u64, is_over: &AtomicBool) {
    for number in gone..entries {
        match number % 3 {
            0 => dir.remove_file(&going(number)).unwrap(),
            1 => {
                let to = format!("moved {number}").into_bytes();
                dir.rename(&going(number), dir, &to, RenameMode::NoReplace).unwrap();
            }
            _ => drop(dir.create(format!("new {number}").as_bytes(), 0o644).unwrap()),
        }
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[test]
fn a_directory_of_very_many_entries_is_listed_while_it_changes() {
    let entries: u64 = if is_torture() { 500_000 } else { 20_000 };
    let gone = entries / 4;
    let made = Options { metadata: Profile::Single, ..Options::default() };
    let made = Made::new("many entries", if is_torture() { 4096 } else { 512 } * MIB, made);
    let device = Arc::new(made.image().to_device());
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).memory(32 << 20);
    let filesystem = options.open_devices(vec![device.clone()]).unwrap();
    let dir = filesystem.root().create_dir(b"d", 0o755).unwrap();
    for number in 0..entries {
        dir.create(&staying(number), 0o644).unwrap();
        dir.create(&going(number), 0o644).unwrap();
    }
    (0..gone).for_each(|number| dir.remove_file(&going(number)).unwrap());
    let is_over = AtomicBool::new(false);
    let seed = seed();
    thread::scope(|scope| {
        scope.spawn(|| change(&dir, entries, gone, &is_over));
        let readers = [0, 1].map(|reader| {
            let dir = &dir;
            scope.spawn(move || {
                let mut random = Random::new(seed + reader);
                (0..LISTINGS).for_each(|_| check(&list(dir, &mut random), entries, gone));
            })
        });
        for reader in readers {
            reader.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let left: HashSet<_> = list(&dir, &mut Random::new(seed)).into_iter().collect();
    drop(dir);
    filesystem.close().unwrap();
    check_image(made.name, &device.image());
    let again = super::open_device(device).unwrap();
    let dir = again.open_dir("/d").unwrap();
    let found: HashSet<_> = dir.entries().map(|entry| entry.unwrap().name().to_vec()).collect();
    assert!(found == left, "{} names, and {} before", found.len(), left.len());
}

fn check(names: &[Vec<u8>], entries: u64, gone: u64) {
    let all: HashSet<_> = names.iter().map(Vec::as_slice).collect();
    assert!((0..entries).all(|number| all.contains(staying(number).as_slice())), "one is missing");
    assert!((0..gone).all(|number| !all.contains(going(number).as_slice())), "one is back");
    assert_eq!(all.len(), names.len(), "one is there twice");
}
