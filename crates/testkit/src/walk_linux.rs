//! A manifest of a directory that Linux has mounted.
//!
//! 1. Symbolic links, devices, pipes and sockets are never opened; links are not followed.
//! 2. Subvolumes below the root are entered; they have different device numbers.
//! 3. Deep trees use no more file descriptors: at most one directory and one file are open, reached
//!    by steps shorter than `PATH_MAX`.
//!
//! The mount should be read-only or `noatime`, or the walk itself changes access times.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{self, AtFlags, Dir, FileType, Mode as OpenMode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use crate::manifest::{Bytes, ContentDigest, Entry, Kind, Manifest, Mode, SubvolumeId, Time};

/// The inode number of a subvolume's root directory.
const SUBVOLUME_ROOT: u64 = 256;
/// The maximum length of a step in bytes: shorter than `PATH_MAX` even with one more name.
const STEP: usize = 2048;
/// The number of bytes per read.
const READ: usize = 1 << 20;

/// Returns the manifest of everything below `root`.
pub fn walk(root: &Path) -> anyhow::Result<Manifest> {
    let mut met = vec![look(&open_dir(fs::CWD, root)?, c".", b"/")?];
    let mut pending = vec![Vec::new()];
    while let Some(path) = pending.pop() {
        let here = || format!("in {} at {:?}", root.display(), Bytes::from(path.clone()));
        let dir = open_deep(root, &path).with_context(here)?;
        for name in names(&dir).with_context(here)? {
            let child = [path.as_slice(), b"/", name.to_bytes()].concat();
            let entry = look(&dir, &name, &child).with_context(here)?;
            if entry.1.kind == Kind::Dir {
                pending.push(child);
            }
            met.push(entry);
        }
    }
    Ok(Manifest::new(met))
}

fn open_dir(at: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(at, path, flags, OpenMode::empty())
}

/// Opens `path` below `root`, however long it is.
fn open_deep(root: &Path, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let mut dir = open_dir(fs::CWD, root)?;
    let mut step = Vec::new();
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        step.extend_from_slice(name);
        step.push(b'/');
        if step.len() > STEP {
            dir = open_dir(&dir, step.as_slice())?;
            step.clear();
        }
    }
    if step.is_empty() { Ok(dir) } else { open_dir(&dir, step.as_slice()) }
}

fn names(dir: &OwnedFd) -> rustix::io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

/// Returns the entry of `name` in `dir`; its path from the root of the walk is `path`.
fn look(dir: &OwnedFd, name: &CStr, path: &[u8]) -> anyhow::Result<(SubvolumeId, Entry)> {
    let asked = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, asked)?;
    let kind = kind(stat.stx_mode)?;
    let btime = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let mut entry = Entry {
        path: Bytes::from(path),
        kind,
        inode: stat.stx_ino,
        subvolume: kind == Kind::Dir && stat.stx_ino == SUBVOLUME_ROOT,
        mode: Mode::new(stat.stx_mode.into()),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink,
        size: stat.stx_size,
        rdev: matches!(kind, Kind::Block | Kind::Char)
            .then_some((stat.stx_rdev_major, stat.stx_rdev_minor)),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        atime: time(stat.stx_atime),
        btime: btime.then(|| time(stat.stx_btime)),
        flags: 0,
        target: None,
        xattrs: xattrs(dir, name).context("reading xattrs")?,
        link: None,
        segments: Vec::new(),
        content: None,
    };
    match kind {
        Kind::File => look_inside(&open_file(dir, name)?, &mut entry)?,
        Kind::Dir => entry.flags = flags(&open_dir(dir, name)?)?,
        Kind::Symlink => entry.target = Some(fs::readlinkat(dir, name, [])?.into_bytes().into()),
        Kind::Block | Kind::Char | Kind::Fifo | Kind::Socket => {}
    }
    Ok((SubvolumeId(fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)), entry))
}

fn kind(mode: u16) -> anyhow::Result<Kind> {
    Ok(match FileType::from_raw_mode(mode.into()) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::Block,
        FileType::CharacterDevice => Kind::Char,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => anyhow::bail!("mode {mode:o} has no file type"),
    })
}

fn time(time: fs::StatxTimestamp) -> Time {
    Time { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

/// Returns the xattrs; the calls that do not follow links take a path, not a directory and a name.
fn xattrs(dir: &OwnedFd, name: &CStr) -> anyhow::Result<BTreeMap<Bytes, Bytes>> {
    let fd = dir.as_raw_fd();
    let path = [format!("/proc/self/fd/{fd}/").as_bytes(), name.to_bytes()].concat();
    let path = CString::new(path)?;
    let mut list = vec![0; fs::llistxattr_query(&path)?];
    let used = fs::llistxattr(&path, &mut list[..])?;
    let names = list[..used].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| Ok((Bytes::from(name), xattr(&path, name)?))).collect()
}

fn xattr(path: &CStr, name: &[u8]) -> rustix::io::Result<Bytes> {
    let mut value = vec![0; fs::lgetxattr_query(path, name)?];
    let used = fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(used);
    Ok(Bytes::from(value))
}

/// Returns the inode flags; 0 if the filesystem does not support them.
fn flags(file: &impl AsFd) -> anyhow::Result<u32> {
    match fs::ioctl_getflags(file) {
        Err(Errno::NOTTY | Errno::OPNOTSUPP) => Ok(0),
        flags => Ok(flags.context("reading inode flags")?.bits()),
    }
}

fn open_file(dir: &OwnedFd, name: &CStr) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, OpenMode::empty()).map(File::from)
}

fn look_inside(file: &File, entry: &mut Entry) -> anyhow::Result<()> {
    entry.flags = flags(file)?;
    entry.segments = segments(file)?;
    let mut digest = ContentDigest::default();
    for (offset, length) in &entry.segments {
        read_into(&mut digest, file, *offset, *length)?;
    }
    entry.content = Some(digest.finish());
    Ok(())
}

fn segments(file: &File) -> rustix::io::Result<Vec<(u64, u64)>> {
    let mut segments = Vec::new();
    let mut end = 0;
    loop {
        let start = match fs::seek(file, SeekFrom::Data(end)) {
            Err(Errno::NXIO) => return Ok(segments),
            found => found?,
        };
        end = fs::seek(file, SeekFrom::Hole(start))?;
        segments.push((start, end - start));
    }
}

fn read_into(
    digest: &mut ContentDigest,
    file: &File,
    offset: u64,
    length: u64,
) -> std::io::Result<()> {
    let end = offset + length;
    let mut buffer = vec![0; READ];
    let mut offset = offset;
    while offset < end {
        let want = usize::try_from(end - offset).unwrap_or(READ).min(READ);
        file.read_exact_at(&mut buffer[..want], offset)?;
        digest.update(offset, &buffer[..want]);
        offset += want as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
