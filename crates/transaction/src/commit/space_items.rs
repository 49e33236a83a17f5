//! The items about space that a commit writes: references, block groups, chunks.
//!
//! 1. A chunk's items are written before the references of blocks in it: the free space tree must
//!    have a block group before space in it is allocated.
//! 2. Each of these changes trees, and so makes new references: they are repeated until nothing is
//!    left. That ends, because a block is copied at most once in a transaction.

use std::ops::Range;

use userbtrfs_btree::{Extent, ItemEdit};
use userbtrfs_format::{
    BlockGroupItem, Chunk, CompatRoFlags, ItemKind, Key, Logical, Physical, TreeId,
};

use crate::context::TransactionContext;
use crate::editor::Editor;
use crate::error::Result;
use crate::refs::{self, Head, Outcome};
use crate::space::{NewChunk, SpaceDamage};
use crate::{checksums, free_tree};

/// The object id of device items.
const DEVICE_ITEMS: u64 = 1;

/// Writes the items about space of one commit.
pub(super) struct SpaceItemWriter<'a> {
    context: &'a TransactionContext,
    pub(super) editor: Editor<'a>,
}

impl<'a> SpaceItemWriter<'a> {
    pub(super) fn new(context: &'a TransactionContext, generation: u64) -> Self {
        Self { context, editor: context.editor(generation) }
    }

    /// Rebuilds the free space tree if it is not valid. Nothing that this transaction changed is in
    /// the extent tree yet; its new block groups are added once more with their chunks.
    pub(super) fn rebuild_free_space_tree(&self) -> Result<()> {
        let compat = self.context.volume().superblock().compat_ro;
        if !self.has_free_space_tree() || compat.contains(CompatRoFlags::FREE_SPACE_TREE_VALID) {
            return Ok(());
        }
        let groups: Vec<_> = self.context.volume().chunks().iter().map(range_of).collect();
        free_tree::rebuild(&self.editor, &groups)
    }

    /// Applies delayed references to the extent tree until there are none.
    pub(super) fn run_references(&self) -> Result<()> {
        loop {
            self.write_new_chunks()?;
            match self.context.refs.take_next() {
                Some(head) => self.run(&head)?,
                None => return Ok(()),
            }
        }
    }

    fn run(&self, head: &Head) -> Result<()> {
        let (logical, len, is_data) = match head.extent {
            Extent::Block { logical, .. } => (logical, u64::from(self.context.nodesize()), false),
            Extent::Data { logical, len } => (logical, len, true),
        };
        let outcome = refs::run(&self.editor, head)?;
        match outcome {
            Outcome::Kept => return Ok(()),
            Outcome::Added => {
                self.update_free_space_tree(logical, len, free_tree::allocate)?;
                return self.context.space.account(logical, len, true);
            }
            Outcome::Freed => {
                self.update_free_space_tree(logical, len, free_tree::free)?;
                self.context.space.account(logical, len, false)?;
            }
            Outcome::NeverAdded => {}
        }
        if is_data {
            checksums::remove(&self.editor, logical, len)?;
        }
        self.context.space.pin(logical, len)
    }

