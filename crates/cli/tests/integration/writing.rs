//! The writing part of the library's API: handles, durability, and errors.

use userbtrfs::{
    Attributes, Error, InodeFlags, OpenOptions, PathError, PathResult, RenameMode, Timestamp,
    XattrMode,
};

use crate::support::golden::Unpacked;
use crate::support::made::Made;

fn is_not_found<T>(found: &PathResult<T>) -> bool {
    matches!(found, Err(PathError { error: Error::NotFound, .. }))
}

#[test]
fn changes_are_visible_at_once_and_durable_after_commit() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.create_dir_all("/a/b", 0o750).unwrap();
    filesystem.write("/a/b/file", "first").unwrap();
    filesystem.write("/a/b/file", "second content").unwrap();
    filesystem.hard_link("/a/b/file", "/again").unwrap();
    filesystem.symlink("a/b", "/link").unwrap();
    filesystem.set_permissions("/link/file", 0o600).unwrap();
    filesystem.rename("/a/b", "/moved").unwrap();
    assert_eq!(filesystem.read("/moved/file").unwrap(), b"second content");
    assert!(is_not_found(&filesystem.lookup("/a/b")) && is_not_found(&filesystem.lookup("/link/")));
    assert!(is_not_found(&made.open().lookup("/again")), "nothing is durable yet");
    filesystem.commit().unwrap();
    assert_eq!(made.open().read("/again").unwrap(), b"second content");
    filesystem.remove_dir_all("/moved").unwrap();
    filesystem.close().unwrap();
    let metadata = made.open().metadata("/again").unwrap();
    assert_eq!((metadata.nlink, metadata.mode), (1, 0o100_600));
    made.judge();
}

#[test]
fn removed_file_lives_while_a_handle_is_open() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.write("/f", "content").unwrap();
    let inode = filesystem.lookup("/f").unwrap();
    let file = inode.open().unwrap();
    filesystem.remove_file("/f").unwrap();
    filesystem.commit().unwrap();
    assert_eq!((file.read_all().unwrap(), inode.metadata().unwrap().nlink), (b"content".into(), 0));
    inode.write_content(b"changed").unwrap();
    assert_eq!(file.read_all().unwrap(), b"changed");
    assert!(matches!(filesystem.root().link(b"back", &inode), Err(Error::NotFound)));
    // The filesystem closes when the last handle is dropped.
    filesystem.close().unwrap();
    drop((file, inode));
    assert!(made.paths().is_empty());
    made.judge();
}

#[test]
fn unnamed_file_is_linked_or_deleted() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    let root = filesystem.root();
    let kept = root.create_unnamed(0o640).unwrap();
    let lost = root.create_unnamed(0o640).unwrap();
    kept.write_content(b"kept").unwrap();
    lost.write_content(b"lost").unwrap();
    filesystem.commit().unwrap();
    root.link(b"name", &kept).unwrap();
    drop((kept, lost, root));
    filesystem.close().unwrap();
    assert_eq!(made.paths(), ["/name"]);
    assert_eq!(made.open().read("/name").unwrap(), b"kept");
    made.judge();
}

/// Orphans that a crash leaves are deleted by the next writer.
#[test]
fn orphan_left_by_a_crash_is_deleted() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.write("/f", "content").unwrap();
    let inode = filesystem.lookup("/f").unwrap();
    filesystem.remove_file("/f").unwrap();
    filesystem.commit().unwrap();
    filesystem.abandon();
    drop(inode);
    made.judge();
    let filesystem = made.open_for_writing();
    filesystem.create_dir("/a", 0o755).unwrap();
    filesystem.close().unwrap();
    assert_eq!(made.paths(), ["/a"]);
    made.judge();
}

#[test]
fn every_attribute_is_set() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    let inode = filesystem.root().make_node(b"device", 0o060_640, (300, 70_000)).unwrap();
    let time = |sec, nsec| Some(Timestamp { sec, nsec });
    let attributes = Attributes {
        mode: Some(0o4711),
        uid: Some(u32::MAX - 1),
        gid: Some(70_000),
        size: None,
        accessed: time(-1, 1),
        modified: time(1 << 33, 999_999_999),
        changed: time(5, 0),
        created: time(0, 7),
    };
    inode.set_attributes(&attributes).unwrap();
    filesystem.write("/f", "").unwrap();
    filesystem.lookup("/f").unwrap().set_flags(InodeFlags::NOATIME).unwrap();
    drop(inode);
    filesystem.close().unwrap();
    let filesystem = made.open();
    let found = filesystem.metadata("/device").unwrap();
    assert_eq!((found.mode, found.uid, found.gid), (0o064_711, u32::MAX - 1, 70_000));
    assert_eq!(found.device, (300, 70_000));
    assert_eq!(Some(found.accessed), attributes.accessed);
    assert_eq!(Some(found.modified), attributes.modified);
    assert_eq!(Some(found.changed), attributes.changed);
    assert_eq!(Some(found.created), attributes.created);
    assert!(filesystem.metadata("/f").unwrap().flags.contains(InodeFlags::NOATIME));
    made.judge();
}

