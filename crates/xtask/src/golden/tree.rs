//! The actions of recipes on a mounted filesystem, on paths below its root.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::{self};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags,
};
use userbtrfs_testkit::linux::{dedupe_range, run};

/// The flags to open a directory.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// A mounted filesystem to be filled.
pub(crate) struct Tree {
    root: PathBuf,
    /// Files that are kept open until the image is copied or unmounted.
    held: RefCell<Vec<File>>,
}

impl Tree {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), held: RefCell::default() }
    }

    /// Returns the path in the mounted filesystem.
    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    fn open(&self, path: impl AsRef<Path>) -> anyhow::Result<File> {
        let path = self.at(path);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        options.open(&path).with_context(|| format!("opening {}", path.display()))
    }

    /// Makes a directory and its parents.
    pub(crate) fn dir(&self, path: impl AsRef<Path>) -> anyhow::Result<()> {
        Ok(fs::create_dir_all(self.at(path))?)
    }

    /// Makes `levels` nested directories of one name, with a file in the last.
    pub(crate) fn deep(&self, path: &str, name: &str, levels: u32) -> anyhow::Result<()> {
        self.dir(path)?;
        let mut at = rustix::fs::open(self.at(path), DIRECTORY, Mode::empty())?;
        for _ in 0..levels {
            rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
            at = rustix::fs::openat(&at, name, DIRECTORY, Mode::empty())?;
        }
        let make = OFlags::WRONLY | OFlags::CREATE;
        let file = rustix::fs::openat(&at, "file", make, Mode::from_raw_mode(0o644))?;
        Ok(File::from(file).write_all(b"deep down\n")?)
    }

    /// Makes a file with this content, or replaces an existing one.
    pub(crate) fn file(
        &self,
        path: impl AsRef<Path>,
        content: impl AsRef<[u8]>,
    ) -> anyhow::Result<()> {
        let path = self.at(path);
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))
    }

    /// Makes a file and keeps it open, then unlinks it.
    pub(crate) fn file_held_unlinked(
        &self,
        path: impl AsRef<Path>,
        content: &[u8],
    ) -> anyhow::Result<()> {
        let mut file = self.open(&path)?;
        file.write_all(content)?;
        file.sync_all()?;
        self.held.borrow_mut().push(file);
        self.remove(path)
    }

    /// Writes at an offset; makes the file if it does not exist.
    pub(crate) fn write(
        &self,
        path: impl AsRef<Path>,
        offset: u64,
        content: &[u8],
    ) -> anyhow::Result<()> {
        Ok(self.open(path)?.write_all_at(content, offset)?)
    }

    /// Appends; makes the file if it does not exist.
    pub(crate) fn append(&self, path: impl AsRef<Path>, content: &[u8]) -> anyhow::Result<()> {
        let mut file = self.open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(file.write_all(content)?)
    }

    /// Sets the size of a file; makes the file if it does not exist.
    pub(crate) fn size(&self, path: impl AsRef<Path>, size: u64) -> anyhow::Result<()> {
        Ok(self.open(path)?.set_len(size)?)
    }

    /// Preallocates a range without changing the size.
    pub(crate) fn preallocate(
        &self,
        path: impl AsRef<Path>,
        offset: u64,
        length: u64,
    ) -> anyhow::Result<()> {
        let flags = FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(self.open(path)?, flags, offset, length)?)
    }

    /// Punches a hole.
    pub(crate) fn punch(
        &self,
        path: impl AsRef<Path>,
        offset: u64,
        length: u64,
    ) -> anyhow::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(self.open(path)?, flags, offset, length)?)
    }

    /// Clones (reflinks) all data of `from` to `to`.
    pub(crate) fn clone_all(&self, from: &str, to: &str) -> anyhow::Result<()> {
        Ok(rustix::fs::ioctl_ficlone(self.open(to)?, File::open(self.at(from))?)?)
    }

    /// Clones a range, in whole sectors, of `from` at `offset` to `to` at `target`: on btrfs
    /// copy_file_range clones whenever it can.
    pub(crate) fn clone_range(
        &self,
        from: &str,
        mut offset: u64,
        to: &str,
        mut target: u64,
        length: usize,
    ) -> anyhow::Result<()> {
        let from = File::open(self.at(from))?;
        let to = self.open(to)?;
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut offset), to, Some(&mut target), length)?;
        ensure!(copied == length, "cloned {copied} of {length} bytes");
        Ok(())
    }

    /// Shares a range of two files, which is equal.
    pub(crate) fn dedupe(
        &self,
        from: &str,
        offset: u64,
        to: &str,
        target: u64,
        length: u64,
    ) -> anyhow::Result<()> {
        let is_same = dedupe_range(&self.at(from), &self.at(to), [offset, length, target]);
        ensure!(is_same.with_context(|| format!("sharing {from} and {to}"))?, "{to}: it differs");
        Ok(())
    }

    /// Makes a hard link to a file.
    pub(crate) fn link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> anyhow::Result<()> {
        Ok(fs::hard_link(self.at(from), self.at(to))?)
    }

    /// Makes a symbolic link.
    pub(crate) fn symlink(
        &self,
        path: impl AsRef<Path>,
        target: impl AsRef<Path>,
    ) -> anyhow::Result<()> {
        Ok(unix::fs::symlink(target, self.at(path))?)
    }

    /// Makes a device, pipe or socket.
    pub(crate) fn node(
        &self,
        path: &str,
        kind: FileType,
        major: u32,
        minor: u32,
    ) -> anyhow::Result<()> {
        let mode = Mode::from_raw_mode(0o640);
        let device = rustix::fs::makedev(major, minor);
        Ok(rustix::fs::mknodat(CWD, self.at(path), kind, mode, device)?)
    }

    /// Renames, replacing the target.
    pub(crate) fn rename(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> anyhow::Result<()> {
        Ok(fs::rename(self.at(from), self.at(to))?)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, path: impl AsRef<Path>) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.at(path))?)
    }

    /// Sets the permission bits (the low twelve bits of the mode).
    pub(crate) fn mode(&self, path: &str, mode: u32) -> anyhow::Result<()> {
        Ok(rustix::fs::chmod(self.at(path), Mode::from_raw_mode(mode))?)
    }

    /// Sets owner and group; of a symbolic link, those of the link itself.
    pub(crate) fn owner(&self, path: &str, uid: u32, gid: u32) -> anyhow::Result<()> {
        Ok(unix::fs::lchown(self.at(path), Some(uid), Some(gid))?)
    }

    /// Sets access and modification time, in seconds and nanoseconds; of a symbolic link, those of
    /// the link itself.
    pub(crate) fn times(
        &self,
        path: &str,
        access: (i64, i64),
        change: (i64, i64),
    ) -> anyhow::Result<()> {
        let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time(access), last_modification: time(change) };
        Ok(rustix::fs::utimensat(CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets an xattr; of a symbolic link, that of the link itself.
    pub(crate) fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: &str,
        value: &[u8],
    ) -> anyhow::Result<()> {
        Ok(rustix::fs::lsetxattr(self.at(path), name, value, XattrFlags::empty())?)
    }

    /// Adds inode flags to those that are set.
    pub(crate) fn flags(&self, path: &str, flags: IFlags) -> anyhow::Result<()> {
        let file = File::open(self.at(path))?;
        let flags = rustix::fs::ioctl_getflags(&file)? | flags;
        rustix::fs::ioctl_setflags(&file, flags).with_context(|| format!("flags of {path}"))
    }

    /// Sends the read-only snapshot `from`, and receives it in the directory `to`.
    pub(crate) fn send_and_receive(&self, from: &str, to: &str) -> anyhow::Result<()> {
        let pipe = "btrfs send -q \"$1\" | btrfs receive -q \"$2\"";
        run(Command::new("sh").args(["-c", pipe, "sh"]).args([self.at(from), self.at(to)]))
            .map(drop)
    }

    /// Runs a tool on a path: `tool arguments... path`.
    pub(crate) fn tool(&self, command: &[&str], path: &str) -> anyhow::Result<()> {
        let (tool, arguments) = command.split_first().context("a command has a name")?;
        run(Command::new(tool).args(arguments).arg(self.at(path))).map(drop)
    }

    /// Makes a subvolume.
    pub(crate) fn subvolume(&self, path: &str) -> anyhow::Result<()> {
        self.tool(&["btrfs", "subvolume", "create"], path)
    }

    /// Makes a snapshot; `access` is empty, or `-r` for a read-only one.
    pub(crate) fn snapshot(&self, access: &[&str], from: &str, to: &str) -> anyhow::Result<()> {
        let from = self.at(from);
        let from = from.to_str().context("the root's path is text")?;
        self.tool(&[&["btrfs", "subvolume", "snapshot"], access, &[from]].concat(), to)
    }

    /// Makes one file durable, by the log tree if that is possible.
    pub(crate) fn fsync(&self, path: impl AsRef<Path>) -> anyhow::Result<()> {
        Ok(File::open(self.at(path))?.sync_all()?)
    }

    /// Commits everything.
    pub(crate) fn commit(&self) -> anyhow::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.root)?)?)
    }
}
