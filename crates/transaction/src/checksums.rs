//! Checksums of data in the checksum tree: adding those of what was written, removing those of
//! freed extents.
//!
//! 1. An item holds the checksums of consecutive sectors; items do not overlap.
//! 2. An item that reaches beyond what is removed is cut; where it reaches beyond both ends, it
//!    becomes two.
//! 3. Who reads data looks for its checksums while those of others go: leaves are changed one after
//!    the other, and at any time each sector that stays has its own where a search looks for it.

mod insert;
mod pending;
#[cfg(test)]
mod tests;

use std::ops::{ControlFlow, Range};

use userbtrfs_format::{ItemKind, Key, Logical, SECTOR_SIZE, TreeId};

use crate::editor::{Changes, EditItems, Editor, Items};
use crate::error::Result;

pub(crate) use insert::{Form, insert};
pub(crate) use pending::PendingChecksums;

/// The object id of checksum items (-10).
const CSUM_OBJECTID: u64 = u64::MAX - 9;

/// Removes the checksums of `len` bytes of data at `logical`, as far as it has any.
pub fn remove(editor: &Editor<'_>, logical: Logical, len: u64) -> Result<()> {
    let size = editor.tree_roots.store().volume().geometry().checksum_kind.size();
    let end = logical.checked_add(len).expect("an extent ends within the address space");
    remove_in(&mut editor.items(TreeId::CSUM)?, logical.0..end.0, size)
}

fn remove_in(items: &mut impl EditItems, range: Range<u64>, size: usize) -> Result<()> {
    let Removal { before, changes } = removal(&*items, &range, size)?;
    for changes in [before, changes].into_iter().filter(|changes| !changes.is_empty()) {
        items.apply(changes)?;
    }
    Ok(())
}

/// How checksums are removed.
#[derive(Default)]
struct Removal {
    /// What stays behind them gets an item of its own first, while it is in the old one, too.
    before: Changes,
    changes: Changes,
}

/// What is to change so that nothing of `range` has a checksum of `size` bytes.
fn removal(items: &impl Items, range: &Range<u64>, size: usize) -> Result<Removal> {
    let mut removal = Removal::default();
    items.visit(&key(range.start), &mut |at, data| {
        if at.objectid > CSUM_OBJECTID || (at.objectid == CSUM_OBJECTID && at.offset >= range.end) {
            return ControlFlow::Break(());
        }
        if at.objectid == CSUM_OBJECTID {
            cut(&mut removal, at.offset, data, range, size);
        }
        ControlFlow::Continue(())
    })?;
    Ok(removal)
}

/// Cuts `range` out of the item at `start`.
fn cut(removal: &mut Removal, start: u64, data: &[u8], range: &Range<u64>, size: usize) {
    let sector = u64::from(SECTOR_SIZE);
    let sectors = u64::try_from(data.len() / size).expect("an item is small");
    let end = start + sector * sectors;
    if end <= range.start {
        return;
    }
    let index = |at: u64| size * usize::try_from((at - start) / sector).expect("within the item");
    if start < range.start {
        removal.changes.put(key(start), data[..index(range.start)].to_vec());
    } else {
        removal.changes.remove(key(start));
    }
    if end > range.end {
        removal.before.put(key(range.end), data[index(range.end)..].to_vec());
    }
}

/// The key of the checksums from the sector at `logical` on.
pub(crate) fn key(logical: u64) -> Key {
    Key::new(CSUM_OBJECTID, ItemKind::EXTENT_CSUM, logical)
}
