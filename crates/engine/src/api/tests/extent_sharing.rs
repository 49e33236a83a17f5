//! Which extents of files are shared, and with whom: clones, snapshots and the same file.

use super::*;

const KIB: u64 = 1024;

fn bytes_of(lab: &Lab, path: &str) -> (u64, u64) {
    let id = lab.fs.lookup(path).unwrap().id();
    let found = lab.fs.extent_sharing().unwrap().file_use(id).unwrap();
    assert_eq!(found.exclusive_bytes(), found.total - found.shared_bytes());
    (found.total, found.shared_bytes())
}

fn write(lab: &Lab, path: &str, len: usize) -> File {
    let file = lab.create(path);
    file.write_all_at(&pattern(len as u64, len), 0).unwrap();
    file
}

#[test]
fn range_is_shared_while_another_file_refers_to_its_extent() {
    let lab = Lab::new();
    let a = write(&lab, "a", 256 << 10);
    write(&lab, "inline", 100);
    lab.create("hole").set_len(1 << 20).unwrap();
    assert_eq!(bytes_of(&lab, "/a"), (256 * KIB, 0));
    assert_eq!(bytes_of(&lab, "/inline"), (0, 0));
    assert_eq!(bytes_of(&lab, "/hole"), (0, 0));
    let b = lab.create("b");
    b.clone_range(&a, 64 * KIB, 32 * KIB, 0).unwrap();
    assert_eq!(bytes_of(&lab, "/b"), (32 * KIB, 32 * KIB));
    // The extent is shared, and with it each range of it, as in Linux.
    assert_eq!(bytes_of(&lab, "/a"), (256 * KIB, 256 * KIB));
    // Two items of one file for one extent are one reference.
    a.write_all_at(&[1; 4096], 128 * KIB).unwrap();
    assert_eq!(bytes_of(&lab, "/a"), (256 * KIB, 252 * KIB));
    lab.fs.remove_file("b").unwrap();
    drop(b);
    assert_eq!(bytes_of(&lab, "/a"), (256 * KIB, 0));
    let at = lab.fs.lookup("/a").unwrap().id();
    a.clone_range(&a, 0, 64 * KIB, 512 * KIB).unwrap();
    let found = lab.fs.extent_sharing().unwrap().file_use(at).unwrap();
    assert_eq!((found.total, found.shared_bytes()), (320 * KIB, 316 * KIB));
    assert_eq!(found.shared.first().unwrap().logical, found.shared.last().unwrap().logical);
    drop(a);
    lab.close();
}

#[test]
fn ranges_are_shared_with_a_snapshot_until_either_side_changes() {
    let lab = Lab::new();
    let root = lab.fs.root();
    root.create_subvolume(b"s", 0o755).unwrap();
    let dir = lab.fs.open_dir("/s").unwrap();
    for number in 0..600_u32 {
        let name = format!("{number}");
        let file = dir.create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        file.write_all_at(&[7; 5000], 0).unwrap();
    }
    let id = dir.inode().id().subvolume;
    assert_eq!(bytes_of(&lab, "/s/300"), (8 * KIB, 0));
    root.snapshot(b"t", id, false).unwrap();
    for path in ["/s/0", "/s/300", "/s/599", "/t/0", "/t/300", "/t/599"] {
        assert_eq!(bytes_of(&lab, path), (8 * KIB, 8 * KIB), "{path}");
    }
    lab.fs.open_file("/t/300").unwrap().write_all_at(&[8; 4096], 0).unwrap();
    assert_eq!(bytes_of(&lab, "/t/300"), (8 * KIB, 4 * KIB));
    assert_eq!(bytes_of(&lab, "/s/300"), (8 * KIB, 8 * KIB));
    let snapshot = lab.fs.lookup("/t").unwrap().id().subvolume;
    root.delete_subvolume(b"t").unwrap();
    lab.fs.commit().unwrap();
    assert!(lab.fs.wait_for_deleted(&[snapshot], || true).unwrap());
    for path in ["/s/0", "/s/300", "/s/599"] {
        assert_eq!(bytes_of(&lab, path), (8 * KIB, 0), "{path}");
    }
    drop((root, dir));
    lab.close();
}

#[test]
fn usage_counts_new_chunks_and_the_reserve() {
    let lab = Lab::new();
    let before = lab.fs.usage().unwrap();
    assert_eq!(before.device_slack, 0);
    assert!(before.global_reserve > 0 && before.global_reserve <= 512 << 20);
    let file = write(&lab, "large", 60 << 20);
    file.sync_all().unwrap();
    lab.fs.commit().unwrap();
    let after = lab.fs.usage().unwrap();
    assert!(after.device_allocated > before.device_allocated);
    let sum: u64 = after.kinds.iter().map(SpaceUse::device_total).sum();
    assert_eq!(sum, after.device_allocated);
    let used: u64 = after.kinds.iter().map(SpaceUse::device_used).sum();
    assert!(used > 60 << 20);
    drop(file);
    let Lab { device, fs, .. } = lab;
    fs.close().unwrap();
    let fs = OpenOptions::new().open_devices(vec![device as Arc<dyn Device>]).unwrap();
    let closed = fs.usage().unwrap();
    assert_eq!((closed.kinds, closed.device_allocated), (after.kinds, after.device_allocated));
    // Linux reserves 22 insertions of 256 KiB in a filesystem with these trees.
    assert_eq!(closed.global_reserve, 22 * 16 * (16 << 10));
}
