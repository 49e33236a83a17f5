//! Attributes and names of inodes.
//!
//! 1. An [`InodeItem`] has a mode with a valid file type.
//! 2. A name has 1 to 255 bytes. It may contain `/` or NUL: code that builds paths must refuse
//!    those.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use bitflags::bitflags;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::device::{exact, prefix};
use crate::{ItemError, NAME_LEN_MAX};

/// The file type of an inode, from the upper bits of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileKind {
    const MASK: u32 = 0o170_000;

    /// Returns the type in a mode, as in `st_mode` of stat(2); `None` if it is invalid.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & Self::MASK {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns the type bits of a mode, as in `st_mode` of stat(2); the permissions are 0.
    pub fn to_mode(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
        }
    }
}

bitflags! {
    /// Flags of an inode.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InodeFlags: u64 {
        /// Data has no checksums.
        const NODATASUM = 1 << 0;
        /// Data is overwritten in place.
        const NODATACOW = 1 << 1;
        /// Obsolete: read-only.
        const READONLY = 1 << 2;
        /// Not to be compressed.
        const NOCOMPRESS = 1 << 3;
        /// Has preallocated extents.
        const PREALLOC = 1 << 4;
        /// Written synchronously.
        const SYNC = 1 << 5;
        /// May not be changed.
        const IMMUTABLE = 1 << 6;
        /// May only be appended to.
        const APPEND = 1 << 7;
        /// Not to be dumped.
        const NODUMP = 1 << 8;
        /// Reading does not update atime.
        const NOATIME = 1 << 9;
        /// Changed synchronously (directories).
        const DIRSYNC = 1 << 10;
        /// To be compressed.
        const COMPRESS = 1 << 11;
        /// The inode inside a ROOT_ITEM was initialised.
        const ROOT_ITEM_INIT = 1 << 31;
        /// Protected by fs-verity.
        const VERITY = 1 << 32;
    }
}

impl InodeFlags {
    /// The bits that a reader must support; the others concern writers only.
    const READERS: u64 = 0xffff_ffff;
}

/// Nanoseconds per second.
const NANOSECONDS: u32 = 1_000_000_000;

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub sec: i64,
    /// Nanoseconds after that second, below 1 000 000 000.
    pub nsec: u32,
}

/// Times before 1970 are supported.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let (is_before, distance) = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => (false, since),
            Err(error) => (true, error.duration()),
        };
        let sec = i64::try_from(distance.as_secs()).unwrap_or(i64::MAX);
        match (is_before, distance.subsec_nanos()) {
            (false, nsec) => Self { sec, nsec },
            (true, 0) => Self { sec: sec.saturating_neg(), nsec: 0 },
            (true, nsec) => Self {
                sec: sec.saturating_neg().saturating_sub(1),
                nsec: NANOSECONDS.saturating_sub(nsec),
            },
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.sec, self.nsec)
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawTimestamp {
    sec: I64,
    nsec: U32,
}

impl RawTimestamp {
    /// Nanoseconds out of range are read as the last of their second.
    pub(crate) fn get(&self) -> Timestamp {
        Timestamp { sec: self.sec.get(), nsec: self.nsec.get().min(999_999_999) }
    }

    pub(crate) fn new(time: Timestamp) -> Self {
        Self { sec: time.sec.into(), nsec: time.nsec.into() }
    }
}

/// The attributes of an inode: INODE_ITEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeItem {
    /// The transaction that created it.
    pub generation: u64,
    /// The transaction that last changed it.
    pub transid: u64,
    /// Its size in bytes; for a directory, twice the sum of the lengths of its names.
    pub size: u64,
    /// Bytes that its extents hold.
    pub nbytes: u64,
    /// Obsolete: where to allocate.
    pub block_group: u64,
    /// The number of links.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// File type and permissions.
    pub mode: u32,
    /// Its file type, from the mode.
    pub kind: FileKind,
    /// The device number of a device node: major << 20 | minor.
    pub rdev: u64,
    /// Its flags.
    pub flags: InodeFlags,
    /// Counts changes (the NFS change attribute).
    pub sequence: u64,
    /// When it was last read.
    pub atime: Timestamp,
    /// When its attributes last changed.
    pub ctime: Timestamp,
    /// When its content last changed.
    pub mtime: Timestamp,
    /// When it was created.
    pub otime: Timestamp,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawInodeItem {
    pub(crate) generation: U64,
    pub(crate) transid: U64,
    pub(crate) size: U64,
    pub(crate) nbytes: U64,
    pub(crate) block_group: U64,
    pub(crate) nlink: U32,
    pub(crate) uid: U32,
    pub(crate) gid: U32,
    pub(crate) mode: U32,
    pub(crate) rdev: U64,
    pub(crate) flags: U64,
    pub(crate) sequence: U64,
    pub(crate) reserved: [U64; 4],
    pub(crate) times: [RawTimestamp; 4],
}

const _: () = assert!(size_of::<RawInodeItem>() == 160);

