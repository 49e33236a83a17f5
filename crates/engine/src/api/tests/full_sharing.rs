//! Snapshots, subvolumes, clones and dedupes on filesystems without free metadata.

use super::full::{fill, fill_metadata};
use super::tree_sizes::tree_sizes;
use super::*;

const KIB: u64 = 1024;
/// Files of a subvolume that has snapshots.
const FILES: u64 = 200;

fn small_nodes() -> Options {
    Options { nodesize: 4096, ..Options::default() }
}

/// Makes a subvolume with files, with inline data and with extents.
fn make_data(lab: &Lab) -> TreeId {
    let data = lab.fs.root().create_subvolume(b"data", 0o755).unwrap();
    for number in 0..FILES {
        let len = if number % 3 == 0 { 9000 } else { 500 };
        lab.fs.write(format!("data/{number}"), pattern(number, len)).unwrap();
    }
    data.inode().id().subvolume
}

fn names(fs: &Filesystem) -> Vec<Vec<u8>> {
    fs.root().entries().map(|entry| entry.unwrap().name().to_vec()).collect()
}

fn assert_no_space<T: std::fmt::Debug>(what: &str, result: &Result<T>) {
    let errno = result.as_ref().err().map(Error::errno);
    assert_eq!(errno, Some(28), "{what}: {result:?}");
}

/// Waits until all deleted subvolumes are dropped, and their space is free.
fn clean(fs: &Filesystem) {
    let deleted = fs.deleted_subvolumes().unwrap();
    let ids: Vec<_> = deleted.iter().map(|subvolume| subvolume.id).collect();
    assert!(fs.wait_for_deleted(&ids, || true).unwrap());
    fs.finish().unwrap();
    fs.commit().unwrap();
}

#[test]
fn sharing_without_metadata_space_changes_nothing_and_deletion_succeeds() {
    let lab = Lab::of(128 << 20, &small_nodes(), 32 << 20);
    let source = make_data(&lab);
    let fs = &lab.fs;
    let root = fs.root();
    let old = root.snapshot(b"old", source, false).unwrap();
    let [a, b, equal] = ["a", "b", "equal"].map(|name| lab.create(name));
    a.write_all_at(&pattern(1, 200_000), 0).unwrap();
    b.write_all_at(&pattern(2, 90_000), 0).unwrap();
    equal.write_all_at(&pattern(1, 200_000), 0).unwrap();
    fs.commit().unwrap();
    let before = (names(fs), fs.subvolumes().unwrap().len(), lab.data_in_use());
    let mut held = Vec::new();
    let hold = |held: &mut Vec<_>| {
        let space = fs.inner.transactions.as_ref().unwrap().space();
        for bytes in [1 << 20, 1 << 17, 1 << 15, 1 << 12] {
            held.extend(std::iter::from_fn(|| space.reserve(bytes).ok()));
        }
    };
    hold(&mut held);
    assert_no_space("snapshot", &root.snapshot(b"new", source, true));
    hold(&mut held);
    assert_no_space("create", &root.create_subvolume(b"new", 0o755).map(drop));
    hold(&mut held);
    assert_no_space("clone", &b.clone_range(&a, 0, 0, 0));
    hold(&mut held);
    assert_no_space("dedupe", &equal.dedupe_range(&a, 0, 128 * KIB, 0));
    assert!(fs.is_writable());
    assert!(matches!(root.lookup(b"new"), Err(Error::NotFound)));
    assert_eq!((names(fs), fs.subvolumes().unwrap().len(), lab.data_in_use()), before);
    assert!(b.read_all().unwrap() == pattern(2, 90_000));
    hold(&mut held);
    assert_eq!(root.delete_subvolume(b"old").unwrap(), old);
    assert!(fs.wait_for_deleted(&[old], || true).unwrap(), "its space is freed");
    drop(held);
    root.snapshot(b"new", source, true).unwrap();
    root.create_subvolume(b"another", 0o755).unwrap();
    b.clone_range(&a, 0, 0, 0).unwrap();
    equal.dedupe_range(&a, 0, 128 * KIB, 0).unwrap();
    assert!(b.read_all().unwrap() == pattern(1, 200_000));
    drop((a, b, equal, root));
    lab.close();
}

