//! Extended attributes, by name and all of them.

use userbtrfs_btree::{ReadAhead, Tree};
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{ItemKind, Key, dir_entries};

use super::Forest;
use crate::error::Result;

/// The value of an attribute, if it is there.
pub(crate) fn xattr(
    forest: &Forest,
    tree: &Tree,
    inode: u64,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    let key = Key::new(inode, ItemKind::XATTR_ITEM, u64::from(name_hash(name)));
    let position = tree.search(forest.store(), &key)?;
    if !position.exact {
        return Ok(None);
    }
    let item = position.leaf.item(position.slot);
    let mut entries = dir_entries(item.data).map(|e| e.expect("verified with its block"));
    Ok(entries.find(|entry| entry.name == name).map(|entry| entry.data.to_vec()))
}

/// All attributes: names and values, in the order of the tree.
pub(crate) fn xattrs(forest: &Forest, tree: &Tree, inode: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    let key = Key::new(inode, ItemKind::XATTR_ITEM, 0);
    let mut cursor = forest.cursor(tree, &key, ReadAhead::Off)?;
    while let Some(item) = cursor.item() {
        if item.key.objectid != inode || item.key.kind != ItemKind::XATTR_ITEM {
            break;
        }
        for entry in dir_entries(item.data) {
            let entry = entry.expect("verified with its block");
            found.push((entry.name.to_vec(), entry.data.to_vec()));
        }
        cursor.advance()?;
    }
    Ok(found)
}
