//! Directories: names to inodes, and lists of entries.

use userbtrfs_btree::{ReadAhead, Tree};
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{DirEntry, DirEntryKind, ItemKind, Key, RootRef, TreeId, dir_entries};

use super::{EMPTY_DIR, Forest, Link, ROOT_DIR, names};
use crate::error::{Error, InodeId, Result};

/// What an entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryTarget {
    /// An inode of the same subvolume.
    Inode(u64),
    /// A subvolume.
    Subvolume(TreeId),
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(crate) struct ListedEntry {
    pub(crate) index: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) kind: DirEntryKind,
    pub(crate) target: EntryTarget,
}

/// A place in a directory: the index of the next entry.
pub(crate) type DirPosition = u64;

/// Entries that are gathered at a time while a directory is listed.
const LIST_MAX: usize = 4096;

fn target(entry: &DirEntry<'_>) -> EntryTarget {
    match entry.target.kind {
        ItemKind::ROOT_ITEM => EntryTarget::Subvolume(TreeId(entry.target.objectid)),
        _ => EntryTarget::Inode(entry.target.objectid),
    }
}

/// What `name` leads to in the directory, if it is there.
pub(crate) fn lookup(
    forest: &Forest,
    tree: &Tree,
    dir: u64,
    name: &[u8],
) -> Result<Option<(EntryTarget, DirEntryKind)>> {
    let key = Key::new(dir, ItemKind::DIR_ITEM, u64::from(name_hash(name)));
    let position = tree.search(forest.store(), &key)?;
    if !position.exact {
        return Ok(None);
    }
    let item = position.leaf.item(position.slot);
    let mut entries = dir_entries(item.data).map(|e| e.expect("verified with its block"));
    Ok(entries.find(|entry| entry.name == name).map(|entry| (target(&entry), entry.kind)))
}

/// Entries from `position` on; and the position after them, or nothing where none follow. What
/// comes before damage is listed; whoever goes on from there meets the error.
pub(crate) fn list(
    forest: &Forest,
    tree: &Tree,
    dir: u64,
    position: DirPosition,
) -> Result<(Vec<ListedEntry>, Option<DirPosition>)> {
    let mut listed = Vec::new();
    let key = Key::new(dir, ItemKind::DIR_INDEX, position);
    let mut cursor = forest.cursor(tree, &key, ReadAhead::Forward)?;
    while let Some(item) = cursor.item() {
        if item.key.objectid != dir || item.key.kind != ItemKind::DIR_INDEX {
            break;
        }
        if listed.len() == LIST_MAX {
            return Ok((listed, Some(item.key.offset)));
        }
        let entry = dir_entries(item.data)
            .next()
            .and_then(Result::ok)
            .expect("verified with its block to be one entry");
        let index = item.key.offset;
        listed.push(ListedEntry {
            index,
            name: entry.name.to_vec(),
            kind: entry.kind,
            target: target(&entry),
        });
        if cursor.advance().is_err() {
            return Ok((listed, index.checked_add(1)));
        }
    }
    Ok((listed, None))
}

impl EntryTarget {
    /// The inode that the entry `name` of `dir` leads to.
    ///
    /// The name of a subvolume leads into it only where a ROOT_REF says so. A snapshot of a
    /// subvolume that contains others has their names but not them: those are empty directories.
    pub(crate) fn resolve(self, forest: &Forest, dir: InodeId, name: &[u8]) -> Result<InodeId> {
        let child = match self {
            Self::Inode(number) => return Ok(InodeId { subvolume: dir.subvolume, number }),
            Self::Subvolume(child) => child,
        };
        let empty = InodeId { subvolume: dir.subvolume, number: EMPTY_DIR };
        let key = Key::new(dir.subvolume.0, ItemKind::ROOT_REF, child.0);
        let position = forest.roots().search(forest.store(), &key)?;
        if !position.exact {
            return Ok(empty);
        }
        let item = position.leaf.item(position.slot);
        let root_ref = RootRef::parse(item.data).expect("verified with its block");
        if root_ref.dirid != dir.number || root_ref.name != name {
            return Ok(empty);
        }
        Ok(InodeId { subvolume: child, number: ROOT_DIR })
    }
}

/// Checks that a directory knows the entry of `dir` that leads to it as its first name.
///
/// Since each directory has one first name, those that pass form a tree.
pub(crate) fn check_way_down(
    forest: &Forest,
    dir: InodeId,
    entry: &ListedEntry,
    child: InodeId,
) -> Result<()> {
    if child.number == EMPTY_DIR {
        return Ok(());
    }
    let known = if child.subvolume == dir.subvolume {
        names(forest, &*forest.tree(child.subvolume)?, child.number)?.into_iter().next()
    } else {
        let known = subvolume_name(forest, child.subvolume)?;
        known.filter(|(parent, _)| *parent == dir.subvolume).map(|(_, name)| name)
    };
    let wanted = Link { dir: dir.number, index: entry.index, name: entry.name.clone() };
    match known == Some(wanted) {
        true => Ok(()),
        false => Err(Error::Stray { dir, name: entry.name.clone(), child }),
    }
}

/// The subvolume that contains a subvolume, and its name there; nothing for the top level.
pub(crate) fn subvolume_name(forest: &Forest, id: TreeId) -> Result<Option<(TreeId, Link)>> {
    let key = Key::new(id.0, ItemKind::ROOT_BACKREF, 0);
    let cursor = forest.cursor(forest.roots(), &key, ReadAhead::Off)?;
    let backref = cursor
        .item()
        .filter(|item| item.key.objectid == id.0 && item.key.kind == ItemKind::ROOT_BACKREF);
    Ok(backref.map(|item| {
        let backref = RootRef::parse(item.data).expect("verified with its block");
        let (dir, index, name) = (backref.dirid, backref.sequence, backref.name.to_vec());
        (TreeId(item.key.offset), Link { dir, index, name })
    }))
}
