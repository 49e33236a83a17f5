//! An fsync searches no tree for what is in memory.

use userbtrfs_format::TreeId;

use super::*;

/// How often the tree of the files was searched while something was done.
fn searches(lab: &Lab, act: impl FnOnce()) -> u64 {
    let tree = lab.fs.inner.forest().tree(TreeId::FS).unwrap();
    let before = tree.searches();
    act();
    tree.searches() - before
}

fn sync(lab: &Lab, file: &File) -> u64 {
    let groups = lab.fs.stats().log.groups;
    let found = searches(lab, || file.sync_all().unwrap());
    assert_eq!(lab.fs.stats().log.groups, groups + 1, "it is logged");
    found
}

/// A directory that is committed.
fn with_dir() -> (Lab, Dir) {
    let lab = Lab::new();
    let dir = lab.fs.root().create_dir(b"d", 0o755).unwrap();
    dir.create(b"old", 0o644).unwrap();
    lab.fs.commit().unwrap();
    (lab, dir)
}

#[test]
fn an_fsync_of_a_new_file_searches_nothing() {
    let (lab, dir) = with_dir();
    for (name, len) in [(&b"a"[..], 100), (b"b", 100_000)] {
        let file = dir.create(name, 0o644).unwrap().open().unwrap();
        file.append(&vec![7; len]).unwrap();
        assert_eq!(sync(&lab, &file), 0);
        file.close().unwrap();
    }
}

#[test]
fn an_fsync_of_what_was_appended_searches_nothing() {
    let (lab, dir) = with_dir();
    let file = dir.create(b"a", 0o644).unwrap().open().unwrap();
    for _ in 0..10 {
        file.append(&[7; 5000]).unwrap();
        assert_eq!(sync(&lab, &file), 0);
    }
    file.close().unwrap();
}

/// What is beneath what was written is looked up each time; names and attributes are not.
#[test]
fn names_and_attributes_of_an_old_file_are_read_once_in_a_transaction() {
    let (lab, dir) = with_dir();
    let file = dir.lookup(b"old").unwrap().open().unwrap();
    for _ in 0..3 {
        let append = || {
            file.append(&[7; 8192]).unwrap();
            sync(&lab, &file)
        };
        let (first, later) = (append(), append());
        assert_eq!(first, later + 2);
        assert!((0..5).all(|_| append() == later));
        lab.fs.commit().unwrap();
    }
    file.close().unwrap();
}

#[test]
fn an_fsync_of_a_new_name_in_a_known_directory_searches_nothing() {
    let (lab, dir) = with_dir();
    let file = dir.create(b"a", 0o644).unwrap().open().unwrap();
    assert_eq!(sync(&lab, &file), 0);
    for name in ["b", "c", "d"] {
        dir.link(name.as_bytes(), file.inode()).unwrap();
        assert_eq!(sync(&lab, &file), 0, "linked");
        let to = format!("{name} moved");
        dir.rename(name.as_bytes(), &dir, to.as_bytes(), RenameMode::NoReplace).unwrap();
        assert_eq!(sync(&lab, &file), 0, "renamed");
    }
    file.close().unwrap();
}