/// Changes a file of a subvolume: its leaf, which snapshots share, is copied.
fn change(fs: &Filesystem, path: &str, round: u64) -> Result<()> {
    let inode = fs.lookup(path)?;
    let value = pattern(round, 200);
    inode.set_xattr(b"user.round", &value, XattrMode::Either)
}

/// Makes snapshots and changes them, until there is no space for either; returns the number of
/// snapshots.
fn fill_with_snapshots(fs: &Filesystem, source: TreeId) -> u64 {
    let root = fs.root();
    let mut count = 0;
    loop {
        let name = format!("snapshot {count}");
        match root.snapshot(name.as_bytes(), source, false) {
            Ok(_) => count += 1,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace), "{error}");
                assert!(matches!(root.lookup(name.as_bytes()), Err(Error::NotFound)));
                return count;
            }
        }
        for number in (0..FILES).step_by(3) {
            for path in [format!("{name}/{number}"), format!("data/{number}")] {
                if let Err(error) = change(fs, &path, count) {
                    assert!(matches!(error, Error::NoSpace), "{error}");
                }
            }
        }
        assert!(fs.is_writable(), "{name}");
    }
}

/// Every change that is accepted fits: the commit does not fail, however many blocks it copies.
#[test]
fn filesystem_full_of_snapshots_stays_writable_and_is_emptied() {
    for options in [small_nodes(), Options::default()] {
        let lab = Lab::of(128 << 20, &options, 32 << 20);
        let none = lab.data_in_use();
        let source = make_data(&lab);
        lab.fs.commit().unwrap();
        let used = lab.data_in_use();
        fill(&lab, "large");
        let small = fill_metadata(&lab);
        // Space for a few snapshots.
        for number in 0..small / 10 {
            lab.fs.remove_file(format!("small {number}")).unwrap();
        }
        lab.fs.commit().unwrap();
        let count = fill_with_snapshots(&lab.fs, source);
        println!("{count} snapshots");
        assert!(count > 0);
        lab.fs.commit().unwrap();
        let lab = lab.reopened();
        let root = lab.fs.root();
        for number in 0..FILES {
            let path = format!("snapshot 0/{number}");
            let len = if number % 3 == 0 { 9000 } else { 500 };
            assert!(lab.fs.read(path).unwrap() == pattern(number, len), "{number}");
        }
        for number in 0..count {
            root.delete_subvolume(format!("snapshot {number}").as_bytes()).unwrap();
        }
        clean(&lab.fs);
        for number in small / 10..small {
            lab.fs.remove_file(format!("small {number}")).unwrap();
        }
        lab.fs.remove_file("large").unwrap();
        clean(&lab.fs);
        assert!(lab.data_in_use() <= used, "no more than at first");
        assert_eq!(lab.fs.subvolumes().unwrap().len(), 1);
        root.delete_subvolume(b"data").unwrap();
        for name in names(&lab.fs) {
            lab.fs.remove_file(&name).unwrap();
        }
        clean(&lab.fs);
        assert_eq!(lab.data_in_use(), none);
        drop(root);
        lab.close();
    }
}

