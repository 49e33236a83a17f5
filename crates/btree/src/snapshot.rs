//! The snapshot of a tree: a copy of its root, which shares all below it.
//!
//! 1. The root is of the running transaction first, so that it was never part of an earlier tree.
//! 2. The copy adds a reference of its tree to each child. Both trees then know that all blocks
//!    up to this transaction may be shared ([`Tree::last_snapshot`]).
//! 3. Both trees may change later in the same transaction: the references to a block say whether it
//!    is shared, and the whole path from the root is copied as far as it is ([`crate::cow`]).

use userbtrfs_format::TreeId;
use userbtrfs_sync::Nesting;

use crate::cow::ChildRefs;
use crate::edit::EditError;
use crate::path::{Path, Restart, SearchContext};
use crate::search::ReadBlocks;
use crate::source::BlockSource;
use crate::tree::Root;
use crate::write::resolve;
use crate::{NodeStore, ReadError, Tree};

impl Tree {
    /// Copies the tree to a new one, `id`. The caller excludes changes of this tree meanwhile.
    pub fn snapshot(
        &self,
        id: TreeId,
        store: &NodeStore,
        source: &dyn BlockSource,
    ) -> Result<Self, EditError> {
        let mut arrivals = ReadBlocks::default();
        loop {
            let tools = SearchContext { tree: self, store, source, arrivals: &arrivals };
            match tools.copy_root(id) {
                Ok(copy) => return Ok(copy),
                Err(restart) => resolve(store, source, restart, &mut arrivals)?,
            }
        }
    }
}

impl Tree {
    /// Returns the number of children, or items, of the root: an upper bound of the references
    /// that a snapshot adds, if the root does not change meanwhile.
    pub fn root_len(&self, store: &NodeStore) -> Result<usize, ReadError> {
        let root = self.root();
        let node = match store.cached(root.logical) {
            Some(node) => node,
            None => store.load(root.logical, &self.expected_root(root))?,
        };
        Ok(node.read(Nesting::Root).len())
    }
}

impl SearchContext<'_> {
    fn copy_root(self, id: TreeId) -> Result<Tree, Restart> {
        let Self { tree, store, source, .. } = self;
        let anchor = tree.anchor().write(Nesting::Root);
        let mut path = Path { tools: self, anchor, steps: Vec::new() };
        path.enter()?;
        path.copy_last()?;
        let root = &path.steps[0].guard;
        let header = root.header();
        let copied =
            store.make(source, id, header.level, header.logical, Nesting::Cow, |bytes, new| {
                root.copy_to(bytes, new)
            })?;
        let generation = source.generation();
        let new_root = Root { logical: copied.header().logical, level: header.level, generation };
        let copy = store.tree(id, new_root);
        SearchContext { tree: &copy, ..self }.reference_children(&copied, true, ChildRefs::Tree);
        tree.set_last_snapshot(generation);
        copy.set_last_snapshot(generation);
        Ok(copy)
    }
}
