//! Root items of trees that a transaction changed.

use std::collections::BTreeSet;
use std::mem;
use std::time::SystemTime;

use userbtrfs_btree::{ItemEdit, Tree};
use userbtrfs_format::{RootItem, TreeId};
use userbtrfs_sync::Mutex;

use crate::editor::Editor;
use crate::error::{Error, Result};
use crate::space::{Space, is_of_books};

/// Trees that the running transaction changed, and whose root items do not say so yet.
#[derive(Debug, Default)]
pub(crate) struct ChangedRoots {
    roots: BTreeSet<TreeId>,
    /// Subvolumes in which something changed that people see.
    touched: BTreeSet<TreeId>,
}

impl ChangedRoots {
    /// The root of a tree moved.
    pub(crate) fn change(&mut self, tree: TreeId) {
        self.roots.insert(tree);
    }

    /// The root item of a subvolume is to say when it changed.
    pub(crate) fn touch(&mut self, subvolume: TreeId) {
        self.touched.insert(subvolume);
    }

    /// Whether no root item is to be changed, nor one of the two that the superblock names.
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty() && self.touched.is_empty()
    }

    /// Takes those that have root items.
    fn take(&mut self) -> (BTreeSet<TreeId>, BTreeSet<TreeId>) {
        let of_superblock = [TreeId::ROOT, TreeId::CHUNK];
        let mut roots = mem::take(&mut self.roots);
        roots.retain(|tree| !of_superblock.contains(tree));
        let touched = mem::take(&mut self.touched);
        roots.extend(&touched);
        (roots, touched)
    }
}

/// Writes the root items of trees that changed; gives how many.
pub(super) fn write(
    editor: &Editor<'_>,
    changed: &Mutex<ChangedRoots>,
    space: &Space,
) -> Result<usize> {
    let (roots, touched) = changed.lock().take();
    let count = roots.len();
    let mut books_grew = 0;
    for id in roots {
        let tree = editor.tree_roots.tree(id)?;
        let (key, mut item) = editor.tree_roots.root_entry(id)?.ok_or(Error::NoTree(id))?;
        let grown = move_root(&mut item, &tree, editor);
        if is_of_books(id) {
            books_grew += grown;
        }
        if let Some(extended) = item.extended.as_mut().filter(|_| touched.contains(&id)) {
            (extended.ctransid, extended.ctime) = (editor.generation, SystemTime::now().into());
        }
        editor.apply(TreeId::ROOT, &mut [ItemEdit::Put(key, item.encode())])?;
    }
    space.books_grew(books_grew);
    Ok(count)
}

/// Makes a root item lead to the root that its tree has now; gives by how many bytes the tree grew.
fn move_root(item: &mut RootItem, tree: &Tree, editor: &Editor<'_>) -> i64 {
    let nodesize = i64::from(editor.tree_roots.store().volume().geometry().nodesize);
    let grown = tree.take_growth().saturating_mul(nodesize);
    let root = tree.root();
    (item.logical, item.level) = (root.logical, root.level);
    item.generation = root.generation;
    // Linux resets the long structure where the two differ.
    item.generation_v2 = item.extended.is_some().then_some(root.generation);
    item.bytes_used = item.bytes_used.saturating_add_signed(grown);
    grown
}
