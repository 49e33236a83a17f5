//! In-place edits of tree blocks.
//!
//! 1. Each call keeps invariants 2 to 4 of [`TreeBlock`]: keys ascend, item data is packed against
//!    the end. A call that would break them panics: the caller must not make it.
//! 2. Contents of items are not checked by the editing functions; [`TreeBlock::seal`] checks all
//!    of them before the block may be written.
//! 3. The checksum holds only after sealing.

#[cfg(test)]
mod tests;

use std::ops::Range;

use uuid::Uuid;
use zerocopy::FromBytes;

use super::{
    BACKREF_REVISION, BlockFlags, CSUM_AREA, ChildPointer, HEADER_SIZE, Header, RawHeader, RawItem,
    RawPointer, TreeBlock, check_count, check_place, to_u32, to_usize,
};
use crate::key::RawKey;
use crate::{BlockError, Geometry, Key, Logical, TreeId};

const ITEM_SIZE: usize = size_of::<RawItem>();
const POINTER_SIZE: usize = size_of::<RawPointer>();

/// The header values of a block to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewBlock {
    /// Its address.
    pub logical: Logical,
    /// Its tree.
    pub owner: TreeId,
    /// Its level; 0 is a leaf.
    pub level: u8,
    /// The transaction that creates it.
    pub generation: u64,
}

fn plus(a: usize, b: usize) -> usize {
    a.checked_add(b).expect("offsets within a block are small")
}

fn minus(a: usize, b: usize) -> usize {
    a.checked_sub(b).expect("what is taken away was there")
}

fn times(a: usize, b: usize) -> usize {
    a.checked_mul(b).expect("offsets within a block are small")
}

/// The space that an item with `data_len` bytes of data takes in a leaf, including its head.
pub fn item_space(data_len: usize) -> usize {
    plus(ITEM_SIZE, data_len)
}

/// The maximum data length of an item in blocks of `nodesize` bytes.
pub fn item_len_max(nodesize: u32) -> usize {
    minus(minus(to_usize(nodesize), HEADER_SIZE), ITEM_SIZE)
}

impl<B: AsRef<[u8]>> TreeBlock<B> {
    /// The start of the item data, which ends the free space, counted from the end of the header.
    fn data_start(&self) -> usize {
        self.data_end(self.count)
    }

    /// The end of the data of the item in `slot`, or of an item inserted there.
    fn data_end(&self, slot: usize) -> usize {
        match slot.checked_sub(1) {
            Some(before) => to_usize(self.raw_items()[before].offset.get()),
            None => self.area(),
        }
    }

    /// The number of bytes for items (in a leaf) or pointers (in a node).
    pub fn area(&self) -> usize {
        minus(self.bytes().len(), HEADER_SIZE)
    }

    /// The number of bytes that no item (in a leaf) or pointer (in a node) takes.
    pub fn free_space(&self) -> usize {
        if self.is_leaf() {
            minus(self.data_start(), times(ITEM_SIZE, self.count))
        } else {
            minus(self.area(), times(POINTER_SIZE, self.count))
        }
    }

    /// The number of bytes that items or pointers take.
    pub fn used_space(&self) -> usize {
        minus(self.area(), self.free_space())
    }

    /// The number of bytes that the items before `slot` take, including their heads.
    pub fn space_before(&self, slot: usize) -> usize {
        assert!(self.is_leaf(), "a node has no items");
        plus(minus(self.area(), self.data_end(slot)), times(ITEM_SIZE, slot))
    }

