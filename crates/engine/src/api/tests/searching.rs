//! An fsync searches no tree for items that are cached.

use userbtrfs_format::TreeId;

use super::*;

/// Returns the number of searches of the file tree during `act`.
fn searches(lab: &Lab, act: impl FnOnce()) -> u64 {
    let tree = lab.fs.inner.tree_roots().tree(TreeId::FS).unwrap();
    let before = tree.searches();
    act();
    tree.searches() - before
}

fn sync(lab: &Lab, file: &File) -> u64 {
    let groups = lab.fs.stats().log.log_commits;
    let found = searches(lab, || file.sync_all().unwrap());
    assert_eq!(lab.fs.stats().log.log_commits, groups + 1, "it is logged");
    found
}

/// Returns a filesystem with a committed directory.
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

/// The extents on disk under a write are looked up each time, but names and attributes are not.
/// While the file is in memory, it is cached that it has no attributes.
#[test]
fn names_and_attributes_of_an_old_file_are_read_once_in_a_transaction() {
    let (lab, dir) = with_dir();
    let file = dir.lookup(b"old").unwrap().open().unwrap();
    for attributes in [0, 1] {
        if attributes == 1 {
            file.inode().set_xattr(b"user.a", b"1", XattrMode::Create).unwrap();
            lab.fs.commit().unwrap();
        }
        for _ in 0..3 {
            let append = || {
                file.append(&[7; 8192]).unwrap();
                sync(&lab, &file)
            };
            let first = append();
            let later = append();
            assert_eq!(first, later + 1 + attributes);
            assert!((0..5).all(|_| append() == later));
            lab.fs.commit().unwrap();
        }
    }
    file.close().unwrap();
}

/// Each lookup of an attribute searches the tree, unless an earlier one found that the file has
/// none, and it has not got one since.
#[test]
fn a_file_without_attributes_is_known_to_have_none() {
    let (lab, dir) = with_dir();
    drop(dir);
    let lab = lab.reopened();
    let file = lab.fs.lookup("/d/old").unwrap();
    let look = || {
        let mut found = Ok(Vec::new());
        let made = searches(&lab, || found = file.xattr(b"user.a").map_err(|error| error.errno()));
        (found, made)
    };
    let none = Err(61);
    let (first, made) = look();
    assert!(first == none && made > 0, "{made} searches");
    assert_eq!(look(), (none.clone(), 0));
    file.set_xattr(b"user.a", b"1", XattrMode::Create).unwrap();
    assert_eq!(look().0, Ok(b"1".to_vec()));
    lab.fs.commit().unwrap();
    assert_eq!(look().0, Ok(b"1".to_vec()));
    file.remove_xattr(b"user.a").unwrap();
    assert_eq!(look().0, none);
    lab.fs.commit().unwrap();
    assert!(look().0 == none && look() == (none.clone(), 0));
    // Attributes on disk that are not known to be removed.
    file.set_xattr(b"user.b", b"2", XattrMode::Create).unwrap();
    assert_eq!(look().0, none);
    lab.fs.commit().unwrap();
    assert_eq!(file.xattrs().unwrap(), [(b"user.b".to_vec(), b"2".to_vec())]);
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
