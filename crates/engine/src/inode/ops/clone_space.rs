//! Space for steps that share extents between files.
//!
//! 1. A step adds references and drops others, which the next commit writes into the extent tree:
//!    it changes as many extents as that commit has space for.
//! 2. A step may begin while ranges of files are locked: then it waits for nothing.

use userbtrfs_transaction::Reservation;

use crate::error::Result;
use crate::inode::Inodes;
use crate::inode::ops::orphan::{EXTENT_ITEM_BYTES, EXTENTS_PER_STEP};

/// The number of extents of a step if there is little space.
const EXTENTS_MIN: usize = 4;

/// Items that a step changes besides the extents: the inode, and a leaf that is split.
const STEP_ITEMS: u64 = 2;

/// Reserves space for a step that puts shared extents into a file, and for `more` items.
/// Returns how many extents may be added, and how many replaced: at most `wanted`. The caller
/// holds no locks except operation locks.
pub(crate) fn reserve_for_clone(
    inodes: &Inodes,
    wanted: usize,
    more: u64,
) -> Result<(Reservation, usize)> {
    inodes.relieve()?;
    if let Some(found) = try_reserve_for_clone(inodes, wanted, more) {
        return Ok(found);
    }
    // An item of the extent tree for each reference that is added or dropped.
    let references = 2 * EXTENTS_MIN as u64;
    let items = clone_items(inodes, EXTENTS_MIN) + references + more;
    Ok((inodes.transactions()?.reserve(items)?, EXTENTS_MIN))
}

/// Like [`reserve_for_clone`]; returns `None` if there is not enough space at once, or
/// if so many delayed items are in memory that they are flushed first.
pub(crate) fn try_reserve_for_clone(
    inodes: &Inodes,
    wanted: usize,
    more: u64,
) -> Option<(Reservation, usize)> {
    if inodes.has_too_many_delayed_items() {
        return None;
    }
    let transactions = inodes.transactions.as_ref()?;
    let mut extents = wanted.clamp(EXTENTS_MIN, EXTENTS_PER_STEP);
    loop {
        let items = clone_items(inodes, extents) + more;
        let references = 2 * extents as u64;
        if let Some(found) = transactions.try_reserve_for_references(items, references) {
            return Some((found, extents));
        }
        extents = Some(extents / 2).filter(|extents| *extents >= EXTENTS_MIN)?;
    }
}

/// Returns the items of a step: those of its extents are adjacent, so their leaves count.
fn clone_items(inodes: &Inodes, extents: usize) -> u64 {
    let nodesize = u64::from(inodes.tree_roots.store().volume().geometry().nodesize);
    STEP_ITEMS + (extents as u64 * EXTENT_ITEM_BYTES).div_ceil(nodesize)
}
