//! Names of subvolumes, as Linux treats them.
//!
//! 1. A snapshot does not contain its own name, wherever that is.
//! 2. Links and renames, of each pair of names in and around subvolumes and with each flag, give
//!    the same error as on Linux, or succeed as there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io, thread};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use userbtrfs::mkfs::Options;
use userbtrfs::{Dir, Error, Filesystem, OpenOptions, PathError, RenameMode, TreeId};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::skip_unless_linux;

use super::made::{MIB, Made};
use super::ours::judge_by_linux;

/// A filesystem in an image file.
struct Image {
    folder: tempfile::TempDir,
    filesystem: Filesystem,
}

impl Image {
    fn new() -> Self {
        Self::after(|_| ())
    }

    /// Opens an image after `prepare` changed it.
    fn after(prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = Made::new("names", 256 * MIB, Options::default());
        let path = folder.path().join("image");
        made.image().write_to(&path).unwrap();
        prepare(&path);
        let filesystem = OpenOptions::new().write(true).open(&path).unwrap();
        Self { folder, filesystem }
    }

    fn is_absent(&self, path: &str) -> bool {
        matches!(self.filesystem.lookup(path), Err(PathError { error: Error::NotFound, .. }))
    }

    /// Closes the image, and has Linux judge it.
    fn judge(self, what: &str) {
        self.filesystem.close().unwrap();
        let path = self.folder.path().join("image");
        btrfs_check(&path).unwrap();
        judge_by_linux(&Linux::lock().unwrap(), what, &path);
    }
}

#[test]
fn snapshot_inside_its_source_does_not_contain_its_own_name() {
    skip_unless_linux!();
    let image = Image::new();
    let fs = &image.filesystem;
    fs.create_dir("/dir", 0o755).unwrap();
    for number in 0..2000 {
        fs.write(format!("/dir/file {number}"), vec![1; 300]).unwrap();
    }
    let dir = fs.open_dir("/dir").unwrap();
    for name in ["first", "second"] {
        // The second is made of blocks that the first one shares, and of new ones.
        fs.write("/dir/file 7", name).unwrap();
        dir.snapshot(name.as_bytes(), TreeId::FS, name == "second").unwrap();
        assert_eq!(fs.read(format!("/dir/{name}/dir/file 7")).unwrap(), name.as_bytes());
        assert!(image.is_absent(&format!("/dir/{name}/dir/{name}")));
    }
    assert!(fs.open_dir("/dir/second/dir/first").unwrap().entries().next().is_none());
    assert!(image.is_absent("/dir/first/dir/second"));
    fs.write("/dir/first/dir/file 8", b"changed").unwrap();
    fs.write("/dir/file 9", b"changed").unwrap();
    image.judge("snapshot inside its source");
}

/// Threads make snapshots of a subvolume in directories of it, some of them in one transaction,
/// beside threads that change these directories and sync.
#[test]
fn snapshots_made_at_a_time_inside_their_source_do_not_contain_themselves() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 5;
    skip_unless_linux!();
    let image = Image::new();
    let fs = &image.filesystem;
    for number in 0..1000 {
        fs.write(format!("/file {number}"), vec![1; 200]).unwrap();
    }
    for thread in 0..THREADS {
        fs.create_dir(format!("/{thread}"), 0o755).unwrap();
    }
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let dir = fs.open_dir(format!("/{thread}")).unwrap();
                for round in 0..ROUNDS {
                    let name = format!("snapshot {round}");
                    dir.snapshot(name.as_bytes(), TreeId::FS, round % 2 == 0).unwrap();
                }
            });
            scope.spawn(move || {
                for round in 0..ROUNDS * 4 {
                    let path = format!("/{thread}/file {round}");
                    fs.write(&path, b"content").unwrap();
                    match round % 3 {
                        0 => fs.open_file(&path).unwrap().sync_all().unwrap(),
                        1 => fs.rename(&path, format!("{path} renamed")).unwrap(),
                        _ => fs.remove_file(&path).unwrap(),
                    }
                }
            });
        }
    });
    println!("{:?}", fs.stats().commits);
    let names: Vec<_> = (0..THREADS)
        .flat_map(|thread| (0..ROUNDS).map(move |round| (thread, round)))
        .map(|(thread, round)| format!("/{thread}/snapshot {round}"))
        .collect();
    let contains = |a: &str, b: &str| !image.is_absent(&format!("{a}{b}"));
    for (index, name) in names.iter().enumerate() {
        assert!(!contains(name, name), "{name}");
        for other in &names {
            assert!(!(contains(name, other) && contains(other, name)), "{name} and {other}");
        }
        for earlier in &names[index - index % ROUNDS..index] {
            assert!(contains(name, earlier), "{name}: {earlier} was made before the call");
        }
    }
    image.judge("snapshots made at a time");
}

