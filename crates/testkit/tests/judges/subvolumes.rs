//! Subvolumes and snapshots that we make, judged by Linux.
//!
//! 1. Linux finds no error, and shows the same tree.
//! 2. btrfs-progs lists the same subvolumes, with the same relations, on a Linux mount.
//! 3. A snapshot has what was written before the call, durable or not, and nothing else.

use std::path::PathBuf;
use std::process::Command;

use userbtrfs::mkfs::Options;
use userbtrfs::{Dir, Error, Filesystem, OpenOptions, RenameMode, TreeId};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::skip_unless_linux;

use super::made::{MIB, Made};
use super::ours::judge_by_linux;

/// A filesystem in an image file, with a subvolume `data` that has a directory of files.
struct Image {
    _folder: tempfile::TempDir,
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
        let image = Self { _folder: folder, path, filesystem };
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
        (self._folder, self.path)
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
    let (root, source) = (image.root(), image.id("/data"));
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
    assert!(matches!(gone, Err(Error::NotFound)), "{gone:?}");
    let refused = image.filesystem.write("/read-only/new", b"new");
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    assert!(matches!(image.filesystem.read("/read-only/new"), Err(Error::NotFound)));
    image.judge("snapshots");
}

#[test]
fn both_sides_of_snapshots_are_changed_in_later_transactions() {
    skip_unless_linux!();
    let image = Image::new();
    let (root, mut source) = (image.root(), image.id("/data"));
    for round in 0..12_u32 {
        let name = format!("snapshot {round}");
        let made = root.snapshot(name.as_bytes(), source, round % 4 == 3).unwrap();
        for path in ["/data".to_owned(), format!("/snapshot {}", round.saturating_sub(1))] {
            let file = format!("{path}/files/file {}", round * 7);
            let written = image.filesystem.write(&file, vec![1; 5000]);
            assert!(matches!(written, Ok(()) | Err(Error::ReadOnly)), "{written:?}");
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
            let parent = match extended.parent_uuid.is_nil() {
                true => "-".to_owned(),
                false => extended.parent_uuid.to_string(),
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
    assert!(matches!(image.filesystem.lookup("/data"), Err(Error::NotFound)));
    assert_eq!(open.read_all().unwrap().len(), 9000);
    drop((open, data));
    image.judge("deleted subvolume");
}
