//! Memory that only a commit can free is bounded: if it grows too large, a commit starts
//! automatically.

use userbtrfs::{CommitTrigger, Filesystem, OpenOptions, TreeId, XattrMode};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{skip_unless_linux, walk_ours};

use super::made::{MIB, check_image, kinds};
use super::{assert_same, open_device, seed};

/// The number of files, and the size of the xattr of each: they fill many leaves.
const FILES: u64 = 20_000;
const VALUE: usize = 300;
/// The number of changes within which a commit must occur.
const CHANGES_MAX: u64 = 100_000;

fn change(filesystem: &Filesystem, number: u64, value: u8) {
    let inode = filesystem.root().lookup(number.to_string().as_bytes()).unwrap();
    inode.set_xattr(b"user.value", &[value; VALUE], XattrMode::Either).unwrap();
}

#[test]
fn little_memory_makes_commits_of_its_own() {
    skip_unless_linux!();
    let made = kinds()[1].of_length(512 * MIB);
    let device = Arc::new(made.image().to_device());
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(4 << 20);
    let filesystem = options.open_devices(vec![device.clone()]).unwrap();
    let for_memory = || filesystem.stats().commits.by(CommitTrigger::Memory);
    for number in 0..FILES {
        filesystem.root().create(number.to_string().as_bytes(), 0o644).unwrap();
        change(&filesystem, number, 1);
    }
    filesystem.commit().unwrap();
    let before = for_memory();
    let mut random = Random::new(seed());
    let mut changes = 0;
    while for_memory() == before {
        assert!(changes < CHANGES_MAX, "no commit for memory");
        change(&filesystem, random.below(FILES), 2);
        changes += 1;
    }
    println!("{changes} changes, {before} commits for memory before them");
    check_image(made.name, &device.image());
    let shown = walk_ours::walk(&filesystem).unwrap();
    filesystem.close().unwrap();
    check_image(made.name, &device.image());
    assert_same(made.name, &shown, &walk_ours::walk(&open_device(device).unwrap()).unwrap());
}
