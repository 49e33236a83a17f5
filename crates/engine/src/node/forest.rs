//! The trees of a filesystem, found by number.
//!
//! 1. A tree is looked up in the root tree once; who asks again gets the same [`Tree`].
//! 2. A root with no references is being deleted: it is not found.

use std::collections::HashMap;

use userbtrfs_btree::{Cursor, NodeStore, ReadAhead, Root, Tree};
use userbtrfs_format::{ItemKind, Key, RootItem, TreeId};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_volume::Volume;

use crate::error::{Error, Result};

/// All trees of a volume.
pub(crate) struct Forest {
    store: NodeStore,
    roots: Tree,
    found: Mutex<HashMap<TreeId, Arc<Tree>>>,
}

impl Forest {
    /// The trees of `volume`; about `cache_bytes` of their nodes are kept in memory.
    pub(crate) fn new(volume: Arc<Volume>, cache_bytes: usize) -> Self {
        let superblock = volume.superblock();
        let root = Root {
            logical: superblock.root,
            level: superblock.root_level,
            generation: superblock.generation,
        };
        let store = NodeStore::new(volume, cache_bytes);
        let found = Mutex::new(Class::CacheShard, HashMap::new());
        Self { store, roots: Tree::new(TreeId::ROOT, root), found }
    }

    /// Where nodes come from.
    pub(crate) fn store(&self) -> &NodeStore {
        &self.store
    }

    /// The root tree.
    pub(crate) fn roots(&self) -> &Tree {
        &self.roots
    }

    /// The tree of a number.
    pub(crate) fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        if let Some(tree) = self.found.lock().get(&id) {
            return Ok(Arc::clone(tree));
        }
        let item = self.root_item(id)?.ok_or(Error::NoTree(id))?;
        let tree = Arc::new(Tree::new(id, Root::from(&item)));
        Ok(Arc::clone(self.found.lock().entry(id).or_insert(tree)))
    }

    /// The root item of a tree that is not being deleted.
    pub(crate) fn root_item(&self, id: TreeId) -> Result<Option<RootItem>> {
        let key = Key::new(id.0, ItemKind::ROOT_ITEM, 0);
        let cursor = self.cursor(&self.roots, &key, ReadAhead::Off)?;
        let found = cursor
            .item()
            .filter(|item| item.key.objectid == id.0 && item.key.kind == ItemKind::ROOT_ITEM)
            .map(|item| RootItem::parse(item.data).expect("verified with its block"));
        Ok(found.filter(|root| root.refs > 0))
    }

    /// A cursor on a tree.
    pub(crate) fn cursor<'a>(
        &'a self,
        tree: &'a Tree,
        key: &Key,
        read_ahead: ReadAhead,
    ) -> Result<Cursor<'a>> {
        Ok(Cursor::seek(&self.store, tree, key, read_ahead)?)
    }
}
