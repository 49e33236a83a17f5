//! The trees of a filesystem, found by number.
//!
//! 1. A tree is looked up in the root tree once; later calls return the same [`Tree`].
//! 2. A root with no references is being deleted: it is not found.
//! 3. The root tree and the chunk tree are in no tree: the superblock holds their roots.

use std::collections::HashMap;

use userbtrfs_btree::{Cursor, NodeStore, ReadAhead, Root, ShortKeys, Tree};
use userbtrfs_format::{ItemKind, Key, RootItem, TreeId};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_volume::Volume;

use crate::error::{Error, Result};
use crate::units::VERIFIED;

/// All trees of a volume.
pub struct TreeRoots {
    store: NodeStore,
    roots: Arc<Tree>,
    found: Mutex<HashMap<TreeId, Arc<Tree>, ShortKeys>>,
}

impl TreeRoots {
    /// Returns the trees of `volume`, with a node cache of about `cache_bytes`.
    pub fn new(volume: Arc<Volume>, cache_bytes: usize) -> Self {
        Self::of(NodeStore::new(volume, cache_bytes))
    }

    /// Like [`Self::new`], with tree locks that wait as before S4 of docs/seeds.md.
    #[cfg(feature = "experiments")]
    pub fn with_hand_made_locks(volume: Arc<Volume>, cache_bytes: usize) -> Self {
        Self::of(NodeStore::new(volume, cache_bytes).with_hand_made_locks())
    }

    fn of(store: NodeStore) -> Self {
        let superblock = store.volume().superblock();
        let root = Root {
            logical: superblock.root,
            level: superblock.root_level,
            generation: superblock.generation,
        };
        let chunk_root = Root {
            logical: superblock.chunk_root,
            level: superblock.chunk_root_level,
            generation: superblock.chunk_root_generation,
        };
        let roots = Arc::new(store.tree(TreeId::ROOT, root));
        let chunks = Arc::new(store.tree(TreeId::CHUNK, chunk_root));
        let known = [(TreeId::ROOT, Arc::clone(&roots)), (TreeId::CHUNK, chunks)];
        Self { store, roots, found: Mutex::new(Class::CacheShard, known.into_iter().collect()) }
    }

    /// The store of tree nodes.
    pub fn store(&self) -> &NodeStore {
        &self.store
    }

    /// The root tree.
    pub fn roots(&self) -> &Tree {
        &self.roots
    }

    /// Returns the tree `id`; fails if it does not exist or is being deleted.
    pub fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        if let Some(tree) = self.found.lock().get(&id) {
            return Ok(Arc::clone(tree));
        }
        let item = self.root_item(id)?.ok_or(Error::NoTree(id))?;
        let tree = Arc::new(self.store.tree(id, Root::from(&item)));
        tree.set_last_snapshot(item.last_snapshot);
        Ok(Arc::clone(self.found.lock().entry(id).or_insert(tree)))
    }

    /// Returns a tree that is being deleted; `item` is its root item. A tree that was changed since
    /// the last commit is the one in memory.
    pub(crate) fn dead_tree(&self, id: TreeId, item: &RootItem) -> Arc<Tree> {
        let found = self.found.lock().get(&id).cloned();
        found.unwrap_or_else(|| Arc::new(self.store.tree(id, Root::from(item))))
    }

    /// Returns a tree, also one that is being deleted, and keeps it in memory; `item` is its root
    /// item.
    pub(crate) fn any_tree(&self, id: TreeId, item: &RootItem) -> Arc<Tree> {
        let make = || {
            let tree = Arc::new(self.store.tree(id, Root::from(item)));
            tree.set_last_snapshot(item.last_snapshot);
            tree
        };
        Arc::clone(self.found.lock().entry(id).or_insert_with(make))
    }

    /// Removes a tree from memory that has no root item any more.
    pub(crate) fn forget(&self, id: TreeId) {
        self.found.lock().remove(&id);
    }

    /// Adds a tree that was just made.
    pub(crate) fn adopt(&self, tree: Arc<Tree>) {
        let before = self.found.lock().insert(tree.id(), tree);
        assert!(before.is_none(), "the id of a tree is used once");
    }

    /// Returns the root item of a tree; `None` if it does not exist or is being deleted.
    pub fn root_item(&self, id: TreeId) -> Result<Option<RootItem>> {
        let found = self.root_entry(id)?.map(|(_, item)| item);
        Ok(found.filter(|root| root.refs > 0))
    }

    /// Returns the root item of a tree in any state, and its key.
    pub(crate) fn root_entry(&self, id: TreeId) -> Result<Option<(Key, RootItem)>> {
        let key = Key::new(id.0, ItemKind::ROOT_ITEM, 0);
        let cursor = self.cursor(&self.roots, &key, ReadAhead::Off)?;
        let found = cursor
            .item()
            .filter(|item| item.key.objectid == id.0 && item.key.kind == ItemKind::ROOT_ITEM);
        let parse = |data| RootItem::parse(data).expect(VERIFIED);
        Ok(found.map(|item| (item.key, parse(item.data))))
    }

    /// A cursor on a tree.
    pub fn cursor<'a>(
        &'a self,
        tree: &'a Tree,
        key: &Key,
        read_ahead: ReadAhead,
    ) -> Result<Cursor<'a>> {
        Ok(Cursor::seek(&self.store, tree, key, read_ahead)?)
    }
}
