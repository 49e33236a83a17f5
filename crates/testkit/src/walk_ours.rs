//! A manifest of a filesystem that userbtrfs has open.
//!
//! 1. It uses only the public interface of the library, and has the form of [`crate::walk_linux`].
//! 2. Subvolumes below the root are entered.
//! 3. The type in a directory entry must agree with the inode.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use userbtrfs::{Error, File, FileKind, Filesystem, Inode, InodeFlags, Timestamp, WalkEntry};

use crate::manifest::{Bytes, ContentDigest, Entry, Kind, Manifest, Mode, SubvolumeId, Time};

/// The inode number of a subvolume's root directory.
const SUBVOLUME_ROOT: u64 = 256;

/// Inode flags on disk with their bits in `FS_IOC_GETFLAGS` (`linux/fs.h`). COMPRESS and NOCOMPRESS
/// are not included, as NOCOMPRESS hides COMPRESS.
const FLAGS: &[(InodeFlags, u32)] = &[
    (InodeFlags::SYNC, 0x8),
    (InodeFlags::IMMUTABLE, 0x10),
    (InodeFlags::APPEND, 0x20),
    (InodeFlags::NODUMP, 0x40),
    (InodeFlags::NOATIME, 0x80),
    (InodeFlags::DIRSYNC, 0x1_0000),
    (InodeFlags::VERITY, 0x10_0000),
    (InodeFlags::NODATACOW, 0x80_0000),
];
const FS_COMPR_FL: u32 = 0x4;
const FS_NOCOMP_FL: u32 = 0x400;

/// Returns the manifest of everything below the root.
pub fn walk(filesystem: &Filesystem) -> anyhow::Result<Manifest> {
    let mut met = Vec::new();
    for entry in filesystem.walk("/")? {
        let entry = entry?;
        let here = || format!("at {:?}", Bytes::from(entry.path.clone()));
        met.push(look(&entry).with_context(here)?);
    }
    Ok(Manifest::new(met))
}

/// Returns the entry of `met`.
fn look(met: &WalkEntry) -> anyhow::Result<(SubvolumeId, Entry)> {
    let metadata = met.inode.metadata()?;
    ensure!(met.kind == metadata.kind, "{:?} to its directory, {:?} itself", met.kind, metadata);
    let kind = kind(metadata.kind);
    let number = metadata.id.number;
    let mut entry = Entry {
        path: Bytes::from(met.path.clone()),
        kind,
        inode: number,
        subvolume: kind == Kind::Dir && number == SUBVOLUME_ROOT,
        mode: Mode::new(metadata.mode),
        uid: metadata.uid,
        gid: metadata.gid,
        nlink: metadata.nlink,
        size: metadata.size,
        rdev: matches!(kind, Kind::Block | Kind::Char).then_some(metadata.device),
        mtime: time(metadata.modified),
        ctime: time(metadata.changed),
        atime: time(metadata.accessed),
        btime: Some(time(metadata.created)),
        flags: 0,
        target: None,
        xattrs: xattrs(&met.inode).context("reading xattrs")?,
        link: None,
        segments: Vec::new(),
        content: None,
    };
    match kind {
        Kind::File => {
            entry.flags = flags(metadata.flags);
            look_inside(&met.inode.open()?, &mut entry)?;
        }
        Kind::Dir => entry.flags = flags(metadata.flags),
        Kind::Symlink => entry.target = Some(met.inode.read_link()?.into()),
        Kind::Block | Kind::Char | Kind::Fifo | Kind::Socket => {}
    }
    Ok((SubvolumeId(metadata.id.subvolume.0), entry))
}

pub(crate) fn kind(kind: FileKind) -> Kind {
    match kind {
        FileKind::Regular => Kind::File,
        FileKind::Directory => Kind::Dir,
        FileKind::Symlink => Kind::Symlink,
        FileKind::CharDevice => Kind::Char,
        FileKind::BlockDevice => Kind::Block,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
    }
}

pub(crate) fn time(time: Timestamp) -> Time {
    Time { seconds: time.sec, nanoseconds: time.nsec }
}

pub(crate) fn xattrs(inode: &Inode) -> anyhow::Result<BTreeMap<Bytes, Bytes>> {
    let all = inode.xattrs()?;
    let count = all.len();
    let map: BTreeMap<Bytes, Bytes> =
        all.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    ensure!(map.len() == count, "an xattr is listed twice");
    for (name, value) in &map {
        let alone = inode.xattr(name.as_slice())?;
        ensure!(alone == value.as_slice(), "xattr {name} differs when asked for alone");
    }
    Ok(map)
}

pub(crate) fn flags(flags: InodeFlags) -> u32 {
    let set = FLAGS.iter().filter(|(flag, _)| flags.contains(*flag));
    let compression = if flags.contains(InodeFlags::NOCOMPRESS) {
        FS_NOCOMP_FL
    } else if flags.contains(InodeFlags::COMPRESS) {
        FS_COMPR_FL
    } else {
        0
    };
    set.fold(compression, |all, (_, bit)| all | bit)
}

fn look_inside(file: &File, entry: &mut Entry) -> anyhow::Result<()> {
    entry.segments = segments(file)?;
    let mut digest = ContentDigest::default();
    let mut reader = file.reader();
    while let Some(chunk) = reader.next_chunk()? {
        if let Some(bytes) = chunk.bytes() {
            digest.update(chunk.offset(), bytes);
        }
    }
    entry.content = Some(digest.finish());
    Ok(())
}

/// Returns the data segments of the file: offset and length of each, as Linux reports them.
pub fn segments(file: &File) -> Result<Vec<(u64, u64)>, Error> {
    let mut segments = Vec::new();
    let mut end = 0;
    loop {
        let start = match file.seek_data(end) {
            Err(Error::NoMoreData) => return Ok(segments),
            found => found?,
        };
        end = file.seek_hole(start)?;
        segments.push((start, end - start));
    }
}
