//! Reads of inodes from their trees, without regard to delayed items.

use userbtrfs_btree::{Cursor, Position, ReadAhead, Tree};
use userbtrfs_codec::hash::{extref_hash, name_hash};
use userbtrfs_format::{
    DirEntry, DirEntryKind, InodeItem, InodeName, ItemKind, Key, LAST_FREE_OBJECTID,
    ORPHAN_OBJECTID, RootFlags, TreeId, dir_entries, inode_extrefs, inode_refs,
};

use crate::error::{Error, InodeId, Result};
use crate::inode::pending::delayed_items::RefIndex;
use crate::inode::{Entry, EntryTarget, IndexedLink, Link, ROOT_DIR, TreeRoots};

/// The first index of an entry of a directory.
pub(in crate::inode) const FIRST_INDEX: u64 = 2;

/// The initial capacity of a listing.
const FEW: usize = 128;

const SOUND: &str = "verified with its block";

/// The length of the INODE_REF that holds the names of an inode in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::inode) struct InodeRefLen {
    pub(in crate::inode) dir: u64,
    pub(in crate::inode) len: usize,
}

/// Returns the attributes of an inode, and the length of its first INODE_REF, if that is in the
/// same leaf.
pub(in crate::inode) fn inode_item(
    tree_roots: &TreeRoots,
    tree: &Tree,
    number: u64,
) -> Result<(InodeItem, Option<InodeRefLen>)> {
    let position = search(tree_roots, tree, number, ItemKind::INODE_ITEM, 0)?;
    let no_inode = Error::NoInode(InodeId { subvolume: tree.id(), number });
    let item = InodeItem::parse(data(&position).ok_or(no_inode)?).expect(SOUND);
    let leaf = &position.leaf;
    let next = position.slot + 1;
    let next = (next < leaf.len()).then(|| leaf.item(next));
    let of_ref =
        next.filter(|next| next.key.objectid == number && next.key.kind == ItemKind::INODE_REF);
    Ok((item, of_ref.map(|item| InodeRefLen { dir: item.key.offset, len: item.data.len() })))
}

/// Returns the size of an inode, or 0 if the tree does not have it.
pub(in crate::inode) fn size(
    tree_roots: &TreeRoots,
    tree: &Tree,
    number: u64,
) -> userbtrfs_transaction::Result<u64> {
    let key = Key::new(number, ItemKind::INODE_ITEM, 0);
    let position = tree.search(tree_roots.store(), &key)?;
    Ok(data(&position).map_or(0, |data| InodeItem::parse(data).expect(SOUND).size))
}

/// Returns all names of an inode, and the item that stores each.
pub(in crate::inode) fn names(
    tree_roots: &TreeRoots,
    tree: &Tree,
    number: u64,
) -> Result<Vec<IndexedLink>> {
    let mut names = Vec::new();
    let mut add = |name: InodeName<'_>, place| {
        let link = Link { dir: name.parent, index: name.index, name: name.name.to_vec() };
        names.push((link, place));
    };
    let mut items = Items::new(tree_roots, tree, number, ItemKind::INODE_REF)?;
    while let Some((key, data)) = items.item(ItemKind::INODE_EXTREF) {
        match key.kind {
            ItemKind::INODE_REF => {
                inode_refs(key.offset, data)
                    .for_each(|name| add(name.expect(SOUND), RefIndex::Ref));
            }
            ItemKind::INODE_EXTREF => {
                inode_extrefs(data).for_each(|name| add(name.expect(SOUND), RefIndex::Extref));
            }
            _ => {}
        }
        items.advance()?;
    }
    Ok(names)
}

/// Looks up items that are probably close to each other. A result may be as old as the first
/// lookup.
pub(in crate::inode) struct LocalityCursor<'a> {
    tree_roots: &'a TreeRoots,
    tree: &'a Tree,
    last: Option<Position>,
}

impl<'a> LocalityCursor<'a> {
    pub(in crate::inode) fn new(tree_roots: &'a TreeRoots, tree: &'a Tree) -> Self {
        Self { tree_roots, tree, last: None }
    }

    /// Returns the index of the name that an inode has in a directory.
    pub(in crate::inode) fn index_of(
        &mut self,
        number: u64,
        dir: u64,
        name: &[u8],
    ) -> Result<Option<u64>> {
        let is_it = |found: &InodeName<'_>| found.parent == dir && found.name == name;
        let data = self.find(&Key::new(number, ItemKind::INODE_REF, dir))?;
        let refs = data.into_iter().flat_map(|data| inode_refs(dir, data));
        let in_ref = refs.map(|name| name.expect(SOUND)).find(is_it).map(|found| found.index);
        if in_ref.is_some() {
            return Ok(in_ref);
        }
        let hash = extref_hash(dir, name);
        let data = self.find(&Key::new(number, ItemKind::INODE_EXTREF, hash))?;
        let refs = data.into_iter().flat_map(inode_extrefs);
        let found = refs.map(|name| name.expect(SOUND)).find(is_it);
        Ok(found.map(|found| found.index))
    }