impl InodeItem {
    /// Reads the content of an INODE_ITEM.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let raw = exact::<RawInodeItem>(bytes)?;
        let mode = raw.mode.get();
        let kind = FileKind::from_mode(mode).ok_or(ItemError::Mode(mode))?;
        let nlink = raw.nlink.get();
        if kind == FileKind::Directory && nlink > 1 {
            return Err(ItemError::DirectoryLinks(nlink));
        }
        let flags = InodeFlags::from_bits_retain(raw.flags.get());
        if flags.bits() & !InodeFlags::all().bits() & InodeFlags::READERS != 0 {
            return Err(ItemError::InodeFlags(flags.bits()));
        }
        let [atime, ctime, mtime, otime] = raw.times.each_ref().map(RawTimestamp::get);
        Ok(Self {
            generation: raw.generation.get(),
            transid: raw.transid.get(),
            size: raw.size.get(),
            nbytes: raw.nbytes.get(),
            block_group: raw.block_group.get(),
            nlink,
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            mode,
            kind,
            rdev: raw.rdev.get(),
            flags,
            sequence: raw.sequence.get(),
            atime,
            ctime,
            mtime,
            otime,
        })
    }

    /// Writes the content of an INODE_ITEM. The file type is taken from `mode`, not from `kind`.
    pub fn encode(&self) -> [u8; size_of::<RawInodeItem>()] {
        debug_assert_eq!(FileKind::from_mode(self.mode), Some(self.kind));
        let times = [self.atime, self.ctime, self.mtime, self.otime];
        zerocopy::transmute!(RawInodeItem {
            generation: self.generation.into(),
            transid: self.transid.into(),
            size: self.size.into(),
            nbytes: self.nbytes.into(),
            block_group: self.block_group.into(),
            nlink: self.nlink.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            mode: self.mode.into(),
            rdev: self.rdev.into(),
            flags: self.flags.bits().into(),
            sequence: self.sequence.into(),
            reserved: [U64::ZERO; 4],
            times: times.map(RawTimestamp::new),
        })
    }

    /// The `rdev` of a device; only the lower 20 bits of its minor number are used.
    pub fn device_number(major: u32, minor: u32) -> u64 {
        u64::from(major) << 20 | u64::from(minor & 0xf_ffff)
    }

    /// Major and minor number of the device node.
    pub fn device(&self) -> (u32, u32) {
        let major = u32::try_from(self.rdev >> 20).unwrap_or(u32::MAX);
        let minor = u32::try_from(self.rdev & 0xf_ffff).expect("20 bits fit in 32");
        (major, minor)
    }
}

/// A name of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeName<'a> {
    /// The directory that holds it.
    pub parent: u64,
    /// Its index in the directory: the offset of its DIR_INDEX.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInodeRef {
    index: U64,
    name_len: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInodeExtref {
    parent: U64,
    index: U64,
    name_len: U16,
}

impl InodeName<'_> {
    /// Appends the name to the content of an INODE_REF, whose key holds the directory.
    pub fn encode_ref_into(&self, item: &mut Vec<u8>) {
        let raw = RawInodeRef { index: self.index.into(), name_len: name_len(self.name) };
        item.extend_from_slice(raw.as_bytes());
        item.extend_from_slice(self.name);
    }

    /// Appends the name to the content of an INODE_EXTREF.
    pub fn encode_extref_into(&self, item: &mut Vec<u8>) {
        let parent = self.parent.into();
        let index = self.index.into();
        let raw = RawInodeExtref { parent, index, name_len: name_len(self.name) };
        item.extend_from_slice(raw.as_bytes());
        item.extend_from_slice(self.name);
    }
}

/// The names in an INODE_REF; `parent` is the offset of its key.
pub fn inode_refs(
    parent: u64,
    bytes: &[u8],
) -> impl Iterator<Item = Result<InodeName<'_>, ItemError>> {
    entries(bytes, move |bytes| {
        let (raw, rest) = prefix::<RawInodeRef>(bytes)?;
        let (name, rest) = split_name(rest, raw.name_len.get())?;
        Ok((InodeName { parent, index: raw.index.get(), name }, rest))
    })
}

/// The names in an INODE_EXTREF.
pub fn inode_extrefs(bytes: &[u8]) -> impl Iterator<Item = Result<InodeName<'_>, ItemError>> {
    entries(bytes, |bytes| {
        let (raw, rest) = prefix::<RawInodeExtref>(bytes)?;
        let (name, rest) = split_name(rest, raw.name_len.get())?;
        Ok((InodeName { parent: raw.parent.get(), index: raw.index.get(), name }, rest))
    })
}

/// Iterates over entries stored back to back. `next` reads one entry and returns it with the bytes
/// after it; the iterator ends after an error.
pub(crate) fn entries<'a, T>(
    mut bytes: &'a [u8],
    mut next: impl FnMut(&'a [u8]) -> Result<(T, &'a [u8]), ItemError>,
) -> impl Iterator<Item = Result<T, ItemError>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let step = next(bytes);
        bytes = step.as_ref().map_or(&[], |(_, rest)| rest);
        Some(step.map(|(entry, _)| entry))
    })
}

/// Splits off a name of `len` bytes; fails if it does not have 1 to 255.
pub(crate) fn split_name(bytes: &[u8], len: u16) -> Result<(&[u8], &[u8]), ItemError> {
    let len = usize::from(len);
    if len == 0 || len > NAME_LEN_MAX {
        return Err(ItemError::NameLen(len));
    }
    bytes.split_at_checked(len).ok_or(ItemError::TooShort { need: len, have: bytes.len() })
}

/// The length of a name. Panics if it does not have 1 to 255 bytes.
pub(crate) fn name_len(name: &[u8]) -> U16 {
    assert!((1..=NAME_LEN_MAX).contains(&name.len()), "a name has 1 to 255 bytes");
    u16::try_from(name.len()).expect("a name has at most 255 bytes").into()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::Timestamp;

    #[test]
    fn times_before_1970_count_nanoseconds_forwards() {
        let of = |time| Timestamp::from(time);
        let half = Duration::from_millis(1500);
        assert_eq!(of(UNIX_EPOCH + half), Timestamp { sec: 1, nsec: 500_000_000 });
        assert_eq!(of(UNIX_EPOCH - half), Timestamp { sec: -2, nsec: 500_000_000 });
        assert_eq!(of(UNIX_EPOCH - Duration::from_secs(3)), Timestamp { sec: -3, nsec: 0 });
    }
}
