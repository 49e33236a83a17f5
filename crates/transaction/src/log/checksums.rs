//! Checksums in a log.
//!
//! 1. Items do not overlap. An item is extended by sectors that begin where it ends, up to the
//!    maximum length of an item, so that a log of small writes has few items.
//! 2. The sectors with a checksum in the log are tracked in memory, and so are the ends of the
//!    items that can be extended.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;
use userbtrfs_btree::{Change, Edit};
use userbtrfs_format::{Geometry, Key, Logical};

use crate::checksums::{self, Form};
use crate::range_set::RangeSet;

/// The checksums in a log, as tracked in memory.
#[derive(Debug, Default)]
pub(super) struct LoggedChecksums {
    /// The sectors whose checksums are in a log.
    sectors: RangeSet,
    /// The items that can be extended: the end of each and its start.
    open: BTreeMap<u64, u64>,
}

/// Returns the form of checksum items.
pub(super) fn form(geometry: &Geometry) -> Form {
    Form::new(geometry.checksum_kind.size(), geometry.nodesize)
}

/// Checksums that are appended to an item.
pub(super) struct ChecksumEdit<'a> {
    start: u64,
    /// The bytes that the item already has.
    held: usize,
    more: &'a [u8],
    content: Vec<u8>,
}

/// Changes in the order of their keys, usually one.
type ChecksumEdits<'a> = SmallVec<[ChecksumEdit<'a>; 1]>;

impl Edit for ChecksumEdit<'_> {
    fn key(&self) -> Key {
        checksums::key(self.start)
    }

    fn apply(&mut self, current: Option<&[u8]>) -> Change<'_> {
        let held = current.unwrap_or_default().get(..self.held).expect("it was put there");
        self.content = [held, self.more].concat();
        Change::Put(&self.content)
    }
}

impl LoggedChecksums {
    /// Adds the sectors from `logical` on; returns the changes that add those that are new, in the
    /// order of their keys.
    pub(super) fn add<'a>(
        &mut self,
        logical: Logical,
        stored: &'a [u8],
        form: Form,
    ) -> ChecksumEdits<'a> {
        let start = logical.0;
        let end = form.end(logical.0, stored.len());
        let new: SmallVec<[Range<u64>; 2]> = self.sectors.gaps(start..end).collect();
        self.sectors.insert(start..end);
        let index = |at| form.index(start, at);
        let mut edits = ChecksumEdits::new();
        for range in new {
            let stored = &stored[index(range.start)..index(range.end)];
            self.assign(range.start, stored, form, &mut edits);
        }
        edits
    }

    /// Assigns the checksums of sectors from `at` on to items.
    fn assign<'a>(
        &mut self,
        mut at: u64,
        mut stored: &'a [u8],
        form: Form,
        edits: &mut ChecksumEdits<'a>,
    ) {
        while !stored.is_empty() {
            let start = self.open.remove(&at).unwrap_or(at);
            let held = form.index(start, at);
            let (more, later) = stored.split_at(stored.len().min(form.len_max - held));
            edits.push(ChecksumEdit { start, held, more, content: Vec::new() });
            at = form.end(at, more.len());
            stored = later;
            if held + more.len() < form.len_max {
                self.open.insert(at, start);
            }
        }
    }

    /// Returns true if all sectors between two addresses were added.
    pub(super) fn has(&self, start: u64, end: u64) -> bool {
        self.sectors.contains(&(start..end))
    }
}