/// Linux makes such a file with the mount option `nodatasum`.
#[test]
fn nodatasum_is_kept_when_flags_are_set() {
    let unpacked = Unpacked::new("flags");
    let filesystem = OpenOptions::new().write(true).open(unpacked.path()).unwrap();
    let mut entries = filesystem.walk("/").unwrap().map(Result::unwrap);
    let inode = entries.find(|entry| entry.path.ends_with(b"no sum")).unwrap().inode;
    let flags = inode.metadata().unwrap().flags;
    assert!(flags.contains(InodeFlags::NODATASUM) && !flags.contains(InodeFlags::NODATACOW));
    inode.set_flags(flags | InodeFlags::NOATIME).unwrap();
    inode.set_flags(InodeFlags::NOATIME).unwrap();
    assert_eq!(inode.metadata().unwrap().flags, InodeFlags::NODATASUM | InodeFlags::NOATIME);
    let changed = inode.set_flags(InodeFlags::NODATACOW);
    assert!(matches!(changed, Err(Error::Invalid(_))), "it has content");
}

#[test]
fn each_refusal_has_its_error() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    let root = filesystem.root();
    let dir = filesystem.create_dir("/dir", 0o755).unwrap();
    let file = root.create(b"file", 0o644).unwrap();
    dir.create(b"inside", 0o644).unwrap();
    let errno = |done: Result<(), Error>| done.map_or_else(|error| error.errno(), |()| 0);
    let rename = |from, to, mode| errno(root.rename(from, &root, to, mode));
    let set = |mode| errno(file.set_xattr(b"user.a", b"", mode));
    let long = [b'n'; 256];
    assert_eq!(errno(root.create(b"file", 0).map(drop)), 17);
    assert_eq!(errno(root.create(&long, 0).map(drop)), 36);
    assert_eq!(errno(root.remove_dir(b"dir")), 39);
    assert_eq!(errno(root.remove_dir(b"file")), 20);
    assert_eq!(errno(root.remove_file(b"dir")), 21);
    assert_eq!(errno(root.remove_file(b"none")), 2);
    assert_eq!(errno(root.link(b"x", dir.inode())), 1);
    assert_eq!(errno(root.rename(b"dir", &dir, b"x", RenameMode::Replace)), 22);
    assert_eq!(rename(b"dir", b"file", RenameMode::Replace), 20);
    assert_eq!(rename(b"file", b"dir", RenameMode::Replace), 21);
    assert_eq!(rename(b"file", b"dir", RenameMode::NoReplace), 17);
    assert_eq!(rename(b"file", b"none", RenameMode::Exchange), 2);
    assert_eq!(set(XattrMode::Replace), 61);
    assert_eq!(set(XattrMode::Create), 0);
    assert_eq!(set(XattrMode::Create), 17);
    assert_eq!(errno(file.remove_xattr(b"user.none")), 61);
    assert_eq!(errno(file.set_xattr(&long, b"", XattrMode::Either)), 34);
    assert_eq!(errno(root.make_node(b"x", 0o040_755, (0, 0)).map(drop)), 22);
    let other = Made::new();
    let foreign = other.open_for_writing().root().create(b"foreign", 0o644).unwrap();
    assert_eq!(errno(root.link(b"x", &foreign)), 18);
    drop((file, dir, root));
    filesystem.close().unwrap();
    made.judge();
}

#[test]
fn a_whiteout_takes_the_old_name() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    let root = filesystem.root();
    filesystem.write("/f", "content").unwrap();
    root.rename(b"f", &root, b"g", RenameMode::Whiteout).unwrap();
    let whiteout = filesystem.metadata("/f").unwrap();
    assert_eq!((whiteout.mode, whiteout.device), (0o020_000, (0, 0)));
    assert_eq!(filesystem.read("/g").unwrap(), b"content");
    drop(root);
    filesystem.close().unwrap();
    made.judge();
}

/// The last handle closes the filesystem; before that a second writer is refused.
#[test]
fn dropping_the_last_handle_commits() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    let root = filesystem.root();
    filesystem.create_dir("/a", 0o755).unwrap();
    filesystem.close().unwrap();
    assert_eq!(made.paths(), ["/a"], "closing commits though a handle is left");
    assert_eq!(made.verb("mkdir", &["/b"]).code, Some(1), "and the image stays locked");
    root.create_dir(b"c", 0o755).unwrap();
    drop(root);
    made.does("mkdir", &["/b"]);
    assert_eq!(made.paths(), ["/a", "/b", "/c"]);
    made.judge();
}

#[test]
fn abandoned_filesystem_refuses_changes() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.create_dir("/a", 0o755).unwrap();
    filesystem.commit().unwrap();
    filesystem.create_dir("/lost", 0o755).unwrap();
    let other = filesystem.clone();
    filesystem.abandon();
    assert!(!other.is_writable());
    assert_eq!(other.create_dir("/b", 0o755).unwrap_err().errno(), 30);
    assert_eq!(other.commit().unwrap_err().errno(), 30);
    assert_eq!(other.close().unwrap_err().errno(), 30);
    assert_eq!(made.paths(), ["/a"]);
    made.judge();
}
