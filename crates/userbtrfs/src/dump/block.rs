//! One tree block: its header and its items or pointers.

use std::io;

use serde_json::{Value, json};
use userbtrfs_format::{ChildPointer, Geometry, Item, TreeId};
use userbtrfs_volume::TreeBlock;

use super::flags::Flags;
use super::output::Output;
use super::record::{Record, Show};
use super::{Format, item};

/// Sizes of the header of a block, of an item header in a leaf and of a pointer in a node.
const HEADER_SIZE: u32 = 101;
const ITEM_SIZE: u32 = 25;
const POINTER_SIZE: u32 = 33;

/// Dumps the blocks of one tree.
pub(super) struct Blocks<'a> {
    /// The tree, as its heading names it.
    pub(super) tree: TreeId,
    pub(super) geometry: &'a Geometry,
}

impl Blocks<'_> {
    /// Dumps one block.
    pub(super) fn dump(&self, block: &TreeBlock, output: &mut Output<'_>) -> io::Result<()> {
        match output.format() {
            Format::Text => self.dump_text(block, output),
            Format::Json => output.json_block(&self.json(block)),
        }
    }

    fn dump_text(&self, block: &TreeBlock, output: &mut Output<'_>) -> io::Result<()> {
        output.text_line(&self.header_text(block))?;
        for slot in 0..block.len() {
            let line = if block.is_leaf() {
                self.item_text(slot, &block.item(slot))
            } else {
                pointer_text(&block.child(slot))
            };
            output.text_line(&line)?;
        }
        Ok(())
    }

    fn header_text(&self, block: &TreeBlock) -> String {
        let header = block.header();
        let logical = header.logical;
        let items = header.nritems;
        let generation = header.generation;
        let (name, level) = if block.is_leaf() {
            ("leaf", String::new())
        } else {
            ("node", format!("level {} ", header.level))
        };
        let free = self.free_space(block);
        let owner = header.owner.text();
        let flags = Flags::of(&header.flags);
        let bits = flags.bits;
        let flags = flags.joined();
        let revision = header.backref_revision;
        format!(
            "{name} {logical} {level}items {items} free space {free} generation {generation} \
             owner {owner}\n{name} {logical} flags {bits:#x}({flags}) backref revision {revision}\n\
             fs uuid {}\nchunk uuid {}",
            header.fsid, header.chunk_tree_uuid
        )
    }

    /// Returns the free space: in bytes for a leaf, in pointers for a node.
    fn free_space(&self, block: &TreeBlock) -> u32 {
        let count = block.header().nritems;
        let area = self.geometry.nodesize - HEADER_SIZE;
        if !block.is_leaf() {
            return (area / POINTER_SIZE).saturating_sub(count);
        }
        let last = block.len().checked_sub(1).map(|slot| block.item(slot).offset);
        last.unwrap_or(area).saturating_sub(count * ITEM_SIZE)
    }

    fn item_text(&self, slot: usize, item: &Item<'_>) -> String {
        let key = item.key.text();
        let offset = item.offset;
        let size = item.data.len();
        let body = self.describe(item, Format::Text).into_text();
        format!("\titem {slot} key {key} itemoff {offset} itemsize {size}{body}")
    }

    fn describe(&self, item: &Item<'_>, format: Format) -> Record {
        let mut record = Record::new(format);
        if let Err(error) = item::describe(&mut record, item, self.geometry) {
            record.line().field("error", &&*error.to_string());
        }
        record
    }

    fn json(&self, block: &TreeBlock) -> Value {
        let header = block.header();
        let name = if block.is_leaf() { "items" } else { "pointers" };
        let entries = (0..block.len()).map(|slot| {
            if block.is_leaf() {
                self.item_json(slot, block)
            } else {
                self.pointer_json(slot, block)
            }
        });
        json!({
            "tree": self.tree.0,
            "block": header.logical.0,
            "level": header.level,
            "generation": header.generation,
            "owner": header.owner.0,
            "free_space": self.free_space(block),
            "flags": Flags::of(&header.flags).json(),
            "backref_revision": header.backref_revision,
            "fsid": header.fsid.to_string(),
            "chunk_tree_uuid": header.chunk_tree_uuid.to_string(),
            name: entries.collect::<Vec<_>>(),
        })
    }

    fn item_json(&self, slot: usize, block: &TreeBlock) -> Value {
        let item = block.item(slot);
        let mut record = self.describe(&item, Format::Json);
        record.silent("tree", &self.tree).silent("block", &block.header().logical);
        record.silent("slot", &slot).silent("key", &item.key);
        record.silent("itemoff", &item.offset).silent("itemsize", &item.data.len());
        record.into_json()
    }

    fn pointer_json(&self, slot: usize, block: &TreeBlock) -> Value {
        let child = block.child(slot);
        json!({
            "tree": self.tree.0,
            "block": block.header().logical.0,
            "slot": slot,
            "key": child.key.json(),
            "child": child.logical.0,
            "generation": child.generation,
        })
    }
}

fn pointer_text(child: &ChildPointer) -> String {
    format!("\tkey {} block {} gen {}", child.key.text(), child.logical, child.generation)
}
