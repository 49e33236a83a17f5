//! Subvolumes in the root tree.

use std::collections::HashSet;

use userbtrfs_btree::ReadAhead;
use userbtrfs_format::{ItemKind, Key, RootItem, TreeId};

use crate::error::{Error, InodeId, Result};
use crate::inode::dir;
use crate::inode::{Inodes, TreeRoots, subvolume_name};

/// A subvolume and its name.
#[derive(Clone, Debug)]
pub(crate) struct Subvolume {
    pub(crate) id: TreeId,
    pub(crate) root: RootItem,
    /// The containing subvolume, the directory there, and the name; `None` for the top level.
    pub(crate) parent: Option<(TreeId, u64, Vec<u8>)>,
}

/// Returns the subvolume of an id.
pub(crate) fn subvolume(tree_roots: &TreeRoots, id: TreeId) -> Result<Subvolume> {
    let root = tree_roots.root_item(id)?.filter(|_| id.is_subvolume()).ok_or(Error::NoSubvolume)?;
    Ok(Subvolume { id, root, parent: parent(tree_roots, id)? })
}

/// Returns all subvolumes except the top level, by id.
pub(crate) fn subvolumes(tree_roots: &TreeRoots) -> Result<Vec<Subvolume>> {
    let mut found = Vec::new();
    for_each_root(tree_roots, |id, root| {
        if root.refs > 0 {
            found.push(Subvolume { id, root, parent: parent(tree_roots, id)? });
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the deleted subvolumes whose trees are not dropped yet, by id.
pub(crate) fn deleted_subvolumes(tree_roots: &TreeRoots) -> Result<Vec<Subvolume>> {
    let mut found = Vec::new();
    for_each_root(tree_roots, |id, root| {
        if root.refs == 0 {
            found.push(Subvolume { id, root, parent: None });
        }
        Ok(())
    })?;
    Ok(found)
}

/// Calls `visit` with the root item of each subvolume except the top level, by id.
fn for_each_root(
    tree_roots: &TreeRoots,
    mut visit: impl FnMut(TreeId, RootItem) -> Result<()>,
) -> Result<()> {
    let first = Key::new(TreeId::FS.0 + 1, ItemKind(0), 0);
    let mut cursor = tree_roots.cursor(tree_roots.roots(), &first, ReadAhead::Forward)?;
    while let Some(item) = cursor.item() {
        let id = TreeId(item.key.objectid);
        if item.key.kind == ItemKind::ROOT_ITEM && id.is_subvolume() {
            visit(id, RootItem::parse(item.data).expect("verified with its block"))?;
        }
        cursor.advance()?;
    }
    Ok(())
}

fn parent(tree_roots: &TreeRoots, id: TreeId) -> Result<Option<(TreeId, u64, Vec<u8>)>> {
    let found = subvolume_name(tree_roots, id)?;
    Ok(found.map(|(parent, name)| (parent, name.dir, name.name)))
}

/// Returns the subvolume that is mounted when none is named.
pub(crate) fn default_subvolume(tree_roots: &TreeRoots) -> Result<TreeId> {
    Ok(userbtrfs_transaction::subvolume::default(tree_roots)?.unwrap_or(TreeId::FS))
}

/// Returns the path of a subvolume from the top level, without a leading slash; empty for the top
/// level itself.
pub(crate) fn path_of(nodes: &Inodes, subvolume: &Subvolume) -> Result<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut seen = HashSet::from([(subvolume.id, 0)]);
    let mut hangs = subvolume.parent.clone();
    while let Some((tree_id, dir, name)) = hangs {
        parts.push(name);
        let mut number = dir;
        while number != crate::inode::ROOT_DIR {
            let id = InodeId { subvolume: tree_id, number };
            if !seen.insert((tree_id, number)) {
                return Err(Error::DirectoryLoop(id));
            }
            let up = dir::names(nodes, id)?.pop().ok_or(Error::NoInode(id))?;
            parts.push(up.name);
            number = up.dir;
        }
        if !seen.insert((tree_id, 0)) {
            let number = crate::inode::ROOT_DIR;
            return Err(Error::DirectoryLoop(InodeId { subvolume: tree_id, number }));
        }
        hangs = parent(nodes.tree_roots(), tree_id)?;
    }
    parts.reverse();
    Ok(parts.join(&b'/'))
}
