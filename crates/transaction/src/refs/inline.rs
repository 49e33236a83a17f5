//! References inside an extent item.

use std::cmp::Reverse;

use userbtrfs_btree::Backref;
use userbtrfs_format::{ExtentItem, InlineRef, item_len_max, item_space};

/// Returns `count` references of `backref` in the types of the format.
pub(super) fn reference(backref: Backref, count: u32) -> InlineRef {
    match backref {
        Backref::Tree(tree) => InlineRef::TreeBlock(tree),
        Backref::Parent(parent) => InlineRef::SharedBlock(parent),
        Backref::File { root, inode, offset } => {
            InlineRef::ExtentData { root, inode, offset, count }
        }
        Backref::SharedLeaf(parent) => InlineRef::SharedData { parent, count },
    }
}

/// Returns the index of the references of `backref` in the item, and their count.
pub(super) fn find(item: &ExtentItem, backref: Backref) -> Option<(usize, u32)> {
    let wanted = reference(backref, 1);
    let first = start(item, &wanted);
    let same_sequence =
        item.inline[first..].iter().take_while(|at| sequence(at) == sequence(&wanted));
    let mut counted = same_sequence.map(|at| (at, count(at))).enumerate();
    counted
        .find(|(_, (at, count))| **at == reference(backref, *count))
        .map(|(index, (_, count))| (first + index, count))
}

/// Inserts references of a backref that has none in the item, in the order of the format.
pub(super) fn insert(item: &mut ExtentItem, backref: Backref, count: u32) {
    let new = reference(backref, count);
    item.inline.insert(start(item, &new), new);
}

/// Returns true if one more reference may be stored in an item. Items are kept below a sixteenth of
/// a leaf, as in Linux: 992 bytes in nodes of 16 KiB.
pub(super) fn has_room(item: &ExtentItem, new: &InlineRef, nodesize: u32) -> bool {
    let head = item_space(0);
    let leaf = item_len_max(nodesize) + head;
    let mut after = item.encode();
    new.encode_into(&mut after);
    after.len() < leaf / 16 - head
}

/// Returns the first index at which a reference may be stored.
fn start(item: &ExtentItem, new: &InlineRef) -> usize {
    item.inline.partition_point(|before| sequence(before) < sequence(new))
}

fn sequence(inline: &InlineRef) -> (u8, Reverse<u64>) {
    (inline.kind().0, Reverse(inline.sequence()))
}

fn count(inline: &InlineRef) -> u32 {
    u32::try_from(inline.count()).expect("counted in 32 bits")
}
