//! Reads block groups and their free space from the trees.
//!
//! 1. Each chunk has its block group, of the same start, length and type, and nothing is
//!    allocated outside of chunks.
//! 2. The free ranges of a group are read from the free space tree if it exists and is valid, or
//!    else computed as the gaps in the extent tree.
//! 3. The items are checked: a contradiction is damage, named by its block group.

use userbtrfs_btree::{Cursor, ReadAhead, Tree};
use userbtrfs_format::{
    BlockGroupItem, Chunk, CompatRoFlags, FreeSpaceInfo, ItemKind, Key, Logical, TreeId,
};

use super::damage::SpaceDamage;
use super::ranges::FreeRanges;
use crate::error::Result;
use crate::roots::TreeRoots;
use crate::units::{SECTOR, VERIFIED};

/// The object id of all chunks.
const CHUNK_OBJECT: u64 = 256;

/// Returns the bytes that are used in the block group of each chunk.
pub(super) fn block_groups(tree_roots: &TreeRoots, chunks: &[Chunk]) -> Result<Vec<u64>> {
    let superblock = tree_roots.store().volume().superblock();
    let apart = superblock.compat_ro.contains(CompatRoFlags::BLOCK_GROUP_TREE);
    let tree = tree_roots.tree(if apart { TreeId::BLOCK_GROUP } else { TreeId::EXTENT })?;
    let mut end_before = Logical(0);
    let mut used = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        check_gap(tree_roots, &tree, end_before, Some(chunk.logical))?;
        used.push(block_group(tree_roots, &tree, chunk)?.used);
        end_before = chunk.end();
    }
    check_gap(tree_roots, &tree, end_before, None)?;
    Ok(used)
}

fn block_group(tree_roots: &TreeRoots, tree: &Tree, chunk: &Chunk) -> Result<BlockGroupItem> {
    let start = chunk.logical;
    if u64::from(chunk.sector_size) != SECTOR {
        return Err(SpaceDamage::ChunkSectorSize { chunk: start, found: chunk.sector_size }.into());
    }
    let key = Key::new(start.0, ItemKind::BLOCK_GROUP_ITEM, 0);
    let cursor = tree_roots.cursor(tree, &key, ReadAhead::Off)?;
    let found =
        cursor.item().filter(|item| (item.key.objectid, item.key.kind) == (start.0, key.kind));
    let item = found.ok_or(SpaceDamage::NoBlockGroup(start))?;
    let len = item.key.offset;
    let group = BlockGroupItem::parse(len, item.data).expect(VERIFIED);
    if group.chunk_objectid != CHUNK_OBJECT {
        return Err(SpaceDamage::ChunkObject { start, found: group.chunk_objectid }.into());
    }
    if (len, group.flags) != (chunk.len, chunk.flags) {
        let flags = group.flags;
        let chunk_len = chunk.len;
        let chunk_flags = chunk.flags;
        return Err(SpaceDamage::ChunkDiffers { start, len, flags, chunk_len, chunk_flags }.into());
    }
    Ok(group)
}

/// Checks that there is no item between two chunks.
fn check_gap(
    tree_roots: &TreeRoots,
    tree: &Tree,
    from: Logical,
    to: Option<Logical>,
) -> Result<()> {
    let cursor = tree_roots.cursor(tree, &Key::new(from.0, ItemKind(0), 0), ReadAhead::Off)?;
    match cursor.item().map(|item| Logical(item.key.objectid)) {
        Some(at) if to.is_none_or(|to| at < to) => Err(SpaceDamage::NoChunk(at).into()),
        _ => Ok(()),
    }
}

/// The global reserve trees: those that no operation reserves for, except those that stay small.
const GLOBAL_TREES: [TreeId; 4] =
    [TreeId::EXTENT, TreeId::CSUM, TreeId::FREE_SPACE, TreeId::BLOCK_GROUP];

/// Returns the bytes of the global reserve trees, according to their root items.
pub(super) fn bytes_of_global_trees(tree_roots: &TreeRoots) -> Result<i64> {
    let mut bytes = 0_i64;
    for id in GLOBAL_TREES {
        let used = tree_roots.root_item(id)?.map_or(0, |item| item.bytes_used);
        bytes = bytes.saturating_add_unsigned(used);
    }
    Ok(bytes)
}

/// Returns true if a tree is one of the global reserve trees.
pub(crate) fn is_global_tree(id: TreeId) -> bool {
    GLOBAL_TREES.contains(&id)
}

/// The group whose free ranges are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupRange {
    pub(super) start: Logical,
    pub(super) len: u64,
    /// The unit of allocation.
    pub(super) unit: u64,
}

impl GroupRange {
    fn end(&self) -> u64 {
        self.start.0 + self.len
    }

    /// Returns the range, if it lies in the group.
    fn inside(&self, start: u64, len: u64) -> Result<(u64, u64), SpaceDamage> {
        let end = start.checked_add(len).filter(|&end| end <= self.end());
        if end.is_some() && start >= self.start.0 && len > 0 {
            Ok((start, len))
        } else {
            Err(self.misplaced(start, len))
        }
    }

    fn misplaced(&self, logical: u64, len: u64) -> SpaceDamage {
        SpaceDamage::Misplaced { start: self.start, logical: Logical(logical), len }
    }

    fn add(&self, free: &mut FreeRanges, start: u64, len: u64) -> Result<(), SpaceDamage> {
        free.insert(start, len).map_err(|_| self.misplaced(start, len))
    }
}

/// Returns the free ranges of a group.
pub(super) fn free_ranges(tree_roots: &TreeRoots, group: GroupRange) -> Result<FreeRanges> {
    let superblock = tree_roots.store().volume().superblock();
    let valid = CompatRoFlags::FREE_SPACE_TREE | CompatRoFlags::FREE_SPACE_TREE_VALID;
    if superblock.compat_ro.contains(valid) {
        from_free_space_tree(tree_roots, group)
    } else {
        from_extent_tree(tree_roots, group)
    }
}

