//! The failed checks of items and chunks.

use thiserror::Error;

use crate::Key;

/// A failed check of the content of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ItemError {
    /// Fewer bytes than the structure has.
    #[error("item of {have} bytes is shorter than its {need}-byte structure")]
    TooShort {
        /// The size of the structure.
        need: usize,
        /// The size of the item.
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
    /// An address or length that is not a multiple of the sector size.
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
        /// The highest possible generation.
        limit: u64,
    },
    /// A name that is empty or too long.
    #[error("name of {0} bytes is impossible")]
    NameLen(usize),
    /// A name whose hash differs from the one in the key.
    #[error("name hashes to {found}, the key says {expected}")]
    NameHash {
        /// The hash in the key.
        expected: u64,
        /// The hash of the name.
        found: u64,
    },
    /// A directory entry type that does not exist or does not fit the item.
    #[error("directory entry type {0} is impossible here")]
    EntryKind(u8),
    /// A directory entry that refers to neither an inode nor a subvolume.
    #[error("directory entry leads to {0}")]
    EntryTarget(Key),
    /// A mode with an unknown file type.
    #[error("mode {0:o} has no valid file type")]
    Mode(u32),
    /// A directory with more than one link.
    #[error("directory with {0} links")]
    DirectoryLinks(u32),
    /// Unknown inode flags.
    #[error("unknown inode flags {0:#x}")]
    InodeFlags(u64),
    /// An unknown file extent type.
    #[error("unknown file extent type {0}")]
    ExtentType(u8),
    /// An unknown compression.
    #[error("unknown compression {0}")]
    Compression(u8),
    /// An unknown encryption or encoding.
    #[error("unknown encryption {encryption} or encoding {encoding}")]
    Encoding {
        /// The encryption.
        encryption: u8,
        /// The other encoding.
        encoding: u16,
    },
    /// A range of an extent that reaches past its end.
    #[error("part {offset} + {len} reaches past the extent's {limit} bytes")]
    PastExtent {
        /// The start of the range.
        offset: u64,
        /// The length of the range.
        len: u64,
        /// The length of the extent.
        limit: u64,
    },
    /// The item starts before the one before it ends.
    #[error("overlaps the item before it, which ends at {0}")]
    Overlap(u64),
    /// Back references that are out of order or of an impossible kind.
    #[error("back reference of kind {0} is out of order or impossible here")]
    BackReference(u8),
    /// The reference count is 0 or less than the sum of the inline references.
    #[error("{listed} references are listed, the count says {count}")]
    ReferenceCount {
        /// The reference count of the item.
        count: u64,
        /// The sum of the counts of the inline references.
        listed: u64,
    },
    /// Flags that contradict each other or are unknown.
    #[error("{field} {value:#x} is impossible")]
    Flags {
        /// Which flags.
        field: &'static str,
        /// Their value.
        value: u64,
    },
    /// An impossible chunk.
    #[error("chunk: {0}")]
    Chunk(#[from] ChunkError),
}

/// A failed check of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// No stripe.
    #[error("no stripes")]
    NoStripes,
    /// A start or length that is not a multiple of the sector size, or a length of 0.
    #[error("{field} {value} is 0 or not aligned to sectors")]
    Unaligned {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A range past the end of the number space.
    #[error("{start} + {len} overflows")]
    Overflow {
        /// Its start.
        start: u64,
        /// Its length.
        len: u64,
    },
    /// A stripe length other than 64 KiB.
    #[error("stripe length {0} is not 64 KiB")]
    StripeLen(u64),
    /// More than one profile, no type, types that exclude each other, or an unknown bit.
    #[error("type {0:#x} is impossible")]
    Flags(u64),
    /// A number of stripes that the profile does not allow.
    #[error("profile {profile} with {stripes} stripes ({sub_stripes} sub-stripes)")]
    StripeCount {
        /// The profile's name.
        profile: &'static str,
        /// The number of stripes.
        stripes: u16,
        /// The number of sub-stripes.
        sub_stripes: u16,
    },
}
