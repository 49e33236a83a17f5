//! Changes to names and attributes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::lchown;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags};
use rustix::fs::{chmod, lremovexattr, lsetxattr, makedev, mknodat, renameat_with};
use rustix::io::Errno;

use super::RandomWorkload;

/// The maximum length of an xattr, in bytes: all those of a file fit into a node of 4 KiB.
const XATTR_MAX: u64 = 3000;
/// The number of names of xattrs.
const XATTR_NAMES: u64 = 4;

/// Creates a file of up to two sectors, so that some are inline.
pub(super) fn create(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.new_path()?;
    let length = churn.random.below(8192);
    fs::write(&path, churn.random.bytes(length))?;
    churn.files.push(path);
    Ok(())
}

pub(super) fn make_dir(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.new_path()?;
    fs::create_dir(&path)?;
    churn.dirs.push(path);
    Ok(())
}

/// Renames to a new name, or over another file.
pub(super) fn rename(churn: &mut RandomWorkload) -> io::Result<()> {
    let from = churn.file()?;
    let to = if churn.random.one_in(3) { churn.file()? } else { churn.new_path()? };
    fs::rename(&from, &to)?;
    churn.files.retain(|file| *file != from && *file != to);
    churn.files.push(to);
    Ok(())
}

pub(super) fn rename_dir(churn: &mut RandomWorkload) -> io::Result<()> {
    let (from, to) = (churn.dir()?, churn.new_path()?);
    if churn.sources.iter().any(|source| source.starts_with(&from)) {
        return Err(super::nothing());
    }
    fs::rename(&from, &to)?;
    churn.copy_known(&from, &to);
    churn.forget(&from);
    Ok(())
}

pub(super) fn exchange(churn: &mut RandomWorkload) -> io::Result<()> {
    Ok(renameat_with(CWD, churn.file()?, CWD, churn.file()?, RenameFlags::EXCHANGE)?)
}

pub(super) fn unlink(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.file()?;
    fs::remove_file(&path)?;
    churn.forget(&path);
    Ok(())
}

pub(super) fn link(churn: &mut RandomWorkload) -> io::Result<()> {
    let (from, to) = (churn.file()?, churn.new_path()?);
    fs::hard_link(from, &to)?;
    churn.files.push(to);
    Ok(())
}

pub(super) fn symlink(churn: &mut RandomWorkload) -> io::Result<()> {
    let target = "to/".repeat(churn.random.index(1300)) + "somewhere";
    std::os::unix::fs::symlink(target, churn.new_path()?)
}

pub(super) fn special(churn: &mut RandomWorkload) -> io::Result<()> {
    let kinds =
        [FileType::CharacterDevice, FileType::BlockDevice, FileType::Fifo, FileType::Socket];
    let kind = *churn.random.pick(&kinds).expect("there are some");
    let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
    let device = if is_device { makedev(4095, 1_048_575) } else { 0 };
    Ok(mknodat(CWD, churn.new_path()?, kind, Mode::from_raw_mode(0o620), device)?)
}

fn xattr_name(churn: &mut RandomWorkload) -> String {
    let spaces = ["user", "trusted"];
    let space = spaces[churn.random.index(spaces.len())];
    format!("{space}.{}", churn.random.below(XATTR_NAMES))
}

pub(super) fn set_xattr(churn: &mut RandomWorkload) -> io::Result<()> {
    let of_dir = churn.random.one_in(4);
    let path = if of_dir { churn.dir()? } else { churn.file()? };
    let name = xattr_name(churn);
    let length = churn.random.below(XATTR_MAX);
    let value = churn.random.bytes(length);
    let set = || lsetxattr(&path, &name, &value, XattrFlags::empty());
    // Linux only lets an xattr grow if its leaf has space.
    if set() == Err(Errno::NOSPC) {
        lremovexattr(&path, &name)?;
        set()?;
    }
    Ok(())
}

pub(super) fn remove_xattr(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.file()?;
    let name = xattr_name(churn);
    lsetxattr(&path, &name, b"soon gone", XattrFlags::empty())?;
    Ok(lremovexattr(path, name)?)
}

pub(super) fn mode_and_owner(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.file()?;
    let [uid, gid] = [(); 2].map(|()| u32::try_from(churn.random.length(31)).ok());
    lchown(&path, uid, gid)?;
    let mode = u32::try_from(churn.random.below(0o10_000)).expect("twelve bits");
    Ok(chmod(path, Mode::from_raw_mode(mode))?)
}

/// Sets times, some before 1970, some after 2038.
pub(super) fn times(churn: &mut RandomWorkload) -> io::Result<()> {
    let span = Duration::from_nanos(churn.random.number() / 4);
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if churn.random.one_in(2) { epoch - span } else { epoch + span };
    let times = fs::FileTimes::new().set_accessed(time).set_modified(time + span / 7);
    File::open(churn.file()?)?.set_times(times)
}
