//! Images of Linux with snapshots and reflinks: we make snapshots and clones of all that they have,
//! delete them, and delete what Linux made.
//!
//! 1. Each clone has the bytes of its source. Linux accepts the image, and shows what we show.
//! 2. When ours are deleted, the image shows what Linux showed of it, and the space that they took
//!    is free: all of the data, and nearly all tree blocks. Further turns take no more.
//! 3. When Linux's are deleted, too, all data is free, and Linux can use the image.

use std::path::Path;

use userbtrfs::{
    BlockGroupFlags, Deduped, Dir, Filesystem, Inode, OpenOptions, SpaceUse, TreeId, WalkEntry,
};
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::{Manifest, diff};
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_ours};

use super::made::check_file;
use super::ours::{judge_by_linux, retain_unless_shared_ahead, use_by_linux};
use super::{SECTOR_LEN, Unpacked, assert_none};

/// The images.
const IMAGES: &[&str] = &["snapshots", "half-dropped-shared", "shared", "subvolumes"];
/// The subvolume in which we make ours.
const OURS: &str = "ours";
const SECTOR: u64 = SECTOR_LEN as u64;
/// The place of a part that is cloned once more, beyond the end of its file.
const SHIFT: u64 = 64 * SECTOR;

fn writable(image: &Path) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(16 << 20);
    options.open(image).unwrap()
}

/// Waits until all that was deleted is dropped, and durable.
fn clean(fs: &Filesystem) {
    let deleted = fs.deleted_subvolumes().unwrap();
    let ids: Vec<_> = deleted.iter().map(|subvolume| subvolume.id).collect();
    assert!(fs.wait_for_deleted(&ids, || true).unwrap(), "nothing stops the cleaner");
    fs.finish().unwrap();
    fs.commit().unwrap();
}

/// Makes a snapshot of each subvolume, and changes those that may be changed.
fn snapshot_all(fs: &Filesystem, ours: &Dir) {
    for (number, subvolume) in (0_u32..).zip(fs.subvolumes().unwrap()) {
        let name = format!("of {}", subvolume.id.0);
        let copy = ours.snapshot(name.as_bytes(), subvolume.id, number % 3 == 1).unwrap();
        if fs.subvolume(copy).unwrap().is_read_only() {
            continue;
        }
        let top = format!("/{OURS}/{name}");
        fs.write(format!("{top}/new"), pattern::bytes(3, 0, 30_000)).unwrap();
        for file in files(fs, &top).iter().step_by(3) {
            let file = file.inode.open().unwrap();
            file.write_all_at(&pattern::bytes(4, 0, 5000), file.len() / 2).unwrap();
        }
    }
}

/// Clones each file, and a part of it behind its end; shares written copies of some again.
fn clone_all(fs: &Filesystem, ours: &Dir, sources: &[WalkEntry]) {
    let copies = ours.create_dir(b"copies", 0o755).unwrap();
    let create = |name: String| -> Inode { copies.create(name.as_bytes(), 0o644).unwrap() };
    for (number, source) in sources.iter().enumerate() {
        let source = source.inode.open().unwrap();
        let bytes = source.read_all().unwrap();
        let copy = create(format!("clone {number}")).open().unwrap();
        copy.clone_range(&source, 0, 0, 0).unwrap();
        let sectors = source.len() / SECTOR;
        let end = source.len().next_multiple_of(SECTOR);
        if sectors > 1 {
            let from = sectors / 3 * SECTOR;
            let len = sectors.div_ceil(2) * SECTOR;
            copy.clone_range(&source, from, len, end + SHIFT).unwrap();
        }
        let found = copy.read_all().unwrap();
        assert!(found[..bytes.len()] == bytes, "clone {number}");
        if number % 5 == 0 && !bytes.is_empty() {
            let written = create(format!("written {number}")).open().unwrap();
            written.write_all_at(&bytes, 0).unwrap();
            let deduped = written.dedupe_range(&source, 0, source.len(), 0).unwrap();
            assert!(matches!(deduped, Deduped::Same { .. }), "written {number}: {deduped:?}");
            written.write_all_at(&bytes[..1], 0).unwrap();
            assert!(written.read_all().unwrap() == bytes, "written {number}");
        }
        if number % 50 == 0 {
            fs.commit().unwrap();
        }
    }
}

