//! Subvolumes and snapshots that we make, judged by Linux.
//!
//! 1. Linux finds no error, and shows the same tree.
//! 2. btrfs-progs lists the same subvolumes, with the same relations, on a Linux mount.
//! 3. A snapshot has what was written before the call, durable or not, and nothing else.

use std::path::PathBuf;
use std::process::Command;

use userbtrfs::mkfs::Options;
use userbtrfs::{
    Attributes, Dir, Error, Filesystem, InodeFlags, OpenOptions, PathError, RenameMode, TreeId,
};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::skip_unless_linux;

use super::made::{MIB, Made};
use super::ours::judge_by_linux;

/// A filesystem in an image file, with a subvolume `data` that has a directory of files.
struct Image {
    folder: tempfile::TempDir,
    path: PathBuf,
    filesystem: Filesystem,
}

const FILES: u32 = 300;

impl Image {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let made = Made::new("subvolumes", 256 * MIB, Options::default());
        made.image().write_to(&path).unwrap();
        let filesystem = OpenOptions::new().write(true).open(&path).unwrap();
        let image = Self { folder, path, filesystem };
        let data = image.filesystem.root().create_subvolume(b"data", 0o755).unwrap();
        let files = data.create_dir(b"files", 0o755).unwrap();
        for number in 0..FILES {
            let name = format!("file {number}");
            let file = files.create(name.as_bytes(), 0o644).unwrap().open().unwrap();
            let len = if number % 3 == 0 { 100 } else { 9000 };
            file.append(&vec![u8::try_from(number % 251).unwrap(); len]).unwrap();
        }
        image
    }

    fn root(&self) -> Dir {
        self.filesystem.root()
    }

    fn id(&self, path: &str) -> TreeId {
        self.filesystem.lookup(path).unwrap().id().subvolume
    }

    fn close(self) -> (tempfile::TempDir, PathBuf) {
        self.filesystem.close().unwrap();
        (self.folder, self.path)
    }

    /// Closes the image, and has Linux judge it.
    fn judge(self, what: &str) {
        let (_folder, path) = self.close();
        btrfs_check(&path).unwrap();
        let linux = Linux::lock().unwrap();
        judge_by_linux(&linux, what, &path);
    }
}

#[test]
fn snapshot_has_all_that_was_written_before_and_nothing_after() {
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    let source = image.id("/data");
    let late = image.filesystem.open_file("/data/files/file 1").unwrap();
    late.append(b"before").unwrap();
    root.snapshot(b"read-only", source, true).unwrap();
    let second = root.snapshot(b"writable", source, false).unwrap();
    late.append(b"after").unwrap();
    image.filesystem.write("/data/new", b"new").unwrap();
    image.filesystem.write("/writable/files/file 2", b"changed").unwrap();
    image.filesystem.remove_file("/writable/files/file 3").unwrap();
    root.snapshot(b"of the snapshot", second, false).unwrap();

    let tail = |path: &str| image.filesystem.read(path).unwrap().split_off(9000);
    assert_eq!(tail("/data/files/file 1"), b"beforeafter");
    assert_eq!(tail("/read-only/files/file 1"), b"before");
    assert_eq!(tail("/of the snapshot/files/file 1"), b"before");
    assert_eq!(image.filesystem.read("/of the snapshot/files/file 2").unwrap(), b"changed");
    let gone = image.filesystem.read("/of the snapshot/files/file 3");
    assert!(matches!(gone, Err(PathError { error: Error::NotFound, .. })), "{gone:?}");
    let refused = image.filesystem.write("/read-only/new", b"new");
    assert!(matches!(refused, Err(PathError { error: Error::ReadOnly, .. })), "{refused:?}");
    assert!(matches!(
        image.filesystem.read("/read-only/new"),
        Err(PathError { error: Error::NotFound, .. })
    ));
    image.judge("snapshots");
}

