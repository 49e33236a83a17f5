//! Building a tree from items: full leaves, and a node above them if there are several.

use userbtrfs_device::Buffer;
use userbtrfs_format::{
    ChildPointer, Geometry, Key, Logical, NewBlock, TreeId, item_len_max, item_space,
};
use userbtrfs_volume::{NodeBytes, TreeBlock};
use uuid::Uuid;

/// A new item: its key and its content.
pub(crate) type NewItem = (Key, Vec<u8>);

/// The properties that all blocks share.
pub(crate) struct Context {
    pub(crate) geometry: Geometry,
    pub(crate) chunk_tree_uuid: Uuid,
    pub(crate) generation: u64,
}

/// The number of blocks that the items need, including the node above several leaves.
pub(crate) fn blocks_needed(items: &[NewItem], nodesize: u32) -> usize {
    match leaves(items, nodesize).len() {
        1 => 1,
        several => several + 1,
    }
}

/// Divides the items into leaves. Without items there is one empty leaf.
fn leaves(items: &[NewItem], nodesize: u32) -> Vec<&[NewItem]> {
    let room = item_len_max(nodesize) + item_space(0);
    let mut leaves = Vec::new();
    let mut start = 0;
    let mut used = 0;
    for (slot, (_, data)) in items.iter().enumerate() {
        let space = item_space(data.len());
        if used + space > room {
            leaves.push(&items[start..slot]);
            start = slot;
            used = 0;
        }
        used += space;
    }
    leaves.push(&items[start..]);
    leaves
}

/// Builds the tree of the items in blocks at the addresses `places`, the root last.
pub(crate) fn build(
    tree: TreeId,
    items: &[NewItem],
    places: &[Logical],
    context: &Context,
) -> Vec<TreeBlock> {
    let leaves = leaves(items, context.geometry.nodesize);
    let mut blocks: Vec<_> = leaves
        .iter()
        .zip(places)
        .map(|(items, &logical)| leaf(items, empty(tree, 0, logical, context)))
        .collect();
    if let [_, .., root] = places {
        blocks.push(node(&blocks, empty(tree, 1, *root, context)));
    }
    assert_eq!(blocks.len(), places.len(), "the places were counted for these items");
    for block in &mut blocks {
        block.seal(&context.geometry).expect("what is made here passes every check");
    }
    blocks
}

fn empty(owner: TreeId, level: u8, logical: Logical, context: &Context) -> TreeBlock {
    let nodesize = usize::try_from(context.geometry.nodesize).expect("a node fits in memory");
    let bytes = NodeBytes::from(Buffer::zeroed(nodesize));
    let new = NewBlock { logical, owner, level, generation: context.generation };
    TreeBlock::empty(bytes, &new, &context.geometry, context.chunk_tree_uuid)
}

fn leaf(items: &[NewItem], mut leaf: TreeBlock) -> TreeBlock {
    for (slot, (key, data)) in items.iter().enumerate() {
        leaf.insert_item(slot, *key, data);
    }
    leaf
}

fn node(leaves: &[TreeBlock], mut node: TreeBlock) -> TreeBlock {
    for (slot, leaf) in leaves.iter().enumerate() {
        let header = leaf.header();
        let logical = header.logical;
        let generation = header.generation;
        node.insert_child(slot, &ChildPointer { key: leaf.key(0), logical, generation });
    }
    node
}

#[cfg(test)]
mod tests {
    use userbtrfs_format::ItemKind;

    use super::*;

    fn items(lens: &[usize]) -> Vec<NewItem> {
        let key = |objectid| Key::new(objectid, ItemKind::STRING_ITEM, 0);
        (1..).zip(lens).map(|(number, &len)| (key(number), vec![0; len])).collect()
    }

    #[test]
    fn leaves_are_filled_to_the_last_byte() {
        let most = item_len_max(4096);
        assert_eq!(blocks_needed(&items(&[]), 4096), 1);
        assert_eq!(blocks_needed(&items(&[most]), 4096), 1);
        assert_eq!(blocks_needed(&items(&[most - 1 - item_space(0), 1]), 4096), 1);
        assert_eq!(blocks_needed(&items(&[most - item_space(0), 1]), 4096), 3);
        assert_eq!(blocks_needed(&items(&[most; 3]), 4096), 4);
    }
}
