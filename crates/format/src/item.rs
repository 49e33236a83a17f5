//! Items of leaves, and what can be wrong with their content.

use thiserror::Error;

use crate::Key;

/// An item of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Its key.
    pub key: Key,
    /// Where its data starts, counted from the end of the header.
    pub offset: u32,
    /// Its data.
    pub data: &'a [u8],
}

/// A check that the content of an item failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ItemError {
    /// Fewer bytes than the structure has.
    #[error("item of {have} bytes is shorter than its {need}-byte structure")]
    TooShort {
        /// What the structure needs.
        need: usize,
        /// What the item has.
        have: usize,
    },
    /// A size that the kind does not allow.
    #[error("item size {0} is impossible for its kind")]
    Size(usize),
    /// Bytes are left over after the last entry.
    #[error("{0} bytes are left over at the end")]
    Trailing(usize),
    /// The object id of the key is out of range for the kind.
    #[error("object id {0} is out of range")]
    ObjectId(u64),
    /// The offset of the key is out of range for the kind.
    #[error("key offset {0} is out of range")]
    KeyOffset(u64),
    /// An address or length that does not fall on sectors.
    #[error("{field} {value} is not aligned to sectors")]
    Unaligned {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A range that ends past the end of the number space.
    #[error("{field}: {start} + {len} overflows")]
    Overflow {
        /// Which range.
        field: &'static str,
        /// Its start.
        start: u64,
        /// Its length.
        len: u64,
    },
    /// A field that must not be 0.
    #[error("{0} is 0")]
    Zero(&'static str),
    /// A field whose value is outside its range.
    #[error("{field} {value} is out of range")]
    Range {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A generation from the future.
    #[error("{field} {value} is newer than the filesystem's {limit}")]
    Future {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The newest that can be.
        limit: u64,
    },
    /// A name of no or too many bytes.
    #[error("name of {0} bytes is impossible")]
    NameLen(usize),
    /// A name that hashes to something other than the key says.
    #[error("name hashes to {found}, the key says {expected}")]
    NameHash {
        /// What the key says.
        expected: u64,
        /// What the name gives.
        found: u64,
    },
    /// A directory entry type that does not exist or does not fit the item.
    #[error("directory entry type {0} is impossible here")]
    EntryKind(u8),
    /// A directory entry that leads to neither an inode nor a subvolume.
    #[error("directory entry leads to {0}")]
    EntryTarget(Key),
    /// A mode whose file type does not exist.
    #[error("mode {0:o} has no valid file type")]
    Mode(u32),
    /// A directory with more than one link.
    #[error("directory with {0} links")]
    DirectoryLinks(u32),
    /// Inode flags that do not exist.
    #[error("unknown inode flags {0:#x}")]
    InodeFlags(u64),
    /// A file extent type that does not exist.
    #[error("unknown file extent type {0}")]
    ExtentType(u8),
    /// A compression that does not exist.
    #[error("unknown compression {0}")]
    Compression(u8),
    /// Data is encrypted or encoded in a way that does not exist.
    #[error("unknown encryption {encryption} or encoding {encoding}")]
    Encoding {
        /// The encryption.
        encryption: u8,
        /// The other encoding.
        encoding: u16,
    },
    /// A part of an extent that reaches past its end.
    #[error("part {offset} + {len} reaches past the extent's {limit} bytes")]
    PastExtent {
        /// Where the part starts.
        offset: u64,
        /// How long it is.
        len: u64,
        /// How long the extent is.
        limit: u64,
    },
    /// The item starts before the one before it ends.
    #[error("overlaps the item before it, which ends at {0}")]
    Overlap(u64),
    /// References out of order, of an impossible kind or count.
    #[error("back reference of kind {0} is out of order or impossible here")]
    BackReference(u8),
    /// The count of references is not the sum of those listed.
    #[error("{listed} references are listed, the count says {count}")]
    ReferenceCount {
        /// What the item's count says.
        count: u64,
        /// The sum of those in the item.
        listed: u64,
    },
    /// Flags that contradict each other or do not exist.
    #[error("{field} {value:#x} is impossible")]
    Flags {
        /// Which flags.
        field: &'static str,
        /// Their value.
        value: u64,
    },
    /// A chunk that cannot be.
    #[error("chunk: {0}")]
    Chunk(#[from] crate::ChunkError),
}
