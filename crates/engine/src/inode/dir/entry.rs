//! Entries of directories: a name, its index, and its target.

use userbtrfs_btree::ReadAhead;
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{DirEntry, DirEntryKind, InodeName, ItemKind, Key, RootRef, TreeId};

use crate::error::{InodeId, Result};
use crate::inode::dir::name::Name;
use crate::inode::{EMPTY_DIR, ROOT_DIR, TreeRoots};

/// The target of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryTarget {
    /// An inode of the same subvolume.
    Inode(u64),
    /// A subvolume.
    Subvolume(TreeId),
}

/// An entry of a directory. It is immutable: a name at another index is another entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its index in the directory, which is never reused for another entry.
    pub(crate) index: u64,
    pub(crate) name: Name,
    pub(crate) kind: DirEntryKind,
    pub(crate) target: EntryTarget,
    /// The transaction that added it.
    pub(crate) transid: u64,
}

/// A name of an inode, with its directory and index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The directory that holds it.
    pub(crate) dir: u64,
    /// Its index there.
    pub(crate) index: u64,
    pub(crate) name: Vec<u8>,
}

impl Entry {
    /// Creates the entry of the DIR_INDEX at this index.
    pub(in crate::inode) fn from_disk(index: u64, entry: &DirEntry<'_>) -> Self {
        let name = entry.name.into();
        let kind = entry.kind;
        let target = EntryTarget::from_disk(entry);
        Self { index, name, kind, target, transid: entry.transid }
    }

    /// Returns the content of its DIR_ITEM or DIR_INDEX.
    pub(in crate::inode) fn on_disk(&self) -> DirEntry<'_> {
        let target = self.target.to_disk();
        DirEntry { target, transid: self.transid, kind: self.kind, name: &self.name, data: &[] }
    }

    /// Returns the encoded content of its DIR_INDEX.
    pub(crate) fn to_item(&self) -> Vec<u8> {
        self.on_disk().encode()
    }

    /// Returns the content of the INODE_REF or INODE_EXTREF of its inode.
    pub(in crate::inode) fn as_name(&self, parent: u64) -> InodeName<'_> {
        InodeName { parent, index: self.index, name: &self.name }
    }

    pub(crate) fn hash(&self) -> u32 {
        name_hash(&self.name)
    }
}

impl EntryTarget {
    pub(crate) fn from_disk(entry: &DirEntry<'_>) -> Self {
        match entry.target.kind {
            ItemKind::ROOT_ITEM => Self::Subvolume(TreeId(entry.target.objectid)),
            _ => Self::Inode(entry.target.objectid),
        }
    }

    /// Returns the key of the target.
    pub(in crate::inode) fn to_disk(self) -> Key {
        match self {
            Self::Inode(number) => Key::new(number, ItemKind::INODE_ITEM, 0),
            Self::Subvolume(id) => Key::new(id.0, ItemKind::ROOT_ITEM, u64::MAX),
        }
    }

    /// Returns the inode that the entry `name` of `dir` leads to.
    ///
    /// The name of a subvolume leads into it only if a ROOT_REF says so. A snapshot of a subvolume
    /// that contains others has their names but not them: such names are empty directories.
    pub(crate) fn resolve(
        self,
        tree_roots: &TreeRoots,
        dir: InodeId,
        name: &[u8],
    ) -> Result<InodeId> {
        let child = match self {
            Self::Inode(number) => return Ok(InodeId { subvolume: dir.subvolume, number }),
            Self::Subvolume(child) => child,
        };
        let empty = InodeId { subvolume: dir.subvolume, number: EMPTY_DIR };
        let key = Key::new(dir.subvolume.0, ItemKind::ROOT_REF, child.0);
        let position = tree_roots.roots().search(tree_roots.store(), &key)?;
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

/// Returns the parent of a subvolume and its name there, or `None` for the top level.
pub(crate) fn subvolume_name(tree_roots: &TreeRoots, id: TreeId) -> Result<Option<(TreeId, Link)>> {
    let key = Key::new(id.0, ItemKind::ROOT_BACKREF, 0);
    let cursor = tree_roots.cursor(tree_roots.roots(), &key, ReadAhead::Off)?;
    let backref = cursor
        .item()
        .filter(|item| item.key.objectid == id.0 && item.key.kind == ItemKind::ROOT_BACKREF);
    Ok(backref.map(|item| {
        let backref = RootRef::parse(item.data).expect("verified with its block");
        let dir = backref.dirid;
        let index = backref.sequence;
        let name = backref.name.to_vec();
        (TreeId(item.key.offset), Link { dir, index, name })
    }))
}