/// Clones take only metadata: they end with ENOSPC, leave a prefix, and deleting them frees it.
#[test]
fn filesystem_full_of_clones_stays_writable_and_is_emptied() {
    let lab = Lab::of(128 << 20, &small_nodes(), 32 << 20);
    let source = lab.create("source");
    for at in 0..500_u64 {
        source.write_all_at(&pattern(at, 4096), at * 8192).unwrap();
    }
    lab.fs.commit().unwrap();
    let used = lab.data_in_use();
    let before = tree_sizes(&lab.fs);
    let bytes = source.read_all().unwrap();
    let mut clones = 0_u64;
    let refused = loop {
        let name = format!("clone {clones}");
        let cloned = lab.fs.root().create(name.as_bytes(), 0o644).and_then(|inode| {
            clones += 1;
            let target = inode.open()?;
            let cloned = target.clone_range(&source, 0, 0, 0);
            let found = target.read_all()?;
            assert!(
                found == bytes[..found.len()] && (cloned.is_err() || found.len() == bytes.len())
            );
            cloned
        });
        if let Err(error) = cloned {
            break error;
        }
    };
    assert!(matches!(refused, Error::NoSpace), "{refused}");
    println!("{clones} clones");
    lab.fs.commit().unwrap();
    assert_eq!(lab.data_in_use(), used);
    drop(source);
    let lab = lab.reopened();
    for number in 0..clones {
        lab.fs.remove_file(format!("clone {number}")).unwrap();
    }
    clean(&lab.fs);
    assert_eq!(lab.data_in_use(), used);
    let after = tree_sizes(&lab.fs);
    let nodesize = u64::from(small_nodes().nodesize);
    let blocks: u64 = after.values().map(|size| size.blocks).sum();
    assert_eq!(lab.fs.superblock().bytes_used, used + blocks * nodesize, "{after:?}");
    let size = after[&TreeId::FS];
    assert_eq!(size.items, before[&TreeId::FS].items);
    // The leaves need not be as full as before.
    assert!(size.leaves <= size.leaves_max(nodesize), "{size:?}, before: {before:?}");
    assert!(lab.fs.read("source").unwrap() == bytes);
    lab.close();
}

/// The first change of a leaf after a snapshot adds a reference to each extent of that leaf: far
/// more than the change itself takes.
#[test]
fn files_of_many_extents_are_changed_after_a_snapshot_on_a_full_filesystem() {
    const CHANGED: u64 = 1000;
    let lab = Lab::of(128 << 20, &small_nodes(), 32 << 20);
    let data = lab.fs.root().create_subvolume(b"data", 0o755).unwrap();
    let source = lab.create("source");
    for at in 0..40_u64 {
        source.write_all_at(&pattern(at, 4096), at * 8192).unwrap();
    }
    let bytes = source.read_all().unwrap();
    for number in 0..CHANGED {
        let file = data.create(number.to_string().as_bytes(), 0o644).unwrap().open().unwrap();
        file.clone_range(&source, 0, 0, 0).unwrap();
    }
    lab.fs.commit().unwrap();
    fill(&lab, "large");
    let small = fill_metadata(&lab);
    for number in 0..small / 8 {
        lab.fs.remove_file(format!("small {number}")).unwrap();
    }
    lab.fs.commit().unwrap();
    lab.fs.root().snapshot(b"new", data.inode().id().subvolume, false).unwrap();
    let mut changed = 0;
    for path in (0..CHANGED).map(|number| format!("data/{number}")) {
        match change(&lab.fs, &path, 1) {
            Ok(()) => changed += 1,
            Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
        }
    }
    println!("{changed} of {CHANGED} files changed");
    lab.fs.commit().unwrap();
    drop((data, source));
    let lab = lab.reopened();
    for path in ["data/0", "data/999", "new/0", "new/999"] {
        assert!(lab.fs.read(path).unwrap() == bytes, "{path}");
    }
    // Deleting them takes space, too, as long as the snapshot has them.
    let mut left = Vec::new();
    for path in (0..CHANGED).map(|number| format!("data/{number}")) {
        match lab.fs.remove_file(&path) {
            Ok(()) => {}
            Err(error) => {
                assert!(
                    matches!(error, PathError { error: Error::NoSpace, .. }),
                    "{path}: {error}"
                );
                left.push(path);
            }
        }
    }
    lab.fs.commit().unwrap();
    println!("{} of {CHANGED} files left", left.len());
    assert!(lab.fs.read("new/999").unwrap() == bytes);
    let lab = lab.reopened();
    lab.fs.root().delete_subvolume(b"new").unwrap();
    clean(&lab.fs);
    for path in left {
        lab.fs.remove_file(&path).unwrap();
    }
    lab.close();
}
