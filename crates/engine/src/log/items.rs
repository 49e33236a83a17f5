//! Items of a log, parsed and checked once.
//!
//! 1. Users of [`LogItem`] see no unchecked values: names are possible, ranges lie within files.
//! 2. Item kinds that a replay does not need are skipped, and so are the DIR_ITEM items that
//!    kernels before 5.17 logged beside the DIR_INDEX items.
//! 3. A damaged item is reported with its key ([`LogError`]).

mod tree;

use userbtrfs_codec::compress::Compression;
use userbtrfs_format::{
    DirEntry, DirEntryKind, FileExtent, FileExtentKind, InlineExtent, InodeItem, ItemError,
    ItemKind, Key, RegularExtent, SECTOR_SIZE, dir_entries, dir_log_end,
};

pub(super) use tree::{KeyRange, LogTree, Logs};

use crate::error::LogDamage;
use crate::inode::{EntryTarget, Link, NamesItem};

/// An item of a log.
pub(super) enum LogItem<'a> {
    /// The attributes of an inode.
    Inode(InodeItem),
    /// All names that an inode has in one item.
    Names(NamesItem, Vec<Link>),
    /// Extended attributes: names and values.
    Xattrs(Xattrs<'a>),
    /// An entry of a directory.
    Entry(LoggedEntry<'a>),
    /// A range of a file.
    Extent(LoggedExtent<'a>),
}

/// Names and values.
type Xattrs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// An entry of a directory.
pub(super) struct LoggedEntry<'a> {
    /// Its directory index.
    pub(super) index: u64,
    pub(super) name: &'a [u8],
    pub(super) kind: DirEntryKind,
    pub(super) target: EntryTarget,
}

/// A range of a file, in whole sectors, and its content.
pub(super) struct LoggedExtent<'a> {
    /// Where it starts in the file.
    pub(super) start: u64,
    /// Where it ends.
    pub(super) end: u64,
    pub(super) content: Content<'a>,
}

/// The content of a range of a file.
pub(super) enum Content<'a> {
    Hole,
    /// The bytes from the start of the range; others may follow behind the first sector.
    Inline(InlineExtent<'a>, Option<Compression>),
    Prealloc(RegularExtent),
    Regular(RegularExtent, Option<Compression>),
}

impl Content<'_> {
    /// Returns the extent on disk, `None` if there is none.
    pub(super) fn on_disk(&self) -> Option<&RegularExtent> {
        match self {
            Self::Prealloc(extent) | Self::Regular(extent, _) => Some(extent),
            Self::Hole | Self::Inline(..) => None,
        }
    }
}

/// The most bytes of inline data.
const INLINE_MAX: usize = SECTOR_SIZE as usize;

/// The largest size of a file: offsets are signed.
const FILE_END: u64 = i64::MAX.unsigned_abs();

impl<'a> LogItem<'a> {
    /// Parses an item; `None` if a replay has no use for it.
    pub(super) fn parse(key: Key, data: &'a [u8]) -> Result<Option<Self>, LogDamage> {
        Ok(Some(match key.kind {
            ItemKind::INODE_ITEM => Self::Inode(inode(data)?),
            // The root of a subvolume is its own parent.
            ItemKind::INODE_REF if key.offset == key.objectid => return Ok(None),
            ItemKind::INODE_REF => names(NamesItem::Ref(key.offset), data)?,
            ItemKind::INODE_EXTREF => names(NamesItem::Extref(key.offset), data)?,
            ItemKind::XATTR_ITEM => Self::Xattrs(xattrs(data)?),
            ItemKind::DIR_INDEX => Self::Entry(entry(key.offset, data)?),
            ItemKind::EXTENT_DATA => Self::Extent(extent(key.offset, data)?),
            _ => return Ok(None),
        }))
    }
}

/// Returns the first and last index of the range that a DIR_LOG_INDEX item says is logged whole.
pub(super) fn logged_range(key: Key, data: &[u8]) -> Result<(u64, u64), LogDamage> {
    Ok((key.offset, dir_log_end(data)?))
}

fn inode(data: &[u8]) -> Result<InodeItem, LogDamage> {
    let item = InodeItem::parse(data)?;
    match item.size <= FILE_END {
        true => Ok(item),
        false => Err(ItemError::Range { field: "size of a file", value: item.size }.into()),
    }
}

fn names(item: NamesItem, data: &[u8]) -> Result<LogItem<'_>, LogDamage> {
    let names = item.names(data);
    names.iter().try_for_each(|link| check_name(&link.name))?;
    Ok(LogItem::Names(item, names))
}

fn check_name(name: &[u8]) -> Result<(), LogDamage> {
    let impossible = name.contains(&b'/') || name.contains(&0) || name == b"." || name == b"..";
    if impossible { Err(LogDamage::Name(name.to_vec())) } else { Ok(()) }
}

fn xattrs(data: &[u8]) -> Result<Xattrs<'_>, LogDamage> {
    dir_entries(data).map(|one| one.map(|one| (one.name, one.data)).map_err(Into::into)).collect()
}

fn entry(index: u64, data: &[u8]) -> Result<LoggedEntry<'_>, LogDamage> {
    let entry = dir_entries(data).next().ok_or(ItemError::Size(0))??;
    let DirEntry { name, kind, .. } = entry;
    check_name(name)?;
    Ok(LoggedEntry { index, name, kind, target: EntryTarget::from_disk(&entry) })
}

fn extent(start: u64, data: &[u8]) -> Result<LoggedExtent<'_>, LogDamage> {
    let extent = FileExtent::parse(start, data)?;
    let (bytes, content) = match extent.kind {
        FileExtentKind::Inline(inline) if inline.data.len() > INLINE_MAX => {
            return Err(LogDamage::Inline(inline.data.len()));
        }
        FileExtentKind::Inline(inline) => {
            (u64::from(SECTOR_SIZE), Content::Inline(inline, extent.compression))
        }
        FileExtentKind::Hole(hole) => (hole.bytes, Content::Hole),
        FileExtentKind::Prealloc(extent) => (extent.bytes, Content::Prealloc(extent)),
        FileExtentKind::Regular(found) => {
            (found.bytes, Content::Regular(found, extent.compression))
        }
    };
    let end = start.checked_add(bytes).filter(|end| *end <= FILE_END + 1);
    let overflow = ItemError::Overflow { field: "file range", start, len: bytes };
    Ok(LoggedExtent { start, end: end.ok_or(overflow)?, content })
}

#[cfg(test)]
mod tests;