#[test]
fn both_sides_of_snapshots_are_changed_in_later_transactions() {
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    let mut source = image.id("/data");
    for round in 0..12_u32 {
        let name = format!("snapshot {round}");
        let made = root.snapshot(name.as_bytes(), source, round % 4 == 3).unwrap();
        for path in ["/data".to_owned(), format!("/snapshot {}", round.saturating_sub(1))] {
            let file = format!("{path}/files/file {}", round * 7);
            let written = image.filesystem.write(&file, vec![1; 5000]);
            assert!(
                matches!(written, Ok(()) | Err(PathError { error: Error::ReadOnly, .. })),
                "{written:?}"
            );
        }
        image.filesystem.write(format!("/data/round {round}"), vec![2; 70_000]).unwrap();
        if round % 3 == 0 {
            source = made;
        }
        if round % 2 == 0 {
            image.filesystem.commit().unwrap();
        }
    }
    image.judge("snapshots in rounds");
}

#[test]
fn subvolumes_are_nested_renamed_and_listed_as_linux_lists_them() {
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    let data = image.filesystem.open_dir("/data").unwrap();
    data.create_subvolume(b"inner", 0o700).unwrap();
    image.filesystem.write("/data/inner/file", b"in").unwrap();
    root.create_dir(b"empty", 0o755).unwrap();
    let other = root.create_subvolume(b"other", 0o755).unwrap();
    root.snapshot(b"copy", image.id("/data"), false).unwrap();
    assert!(image.filesystem.open_dir("/copy/inner").unwrap().entries().next().is_none());

    data.rename(b"inner", &other, b"moved", RenameMode::Replace).unwrap();
    root.rename(b"copy", &root, b"empty", RenameMode::Replace).unwrap();
    let into = root.rename(
        b"other",
        &image.filesystem.open_dir("/other/moved").unwrap(),
        b"x",
        RenameMode::Replace,
    );
    assert!(matches!(into, Err(Error::IntoItself)), "{into:?}");
    assert_eq!(image.filesystem.read("/other/moved/file").unwrap(), b"in");
    image.filesystem.set_default_subvolume(image.id("/other")).unwrap();
    image.filesystem.set_subvolume_read_only(image.id("/empty"), true).unwrap();

    let ours: Vec<_> = image
        .filesystem
        .subvolumes()
        .unwrap()
        .into_iter()
        .map(|it| {
            let extended = it.root.extended.as_ref().unwrap();
            let parent = if extended.parent_uuid.is_nil() {
                "-".to_owned()
            } else {
                extended.parent_uuid.to_string()
            };
            let path = String::from_utf8(it.path.clone()).unwrap();
            (it.id.0, it.parent.unwrap().0, extended.uuid.to_string(), parent, path)
        })
        .collect();
    let (_folder, path) = image.close();
    btrfs_check(&path).unwrap();
    let linux = Linux::lock().unwrap();
    judge_by_linux(&linux, "nested subvolumes", &path);
    let mount = linux.mount(&path, "subvolid=5").unwrap();
    let listed = run(Command::new("btrfs").args(["subvolume", "list", "-puq"]).arg(mount.path()));
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let theirs: Vec<_> = listed
        .lines()
        .map(|line| {
            let (fields, path) = line.split_once(" path ").unwrap();
            let fields: Vec<_> = fields.split_whitespace().collect();
            let value = |name: &str| {
                let at = fields.iter().position(|field| *field == name).unwrap();
                fields[at + 1].to_owned()
            };
            let number = |name| value(name).parse::<u64>().unwrap();
            (number("ID"), number("parent"), value("uuid"), value("parent_uuid"), path.to_owned())
        })
        .collect();
    assert_eq!(ours, theirs);
    let default = run(Command::new("btrfs").args(["subvolume", "get-default"]).arg(mount.path()));
    let default = String::from_utf8(default.unwrap().stdout).unwrap();
    assert!(default.ends_with("path other\n"), "{default}");
}