    /// The maximum number of pointers in a node.
    pub fn pointers_max(&self) -> usize {
        self.area().checked_div(POINTER_SIZE).expect("it has bytes")
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> TreeBlock<B> {
    /// Creates an empty block in `bytes`, which must be `nodesize` zeros.
    pub fn empty(bytes: B, new: &NewBlock, geometry: &Geometry, chunk_tree_uuid: Uuid) -> Self {
        let len = bytes.as_ref().len();
        assert_eq!(len, to_usize(geometry.nodesize), "a block has the size of a node");
        let header = Header {
            checksum: geometry.checksum_kind.compute(&[]),
            fsid: geometry.fsid,
            logical: new.logical,
            flags: BlockFlags::empty(),
            backref_revision: BACKREF_REVISION,
            chunk_tree_uuid,
            generation: new.generation,
            owner: new.owner,
            nritems: 0,
            level: new.level,
        };
        let mut block = Self { header, count: 0, bytes };
        block.write_header();
        block
    }

    /// Creates a copy of this block in `bytes`, at another address, for copy-on-write.
    pub fn copy_to<C: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        mut bytes: C,
        new: &NewBlock,
    ) -> TreeBlock<C> {
        assert_eq!(new.level, self.header.level, "a copy stays at its level");
        bytes.as_mut().copy_from_slice(self.bytes());
        let mut header = self.header.clone();
        header.logical = new.logical;
        header.owner = new.owner;
        header.generation = new.generation;
        header.flags = BlockFlags::empty();
        let mut block = TreeBlock { header, count: self.count, bytes };
        block.write_header();
        block
    }

    /// Marks the block as a copy that a relocation made: it may be shared although it is newer than
    /// the last snapshot of its tree.
    pub fn mark_relocated(&mut self) {
        self.header.flags |= BlockFlags::RELOC;
        self.write_header();
    }

    /// Writes the header, except for the checksum.
    fn write_header(&mut self) {
        self.header.nritems = to_u32(self.count);
        let header = &self.header;
        let (raw, _) =
            RawHeader::mut_from_prefix(self.bytes.as_mut()).expect("a block has a header");
        raw.fsid = *header.fsid.as_bytes();
        raw.bytenr.set(header.logical.0);
        raw.flags.copy_from_slice(&header.flags.bits().to_le_bytes()[..7]);
        raw.backref_revision = header.backref_revision;
        raw.chunk_tree_uuid = *header.chunk_tree_uuid.as_bytes();
        raw.generation.set(header.generation);
        raw.owner.set(header.owner.0);
        raw.nritems.set(header.nritems);
        raw.level = header.level;
    }

    fn set_count(&mut self, count: usize) {
        self.count = count;
        self.header.nritems = to_u32(count);
        let (raw, _) =
            RawHeader::mut_from_prefix(self.bytes.as_mut()).expect("a block has a header");
        raw.nritems.set(to_u32(count));
    }

    fn body_mut(&mut self) -> &mut [u8] {
        &mut self.bytes.as_mut()[HEADER_SIZE..]
    }

    fn raw_item_mut(&mut self, slot: usize) -> &mut RawItem {
        let at = times(slot, ITEM_SIZE);
        RawItem::mut_from_prefix(&mut self.body_mut()[at..]).expect("the slot is in the block").0
    }

    /// Adds `delta` to the offsets of the items in `slots`.
    fn shift(&mut self, slots: Range<usize>, delta: impl Fn(u32) -> u32) {
        let (items, _) = <[RawItem]>::mut_from_prefix_with_elems(self.body_mut(), slots.end)
            .expect("the slots are in the block");
        for item in &mut items[slots.start..] {
            item.offset.set(delta(item.offset.get()));
        }
    }

    /// Inserts an item at `slot`. Panics if it does not fit or its key does not belong there.
    pub fn insert_item(&mut self, slot: usize, key: Key, data: &[u8]) {
        assert!(self.free_space() >= item_space(data.len()), "the caller made room");
        self.check_between(slot, slot, &key);
        let start = self.data_start();
        let end = self.data_end(slot);
        let heads = times(ITEM_SIZE, self.count);
        let at = times(ITEM_SIZE, slot);
        let len = data.len();
        let body = self.body_mut();
        body.copy_within(start..end, minus(start, len));
        let data_at = minus(end, len);
        body[data_at..end].copy_from_slice(data);
        body.copy_within(at..heads, plus(at, ITEM_SIZE));
        let count = plus(self.count, 1);
        self.set_count(count);
        let head = self.raw_item_mut(slot);
        head.key = RawKey::new(key);
        head.size.set(to_u32(len));
        head.offset.set(to_u32(data_at));
        let len = to_u32(len);
        self.shift(plus(slot, 1)..count, |at| at.checked_sub(len).expect("there was room"));
    }

    /// Replaces the data of the item in `slot`. Panics if the new data does not fit.
    pub fn replace_item(&mut self, slot: usize, data: &[u8]) {
        let start = self.data_start();
        let end = self.data_end(slot);
        let old_at = to_usize(self.raw_items()[slot].offset.get());
        let old_len = minus(end, old_at);
        let new_at = minus(end, data.len());
        if data.len() != old_len {
            assert!(plus(self.free_space(), old_len) >= data.len(), "the caller made room");
            let moved = minus(plus(start, old_len), data.len());
            self.body_mut().copy_within(start..old_at, moved);
            let old = to_u32(old_len);
            let new = to_u32(data.len());
            let count = self.count;
            self.shift(slot..count, |at| {
                at.checked_add(old).and_then(|at| at.checked_sub(new)).expect("there was room")
            });
            self.raw_item_mut(slot).size.set(new);
        }
        self.body_mut()[new_at..end].copy_from_slice(data);
    }

    /// Removes the items in `slots`.
    pub fn remove_items(&mut self, slots: Range<usize>) {
        assert!(slots.start <= slots.end && slots.end <= self.count, "the slots are in the block");
        if slots.is_empty() {
            return;
        }
        let start = self.data_start();
        let end = self.data_end(slots.start);
        let last = minus(slots.end, 1);
        let low = to_usize(self.raw_items()[last].offset.get());
        let gone = minus(end, low);
        let heads = times(ITEM_SIZE, self.count);
        let from = times(ITEM_SIZE, slots.end);
        let to = times(ITEM_SIZE, slots.start);
        let body = self.body_mut();
        body.copy_within(start..low, plus(start, gone));
        body.copy_within(from..heads, to);
        let count = minus(self.count, slots.len());
        self.set_count(count);
        let gone = to_u32(gone);
        self.shift(slots.start..count, |at| at.checked_add(gone).expect("it was higher before"));
    }

    /// Inserts a pointer at `slot`. Panics if the node is full or the key does not belong there.
    pub fn insert_child(&mut self, slot: usize, child: &ChildPointer) {
        assert!(self.count < self.pointers_max(), "the caller made room");
        self.check_between(slot, slot, &child.key);
        let at = times(POINTER_SIZE, slot);
        let end = times(POINTER_SIZE, self.count);
        self.body_mut().copy_within(at..end, plus(at, POINTER_SIZE));
        self.set_count(plus(self.count, 1));
        self.write_child(slot, child);
    }

    /// Replaces the pointer in `slot`. Panics if the new key does not belong there.
    pub fn set_child(&mut self, slot: usize, child: &ChildPointer) {
        self.check_between(slot, plus(slot, 1), &child.key);
        self.write_child(slot, child);
    }

    /// Removes the pointers in `slots`.
    pub fn remove_children(&mut self, slots: Range<usize>) {
        assert!(slots.start <= slots.end && slots.end <= self.count, "the slots are in the block");
        let from = times(POINTER_SIZE, slots.end);
        let to = times(POINTER_SIZE, slots.start);
        let end = times(POINTER_SIZE, self.count);
        self.body_mut().copy_within(from..end, to);
        self.set_count(minus(self.count, slots.len()));
    }

    fn write_child(&mut self, slot: usize, child: &ChildPointer) {
        let own = self.header.generation;
        assert!(child.generation <= own, "a child is no newer than its parent");
        let at = times(POINTER_SIZE, slot);
        let (raw, _) = RawPointer::mut_from_prefix(&mut self.body_mut()[at..])
            .expect("the slot is in the block");
        raw.key = RawKey::new(child.key);
        raw.blockptr.set(child.logical.0);
        raw.generation.set(child.generation);
    }

    /// Changes the key of the pointer in `slot` after the first key of its child has changed.
    pub fn set_child_key(&mut self, slot: usize, key: Key) {
        self.set_child(slot, &ChildPointer { key, ..self.child(slot) });
    }

    /// Moves the slots from `from` on to the front of `right`.
    pub fn move_tail(&mut self, from: usize, right: &mut Self) {
        right.copy_slots(0, self, from..self.count);
        self.remove_slots(from..self.count);
    }

    /// Moves the slots before `to` to the end of `left`.
    pub fn move_head(&mut self, to: usize, left: &mut Self) {
        left.copy_slots(left.count, self, 0..to);
        self.remove_slots(0..to);
    }

    /// Copies all slots of `left` to the front of this block.
    pub fn prepend_all<C: AsRef<[u8]>>(&mut self, left: &TreeBlock<C>) {
        self.copy_slots(0, left, 0..left.len());
    }

    /// Copies all slots of `right` to the end of this block.
    pub fn append_all<C: AsRef<[u8]>>(&mut self, right: &TreeBlock<C>) {
        self.copy_slots(self.count, right, 0..right.len());
    }

    fn remove_slots(&mut self, slots: Range<usize>) {
        if self.is_leaf() { self.remove_items(slots) } else { self.remove_children(slots) }
    }

    /// Inserts copies of `slots` of another block before the slot `at`. Panics if they do not fit
    /// or do not belong there.
    fn copy_slots<C: AsRef<[u8]>>(&mut self, at: usize, from: &TreeBlock<C>, slots: Range<usize>) {
        assert_eq!(self.header.level, from.header.level, "blocks of one level share entries");
        if slots.is_empty() {
            return;
        }
        self.check_between(at, at, &from.key(slots.start));
        self.check_between(at, at, &from.key(minus(slots.end, 1)));
        if self.is_leaf() {
            self.copy_items(at, from, slots);
        } else {
            self.copy_children(at, from, slots);
        }
    }

    /// Inserts copies of the items in `slots` of another leaf before the slot `at`.
    fn copy_items<C: AsRef<[u8]>>(&mut self, at: usize, from: &TreeBlock<C>, slots: Range<usize>) {
        let from_end = from.data_end(slots.start);
        let data = &from.body()[from.data_end(slots.end)..from_end];
        let len = data.len();
        let added = times(ITEM_SIZE, slots.len());
        assert!(self.free_space() >= plus(added, len), "the caller made room");
        let start = self.data_start();
        let end = self.data_end(at);
        let head = times(ITEM_SIZE, at);
        let heads = times(ITEM_SIZE, self.count);
        let body = self.body_mut();
        body.copy_within(start..end, minus(start, len));
        body[minus(end, len)..end].copy_from_slice(data);
        body.copy_within(head..heads, plus(head, added));
        let copied = &from.body()[times(ITEM_SIZE, slots.start)..times(ITEM_SIZE, slots.end)];
        body[head..plus(head, added)].copy_from_slice(copied);
        let after = plus(at, slots.len());
        let count = plus(self.count, slots.len());
        self.set_count(count);
        // The data of the copies ends at `end`, that of the items after them `len` below.
        self.shift(at..after, |offset| to_u32(minus(end, minus(from_end, to_usize(offset)))));
        self.shift(after..count, |offset| to_u32(minus(to_usize(offset), len)));
    }

    /// Inserts copies of the pointers in `slots` of another node before the slot `at`.
    fn copy_children<C: AsRef<[u8]>>(
        &mut self,
        at: usize,
        from: &TreeBlock<C>,
        slots: Range<usize>,
    ) {
        let count = plus(self.count, slots.len());
        assert!(count <= self.pointers_max(), "the caller made room");
        let start = times(POINTER_SIZE, at);
        let end = times(POINTER_SIZE, self.count);
        let len = times(POINTER_SIZE, slots.len());
        self.body_mut().copy_within(start..end, plus(start, len));
        self.set_count(count);
        for (to, slot) in (at..).zip(slots) {
            self.write_child(to, &from.child(slot));
        }
    }

    /// Panics unless `key` lies between the key before slot `low` and the key in slot `high`.
    fn check_between(&self, low: usize, high: usize, key: &Key) {
        let before = low.checked_sub(1).map(|slot| self.key(slot));
        let after = (high < self.count).then(|| self.key(high));
        let fits =
            before.is_none_or(|before| before < *key) && after.is_none_or(|after| *key < after);
        assert!(fits, "key {key} does not belong between {before:?} and {after:?}");
    }

    /// Prepares the block for writing: sets its WRITTEN flag, clears its free space, sets its
    /// checksum and checks all of its content.
    pub fn seal(&mut self, geometry: &Geometry) -> Result<(), BlockError> {
        self.header.flags |= BlockFlags::WRITTEN;
        self.write_header();
        let free_start = if self.is_leaf() {
            times(ITEM_SIZE, self.count)
        } else {
            times(POINTER_SIZE, self.count)
        };
        let free_end = plus(free_start, self.free_space());
        self.body_mut()[free_start..free_end].fill(0);
        let checksum = geometry.checksum_kind.compute(&self.bytes()[CSUM_AREA..]);
        let bytes = self.bytes.as_mut();
        bytes[..CSUM_AREA].fill(0);
        bytes[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
        self.header.checksum = checksum;
        self.check_content(geometry)
    }

    fn check_content(&self, geometry: &Geometry) -> Result<(), BlockError> {
        check_place(&self.header, self.header.logical, geometry)?;
        check_count(&self.header, geometry)?;
        self.check_keys()?;
        if !self.is_leaf() {
            return self.check_children();
        }
        self.check_item_bounds(geometry)?;
        self.check_items(geometry)
    }
}
