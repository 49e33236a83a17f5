//! Items of a log, parsed and checked once.
//!
//! 1. Users of [`LogItem`] see no unchecked values: names are possible, ranges lie within files.
//! 2. Item kinds that a replay does not need are skipped, and so are the DIR_ITEM items that
//!    kernels before 5.17 logged beside the DIR_INDEX items.
//! 3. A damaged item is reported with its key ([`crate::error::LogError`]).

mod tree;

use userbtrfs_format::{
    DirEntry, DirEntryKind, FileExtent, FileExtentKind, InodeItem, ItemError, ItemKind, Key,
    dir_entries, dir_log_end,
};

pub(super) use tree::{KeyRange, LogTree, Logs};

use crate::error::LogDamage;
use crate::inode::{EntryTarget, ExtentMap, ExtentMapKind, InlineData, Link, NamesItem};
use crate::units::{SECTOR, SECTOR_LEN};

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
    /// A range of a file: whole sectors. Bytes may follow behind the first sector of inline data.
    Extent(ExtentMap),
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

/// The most bytes of inline data.
const INLINE_MAX: usize = SECTOR_LEN;

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
    if item.size <= FILE_END {
        Ok(item)
    } else {
        Err(ItemError::Range { field: "size of a file", value: item.size }.into())
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

fn extent(start: u64, data: &[u8]) -> Result<ExtentMap, LogDamage> {
    let extent = FileExtent::parse(start, data)?;
    let (bytes, kind) = match extent.kind {
        FileExtentKind::Inline(inline) if inline.data.len() > INLINE_MAX => {
            return Err(LogDamage::Inline(inline.data.len()));
        }
        FileExtentKind::Inline(inline) => {
            let inline = InlineData::copied(&inline, extent.compression);
            (SECTOR, ExtentMapKind::Inline(inline))
        }
        _ => {
            let kind = ExtentMapKind::of_item(&extent).expect("inline data is handled above");
            (extent.file_bytes(), kind)
        }
    };
    let end = start.checked_add(bytes).filter(|end| *end <= FILE_END + 1);
    let overflow = ItemError::Overflow { field: "file range", start, len: bytes };
    Ok(ExtentMap { start, end: end.ok_or(overflow)?, kind })
}

#[cfg(test)]
mod tests;