    /// Changes the free space tree, if there is one.
    fn update_free_space_tree(
        &self,
        logical: Logical,
        len: u64,
        update: impl Fn(&Editor<'_>, &Range<u64>, &Range<u64>) -> Result<()>,
    ) -> Result<()> {
        if !self.has_free_space_tree() {
            return Ok(());
        }
        let chunk = self.context.volume().chunk_of(logical)?;
        // The extent items of an image may hold any values.
        if logical.checked_add(len).is_none_or(|end| end > chunk.end()) {
            return Err(SpaceDamage::NotInUse { logical, len }.into());
        }
        update(&self.editor, &range_of(&chunk), &(logical.0..logical.0 + len))
    }

    fn has_free_space_tree(&self) -> bool {
        let superblock = self.context.volume().superblock();
        superblock.compat_ro.contains(CompatRoFlags::FREE_SPACE_TREE)
    }

    /// Writes the items of block groups that changed; returns how many did.
    pub(super) fn write_groups(&self) -> Result<usize> {
        let changed = self.context.space.take_changed_groups();
        let mut edits: Vec<_> =
            changed.iter().map(|&(start, len, item)| put_group(start, len, item)).collect();
        edits.sort_unstable_by_key(userbtrfs_btree::Edit::key);
        self.editor.apply(self.group_tree(), &mut edits)?;
        Ok(edits.len())
    }

    fn group_tree(&self) -> TreeId {
        let superblock = self.context.volume().superblock();
        if superblock.compat_ro.contains(CompatRoFlags::BLOCK_GROUP_TREE) {
            TreeId::BLOCK_GROUP
        } else {
            TreeId::EXTENT
        }
    }

    /// Writes the items of new chunks.
    fn write_new_chunks(&self) -> Result<()> {
        loop {
            let made = self.context.space.take_planned();
            if made.is_empty() {
                return Ok(());
            }
            made.iter().try_for_each(|chunk| self.write_new_chunk(chunk))?;
        }
    }

    fn write_new_chunk(&self, new: &NewChunk) -> Result<()> {
        let NewChunk { chunk, device_extents, group } = new;
        let put = ItemEdit::Put(chunk.key(), chunk.encode());
        self.editor.apply(TreeId::CHUNK, &mut [put])?;
        self.write_device_item()?;
        for (physical, extent) in device_extents {
            let put = ItemEdit::Put(self.device_key(*physical), extent.encode().to_vec());
            self.editor.apply(TreeId::DEV, &mut [put])?;
        }
        let put = put_group(chunk.logical, chunk.len, *group);
        self.editor.apply(self.group_tree(), &mut [put])?;
        if !self.has_free_space_tree() {
            return Ok(());
        }
        // The places of superblock mirrors are free there too: just not allocated.
        let all = range_of(chunk);
        free_tree::add_group(&self.editor, &all, std::slice::from_ref(&all))
    }

    fn device_key(&self, physical: Physical) -> Key {
        let id = self.context.volume().superblock().device.id;
        Key::new(id, ItemKind::DEV_EXTENT, physical.0)
    }

    /// Writes the size of the device if it was set.
    pub(super) fn write_device_size(&self) -> Result<()> {
        let volume = self.context.volume();
        if volume.next_device_size() == volume.superblock().device.total_bytes {
            return Ok(());
        }
        self.write_device_item()
    }

    /// Writes the size of the device, and how much of it is given to chunks.
    fn write_device_item(&self) -> Result<()> {
        let mut device = self.context.volume().superblock().device.clone();
        device.total_bytes = self.context.volume().next_device_size();
        device.bytes_used = self.context.space.device_used();
        let key = Key::new(DEVICE_ITEMS, ItemKind::DEV_ITEM, device.id);
        let put = ItemEdit::Put(key, device.encode().to_vec());
        self.editor.apply(TreeId::CHUNK, &mut [put])
    }

    /// Removes empty block groups.
    pub(super) fn remove_empty_groups(&self) -> Result<()> {
        for start in self.context.space.empty_groups() {
            if let Some(chunk) = self.context.space.remove_group(start) {
                self.remove_chunk(&chunk)?;
            }
        }
        Ok(())
    }

    fn remove_chunk(&self, chunk: &Chunk) -> Result<()> {
        let group = Key::new(chunk.logical.0, ItemKind::BLOCK_GROUP_ITEM, chunk.len);
        self.editor.apply(self.group_tree(), &mut [ItemEdit::Remove(group)])?;
        for stripe in &chunk.stripes {
            let extent = ItemEdit::Remove(self.device_key(stripe.physical));
            self.editor.apply(TreeId::DEV, &mut [extent])?;
        }
        self.editor.apply(TreeId::CHUNK, &mut [ItemEdit::Remove(chunk.key())])?;
        self.write_device_item()?;
        if self.has_free_space_tree() {
            free_tree::remove_group(&self.editor, &range_of(chunk))
        } else {
            Ok(())
        }
    }
}

fn put_group(start: Logical, len: u64, item: BlockGroupItem) -> ItemEdit {
    let key = Key::new(start.0, ItemKind::BLOCK_GROUP_ITEM, len);
    ItemEdit::Put(key, item.encode().to_vec())
}

fn range_of(chunk: &Chunk) -> Range<u64> {
    chunk.logical.0..chunk.end().0
}
