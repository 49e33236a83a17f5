//! The UUID tree: the subvolumes of each UUID.
//!
//! 1. A change is planned before anything else changes: what it reads may fail, and then nothing
//!    has changed.
//! 2. A filesystem without the tree gets none: Linux makes it when it mounts the filesystem.

use userbtrfs_format::{ItemKind, TreeId, encode_uuid_subvolumes, uuid_key, uuid_subvolumes};
use uuid::Uuid;

use crate::editor::{Changes, Editor, Items, TreeItems};
use crate::error::{Error, Result};
use crate::roots::TreeRoots;
use crate::units::VERIFIED;

/// Changes of the tree, not yet applied. Those of one UUID and kind are planned once.
pub(super) struct UuidChanges<'a> {
    tree_roots: &'a TreeRoots,
    changes: Changes,
}

impl<'a> UuidChanges<'a> {
    pub(super) fn new(tree_roots: &'a TreeRoots) -> Self {
        Self { tree_roots, changes: Changes::default() }
    }

    /// Adds a subvolume to those of a UUID; a nil UUID has none.
    pub(super) fn add(&mut self, uuid: Uuid, kind: ItemKind, id: TreeId) -> Result<()> {
        self.plan(uuid, kind, |ids| {
            if !ids.contains(&id.0) {
                ids.push(id.0);
            }
        })
    }

    /// Removes a subvolume from those of a UUID.
    pub(super) fn remove(&mut self, uuid: Uuid, kind: ItemKind, id: TreeId) -> Result<()> {
        self.plan(uuid, kind, |ids| ids.retain(|other| *other != id.0))
    }

    fn plan(
        &mut self,
        uuid: Uuid,
        kind: ItemKind,
        change: impl FnOnce(&mut Vec<u64>),
    ) -> Result<()> {
        if uuid.is_nil() {
            return Ok(());
        }
        let tree = match TreeItems::new(self.tree_roots, TreeId::UUID) {
            Ok(tree) => tree,
            Err(Error::NoTree(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let key = uuid_key(uuid, kind);
        assert!(!self.changes.has(&key), "the changes of {uuid} are planned once");
        let before = tree.get(&key, |data| uuid_subvolumes(data).expect(VERIFIED))?;
        let before = before.unwrap_or_default();
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        if after.is_empty() {
            self.changes.remove(key);
        } else {
            self.changes.put(key, encode_uuid_subvolumes(&after));
        }
        Ok(())
    }

    /// Applies the changes.
    pub(super) fn apply(self, editor: &Editor<'_>) -> Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        editor.apply(TreeId::UUID, &mut self.changes.into_edits())
    }
}