/// Makes all subvolumes, files and directories of the table.
const SETUP: &str = "set -e; s='btrfs -q subvolume'; for n in s t s/inner s/inner2 full2 empty; do \
    $s create $n; done; mkdir dir full s/d s/full; $s create dir/n; \
    for f in file s/f full/x s/full/x full2/x; do echo x >$f; done; ln -s file link; \
    $s snapshot s copy; $s snapshot -r s ro";

/// Names of all kinds, some of which do not exist.
const NAMES: &[&str] = &[
    "copy/f",
    "copy/d",
    "copy/full",
    "copy/inner",
    "copy/inner2",
    "copy/none",
    "s",
    "t",
    "file",
    "dir",
    "full",
    "full2",
    "empty",
    "s/f",
    "s/d",
    "s/full",
    "s/inner",
    "t/none",
    "none",
    "dir/n",
    "dir/n/none",
    "ro",
    "ro/f",
    "ro/none",
    "s/inner/none",
    "link",
    "copy/inner/none",
];

/// The empty directories that a snapshot has in place of subvolumes.
const PLACES: [&str; 2] = ["copy/inner", "copy/inner2"];

const MODES: [RenameMode; 4] =
    [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, RenameMode::Whiteout];

/// The kind of an inode that a rename may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    None,
    File,
    Directory,
}

/// A tree that is changed by names; an error is the errno.
trait Tree {
    fn link(&self, old: &str, new: &str) -> Result<(), i32>;
    fn rename(&self, old: &str, new: &str, mode: RenameMode) -> Result<(), i32>;
    fn kind(&self, path: &str) -> Kind;
    fn unlink(&self, path: &str);
    fn make(&self, path: &str, kind: Kind);
    /// Deletes the subvolume `copy`, and makes it again as a snapshot of `s`.
    fn copy_again(&self);
}

struct Theirs<'a>(&'a Path);

impl Theirs<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn subvolume(&self, arguments: &[&str]) {
        let mut command = Command::new("btrfs");
        run(command.arg("subvolume").args(arguments).current_dir(self.0)).unwrap();
    }
}

fn raw(result: io::Result<()>) -> Result<(), i32> {
    result.map_err(|error| error.raw_os_error().unwrap())
}

impl Tree for Theirs<'_> {
    fn link(&self, old: &str, new: &str) -> Result<(), i32> {
        raw(fs::hard_link(self.at(old), self.at(new)))
    }

    fn rename(&self, old: &str, new: &str, mode: RenameMode) -> Result<(), i32> {
        let flags = match mode {
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
            RenameMode::Whiteout => RenameFlags::WHITEOUT,
            _ => RenameFlags::empty(),
        };
        let renamed = renameat_with(CWD, self.at(old), CWD, self.at(new), flags);
        renamed.map_err(rustix::io::Errno::raw_os_error)
    }

    fn kind(&self, path: &str) -> Kind {
        match fs::symlink_metadata(self.at(path)) {
            Ok(metadata) if metadata.is_dir() => Kind::Directory,
            Ok(_) => Kind::File,
            Err(_) => Kind::None,
        }
    }

    fn unlink(&self, path: &str) {
        fs::remove_file(self.at(path)).unwrap();
    }

    fn make(&self, path: &str, kind: Kind) {
        match kind {
            Kind::None => {}
            Kind::File => fs::write(self.at(path), b"").unwrap(),
            Kind::Directory => fs::create_dir(self.at(path)).unwrap(),
        }
    }

    fn copy_again(&self) {
        self.subvolume(&["delete", "copy"]);
        self.subvolume(&["snapshot", "s", "copy"]);
    }
}

struct Ours<'a>(&'a Filesystem);

impl Ours<'_> {
    fn place<'p>(&self, path: &'p str) -> (Dir, &'p [u8]) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("/", path));
        (self.0.open_dir(dir).unwrap(), name.as_bytes())
    }
}

fn errno(result: Result<(), Error>) -> Result<(), i32> {
    result.map_err(|error| error.errno())
}

