//! The extents of files on disk, and whether something else refers to them.
//!
//! 1. A range is shared if its extent has more than one backref (another file, or another position
//!    of the same file), or if a tree block on the path to its item has several references, as
//!    after a snapshot. The flag SHARED of FIEMAP has the same meaning in Linux.
//! 2. Only the trees are read. In a writable filesystem a block that was copied since the last
//!    commit has no extent item yet; it counts as not shared.

use std::collections::HashMap;
use std::fmt;

use userbtrfs_btree::ReadAhead;
use userbtrfs_format::{
    ExtentItem, FileExtent, FileExtentKind, InlineRef, ItemKind, Key, Logical, TreeId,
};

use super::Filesystem;
use crate::error::{InodeId, Result};

const SOUND: &str = "verified with its block";

/// A range of the addresses of data that a file refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRange {
    /// The logical address of the first byte.
    pub logical: u64,
    /// The number of bytes of the file that are there: more than on disk if it is compressed.
    pub len: u64,
}

/// The use of space by a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    /// The bytes of the file that have an extent on disk, preallocated ones included; inline data
    /// has none.
    pub total: u64,
    /// The ranges of these bytes that something else refers to, too, by their place in the file.
    pub shared: Vec<SharedRange>,
}

impl FileUse {
    /// Returns the shared bytes.
    pub fn shared_bytes(&self) -> u64 {
        self.shared.iter().map(|range| range.len).fold(0, u64::saturating_add)
    }

    /// Returns the bytes that nothing else refers to.
    pub fn exclusive_bytes(&self) -> u64 {
        self.total.saturating_sub(self.shared_bytes())
    }
}

/// Finds out which extents of files are shared.
pub struct ExtentSharing {
    filesystem: Filesystem,
    /// Whether tree blocks have several references.
    blocks: HashMap<Logical, bool>,
}

impl fmt::Debug for ExtentSharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtentSharing")
            .field("filesystem", &self.filesystem)
            .finish_non_exhaustive()
    }
}

impl Filesystem {
    /// Returns what finds out which extents of files are shared. Commits first, so that the trees
    /// have all references.
    pub fn extent_sharing(&self) -> Result<ExtentSharing> {
        self.commit()?;
        Ok(ExtentSharing { filesystem: self.clone(), blocks: HashMap::new() })
    }
}

impl ExtentSharing {
    /// Returns the use of space by the file with this id.
    pub fn file_use(&mut self, id: InodeId) -> Result<FileUse> {
        let filesystem = self.filesystem.clone();
        let tree_roots = filesystem.inner.tree_roots();
        let tree = tree_roots.tree(id.subvolume)?;
        let first = Key::new(id.number, ItemKind::EXTENT_DATA, 0);
        let mut cursor = tree_roots.cursor(&tree, &first, ReadAhead::Off)?;
        let mut found = FileUse::default();
        let mut leaf_at = None;
        let mut is_leaf_shared = false;
        while let (Some((leaf, _)), Some(item)) = (cursor.leaf(), cursor.item()) {
            if (item.key.objectid, item.key.kind) != (id.number, ItemKind::EXTENT_DATA) {
                break;
            }
            let header = leaf.header();
            if leaf_at != Some(header.logical) {
                leaf_at = Some(header.logical);
                let path = tree.path_to(tree_roots.store(), &item.key)?;
                is_leaf_shared = self.is_any_shared(&path)?;
            }
            let extent = FileExtent::parse(item.key.offset, item.data).expect(SOUND);
            if let FileExtentKind::Regular(range) | FileExtentKind::Prealloc(range) = extent.kind {
                found.total = found.total.saturating_add(range.bytes);
                if is_leaf_shared || self.has_other_users(range.disk)? {
                    // Linux reports compressed data at the start of its extent.
                    let offset = if extent.compression.is_some() { 0 } else { range.offset };
                    let logical = range.disk.0.saturating_add(offset);
                    found.shared.push(SharedRange { logical, len: range.bytes });
                }
            }
            cursor.advance()?;
        }
        Ok(found)
    }

    /// Returns true if one of these tree blocks has several references.
    fn is_any_shared(&mut self, path: &[Logical]) -> Result<bool> {
        for block in path {
            let is_shared = match self.blocks.get(block) {
                Some(known) => *known,
                None => self.is_block_shared(*block)?,
            };
            self.blocks.insert(*block, is_shared);
            if is_shared {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_block_shared(&self, block: Logical) -> Result<bool> {
        let mut is_shared = false;
        self.each_item(block, |key, data| {
            if matches!(key.kind, ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM) {
                is_shared = ExtentItem::parse(key, data).expect(SOUND).refs > 1;
            }
            false
        })?;
        Ok(is_shared)
    }

    /// Returns true if a data extent has several backrefs.
    fn has_other_users(&self, extent: Logical) -> Result<bool> {
        let mut backrefs = 0_usize;
        self.each_item(extent, |key, data| {
            match key.kind {
                ItemKind::EXTENT_ITEM => {
                    let item = ExtentItem::parse(key, data).expect(SOUND);
                    let is_user = |backref: &&InlineRef| !matches!(backref, InlineRef::Owner(_));
                    backrefs += item.inline.iter().filter(is_user).count();
                }
                ItemKind::EXTENT_DATA_REF | ItemKind::SHARED_DATA_REF => backrefs += 1,
                _ => {}
            }
            backrefs < 2
        })?;
        Ok(backrefs > 1)
    }

    /// Calls `each` for the items of an extent in the extent tree, until it returns false.
    fn each_item(&self, extent: Logical, mut each: impl FnMut(Key, &[u8]) -> bool) -> Result<()> {
        let first = Key::new(extent.0, ItemKind::EXTENT_ITEM, 0);
        self.filesystem.show_items(TreeId::EXTENT, &first, |key, _, data| {
            key.objectid == extent.0 && each(*key, data)
        })
    }
}
