//! Copy-on-write: a block of an earlier transaction is never changed, its copy is. So is that of a
//! block of the running transaction that a snapshot shares.
//!
//! The references to the children of a block that is copied (docs/format.md, back references):
//!
//! | the block                              | children of the copy    | children of the block  |
//! |----------------------------------------|-------------------------|------------------------|
//! | exclusive                              | as before: by the tree  | the block is freed     |
//! | exclusive, full backref                | by the tree, added      | by address, dropped    |
//! | shared, owned by the tree              | as before: by the tree  | by address, added      |
//! | shared, of another owner or full backref | by the tree, added    | as before              |
//!
//! The step that drops the reference to the block decides whether it is shared
//! ([`crate::BlockSource::drop_if_shared`]): a tree that is dropped takes no lock of a block that
//! it does not read.

use userbtrfs_format::{BlockFlags, FileExtent, FileExtentKind, ItemKind};
use userbtrfs_sync::{Nesting, OwnedWriteGuard};
use userbtrfs_volume::TreeBlock;

use crate::NodeRef;
use crate::path::{Path, Restart, SearchContext};
use crate::source::{Backref, BlockRefs, Extent, RefChange};

/// The kind of the references of a block to its children.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildRefs {
    /// By the id of the tree.
    Tree,
    /// By the address of the block (full backref).
    Address,
}

impl SearchContext<'_> {
    /// Returns whether the running transaction may change the block in place, if no other tree
    /// shares it.
    pub(crate) fn is_current(&self, block: &TreeBlock) -> bool {
        let header = block.header();
        header.generation == self.source.generation() && !header.flags.contains(BlockFlags::WRITTEN)
    }

    /// Returns the references to a block of the tree. A block that a balance made is newer than
    /// the last snapshot, but shared if the block that it replaces was.
    pub(crate) fn sharing(&self, block: &TreeBlock, is_root: bool) -> Result<BlockRefs, Restart> {
        let header = block.header();
        let is_old = header.generation <= self.tree.last_snapshot();
        let may_be_shared = self.tree.id().is_shareable()
            && !is_root
            && (is_old || header.flags.contains(BlockFlags::RELOC));
        if !may_be_shared {
            return Ok(BlockRefs::ALONE);
        }
        let logical = header.logical;
        let level = header.level;
        self.source.sharing(logical).ok_or(Restart::Sharing { logical, level })
    }

    /// Drops the reference of the tree to a block that other trees share, and returns the
    /// references before that. If other trees dropped theirs since `sharing` was looked up, the
    /// block is not shared any more, and its reference is left.
    pub(crate) fn drop_shared_block(&self, block: &TreeBlock, sharing: BlockRefs) -> BlockRefs {
        if sharing.refs <= 1 {
            return sharing;
        }
        let header = block.header();
        let extent = Extent::Block { logical: header.logical, level: header.level };
        let backref = Backref::Tree(self.tree.id());
        let change = RefChange { add: false, extent, backref };
        self.source.drop_if_shared(change).unwrap_or_else(|| {
            // Only if the extent tree counts too few references.
            self.source.reference(change);
            sharing
        })
    }

    /// Updates the references to the children when the tree replaces a block by a copy of it.
    pub(crate) fn update_refs_for_cow(&self, block: &TreeBlock, sharing: BlockRefs) {
        let header = block.header();
        let tree = self.tree.id();
        match sharing {
            BlockRefs { refs: ..=1, full_backref: false } => {}
            BlockRefs { refs: ..=1, full_backref: true } => {
                self.reference_children(block, true, ChildRefs::Tree);
                self.reference_children(block, false, ChildRefs::Address);
            }
            BlockRefs { full_backref: false, .. } if header.owner == tree => {
                self.reference_children(block, true, ChildRefs::Address);
                self.source.set_full_backref(header.logical, header.level);
            }
            BlockRefs { .. } => self.reference_children(block, true, ChildRefs::Tree),
        }
    }

    /// Adds or drops a reference to each child.
    pub(crate) fn reference_children(&self, block: &TreeBlock, add: bool, by: ChildRefs) {
        let header = block.header();
        let root = self.tree.id();
        let at = header.logical;
        if !block.is_leaf() {
            let backref = match by {
                ChildRefs::Tree => Backref::Tree(root),
                ChildRefs::Address => Backref::Parent(at),
            };
            for slot in 0..block.len() {
                let logical = block.child(slot).logical;
                let extent = Extent::Block { logical, level: header.level - 1 };
                self.source.reference(RefChange { add, extent, backref });
            }
            return;
        }
        for item in (0..block.len()).map(|slot| block.item(slot)) {
            if item.key.kind != ItemKind::EXTENT_DATA {
                continue;
            }
            let parsed =
                FileExtent::parse(item.key.offset, item.data).expect("verified with its block");
            let (FileExtentKind::Regular(data) | FileExtentKind::Prealloc(data)) = parsed.kind
            else {
                continue;
            };
            // Offsets below the extent's own start wrap around, as Linux counts them.
            let offset = item.key.offset.wrapping_sub(data.offset);
            let backref = match by {
                ChildRefs::Tree => Backref::File { root, inode: item.key.objectid, offset },
                ChildRefs::Address => Backref::SharedLeaf(at),
            };
            let extent = Extent::Data { logical: data.disk, len: data.disk_bytes };
            self.source.reference(RefChange { add, extent, backref });
        }
    }
}

impl Path<'_> {
    /// Copies the last node of the path, unless the running transaction may change it in place.
    pub(crate) fn copy_last(&mut self) -> Result<(), Restart> {
        let index = self.steps.len() - 1;
        let old = &self.steps[index].guard;
        let sharing = self.tools.sharing(old, index == 0)?;
        let is_shared = sharing.refs > 1 || sharing.full_backref;
        if self.tools.is_current(old) && !is_shared {
            return Ok(());
        }
        let copy = self.copy(old)?;
        let sharing = self.tools.drop_shared_block(old, sharing);
        self.tools.update_refs_for_cow(old, sharing);
        let old = std::mem::replace(&mut self.steps[index].guard, copy);
        match index.checked_sub(1) {
            None => self.set_root(),
            Some(above) => {
                let slot = self.steps[above].slot;
                let key = self.steps[above].guard.key(slot);
                let pointer = self.steps[index].pointer(key);
                self.steps[above].block_mut().set_child(slot, &pointer);
            }
        }
        self.free(old.header(), sharing);
        Ok(())
    }

    fn copy(&self, old: &TreeBlock) -> Result<OwnedWriteGuard<NodeRef>, Restart> {
        let header = old.header();
        let made = self
            .make(header.logical, header.level, Nesting::Cow, |bytes, new| old.copy_to(bytes, new));
        Ok(made?)
    }
}