#[test]
fn subvolume_is_deleted_unless_it_is_needed() {
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    let data = image.filesystem.open_dir("/data").unwrap();
    data.create_subvolume(b"inner", 0o700).unwrap();
    assert!(matches!(root.delete_subvolume(b"data"), Err(Error::NotEmpty)));
    data.remove_dir(b"inner").unwrap();
    image.filesystem.set_default_subvolume(image.id("/data")).unwrap();
    assert!(matches!(root.delete_subvolume(b"data"), Err(Error::NotPermitted)));
    assert!(matches!(root.remove_dir(b"data"), Err(Error::NotEmpty)));
    image.filesystem.set_default_subvolume(TreeId::FS).unwrap();
    root.create_dir(b"plain", 0o755).unwrap();
    assert!(matches!(root.delete_subvolume(b"plain"), Err(Error::NoSubvolume)));
    root.snapshot(b"kept", image.id("/data"), false).unwrap();
    let open = image.filesystem.open_file("/data/files/file 4").unwrap();
    root.delete_subvolume(b"data").unwrap();
    assert!(matches!(
        image.filesystem.lookup("/data"),
        Err(PathError { error: Error::NotFound, .. })
    ));
    assert_eq!(open.read_all().unwrap().len(), 9000);
    drop((open, data));
    image.judge("deleted subvolume");
}

#[test]
fn space_returns_when_all_snapshots_are_deleted() {
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    image.filesystem.commit().unwrap();
    let used = || {
        image.filesystem.finish().unwrap();
        image.filesystem.commit().unwrap();
        image.filesystem.superblock().bytes_used
    };
    let before = used();
    let source = image.id("/data");
    let mut ids = Vec::new();
    for round in 0..6_u32 {
        let name = format!("snapshot {round}");
        let from = ids.last().copied().filter(|_| round % 2 == 0).unwrap_or(source);
        ids.push(root.snapshot(name.as_bytes(), from, false).unwrap());
        for number in 0..40 {
            let file = format!("/{name}/files/file {}", number * 7);
            image.filesystem.write(&file, vec![3; 12_000]).unwrap();
        }
        image.filesystem.write(format!("/{name}/new"), vec![4; 200_000]).unwrap();
        image.filesystem.commit().unwrap();
    }
    // Neither the order of creation nor the reverse.
    for round in [2_u32, 0, 5, 1, 4, 3] {
        root.delete_subvolume(format!("snapshot {round}").as_bytes()).unwrap();
    }
    assert_eq!(image.filesystem.deleted_subvolumes().unwrap().len(), 6);
    image.filesystem.wait_for_deleted(&ids, || true).unwrap();
    assert!(image.filesystem.deleted_subvolumes().unwrap().is_empty());
    let after = used();
    // The source's own blocks may be split or merged differently; none of these was changed.
    assert_eq!(after, before, "bytes used");
    image.judge("all snapshots deleted");
}

#[test]
fn thousand_snapshots_of_one_subvolume() {
    const SNAPSHOTS: usize = 1000;
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    let source = image.id("/data");
    let dir = root.create_dir(b"snapshots", 0o755).unwrap();
    for number in 0..SNAPSHOTS {
        image.filesystem.write("/data/number", number.to_string()).unwrap();
        dir.snapshot(number.to_string().as_bytes(), source, number % 2 == 0).unwrap();
    }
    assert_eq!(image.filesystem.subvolumes().unwrap().len(), SNAPSHOTS + 1);
    for number in (0..SNAPSHOTS).step_by(97) {
        let found = image.filesystem.read(format!("/snapshots/{number}/number")).unwrap();
        assert_eq!(found, number.to_string().as_bytes());
    }
    let (_folder, path) = image.close();
    btrfs_check(&path).unwrap();
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&path, "").unwrap();
    for number in (0..SNAPSHOTS).step_by(101) {
        let found = std::fs::read(mount.path().join(format!("snapshots/{number}/number"))).unwrap();
        assert_eq!(found, number.to_string().as_bytes());
    }
}

/// The last subvolume is dropped before the first one is created in a mount.
#[test]
fn id_of_a_dropped_subvolume_is_not_given_to_another_one() {
    skip_unless_linux!();
    let (folder, path) = Image::new().close();
    let filesystem = OpenOptions::new().write(true).open(&path).unwrap();
    let image = Image { folder, path, filesystem };
    let dropped = image.id("/data");
    image.root().delete_subvolume(b"data").unwrap();
    assert!(image.filesystem.wait_for_deleted(&[dropped], || true).unwrap());
    image.root().create_subvolume(b"next", 0o755).unwrap().create(b"file", 0o644).unwrap();
    assert!(image.id("/next") > dropped);
    image.judge("created after a dropped one");
}

