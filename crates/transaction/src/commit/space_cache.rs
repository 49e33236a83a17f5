//! The v1 space caches of older kernels, which are not maintained.
//!
//! A cache is a file in the root tree, one for each block group, and an item that leads to it. The
//! first commit removes all of them, as Linux does when it stops to use them. Caches that were left
//! would not be valid for their block groups any more; Linux sees that by the generation in the
//! superblock. But it would also use the cache of a block group that was removed for a new one at
//! the same address.

use std::ops::ControlFlow;

use userbtrfs_format::{FileExtent, FileExtentKind, ItemKind, Key, TreeId, V1SpaceCache};

use super::handle::Handle;
use crate::editor::{Changes, Items as _, TreeItems};
use crate::error::Result;
use crate::refs::FileExtentRef;
use crate::roots::TreeRoots;
use crate::units::VERIFIED;

/// The kind of the item that leads to a cache.
const HEADER: ItemKind = ItemKind(0);

/// Removes all caches, if there are any.
pub(super) fn remove(handle: &Handle<'_>) -> Result<()> {
    let context = handle.context();
    let caches = caches(&context.tree_roots)?;
    if caches.is_empty() {
        return Ok(());
    }
    let mut changes = Changes::default();
    for (header, file) in caches {
        changes.remove(header);
        remove_file(handle, &mut changes, file)?;
    }
    context.editor(handle.generation()).apply(TreeId::ROOT, &mut changes.into_edits())
}

/// Returns the keys of the items that lead to caches, with the inode numbers of those.
fn caches(tree_roots: &TreeRoots) -> Result<Vec<(Key, u64)>> {
    let mut found = Vec::new();
    let first = Key::new(V1SpaceCache::OBJECTID, HEADER, 0);
    TreeItems::new(tree_roots, TreeId::ROOT)?.visit(&first, &mut |key, data| {
        if (key.objectid, key.kind) == (first.objectid, first.kind) {
            found.push((key, V1SpaceCache::parse(data).expect(VERIFIED).location.objectid));
        }
        if key.objectid > first.objectid {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(found)
}

/// Removes the items of the file of a cache, and drops its references to extents.
fn remove_file(handle: &Handle<'_>, changes: &mut Changes, inode: u64) -> Result<()> {
    let first = Key::new(inode, ItemKind::INODE_ITEM, 0);
    let items = TreeItems::new(&handle.context().tree_roots, TreeId::ROOT)?;
    items.visit(&first, &mut |key, data| {
        if key.objectid > inode {
            return ControlFlow::Break(());
        }
        if key.objectid == inode && key.kind == ItemKind::EXTENT_DATA {
            changes.remove(key);
            drop_extent(handle, key, data);
        } else if key == first {
            changes.remove(key);
        }
        ControlFlow::Continue(())
    })
}

fn drop_extent(handle: &Handle<'_>, key: Key, data: &[u8]) {
    let extent = FileExtent::parse(key.offset, data).expect(VERIFIED);
    if let FileExtentKind::Regular(part) | FileExtentKind::Prealloc(part) = extent.kind {
        handle.drop_file_extent(&FileExtentRef {
            root: TreeId::ROOT,
            inode: key.objectid,
            offset: key.offset.wrapping_sub(part.offset),
            logical: part.disk,
            len: part.disk_bytes,
        });
    }
}