fn files(fs: &Filesystem, path: &str) -> Vec<WalkEntry> {
    let entries = fs.walk(path).unwrap().map(Result::unwrap);
    entries.filter(|entry| entry.kind == userbtrfs::FileKind::Regular).collect()
}

/// Removes a name with all that is below it, also subvolumes.
fn remove(dir: &Dir, name: &[u8]) {
    if dir.delete_subvolume(name).is_ok() {
        return;
    }
    // The name of a subvolume that a snapshot did not copy is removed already.
    let Ok(inode) = dir.lookup(name) else { return };
    let Ok(below) = inode.open_dir() else { return dir.remove_file(name).unwrap() };
    for entry in below.entries().map(Result::unwrap).collect::<Vec<_>>() {
        remove(&below, entry.name());
    }
    drop((below, inode));
    if dir.delete_subvolume(name).is_err() {
        dir.remove_dir(name).unwrap();
    }
}

/// Checks that the image shows what Linux showed of it, except for the root directory, in which we
/// made a name.
fn assert_as_linux_showed(name: &str, linux: &Manifest, ours: &Manifest) {
    let mut differences = diff(linux, ours, &["atime"]);
    differences.retain(|one| one.path.as_slice() != b"/");
    retain_unless_shared_ahead(&mut differences, linux, ours);
    assert_none(&format!("{name}: without ours"), &differences);
}

/// Returns the bytes in use: of data, and of all else.
fn used(fs: &Filesystem) -> [u64; 2] {
    let kinds = fs.usage().unwrap().kinds;
    let (data, rest): (Vec<&SpaceUse>, Vec<&SpaceUse>) =
        kinds.iter().partition(|kind| kind.flags == BlockGroupFlags::DATA);
    [data, rest].map(|kinds| kinds.iter().map(|kind| kind.used).sum::<u64>())
}

/// Makes ours, has Linux judge them, and deletes them; returns the bytes in use then.
fn share_and_delete(linux: &Linux, name: &str, image: &Path) -> [u64; 2] {
    let fs = writable(image);
    let sources = files(&fs, "/");
    let ours = fs.root().create_subvolume(OURS.as_bytes(), 0o755).unwrap();
    snapshot_all(&fs, &ours);
    clone_all(&fs, &ours, &sources);
    drop((ours, sources));
    fs.close().unwrap();
    check_file(name, image);
    judge_by_linux(linux, name, image);

    let fs = writable(image);
    remove(&fs.root(), OURS.as_bytes());
    clean(&fs);
    let used = used(&fs);
    fs.close().unwrap();
    used
}

fn change(linux: &Linux, golden: &Golden) {
    let name = golden.name();
    let shown = golden.manifest().unwrap().expect("Linux could show it");
    let Unpacked { _folder, image } = Unpacked::new(golden);
    let fs = writable(&image);
    clean(&fs);
    let some_blocks = 8 * u64::from(fs.superblock().nodesize);
    let [data, rest] = used(&fs);
    fs.close().unwrap();
    let [data_after, first] = share_and_delete(linux, name, &image);
    assert_eq!(data_after, data, "{name}: bytes of data in use");
    // Leaves of the extent tree that were split are less full than before.
    assert!(first <= rest + rest / 16 + some_blocks, "{name}: {first} bytes, {rest} before");
    let [data_after, second] = share_and_delete(linux, name, &image);
    assert_eq!(data_after, data, "{name}: bytes of data in use");
    assert!(second <= first + some_blocks, "{name}: {second} bytes, {first} after the first turn");
    check_file(name, &image);
    judge_by_linux(linux, name, &image);
    let ours = walk_ours::walk(&super::open(&image, 64).unwrap()).unwrap();
    assert_as_linux_showed(name, &shown, &ours);

    let fs = writable(&image);
    fs.set_default_subvolume(TreeId::FS).unwrap();
    for entry in fs.root().entries().map(Result::unwrap).collect::<Vec<_>>() {
        remove(&fs.root(), entry.name());
    }
    clean(&fs);
    assert_eq!(fs.subvolumes().unwrap().len(), 0, "{name}");
    assert_eq!(used(&fs)[0], 0, "{name}: all data is free");
    fs.close().unwrap();
    check_file(name, &image);
    use_by_linux(linux, name, &image);
}

#[test]
fn snapshots_and_clones_of_linux_are_shared_further_and_all_are_deleted() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    for name in IMAGES {
        change(&linux, &Golden::named(name));
    }
    linux.assert_no_complaints().unwrap();
}