/// btrfs-progs (6.2) takes a leaf that two trees share, and that has such a file, for damaged.
#[test]
fn files_without_names_are_removed_from_a_new_snapshot() {
    skip_unless_linux!();
    let image = Image::new();
    let data = image.filesystem.open_dir("/data").unwrap();
    let deleted = image.filesystem.open_file("/data/files/file 4").unwrap();
    image.filesystem.remove_file("/data/files/file 4").unwrap();
    let unnamed = data.create_unnamed(0o600).unwrap().open().unwrap();
    unnamed.append(&[7; 10_000]).unwrap();
    for (name, read_only) in [(b"fixed", true), (b"other", false)] {
        image.root().snapshot(name, image.id("/data"), read_only).unwrap();
    }
    image.filesystem.commit().unwrap();
    let crashed = image.folder.path().join("crashed");
    std::fs::copy(&image.path, &crashed).unwrap();
    btrfs_check(&crashed).unwrap();
    assert_eq!(deleted.read_all().unwrap().len(), 9000);
    assert_eq!(unnamed.read_all().unwrap(), [7; 10_000]);
    drop((data, deleted, unnamed));
    image.judge("snapshots of files without names");
}

/// An open file keeps its subvolume; others that were deleted are dropped meanwhile.
#[test]
fn subvolume_in_use_does_not_keep_others_from_being_dropped() {
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    let copy = root.snapshot(b"copy", image.id("/data"), false).unwrap();
    let used = image.id("/data");
    let open = image.filesystem.open_file("/data/files/file 4").unwrap();
    root.delete_subvolume(b"data").unwrap();
    root.delete_subvolume(b"copy").unwrap();
    assert!(image.filesystem.wait_for_deleted(&[copy], || true).unwrap());
    let left: Vec<_> = image.filesystem.deleted_subvolumes().unwrap();
    assert_eq!(left.iter().map(|it| it.id).collect::<Vec<_>>(), [used]);
    assert_eq!(open.read_all().unwrap().len(), 9000);
    drop(open);
    assert!(image.filesystem.wait_for_deleted(&[used], || true).unwrap());
    image.judge("dropped beside a subvolume in use");
}

/// Threads overwrite files, one of them in place, create and rename, while snapshots are made: a
/// snapshot does not change any more once its call has returned.
#[test]
fn snapshots_beside_writers_do_not_change() {
    const BLOCKS: u64 = 64;
    skip_unless_linux!();
    let image = Image::new();
    let source = image.id("/data");
    let data = image.filesystem.open_dir("/data").unwrap();
    for name in ["in place", "copied"] {
        let inode = data.create(name.as_bytes(), 0o644).unwrap();
        if name == "in place" {
            inode.set_flags(InodeFlags::NODATACOW).unwrap();
        }
        inode.open().unwrap().append(&vec![0; 4096 * usize::try_from(BLOCKS).unwrap()]).unwrap();
    }
    image.filesystem.commit().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let is_stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let taken: Vec<_> = std::thread::scope(|scope| {
        for (thread, name) in [(1_u64, "in place"), (2, "copied"), (3, "in place")] {
            let filesystem = &image.filesystem;
            let is_stopped = &is_stopped;
            scope.spawn(move || {
                let file = filesystem.open_file(format!("/data/{name}")).unwrap();
                for round in 0_u64.. {
                    if is_stopped() {
                        return;
                    }
                    let offset = (round * thread * 7 % BLOCKS) * 4096;
                    let byte = u8::try_from(round % 251).unwrap();
                    file.write_all_at(&[byte; 4096], offset).unwrap();
                    match round % 16 {
                        0 => file.sync_all().unwrap(),
                        8 => {
                            let path = format!("/data/thread {thread}");
                            filesystem.write(&path, round.to_string()).unwrap();
                            filesystem.rename(&path, format!("{path} last")).unwrap();
                        }
                        _ => {}
                    }
                }
            });
        }
        let root = image.root();
        let taken = (0..20).map(|number| {
            let name = format!("snapshot {number}");
            root.snapshot(name.as_bytes(), source, true).unwrap();
            let read = |file| image.filesystem.read(format!("/{name}/{file}")).unwrap();
            (name.clone(), read("in place"), read("copied"))
        });
        let taken = taken.collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        taken
    });
    image.filesystem.commit().unwrap();
    let (_folder, path) = image.close();
    let reopened = Filesystem::open(&path).unwrap();
    for (name, in_place, copied) in taken {
        let read = |file| reopened.read(format!("/{name}/{file}")).unwrap();
        assert!(read("in place") == in_place, "{name}: the file that is overwritten in place");
        assert!(read("copied") == copied, "{name}: the file that is copied on write");
    }
    drop(reopened);
    btrfs_check(&path).unwrap();
    judge_by_linux(&Linux::lock().unwrap(), "snapshots beside writers", &path);
}