    /// Returns the content of an item.
    fn find(&mut self, key: &Key) -> Result<Option<&[u8]>> {
        let holds = |last: &Position| {
            let begins = !last.leaf.is_empty() && last.leaf.key(0) <= *key;
            begins && last.next.is_none_or(|next| *key < next)
        };
        let position = match self.last.take().filter(holds) {
            Some(last) => last,
            None => self.tree.search(self.tree_roots.store(), key)?,
        };
        let position = self.last.insert(position);
        let slot = position.leaf.search(key).ok();
        Ok(slot.map(|slot| position.leaf.item(slot).data))
    }
}

/// A name that is stored in a directory.
pub(in crate::inode) struct StoredName {
    pub(in crate::inode) target: EntryTarget,
    pub(in crate::inode) kind: DirEntryKind,
    /// Whether a damaged directory stores the name once more, for another inode.
    pub(in crate::inode) is_doubled: bool,
}

/// Looks a name up in a directory; also returns the length of the item that holds all names with
/// its hash.
pub(in crate::inode) fn lookup(
    tree_roots: &TreeRoots,
    tree: &Tree,
    dir: u64,
    name: &[u8],
) -> Result<(Option<StoredName>, usize)> {
    let position = search(tree_roots, tree, dir, ItemKind::DIR_ITEM, u64::from(name_hash(name)))?;
    let Some(data) = data(&position) else { return Ok((None, 0)) };
    let mut entries = dir_entries(data).map(|entry| entry.expect(SOUND));
    let found = entries.find(|entry| entry.name == name).map(|entry| StoredName {
        target: EntryTarget::from_disk(&entry),
        kind: entry.kind,
        is_doubled: entries.any(|other| other.name == name),
    });
    Ok((found, data.len()))
}

/// Returns at most `max` entries from a position on, and the position after them, or `None` if no
/// more follow. Entries before damage are listed; the next call returns the error.
pub(in crate::inode) fn list(
    tree_roots: &TreeRoots,
    tree: &Tree,
    dir: u64,
    position: u64,
    max: usize,
) -> Result<(Vec<Entry>, Option<u64>)> {
    let mut listed = Vec::with_capacity(max.min(FEW));
    let key = Key::new(dir, ItemKind::DIR_INDEX, position);
    let mut cursor = tree_roots.cursor(tree, &key, ReadAhead::Forward)?;
    while let Some(item) = cursor.item() {
        if item.key.objectid != dir || item.key.kind != ItemKind::DIR_INDEX {
            break;
        }
        let index = item.key.offset;
        if listed.len() == max {
            return Ok((listed, Some(index)));
        }
        let entry = dir_entries(item.data)
            .next()
            .and_then(Result::ok)
            .expect("verified with its block to be one entry");
        listed.push(Entry::from_disk(index, &entry));
        if cursor.advance().is_err() {
            return Ok((listed, index.checked_add(1)));
        }
    }
    Ok((listed, None))
}

/// Returns the position after damage at `position`, or `None` if no block is damaged there, or no
/// entries follow.
pub(in crate::inode) fn behind_damage(
    tree_roots: &TreeRoots,
    tree: &Tree,
    dir: u64,
    position: u64,
) -> Option<u64> {
    let key = Key::new(dir, ItemKind::DIR_INDEX, position);
    let end = tree.end_of_unreadable(tree_roots.store(), &key)?;
    (end.objectid == dir && end.kind == ItemKind::DIR_INDEX).then_some(end.offset)
}

/// Returns the index for the next entry of a directory.
pub(in crate::inode) fn next_index(tree_roots: &TreeRoots, tree: &Tree, dir: u64) -> Result<u64> {
    let last = Key::new(dir, ItemKind::DIR_INDEX, u64::MAX);
    let cursor = Cursor::seek_back(tree_roots.store(), tree, &last, ReadAhead::Off)?;
    let found = cursor.item().map(|item| item.key);
    let last = found.filter(|key| key.objectid == dir && key.kind == ItemKind::DIR_INDEX);
    Ok(last.map_or(FIRST_INDEX, |key| key.offset.saturating_add(1).max(FIRST_INDEX)))
}

/// Returns the number for the next inode of a subvolume.
pub(in crate::inode) fn next_number(tree_roots: &TreeRoots, tree: &Tree) -> Result<u64> {
    let last = Key::new(LAST_FREE_OBJECTID, ItemKind(u8::MAX), u64::MAX);
    let cursor = Cursor::seek_back(tree_roots.store(), tree, &last, ReadAhead::Off)?;
    let found = cursor.item().map(|item| item.key.objectid);
    Ok(found.filter(|number| *number <= LAST_FREE_OBJECTID).unwrap_or(0).max(ROOT_DIR) + 1)
}