fn from_free_space_tree(tree_roots: &TreeRoots, group: GroupRange) -> Result<FreeRanges> {
    let tree = tree_roots.tree(TreeId::FREE_SPACE)?;
    let GroupRange { start, len, unit } = group;
    let key = Key::new(start.0, ItemKind::FREE_SPACE_INFO, len);
    let mut cursor = tree_roots.cursor(&tree, &key, ReadAhead::Forward)?;
    let info = cursor.item().filter(|item| item.key == key);
    let info = info.ok_or(SpaceDamage::NoFreeSpaceInfo(start))?;
    let FreeSpaceInfo { extent_count: count, flags } =
        FreeSpaceInfo::parse(info.data).expect(VERIFIED);
    let form = match flags {
        0 => ItemKind::FREE_SPACE_EXTENT,
        _ => ItemKind::FREE_SPACE_BITMAP,
    };
    cursor.advance()?;
    let mut free = FreeRanges::new(unit);
    list(&mut cursor, group, form, &mut free)?;
    let found = free.count();
    if u64::from(count) == found as u64 {
        Ok(free)
    } else {
        Err(SpaceDamage::FreeSpaceCount { start, count, found }.into())
    }
}

/// Adds the free ranges of a group, up to the end of the group.
fn list(
    cursor: &mut Cursor<'_>,
    group: GroupRange,
    form: ItemKind,
    free: &mut FreeRanges,
) -> Result<()> {
    while let Some(item) = cursor.item().filter(|item| item.key.objectid < group.end()) {
        if item.key.kind != form {
            return Err(SpaceDamage::FreeSpaceForm(group.start).into());
        }
        let (start, len) = group.inside(item.key.objectid, item.key.offset)?;
        match form {
            ItemKind::FREE_SPACE_EXTENT => group.add(free, start, len)?,
            _ => add_bits(group, start, len, item.data, free)?,
        }
        cursor.advance()?;
    }
    Ok(())
}

/// Adds the runs of ones in a bitmap of `len` bytes of space.
fn add_bits(
    group: GroupRange,
    start: u64,
    len: u64,
    bits: &[u8],
    free: &mut FreeRanges,
) -> Result<(), SpaceDamage> {
    let sectors = len / SECTOR;
    let is_free =
        |at: u64| usize::try_from(at / 8).is_ok_and(|byte| bits[byte] >> (at % 8) & 1 == 1);
    let mut at = 0;
    while at < sectors {
        let run = (at..sectors).take_while(|&at| is_free(at)).count() as u64;
        if run > 0 {
            group.add(free, start + at * SECTOR, run * SECTOR)?;
        }
        at += run.max(1);
    }
    Ok(())
}

pub(super) fn from_extent_tree(tree_roots: &TreeRoots, group: GroupRange) -> Result<FreeRanges> {
    let tree = tree_roots.tree(TreeId::EXTENT)?;
    let key = Key::new(group.start.0, ItemKind(0), 0);
    let mut cursor = tree_roots.cursor(&tree, &key, ReadAhead::Forward)?;
    let mut free = FreeRanges::new(group.unit);
    group.add(&mut free, group.start.0, group.len)?;
    let nodesize = u64::from(tree_roots.store().volume().geometry().nodesize);
    while let Some(item) = cursor.item().filter(|item| item.key.objectid < group.end()) {
        let len = match item.key.kind {
            ItemKind::EXTENT_ITEM => Some(item.key.offset),
            ItemKind::METADATA_ITEM => Some(nodesize),
            _ => None,
        };
        if let Some(len) = len {
            let (start, len) = group.inside(item.key.objectid, len)?;
            if free.subtract(start, len) != len {
                return Err(group.misplaced(start, len).into());
            }
        }
        cursor.advance()?;
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupRange = GroupRange { start: Logical(1 << 20), len: 1 << 20, unit: 4096 };

    fn bits(bits: &[u8]) -> Vec<(u64, u64)> {
        let mut free = FreeRanges::new(GROUP.unit);
        let len = bits.len() as u64 * 8 * 4096;
        add_bits(GROUP, GROUP.start.0, len, bits, &mut free).unwrap();
        free.iter().map(|(start, len)| ((start - GROUP.start.0) / 4096, len / 4096)).collect()
    }

    #[test]
    fn bitmaps_list_runs_from_the_lowest_bit() {
        assert_eq!(bits(&[0, 0]), []);
        assert_eq!(bits(&[0xff, 0xff]), [(0, 16)]);
        assert_eq!(bits(&[0b1000_0001, 0b0110_0001]), [(0, 1), (7, 2), (13, 2)]);
    }

    #[test]
    fn range_outside_its_group_or_over_others_is_misplaced() {
        let misplaced = |logical, len| {
            let start = GROUP.start;
            let logical = Logical(logical);
            SpaceDamage::Misplaced { start, logical, len }
        };
        for (start, len) in [(0, 4096), (2 << 20, 4096), (1 << 20, 2 << 20), (1 << 20, 0)] {
            assert_eq!(GROUP.inside(start, len), Err(misplaced(start, len)));
        }
        assert_eq!(GROUP.inside(1 << 20, 1 << 20), Ok((1 << 20, 1 << 20)));
        assert!(GROUP.inside(u64::MAX, 2).is_err());
        let mut free = FreeRanges::new(4096);
        GROUP.add(&mut free, 1 << 20, 8192).unwrap();
        let again = GROUP.add(&mut free, 1 << 20, 4096);
        assert_eq!(again, Err(misplaced(1 << 20, 4096)));
    }
}
