//! Inode items and the names of inodes.

use userbtrfs_btree::{ReadAhead, Tree};
use userbtrfs_format::{InodeItem, ItemKind, Key, inode_extrefs, inode_refs};

use super::Forest;
use crate::error::{Error, InodeId, Result};

/// The number of a subvolume's root directory.
pub(crate) const ROOT_DIR: u64 = 256;

/// The number that the place of a subvolume has where only its name was snapshotted.
pub(crate) const EMPTY_DIR: u64 = 2;

/// A name of an inode, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The directory that holds it.
    pub(crate) dir: u64,
    /// Its place there.
    pub(crate) index: u64,
    pub(crate) name: Vec<u8>,
}

/// The attributes of an inode.
pub(crate) fn inode_item(forest: &Forest, tree: &Tree, number: u64) -> Result<InodeItem> {
    let key = Key::new(number, ItemKind::INODE_ITEM, 0);
    let position = tree.search(forest.store(), &key)?;
    if !position.exact {
        return Err(Error::NoInode(InodeId { subvolume: tree.id(), number }));
    }
    let item = position.leaf.item(position.slot);
    Ok(InodeItem::parse(item.data).expect("verified with its block"))
}

/// All names of an inode.
pub(crate) fn names(forest: &Forest, tree: &Tree, number: u64) -> Result<Vec<Link>> {
    let mut names = Vec::new();
    let key = Key::new(number, ItemKind::INODE_REF, 0);
    let mut cursor = forest.cursor(tree, &key, ReadAhead::Off)?;
    while let Some(item) = cursor.item() {
        if item.key.objectid != number || item.key.kind > ItemKind::INODE_EXTREF {
            break;
        }
        let mut add = |name: userbtrfs_format::InodeName<'_>| {
            let (dir, index) = (name.parent, name.index);
            names.push(Link { dir, index, name: name.name.to_vec() });
        };
        match item.key.kind {
            ItemKind::INODE_REF => inode_refs(item.key.offset, item.data)
                .for_each(|name| add(name.expect("verified with its block"))),
            ItemKind::INODE_EXTREF => inode_extrefs(item.data)
                .for_each(|name| add(name.expect("verified with its block"))),
            _ => {}
        }
        cursor.advance()?;
    }
    Ok(names)
}
