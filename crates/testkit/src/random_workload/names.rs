//! Changes to names and attributes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::lchown;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags};
use rustix::fs::{chmod, lremovexattr, lsetxattr, makedev, mknodat, renameat_with};
use rustix::io::Errno;

use super::tree::{Tree, nothing};

/// The maximum length of an xattr, in bytes: all those of a file fit into a node of 4 KiB.
const XATTR_MAX: u64 = 3000;
/// The number of names of xattrs.
const XATTR_NAMES: u64 = 4;

/// Creates a file of up to two sectors, so that some are inline.
pub(super) fn create(tree: &mut Tree) -> io::Result<()> {
    let path = tree.new_path()?;
    let length = tree.random.below(8192);
    fs::write(&path, tree.random.bytes(length))?;
    tree.files.push(path);
    Ok(())
}

pub(super) fn make_dir(tree: &mut Tree) -> io::Result<()> {
    let path = tree.new_path()?;
    fs::create_dir(&path)?;
    tree.dirs.push(path);
    Ok(())
}

/// Renames to a new name, or over another file.
pub(super) fn rename(tree: &mut Tree) -> io::Result<()> {
    let from = tree.file()?;
    let to = if tree.random.one_in(3) { tree.file()? } else { tree.new_path()? };
    fs::rename(&from, &to)?;
    tree.files.retain(|file| *file != from && *file != to);
    tree.files.push(to);
    Ok(())
}

pub(super) fn rename_dir(tree: &mut Tree) -> io::Result<()> {
    let from = tree.dir()?;
    let to = tree.new_path()?;
    if tree.sources.iter().any(|source| source.starts_with(&from)) {
        return Err(nothing());
    }
    fs::rename(&from, &to)?;
    tree.copy_known(&from, &to);
    tree.forget(&from);
    Ok(())
}

pub(super) fn exchange(tree: &mut Tree) -> io::Result<()> {
    Ok(renameat_with(CWD, tree.file()?, CWD, tree.file()?, RenameFlags::EXCHANGE)?)
}

pub(super) fn unlink(tree: &mut Tree) -> io::Result<()> {
    let path = tree.file()?;
    fs::remove_file(&path)?;
    tree.forget(&path);
    Ok(())
}

pub(super) fn link(tree: &mut Tree) -> io::Result<()> {
    let from = tree.file()?;
    let to = tree.new_path()?;
    fs::hard_link(from, &to)?;
    tree.files.push(to);
    Ok(())
}

pub(super) fn symlink(tree: &mut Tree) -> io::Result<()> {
    let target = "to/".repeat(tree.random.index(1300)) + "somewhere";
    std::os::unix::fs::symlink(target, tree.new_path()?)
}

pub(super) fn special(tree: &mut Tree) -> io::Result<()> {
    let kinds =
        [FileType::CharacterDevice, FileType::BlockDevice, FileType::Fifo, FileType::Socket];
    let kind = *tree.random.pick(&kinds).expect("there are some");
    let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
    let device = if is_device { makedev(4095, 1_048_575) } else { 0 };
    Ok(mknodat(CWD, tree.new_path()?, kind, Mode::from_raw_mode(0o620), device)?)
}

fn xattr_name(tree: &mut Tree) -> String {
    let spaces = ["user", "trusted"];
    let space = spaces[tree.random.index(spaces.len())];
    format!("{space}.{}", tree.random.below(XATTR_NAMES))
}

pub(super) fn set_xattr(tree: &mut Tree) -> io::Result<()> {
    let of_dir = tree.random.one_in(4);
    let path = if of_dir { tree.dir()? } else { tree.file()? };
    let name = xattr_name(tree);
    let length = tree.random.below(XATTR_MAX);
    let value = tree.random.bytes(length);
    let set = || lsetxattr(&path, &name, &value, XattrFlags::empty());
    // Linux only lets an xattr grow if its leaf has space.
    if set() == Err(Errno::NOSPC) {
        lremovexattr(&path, &name)?;
        set()?;
    }
    Ok(())
}

pub(super) fn remove_xattr(tree: &mut Tree) -> io::Result<()> {
    let path = tree.file()?;
    let name = xattr_name(tree);
    lsetxattr(&path, &name, b"soon gone", XattrFlags::empty())?;
    Ok(lremovexattr(path, name)?)
}

pub(super) fn mode_and_owner(tree: &mut Tree) -> io::Result<()> {
    let path = tree.file()?;
    let [uid, gid] = [(); 2].map(|()| u32::try_from(tree.random.length(31)).ok());
    lchown(&path, uid, gid)?;
    let mode = u32::try_from(tree.random.below(0o10_000)).expect("twelve bits");
    Ok(chmod(path, Mode::from_raw_mode(mode))?)
}

/// Sets times, some before 1970, some after 2038.
pub(super) fn times(tree: &mut Tree) -> io::Result<()> {
    let span = Duration::from_nanos(tree.random.number() / 4);
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if tree.random.one_in(2) { epoch - span } else { epoch + span };
    let times = fs::FileTimes::new().set_accessed(time).set_modified(time + span / 7);
    File::open(tree.file()?)?.set_times(times)
}