impl Tree for Ours<'_> {
    fn link(&self, old: &str, new: &str) -> Result<(), i32> {
        let (dir, name) = self.place(new);
        let old = self.0.lookup_no_follow(old).map_err(|error| error.errno())?;
        errno(dir.link(name, &old))
    }

    fn rename(&self, old: &str, new: &str, mode: RenameMode) -> Result<(), i32> {
        let (from, old) = self.place(old);
        let (to, new) = self.place(new);
        errno(from.rename(old, &to, new, mode))
    }

    fn kind(&self, path: &str) -> Kind {
        match self.0.lookup_no_follow(path) {
            Ok(inode) if inode.open_dir().is_ok() => Kind::Directory,
            Ok(_) => Kind::File,
            Err(_) => Kind::None,
        }
    }

    fn unlink(&self, path: &str) {
        self.0.remove_file(path).unwrap();
    }

    fn make(&self, path: &str, kind: Kind) {
        match kind {
            Kind::None => {}
            Kind::File => self.0.write(path, b"").unwrap(),
            Kind::Directory => drop(self.0.create_dir(path, 0o755).unwrap()),
        }
    }

    fn copy_again(&self) {
        let root = self.0.root();
        root.delete_subvolume(b"copy").unwrap();
        let source = self.0.lookup("s").unwrap().id().subvolume;
        root.snapshot(b"copy", source, false).unwrap();
    }
}

/// Renames, and undoes that if it succeeded.
fn rename_and_back(tree: &dyn Tree, old: &str, new: &str, mode: RenameMode) -> Result<(), i32> {
    let replaced = tree.kind(new);
    let moved = tree.kind(old);
    tree.rename(old, new, mode)?;
    assert_eq!(tree.kind(new), moved, "{old} {new}");
    if mode == RenameMode::Exchange {
        assert_eq!(tree.kind(old), replaced, "{old} {new}");
        return tree.rename(old, new, mode);
    }
    if mode == RenameMode::Whiteout {
        tree.unlink(old);
    }
    assert_eq!(tree.kind(old), Kind::None, "{old} {new}");
    tree.rename(new, old, RenameMode::NoReplace)?;
    if PLACES.contains(&new) {
        tree.copy_again();
    } else {
        tree.make(new, replaced);
    }
    Ok(())
}

/// Calls `act` for all cases, and returns the result of each.
fn results(tree: &dyn Tree) -> Vec<String> {
    let mut results = Vec::new();
    let is_read_only = |name: &str| name.starts_with("ro/");
    for old in NAMES {
        let is_in_it = is_read_only(old) || *old == "ro";
        for new in NAMES.iter().filter(|new| !(is_in_it && is_read_only(new))) {
            let linked = tree.link(old, new);
            if linked.is_ok() {
                tree.unlink(new);
            }
            results.push(format!("link {old} {new}: {linked:?}"));
        }
    }
    for mode in MODES {
        for old in NAMES {
            // Linux aborts the transaction if a place is exchanged. In a read-only subvolume we
            // refuse the change before we look at the names, and a place that is moved into itself
            // is not known; in a mount the kernel looks first.
            let is_left_out = |new: &&str| {
                let has_place = [old, *new].iter().any(|name| PLACES.contains(name));
                old == new
                    || (*old == "copy/inner" && *new == "copy/inner/none")
                    || (mode == RenameMode::Exchange && has_place)
                    || (is_read_only(old) && is_read_only(new))
            };
            for new in NAMES.iter().filter(|new| !is_left_out(new)) {
                let renamed = rename_and_back(tree, old, new, mode);
                results.push(format!("rename {mode:?} {old} {new}: {renamed:?}"));
            }
        }
    }
    results
}

#[test]
fn links_and_renames_around_subvolumes_give_the_errors_of_linux() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let image = Image::after(|path| {
        let mount = linux.mount(path, "").unwrap();
        run(Command::new("sh").args(["-c", SETUP]).current_dir(mount.path())).unwrap();
    });
    let theirs = {
        let copy = image.folder.path().join("copy");
        fs::copy(image.folder.path().join("image"), &copy).unwrap();
        let mount = linux.mount(&copy, "").unwrap();
        results(&Theirs(mount.path()))
    };
    drop(linux);
    let ours = results(&Ours(&image.filesystem));
    let different: Vec<_> = theirs
        .iter()
        .zip(&ours)
        .filter(|(theirs, ours)| theirs != ours)
        .map(|(theirs, ours)| format!("{theirs}, ours {}", &ours[ours.rfind(':').unwrap()..]))
        .collect();
    assert!(different.is_empty(), "{} of {}: {different:#?}", different.len(), theirs.len());
    assert_eq!(theirs.len(), ours.len());
    let succeeded = theirs.iter().filter(|result| result.ends_with("Ok(())")).count();
    assert!(succeeded > 250, "{succeeded} of {} succeed", theirs.len());
    image.judge("renames around subvolumes");
}
