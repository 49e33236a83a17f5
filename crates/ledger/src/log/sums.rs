//! Checksums in a log.
//!
//! 1. Items do not overlap, and none is changed.
//! 2. Which sectors have a checksum in the log is known in memory.

use std::collections::BTreeMap;

use userbtrfs_btree::ItemEdit;
use userbtrfs_format::{Geometry, Logical};

use crate::checksums::{self, Form};

/// The sectors whose checksums are in a log: where each range starts, and where it ends. Ranges
/// do not touch.
#[derive(Debug, Default)]
pub(super) struct LoggedSums(BTreeMap<u64, u64>);

/// What items of checksums are like.
pub(super) fn form(geometry: &Geometry) -> Form {
    Form::new(geometry.checksum_kind.size(), geometry.nodesize)
}

/// The items of runs of checksums.
pub(super) fn edits(runs: &[(u64, &[u8])], form: Form) -> Vec<ItemEdit> {
    let items = |&(start, stored): &(u64, &[u8])| {
        let pieces = stored.chunks(form.len_max);
        let put = move |(index, piece): (usize, &[u8])| {
            let at = form.end(start, index * form.len_max);
            ItemEdit::Put(checksums::key(at), piece.to_vec())
        };
        pieces.enumerate().map(put).collect::<Vec<_>>()
    };
    runs.iter().flat_map(items).collect()
}

impl LoggedSums {
    /// Enters the sectors from `logical` on; gives the runs that are new, in the order of their
    /// addresses.
    pub(super) fn add<'a>(
        &mut self,
        logical: Logical,
        stored: &'a [u8],
        form: Form,
    ) -> Vec<(u64, &'a [u8])> {
        let (start, end) = (logical.0, form.end(logical.0, stored.len()));
        let mut new = Vec::new();
        let mut at = start;
        for (known, known_end) in self.touching(start, end) {
            if at < known {
                new.push(at..known);
            }
            at = at.max(known_end);
        }
        if at < end {
            new.push(at..end);
        }
        self.enter(start, end);
        let index = |at| form.index(start, at);
        new.into_iter().map(|run| (run.start, &stored[index(run.start)..index(run.end)])).collect()
    }

    /// Whether all sectors between two addresses are entered.
    pub(super) fn has(&self, start: u64, end: u64) -> bool {
        self.0.range(..=start).next_back().is_some_and(|(_, &to)| end <= to)
    }

    /// The ranges that a range overlaps or touches.
    fn touching(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.0.range(..start).next_back().filter(|&(_, &to)| to >= start);
        let within = self.0.range(start..=end);
        before.into_iter().chain(within).map(|(&from, &to)| (from, to)).collect()
    }

    fn enter(&mut self, mut start: u64, mut end: u64) {
        for (from, to) in self.touching(start, end) {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        if start < end {
            self.0.insert(start, end);
        }
    }
}
