//! Directory entries and extended attributes, which have the same structure.
//!
//! 1. A DIR_ITEM or XATTR_ITEM holds all entries whose names have the same hash; a DIR_INDEX holds
//!    one entry.
//! 2. Only extended attributes carry data.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::device::prefix;
use crate::inode::{entries, name_len, split_name};
use crate::key::RawKey;
use crate::{FileKind, ItemError, Key};

/// The type of an entry.
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
    /// An extended attribute, which is not a directory entry.
    Xattr,
}

impl TryFrom<u8> for DirEntryKind {
    type Error = ItemError;

    fn try_from(number: u8) -> Result<Self, ItemError> {
        // The upper bit means that the name is encrypted, which is not supported.
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
    /// The number of the type on disk.
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

impl From<FileKind> for DirEntryKind {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Regular => Self::Regular,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            FileKind::CharDevice => Self::CharDevice,
            FileKind::BlockDevice => Self::BlockDevice,
            FileKind::Fifo => Self::Fifo,
            FileKind::Socket => Self::Socket,
        }
    }
}

/// An entry of a DIR_ITEM, DIR_INDEX or XATTR_ITEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The key of the INODE_ITEM or ROOT_ITEM it refers to; zero for an attribute.
    pub target: Key,
    /// The transaction that created it.
    pub transid: u64,
    /// Its type.
    pub kind: DirEntryKind,
    /// The name.
    pub name: &'a [u8],
    /// The value of an extended attribute.
    pub data: &'a [u8],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDirEntry {
    target: RawKey,
    transid: U64,
    data_len: U16,
    name_len: U16,
    kind: u8,
}

const _: () = assert!(size_of::<RawDirEntry>() == 30);

impl DirEntry<'_> {
    /// Writes the content of an item that holds only this entry.
    pub fn encode(&self) -> Vec<u8> {
        let mut item = Vec::new();
        self.encode_into(&mut item);
        item
    }

    /// Appends the entry to the content of an item that holds others.
    ///
    /// # Panics
    ///
    /// If the name does not have 1 to 255 bytes, or the data has more than 65535.
    pub fn encode_into(&self, item: &mut Vec<u8>) {
        let data_len = u16::try_from(self.data.len()).expect("data fits in an item");
        let raw = RawDirEntry {
            target: RawKey::new(self.target),
            transid: self.transid.into(),
            data_len: data_len.into(),
            name_len: name_len(self.name),
            kind: self.kind.to_disk(),
        };
        item.extend_from_slice(raw.as_bytes());
        item.extend_from_slice(self.name);
        item.extend_from_slice(self.data);
    }
}

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