/// Returns the numbers of the ORPHAN_ITEMs of a tree.
pub(in crate::inode) fn orphans(tree_roots: &TreeRoots, tree: &Tree) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let mut items = Items::new(tree_roots, tree, ORPHAN_OBJECTID, ItemKind::ORPHAN_ITEM)?;
    while let Some((key, _)) = items.item(ItemKind::ORPHAN_ITEM) {
        found.push(key.offset);
        items.advance()?;
    }
    Ok(found)
}

/// Returns the value of an extended attribute, if it exists, and the length of the item that holds
/// all attributes whose names have its hash.
pub(in crate::inode) fn xattr(
    tree_roots: &TreeRoots,
    tree: &Tree,
    number: u64,
    name: &[u8],
) -> Result<(Option<Vec<u8>>, usize)> {
    let position =
        search(tree_roots, tree, number, ItemKind::XATTR_ITEM, u64::from(name_hash(name)))?;
    let Some(data) = data(&position) else { return Ok((None, 0)) };
    Ok((entry_of(data, name).map(|entry| entry.data.to_vec()), data.len()))
}

/// Returns true if an inode has extended attributes.
pub(in crate::inode) fn has_xattrs(
    tree_roots: &TreeRoots,
    tree: &Tree,
    number: u64,
) -> Result<bool> {
    let items = Items::new(tree_roots, tree, number, ItemKind::XATTR_ITEM)?;
    Ok(items.item(ItemKind::XATTR_ITEM).is_some())
}

/// Returns all extended attributes: names and values, in key order.
pub(in crate::inode) fn xattrs(
    tree_roots: &TreeRoots,
    tree: &Tree,
    number: u64,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut items = Items::new(tree_roots, tree, number, ItemKind::XATTR_ITEM)?;
    while let Some((_, data)) = items.item(ItemKind::XATTR_ITEM) {
        for entry in dir_entries(data) {
            let entry = entry.expect(SOUND);
            found.push((entry.name.to_vec(), entry.data.to_vec()));
        }
        items.advance()?;
    }
    Ok(found)
}

/// Returns the length of the INODE_REF that holds the names of an inode in a directory.
pub(in crate::inode) fn ref_len(
    tree_roots: &TreeRoots,
    tree: &Tree,
    number: u64,
    dir: u64,
) -> Result<usize> {
    let position = search(tree_roots, tree, number, ItemKind::INODE_REF, dir)?;
    Ok(data(&position).map_or(0, <[u8]>::len))
}

/// Returns the length of the INODE_EXTREF that holds the names of an inode with this hash.
pub(in crate::inode) fn extref_len(
    tree_roots: &TreeRoots,
    tree: &Tree,
    number: u64,
    hash: u64,
) -> Result<usize> {
    let position = search(tree_roots, tree, number, ItemKind::INODE_EXTREF, hash)?;
    Ok(data(&position).map_or(0, <[u8]>::len))
}

/// Returns true if a subvolume is read-only.
pub(in crate::inode) fn is_read_only(tree_roots: &TreeRoots, id: TreeId) -> Result<bool> {
    let root = tree_roots.root_item(id)?.ok_or(Error::NoSubvolume)?;
    Ok(root.flags.contains(RootFlags::READ_ONLY))
}

fn search(
    tree_roots: &TreeRoots,
    tree: &Tree,
    number: u64,
    kind: ItemKind,
    offset: u64,
) -> Result<Position> {
    Ok(tree.search(tree_roots.store(), &Key::new(number, kind, offset))?)
}

/// Returns the content of the item that was searched, if it was found.
fn data(position: &Position) -> Option<&[u8]> {
    position.exact.then(|| position.leaf.item(position.slot).data)
}

fn entry_of<'a>(data: &'a [u8], name: &[u8]) -> Option<DirEntry<'a>> {
    dir_entries(data).map(|entry| entry.expect(SOUND)).find(|entry| entry.name == name)
}

/// Items of one object from a kind on.
struct Items<'a> {
    cursor: Cursor<'a>,
    objectid: u64,
}

impl<'a> Items<'a> {
    fn new(
        tree_roots: &'a TreeRoots,
        tree: &'a Tree,
        objectid: u64,
        first: ItemKind,
    ) -> Result<Self> {
        let cursor = tree_roots.cursor(tree, &Key::new(objectid, first, 0), ReadAhead::Off)?;
        Ok(Self { cursor, objectid })
    }

    /// Returns the current item, if its kind is not past `last`.
    fn item(&self, last: ItemKind) -> Option<(Key, &[u8])> {
        let item = self.cursor.item()?;
        let belongs = item.key.objectid == self.objectid && item.key.kind <= last;
        belongs.then_some((item.key, item.data))
    }

    fn advance(&mut self) -> Result<()> {
        Ok(self.cursor.advance()?)
    }
}
