//! Checksums of data in the checksum tree: adding those of written data, removing those of freed
//! extents.
//!
//! 1. An item holds the checksums of consecutive sectors; items do not overlap.
//! 2. An item that extends beyond the removed range is cut; one that extends beyond both ends is
//!    split into two.
//! 3. Data may be read while checksums of other data are removed: leaves are changed one after the
//!    other, and at any time each remaining sector has its checksum where a search finds it.

mod form;
mod insert;
mod pending;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use userbtrfs_format::{Logical, TreeId};

use self::form::{CSUM_OBJECTID, index, span};
use crate::editor::{Changes, EditItems, Editor, Items, TreeItems};
use crate::error::{Error, Result};
use crate::roots::TreeRoots;

pub(crate) use form::{Form, key};
pub(crate) use insert::insert;
pub(crate) use pending::PendingChecksums;

/// Removes the checksums of `len` bytes of data at `logical`, as far as it has any.
pub fn remove(editor: &Editor<'_>, logical: Logical, len: u64) -> Result<()> {
    let size = editor.tree_roots.store().volume().geometry().checksum_kind.size();
    let end = logical.checked_add(len).expect("an extent ends within the address space");
    remove_in(&mut editor.items(TreeId::CSUM)?, logical.0..end.0, size)
}

/// Returns the checksums of `len` bytes of data at `logical`, in runs by their first address.
pub(crate) fn runs(
    tree_roots: &TreeRoots,
    logical: Logical,
    len: u64,
) -> Result<BTreeMap<u64, Vec<u8>>> {
    let size = tree_roots.store().volume().geometry().checksum_kind.size();
    let range = logical.0..logical.0 + len;
    let mut runs = BTreeMap::new();
    let items = match TreeItems::new(tree_roots, TreeId::CSUM) {
        Err(Error::NoTree(_)) => return Ok(runs),
        items => items?,
    };
    items.visit(&key(range.start), &mut |at, data| {
        if at.objectid > CSUM_OBJECTID || (at.objectid == CSUM_OBJECTID && at.offset >= range.end) {
            return ControlFlow::Break(());
        }
        let start = at.offset.max(range.start);
        let end = at.offset.saturating_add(span(data.len(), size)).min(range.end);
        if at.objectid == CSUM_OBJECTID && start < end {
            let of = index(start - at.offset, size)..index(end - at.offset, size);
            runs.insert(start, data[of].to_vec());
        }
        ControlFlow::Continue(())
    })?;
    Ok(runs)
}

fn remove_in(items: &mut impl EditItems, range: Range<u64>, size: usize) -> Result<()> {
    let Removal { before, changes } = removal(&*items, &range, size)?;
    for changes in [before, changes].into_iter().filter(|changes| !changes.is_empty()) {
        items.apply(changes)?;
    }
    Ok(())
}

/// Removes the checksums of a run of sectors from `items`, then adds those in `stored`.
#[cfg(feature = "experiments")]
pub(crate) fn replace_in(
    items: &mut impl EditItems,
    start: u64,
    stored: &[u8],
    form: Form,
) -> Result<()> {
    remove_in(items, start..form.end(start, stored.len()), form.size)?;
    insert::insert_in(items, &[(start, stored.to_vec())].into(), form)
}

/// The changes that remove checksums.
#[derive(Default)]
struct Removal {
    /// Made first: the checksums behind the range get an item of their own, while they are in the
    /// old one, too.
    before: Changes,
    changes: Changes,
}

/// Returns the changes after which no sector of `range` has a checksum, of `size` bytes.
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
    let end = start + span(data.len(), size);
    if end <= range.start {
        return;
    }
    let index = |at| index(at - start, size);
    if start < range.start {
        removal.changes.put(key(start), data[..index(range.start)].to_vec());
    } else {
        removal.changes.remove(key(start));
    }
    if end > range.end {
        removal.before.put(key(range.end), data[index(range.end)..].to_vec());
    }
}
