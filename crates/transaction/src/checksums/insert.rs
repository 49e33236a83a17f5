//! Adds checksums to the checksum tree.
//!
//! 1. Existing checksums of a sector are replaced.
//! 2. A run joins the items that it touches, if they have space; so neighbours that are written one
//!    after the other share items.
//! 3. An item leaves space for another one in its leaf, as in Linux.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use userbtrfs_format::TreeId;

use super::form::{CSUM_OBJECTID, Form, key};
use crate::editor::{Changes, EditItems, Editor, Items};
use crate::error::Result;

/// The number of items that are changed at a time.
const BATCH: usize = 256;

/// Adds runs of checksums, by the address of their first sector, to the tree. Runs do not overlap.
pub(crate) fn insert(editor: &Editor<'_>, runs: &BTreeMap<u64, Vec<u8>>) -> Result<()> {
    let geometry = editor.tree_roots.store().volume().geometry();
    let form = Form::new(geometry.checksum_kind.size(), geometry.nodesize);
    insert_in(&mut editor.items(TreeId::CSUM)?, runs, form)
}

pub(super) fn insert_in(
    items: &mut impl EditItems,
    runs: &BTreeMap<u64, Vec<u8>>,
    form: Form,
) -> Result<()> {
    let mut changes = Changes::default();
    // The end of the last changed item: a run that begins behind it sees the tree as it is.
    let mut changed_to = None;
    for (&start, stored) in runs {
        if changes.len() >= BATCH || changed_to.is_some_and(|end| start <= end) {
            items.apply(std::mem::take(&mut changes))?;
        }
        let joined = Joined::gather(items, start, stored, form)?;
        changed_to = Some(form.end(joined.start, joined.stored.len()));
        joined.put(form, &mut changes);
    }
    if changes.is_empty() { Ok(()) } else { items.apply(changes) }
}

/// A run with the items that it joins.
struct Joined {
    start: u64,
    stored: Vec<u8>,
    /// The addresses of the joined items.
    taken: Vec<u64>,
}

impl Joined {
    fn gather(items: &impl Items, start: u64, stored: &[u8], form: Form) -> Result<Self> {
        let range = start..form.end(start, stored.len());
        let mut joined = Self { start, stored: stored.to_vec(), taken: Vec::new() };
        items.visit(&key(start), &mut |at, data| {
            let beyond = at.objectid > CSUM_OBJECTID
                || (at.objectid == CSUM_OBJECTID && at.offset > range.end);
            if beyond {
                return ControlFlow::Break(());
            }
            if at.objectid == CSUM_OBJECTID {
                joined.join(at.offset, data, &range, form);
            }
            ControlFlow::Continue(())
        })?;
        Ok(joined)
    }

    /// Joins the parts of an item outside the run, if it overlaps the run, or is adjacent and has
    /// space.
    fn join(&mut self, at: u64, data: &[u8], range: &Range<u64>, form: Form) {
        let end = form.end(at, data.len());
        let joins = match () {
            () if end < range.start => false,
            () if end == range.start => data.len() < form.len_max,
            () if at == range.end => {
                let last = self.stored.len() % form.len_max;
                last > 0 && last + data.len() <= form.len_max
            }
            () => true,
        };
        if !joins {
            return;
        }
        self.taken.push(at);
        if at < range.start {
            self.start = at;
            self.stored.splice(..0, data[..form.index(at, range.start)].iter().copied());
        }
        if end > range.end {
            self.stored.extend_from_slice(&data[form.index(at, range.end.max(at))..]);
        }
    }

    fn put(self, form: Form, changes: &mut Changes) {
        self.taken.iter().for_each(|&at| changes.remove(key(at)));
        let mut at = self.start;
        for piece in self.stored.chunks(form.len_max) {
            changes.put(key(at), piece.to_vec());
            at = form.end(at, piece.len());
        }
    }
}
