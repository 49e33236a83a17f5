//! The UUID tree: the subvolumes of each UUID.
//!
//! 1. A filesystem without the tree gets none: Linux makes it when it mounts the filesystem.

use userbtrfs_btree::ItemEdit;
use userbtrfs_format::{ItemKind, TreeId, encode_uuid_subvolumes, uuid_key, uuid_subvolumes};
use uuid::Uuid;

use crate::editor::{Editor, Items, TreeItems};
use crate::error::{Error, Result};
use crate::units::VERIFIED;

/// Adds a subvolume to those of a UUID; a nil UUID has none.
pub(super) fn add(editor: &Editor<'_>, uuid: Uuid, kind: ItemKind, id: TreeId) -> Result<()> {
    change(editor, uuid, kind, |ids| {
        if !ids.contains(&id.0) {
            ids.push(id.0);
        }
    })
}

/// Removes a subvolume from those of a UUID.
pub(super) fn remove(editor: &Editor<'_>, uuid: Uuid, kind: ItemKind, id: TreeId) -> Result<()> {
    change(editor, uuid, kind, |ids| ids.retain(|other| *other != id.0))
}

fn change(
    editor: &Editor<'_>,
    uuid: Uuid,
    kind: ItemKind,
    change: impl FnOnce(&mut Vec<u64>),
) -> Result<()> {
    if uuid.is_nil() {
        return Ok(());
    }
    let tree = match TreeItems::new(editor.tree_roots, TreeId::UUID) {
        Ok(tree) => tree,
        Err(Error::NoTree(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let key = uuid_key(uuid, kind);
    let before = tree.get(&key, |data| uuid_subvolumes(data).expect(VERIFIED))?.unwrap_or_default();
    let mut after = before.clone();
    change(&mut after);
    if after == before {
        return Ok(());
    }
    let edit = if after.is_empty() {
        ItemEdit::Remove(key)
    } else {
        ItemEdit::Put(key, encode_uuid_subvolumes(&after))
    };
    editor.apply(TreeId::UUID, &mut [edit])
}
