//! Root items of trees that a transaction changed.

use std::collections::BTreeSet;
use std::mem;
use std::time::SystemTime;

use userbtrfs_btree::{ItemEdit, Tree};
use userbtrfs_format::{RootItem, TreeId};
use userbtrfs_sync::Mutex;

use crate::editor::Editor;
use crate::error::{Error, Result};
use crate::space::{Space, is_global_tree};

/// The trees that the running transaction changed and whose root items are not updated yet.
#[derive(Debug, Default)]
pub(crate) struct ChangedRoots {
    roots: BTreeSet<TreeId>,
    /// Subvolumes with changes that are visible to users.
    touched: BTreeSet<TreeId>,
}

impl ChangedRoots {
    /// Records that the root of a tree moved.
    pub(crate) fn change(&mut self, tree: TreeId) {
        self.roots.insert(tree);
    }

    /// Records that the change time in the root item of a subvolume is to be updated.
    pub(crate) fn touch(&mut self, subvolume: TreeId) {
        self.touched.insert(subvolume);
    }

    /// Removes a tree that has no root item any more.
    pub(crate) fn forget(&mut self, tree: TreeId) {
        self.roots.remove(&tree);
        self.touched.remove(&tree);
    }

    /// Returns true if no root item is to be changed, nor one of the two roots in the superblock.
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty() && self.touched.is_empty()
    }

    /// Takes the trees that have root items, and the subvolumes among them that were touched.
    fn take(&mut self) -> (BTreeSet<TreeId>, BTreeSet<TreeId>) {
        let of_superblock = [TreeId::ROOT, TreeId::CHUNK];
        let mut roots = mem::take(&mut self.roots);
        roots.retain(|tree| !of_superblock.contains(tree));
        let touched = mem::take(&mut self.touched);
        roots.extend(&touched);
        (roots, touched)
    }
}

/// Writes the root items of trees that changed; returns how many.
pub(super) fn write(
    editor: &Editor<'_>,
    changed: &Mutex<ChangedRoots>,
    space: &Space,
) -> Result<usize> {
    let (roots, touched) = changed.lock().take();
    let count = roots.len();
    let mut global_trees_grew = 0;
    for id in roots {
        let tree = editor.tree_roots.tree(id)?;
        let (key, mut item) = editor.tree_roots.root_entry(id)?.ok_or(Error::NoTree(id))?;
        let grown = move_root(&mut item, &tree, editor);
        if is_global_tree(id) {
            global_trees_grew += grown;
        }
        if let Some(extended) = item.extended.as_mut().filter(|_| touched.contains(&id)) {
            extended.ctransid = editor.generation;
            extended.ctime = SystemTime::now().into();
        }
        editor.apply(TreeId::ROOT, &mut [ItemEdit::Put(key, item.encode())])?;
    }
    space.global_trees_grew(global_trees_grew);
    Ok(count)
}

/// Updates the root in a root item to that of its tree; returns by how many bytes the tree grew.
pub(crate) fn move_root(item: &mut RootItem, tree: &Tree, editor: &Editor<'_>) -> i64 {
    let nodesize = i64::from(editor.tree_roots.store().volume().geometry().nodesize);
    let grown = tree.take_growth().saturating_mul(nodesize);
    let root = tree.root();
    item.logical = root.logical;
    item.level = root.level;
    item.generation = root.generation;
    // Linux resets the long structure if the two differ.
    item.generation_v2 = item.extended.is_some().then_some(root.generation);
    item.bytes_used = item.bytes_used.saturating_add_signed(grown);
    grown
}
