//! Backup roots in the superblock: each commit writes one to the next of four slots, and Linux can
//! use one if the newest root cannot be read.

use userbtrfs::{Filesystem, OpenOptions, TreeId};
use userbtrfs_format::BackupRoot;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{SparseDevice, SparseImage};
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::skip_unless_linux;

use super::made::{check_file, kinds};
use super::{open_device, open_to_write};

/// Commits, each of which creates a file: more than there are slots.
const COMMITS: usize = 10;
/// The alignment of tree blocks, and the offset of their address in them, in bytes.
const BLOCK: u64 = 4096;
const ADDRESS: u64 = 48;

#[test]
fn backup_roots_take_turns_and_linux_goes_back_to_one() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    for made in &kinds()[..2] {
        let device = Arc::new(made.image().to_device());
        let filesystem = open_to_write(device.clone());
        for number in 0..COMMITS {
            let before = on_disk(&device).superblock().backup_roots;
            filesystem.root().create(number.to_string().as_bytes(), 0o644).unwrap();
            filesystem.commit().unwrap();
            assert_next_slot(made.name, number, &on_disk(&device), &before);
        }
        filesystem.abandon();
        go_back(&linux, made.name, device.image());
    }
}

fn on_disk(device: &Arc<SparseDevice>) -> Filesystem {
    open_device(Arc::new(device.image().to_device())).unwrap()
}

/// Checks that a commit changed the slot after that of the last commit, and no other.
fn assert_next_slot(what: &str, number: usize, now: &Filesystem, before: &[BackupRoot]) {
    let superblock = now.superblock();
    let slots = &superblock.backup_roots;
    assert_eq!(superblock.uuid_tree_generation, superblock.generation, "{what}: the UUID tree");
    let of = |slots: &[BackupRoot], generation| {
        slots.iter().position(|slot| slot.tree_root_generation == generation)
    };
    let new = of(slots, superblock.generation).expect("the commit has a slot");
    assert_eq!(slots[new].tree_root, superblock.root, "{what}");
    assert_eq!(slots[new].chunk_root, superblock.chunk_root, "{what}");
    assert_eq!(slots[new].bytes_used, superblock.bytes_used, "{what}");
    if number > 0 {
        let last = of(before, superblock.generation - 1).expect("so has the one before");
        assert_eq!(new, (last + 1) % slots.len(), "{what}");
    }
    for (slot, (now, before)) in slots.iter().zip(before).enumerate() {
        assert!(slot == new || now == before, "{what}: slot {slot} changed");
    }
}

/// Damages all mirrors of the newest root of the root tree: Linux then shows the state of the
/// previous commit, and continues from that.
fn go_back(linux: &Linux, what: &str, mut image: SparseImage) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    let root = open_device(Arc::new(image.to_device())).unwrap().superblock().root.0;
    assert!(damage(&mut image, root) > 0, "{what}: the root is somewhere");
    assert!(open_device(Arc::new(image.to_device())).is_err(), "{what}: it is read all the same");
    image.write_to(&file).unwrap();
    linux.mount(&file, "ro").unwrap_err();
    let mount = linux.mount(&file, "noatime,rescue=usebackuproot").unwrap();
    let mut names: Vec<_> = std::fs::read_dir(mount.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected: Vec<_> = (0..COMMITS - 1).map(|number| number.to_string()).collect();
    assert_eq!(names, expected, "{what}");
    std::fs::write(mount.path().join("after"), "after").unwrap();
    drop(mount);
    // Linux reports the damage at length.
    linux.complaints().unwrap();
    check_file(what, &file);
    let left = OpenOptions::new().subvolume_id(TreeId::FS).open(&file).unwrap();
    assert_eq!(left.read("/after").unwrap(), b"after", "{what}");
}

/// Damages each block with this address in its header; returns the number of them.
fn damage(image: &mut SparseImage, address: u64) -> usize {
    let mut found = [0; 8];
    let mut is_there = |start: &u64| {
        image.read(start + ADDRESS, &mut found);
        u64::from_le_bytes(found) == address
    };
    let places: Vec<u64> =
        (0..image.len() / BLOCK).map(|block| block * BLOCK).filter(|at| is_there(at)).collect();
    for place in &places {
        image.write(place + ADDRESS + 60, b"damage");
    }
    places.len()
}
