//! Directory entries and extended attributes: one structure serves both.
//!
//! 1. A DIR_ITEM or XATTR_ITEM holds all entries whose names hash alike; a DIR_INDEX holds one.
//! 2. Only extended attributes carry data.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::device::prefix;
use crate::inode::{entries, split_name};
use crate::key::RawKey;
use crate::{ItemError, Key};

/// What an entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DirEntryKind {
    /// A regular file.
    Regular,
    /// A directory or subvolume.
    Directory,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link.
    Symlink,
    /// No entry of a directory but an extended attribute.
    Xattr,
}

impl TryFrom<u8> for DirEntryKind {
    type Error = ItemError;

    fn try_from(number: u8) -> Result<Self, ItemError> {
        // The upper bit says that the name is encrypted, which is not read here.
        Ok(match number {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            8 => Self::Xattr,
            _ => return Err(ItemError::EntryKind(number)),
        })
    }
}

impl DirEntryKind {
    /// The number that stands for the kind on disk.
    pub fn to_disk(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
            Self::Xattr => 8,
        }
    }
}

/// An entry of a DIR_ITEM, DIR_INDEX or XATTR_ITEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The key of the INODE_ITEM or ROOT_ITEM it leads to; zero for an attribute.
    pub target: Key,
    /// The transaction that made it.
    pub transid: u64,
    /// What it leads to.
    pub kind: DirEntryKind,
    /// The name.
    pub name: &'a [u8],
    /// The value of an extended attribute.
    pub data: &'a [u8],
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDirEntry {
    target: RawKey,
    transid: U64,
    data_len: U16,
    name_len: U16,
    kind: u8,
}

const _: () = assert!(size_of::<RawDirEntry>() == 30);

/// The entries of a DIR_ITEM, DIR_INDEX or XATTR_ITEM.
pub fn dir_entries(bytes: &[u8]) -> impl Iterator<Item = Result<DirEntry<'_>, ItemError>> {
    entries(bytes, |bytes| {
        let (raw, rest) = prefix::<RawDirEntry>(bytes)?;
        let kind = DirEntryKind::try_from(raw.kind)?;
        let (name, rest) = split_name(rest, raw.name_len.get())?;
        let data_len = usize::from(raw.data_len.get());
        let (data, rest) = rest
            .split_at_checked(data_len)
            .ok_or(ItemError::TooShort { need: data_len, have: rest.len() })?;
        let target = raw.target.get();
        Ok((DirEntry { target, transid: raw.transid.get(), kind, name, data }, rest))
    })
}