#[test]
fn tree_with_subvolumes_is_removed_recursively() {
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    root.snapshot(b"copy", image.id("/data"), false).unwrap();
    let files = image.filesystem.open_dir("/copy/files").unwrap();
    files.create_subvolume(b"inner", 0o755).unwrap();
    image.filesystem.write("/copy/files/inner/file", b"in").unwrap();
    root.snapshot(b"second", image.id("/copy"), false).unwrap();
    for path in ["/copy", "/second", "/data"] {
        image.filesystem.remove_dir_all(path).unwrap();
    }
    assert_eq!(image.filesystem.subvolumes().unwrap().len(), 0);
    assert!(root.entries().next().is_none());
    image.judge("removed recursively");
}

/// Each is refused with the error of Linux, and nothing is changed.
/// As in Linux.
#[test]
fn new_subvolume_inherits_neither_flags_nor_group() {
    skip_unless_linux!();
    let image = Image::new();
    let dir = image.root().create_dir(b"dir", 0o755).unwrap();
    let attributes = Attributes { mode: Some(0o2775), gid: Some(7), ..Attributes::default() };
    dir.inode().set_attributes(&attributes).unwrap();
    dir.inode().set_flags(InodeFlags::NODATACOW).unwrap();
    let of_dir = dir.create_dir(b"directory", 0o755).unwrap().inode().metadata().unwrap();
    assert_eq!((of_dir.mode & 0o7777, of_dir.gid), (0o2755, 7));
    assert_eq!(of_dir.flags, InodeFlags::NODATACOW);
    let new = dir.create_subvolume(b"subvolume", 0o755).unwrap().inode().metadata().unwrap();
    assert_eq!((new.mode & 0o7777, new.gid), (0o755, 0));
    assert_eq!(new.flags, InodeFlags::empty());
    image.judge("a new subvolume in a directory with flags");
}

#[test]
fn bad_requests_are_refused() {
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    let source = image.id("/data");
    image.filesystem.write("/file", b"").unwrap();
    let long = [b'n'; 256];
    for name in [&b""[..], b".", b"..", b"a/b"] {
        assert!(matches!(root.create_subvolume(name, 0o755), Err(Error::BadName(_))), "{name:?}");
        assert!(matches!(root.snapshot(name, source, true), Err(Error::BadName(_))), "{name:?}");
    }
    assert!(matches!(root.create_subvolume(&long, 0o755), Err(Error::NameTooLong)));
    assert!(matches!(root.snapshot(&long, source, true), Err(Error::NameTooLong)));
    assert!(matches!(root.create_subvolume(b"file", 0o755), Err(Error::Exists)));
    assert!(matches!(root.snapshot(b"file", source, true), Err(Error::Exists)));
    assert!(matches!(root.snapshot(b"new", TreeId(9999), true), Err(Error::NoSubvolume)));
    assert!(matches!(root.snapshot(b"new", TreeId::EXTENT, true), Err(Error::NoSubvolume)));
    assert!(matches!(root.delete_subvolume(b"file"), Err(Error::NoSubvolume)));
    assert!(matches!(root.delete_subvolume(b"none"), Err(Error::NotFound)));
    let missing = image.filesystem.set_default_subvolume(TreeId(9999));
    assert!(matches!(missing, Err(Error::NoSubvolume)));
    image.filesystem.set_subvolume_read_only(source, true).unwrap();
    let data = image.filesystem.open_dir("/data").unwrap();
    assert!(matches!(data.create_subvolume(b"new", 0o755), Err(Error::ReadOnly)));
    assert!(matches!(data.snapshot(b"new", TreeId::FS, true), Err(Error::ReadOnly)));
    let moved = root.rename(b"data", &data, b"in", RenameMode::Replace);
    assert!(matches!(moved, Err(Error::IntoItself)), "{moved:?}");
    root.create_subvolume(b"other", 0o755).unwrap();
    let moved = root.rename(b"other", &data, b"in", RenameMode::Replace);
    assert!(matches!(moved, Err(Error::ReadOnly)), "{moved:?}");
    let moved = root.rename(b"data", &root, b"in", RenameMode::Exchange);
    assert!(matches!(moved, Err(Error::NotFound)), "{moved:?}");
    let moved = root.rename(b"data", &data, b"files", RenameMode::Exchange);
    assert!(matches!(moved, Err(Error::IntoItself)), "{moved:?}");
    image.filesystem.set_subvolume_read_only(source, false).unwrap();
    data.create_subvolume(b"new", 0o755).unwrap();
    image.judge("bad requests");
}

/// An fsync in a subvolume of the running transaction is a commit; later ones are log writes, which
/// Linux replays into the snapshot.
#[test]
fn files_synced_in_new_subvolumes_are_there_after_a_crash() {
    skip_unless_linux!();
    let image = Image::new();
    let root = image.root();
    image.filesystem.commit().unwrap();
    root.create_subvolume(b"new", 0o755).unwrap();
    let sync = |path: &str, content: &str| {
        image.filesystem.write(path, content).unwrap();
        image.filesystem.open_file(path).unwrap().sync_all().unwrap();
    };
    sync("/new/first", "by a commit");
    root.snapshot(b"copy", image.id("/data"), false).unwrap();
    let commits = || image.filesystem.stats().commits;
    let before = commits();
    sync("/new/second", "by the log");
    sync("/copy/third", "by the log");
    sync("/copy/files/file 5", "changed");
    assert_eq!(commits(), before, "no commit in the place of a log");
    let Image { folder: _folder, path, filesystem } = image;
    filesystem.abandon();
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&path, "").unwrap();
    let expected = [
        ("new/first", "by a commit"),
        ("new/second", "by the log"),
        ("copy/third", "by the log"),
        ("copy/files/file 5", "changed"),
    ];
    for (name, content) in expected {
        assert_eq!(std::fs::read_to_string(mount.path().join(name)).unwrap(), content, "{name}");
    }
    let source = std::fs::read(mount.path().join("data/files/file 5")).unwrap();
    assert_eq!(source.len(), 9000, "the source is not changed");
    drop(mount);
    btrfs_check(&path).unwrap();
}

/// A file in a deleted subvolume is not logged, also in later transactions.
#[test]
fn file_synced_in_a_deleted_subvolume_is_no_trouble() {
    skip_unless_linux!();
    let image = Image::new();
    image.filesystem.commit().unwrap();
    let file = image.filesystem.open_file("/data/files/file 5").unwrap();
    image.root().delete_subvolume(b"data").unwrap();
    file.append(b"more").unwrap();
    file.sync_all().unwrap();
    file.append(b"and more").unwrap();
    file.sync_all().unwrap();
    image.filesystem.write("/other", b"other").unwrap();
    image.filesystem.open_file("/other").unwrap().sync_all().unwrap();
    let Image { folder: _folder, path, filesystem } = image;
    filesystem.abandon();
    drop(file);
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&path, "").unwrap();
    assert!(!mount.path().join("data").exists());
    assert_eq!(std::fs::read(mount.path().join("other")).unwrap(), b"other");
    drop(mount);
    btrfs_check(&path).unwrap();
}
