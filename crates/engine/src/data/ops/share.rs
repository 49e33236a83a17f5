//! Puts extents of one file into another, so that both share them.
//!
//! 1. No data of the source is only in memory, and nothing changes either file on disk, while
//!    extents are shared: both writeback locks and ranges are held, those of each class in the
//!    order of (subvolume, number). A writer of the source waits, as with Linux.
//! 2. Extents are shared in steps, each in a transaction of its own, from the start of the range to
//!    its end. An error leaves the parts before it shared.
//! 3. The locks are kept from one step to the next, so that the source does not change meanwhile,
//!    unless space or memory is short: a thread that waits for these holds no lock of a file's
//!    data.
//! 4. All of a step that can fail is done before anything changes.
//! 5. If data was relocated since the extents of a step were looked up, it changes nothing, and
//!    they are looked up again.
//! 6. A part of an extent is a reference of its own. The checksums stay where they are: they belong
//!    to the extent.

use std::ops::Range;

use userbtrfs_sync::{Arc, MutexGuard};
use userbtrfs_transaction::{HandleKind, Reservation};

use crate::data::backing_extents::BackingExtents;
use crate::data::cache::dirty::Delta;
use crate::data::cache::file_pages::FilePages;
use crate::data::cache::range_lock::RangeGuard;
use crate::data::cache::reservation::{CUT_ITEMS, DelallocReserved};
use crate::data::read::get_extent::ExtentMaps;
use crate::data::units::Times;
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::write_extent::difference;
use crate::error::{Error, Result};
use crate::inode::{EXTENTS_PER_STEP, ExtentMap, ExtentMapKind, ops};
use crate::units::{SECTOR, sector_end};

/// Two files, or one file twice.
#[derive(Clone, Copy)]
pub(in crate::data) struct FilePair<'a> {
    pub(in crate::data) source: &'a Arc<FilePages>,
    pub(in crate::data) target: &'a Arc<FilePages>,
}

/// A range of the source, and its place in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareRange {
    /// The start in the source, in bytes.
    pub(crate) from: u64,
    /// The length in bytes.
    pub(crate) len: u64,
    /// The start in the target, in bytes.
    pub(crate) to: u64,
}

/// The reason to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) enum Purpose {
    /// The target gets the content of the source.
    Clone(Times),
    /// The target has that content already: neither size nor times change.
    Dedupe,
}

/// The locks of two files, which keep what is on disk of them as it is.
pub(in crate::data) struct PairGuard<'a> {
    _ranges: [Option<RangeGuard<'a>>; 2],
    _writeback: [Option<MutexGuard<'a, ()>>; 2],
}

/// The extents that are shared in one step.
pub(in crate::data) struct Step {
    /// The extents, with their places in the target.
    parts: Vec<ExtentMap>,
    /// The bytes that the target counts for what they replace.
    replaced: u64,
    /// The bytes of the range that are done after the step.
    pub(in crate::data) done: u64,
    /// The source when its extents were looked up.
    source: BackingExtents,
}

/// The result of a step.
pub(in crate::data) enum Applied {
    Done,
    /// Nothing is changed: data was relocated since the step was made. This is its reservation.
    Outdated(Reservation),
}

/// The next thing to do for a range.
pub(in crate::data) enum Next {
    Step(Step),
    /// The first sector is inline data, which cannot be shared: its bytes are to be copied.
    CopyInline,
}

impl<'a> FilePair<'a> {
    /// Returns true if both are one file.
    pub(in crate::data) fn is_one_file(&self) -> bool {
        self.source.id() == self.target.id()
    }

    /// Returns the files in the order of their locks, each once.
    fn sorted(&self) -> [Option<&'a Arc<FilePages>>; 2] {
        let Self { source, target } = *self;
        match source.id().cmp(&target.id()) {
            std::cmp::Ordering::Less => [Some(source), Some(target)],
            std::cmp::Ordering::Equal => [Some(target), None],
            std::cmp::Ordering::Greater => [Some(target), Some(source)],
        }
    }

    /// Locks both files for a change of their sizes.
    pub(in crate::data) fn lock_operations(&self) -> [Option<MutexGuard<'a, ()>>; 2] {
        self.sorted().map(|file| file.map(|file| file.inode().lock_operation()))
    }

    /// Locks the data of both files: all of the source, and a range of the target, or all of it if
    /// both are one file.
    pub(in crate::data) fn lock(&self, range: Range<u64>) -> PairGuard<'a> {
        let writeback = self.sorted().map(|file| file.map(|file| file.writeback.lock()));
        let lock = |file: &'a Arc<FilePages>| {
            if self.is_one_file() {
                file.range.lock_exclusive(0..u64::MAX)
            } else if file.id() == self.target.id() {
                file.range.lock_exclusive(range.clone())
            } else {
                file.range.lock_shared(0..u64::MAX)
            }
        };
        PairGuard { _ranges: self.sorted().map(|file| file.map(lock)), _writeback: writeback }
    }

    /// Returns [`Error::Invalid`] unless both files have checksums, or neither has.
    pub(in crate::data) fn check_checksums(&self) -> Result<()> {
        if self.source.source().checksummed == self.target.source().checksummed {
            Ok(())
        } else {
            Err(Error::Invalid("only one of the files has checksums"))
        }
    }
}

impl ShareRange {
    /// Returns the length in whole sectors.
    pub(in crate::data) fn sectors(&self) -> u64 {
        sector_end(self.len)
    }

    /// Returns the range of the target, in whole sectors.
    pub(in crate::data) fn target(&self) -> Range<u64> {
        self.to..self.to + self.sectors()
    }

    /// Checks that both starts are sector boundaries, and that the ranges do not overlap within one
    /// file.
    pub(in crate::data) fn check(&self, pair: &FilePair<'_>) -> Result<()> {
        if !self.from.is_multiple_of(SECTOR) || !self.to.is_multiple_of(SECTOR) {
            return Err(Error::Invalid("a range that does not start at a sector"));
        }
        if pair.is_one_file() && self.from.abs_diff(self.to) < self.sectors() {
            return Err(Error::Invalid("a range that overlaps itself"));
        }
        Ok(())
    }
}

impl Step {
    /// Finds the first at most `most` extents of a range from `done` on, which replace at most as
    /// many. The caller holds the locks of both files.
    pub(in crate::data) fn next(
        context: &WriteContext,
        pair: &FilePair<'_>,
        range: &ShareRange,
        done: u64,
        most: usize,
        purpose: Purpose,
    ) -> Result<Next> {
        let mut parts = Vec::new();
        let source = pair.source.backing_extents();
        let start = range.from + done;
        let end = range.from + range.sectors();
        let mut segments = ExtentMaps::new(context.tree_roots(), &source, start, end);
        let mut at = start;
        while parts.len() < most {
            let Some(mut segment) = segments.next()? else { break };
            if let ExtentMapKind::Inline(data) = &mut segment.kind {
                let data = data.detached();
                if purpose != Purpose::Dedupe && !may_stay_inline(context, pair, range, &data)? {
                    return Ok(Next::CopyInline);
                }
                segment.kind = ExtentMapKind::Inline(data);
            }
            at = segment.end;
            let place = |offset: u64| offset - range.from + range.to;
            let start = place(segment.start);
            let end = place(segment.end);
            parts.push(ExtentMap { start, end, kind: segment.kind });
        }
        let end = range.to + (at - range.from);
        let (old, end) = extents(context, pair.target, range.to + done..end, most)?;
        let keeps = |new: &ExtentMap, old: &ExtentMap| {
            let is_inline = matches!(new.kind, ExtentMapKind::Inline(_));
            purpose == Purpose::Dedupe && (is_inline || new.kind == old.kind)
        };
        let (parts, replaced) = replacing(&parts, &old, keeps);
        Ok(Next::Step(Self { parts, replaced, done: end - range.to, source }))
    }

    /// Returns true if nothing is to be put into the target.
    pub(in crate::data) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the bytes that are shared by this step.
    pub(in crate::data) fn bytes(&self) -> u64 {
        let on_disk = self.parts.iter().filter(|part| part.kind.on_disk().is_some());
        on_disk.map(|part| part.end - part.start).sum()
    }

    /// Puts the extents into the target. The caller holds the locks of both files.
    pub(in crate::data) fn apply(
        self,
        context: &WriteContext,
        target: &Arc<FilePages>,
        range: &ShareRange,
        purpose: Purpose,
        mut reservation: Reservation,
    ) -> Result<Applied> {
        let handle = context.transactions.start(HandleKind::Operation)?;
        if !self.source.is_current() {
            return Ok(Applied::Outdated(reservation));
        }
        let cut = reservation.split(context.costs.of_a_cut());
        let counted = self.parts.iter().map(ExtentMap::counted_bytes).sum();
        let by = difference(counted, self.replaced);
        let end = (range.to + self.done).min(range.to + range.len);
        let mut dropped = Delta::default();
        let put = |change: &mut crate::inode::FileChange<'_>| {
            for ExtentMap { start, end, kind } in self.parts {
                dropped = dropped.plus(target.discard(start, end));
                change.put(start, end, kind, false);
            }
            change.add_bytes(by);
            if let Purpose::Clone(times) = purpose {
                change.set_size(change.size().max(end));
                times.touch(change);
            }
            target.advance_size(change, 0);
        };
        let inode = target.inode();
        ops::change_file_in(&context.nodes, &handle, inode, Some(reservation), put)?;
        drop(handle);
        let cut = DelallocReserved { data: None, metadata: Some(cut) };
        target.account.settle(cut, dropped, context.costs);
        Ok(Applied::Done)
    }
}

/// Returns how many extents a range can have, up to the most of a step.
pub(in crate::data) fn extents_of(bytes: u64) -> usize {
    usize::try_from(bytes / SECTOR).unwrap_or(EXTENTS_PER_STEP).min(EXTENTS_PER_STEP)
}

/// Items to reserve for a step besides those of its extents: a dirty run of the target may be cut.
pub(in crate::data) const MORE_ITEMS: u64 = CUT_ITEMS;

/// Returns true if inline data of the source may be inline data of the target: that has nothing
/// else, and ends with it.
fn may_stay_inline(
    context: &WriteContext,
    pair: &FilePair<'_>,
    range: &ShareRange,
    data: &crate::inode::InlineData,
) -> Result<bool> {
    if range.to > 0 || range.len > SECTOR || pair.target.size() > data.ram_bytes() {
        return Ok(false);
    }
    let behind = pair.target.backing_extents();
    let mut behind = ExtentMaps::new(context.tree_roots(), &behind, SECTOR, u64::MAX);
    let first = behind.next()?;
    Ok(first.is_none_or(|it| matches!(it.kind, ExtentMapKind::Hole) && it.end == u64::MAX))
}

/// Returns the first at most `most` extents and holes of a file in a range, and the end of the last
/// one.
fn extents(
    context: &WriteContext,
    pages: &FilePages,
    range: Range<u64>,
    most: usize,
) -> Result<(Vec<ExtentMap>, u64)> {
    let source = pages.backing_extents();
    let mut segments = ExtentMaps::new(context.tree_roots(), &source, range.start, range.end);
    let mut found = Vec::new();
    let mut end = range.start;
    while found.len() < most {
        let Some(segment) = segments.next()? else { break };
        end = segment.end;
        found.push(segment);
    }
    Ok((found, end))
}

/// Returns the parts of `new` that replace extents of `old`, except where `keeps` says that the old
/// extent stays, and the bytes counted for what they replace. `old` covers all of `new`, or its
/// start.
fn replacing(
    new: &[ExtentMap],
    old: &[ExtentMap],
    keeps: impl Fn(&ExtentMap, &ExtentMap) -> bool,
) -> (Vec<ExtentMap>, u64) {
    let mut parts = Vec::new();
    let mut bytes = 0;
    let mut old = old.iter().peekable();
    for new in new {
        // The start of a part that is not complete.
        let mut open = None;
        while let Some(before) = old.peek().filter(|before| before.start < new.end) {
            let start = before.start.max(new.start);
            let end = before.end.min(new.end);
            let replaced = before.part(start, end);
            if keeps(&new.part(start, end), &replaced) {
                parts.extend(open.take().map(|from| new.part(from, start)));
            } else {
                bytes += replaced.counted_bytes();
                open.get_or_insert(start);
            }
            if before.end > new.end {
                parts.extend(open.take().map(|from| new.part(from, end)));
                break;
            }
            old.next();
            if old.peek().is_none_or(|next| next.start >= new.end) {
                parts.extend(open.take().map(|from| new.part(from, end)));
            }
        }
    }
    (parts, bytes)
}

#[cfg(test)]
mod tests {
    use userbtrfs_format::{Logical, RegularExtent};

    use super::*;

    fn extent(start: u64, end: u64, disk: u64) -> ExtentMap {
        let bytes = (end - start) * SECTOR;
        let extent = RegularExtent {
            disk: Logical(disk),
            disk_bytes: 64 * SECTOR,
            offset: 0,
            bytes,
            ram_bytes: 64 * SECTOR,
        };
        let start = start * SECTOR;
        let end = end * SECTOR;
        ExtentMap { start, end, kind: ExtentMapKind::Regular(extent, None) }
    }

    fn hole(start: u64, end: u64) -> ExtentMap {
        ExtentMap { start: start * SECTOR, end: end * SECTOR, kind: ExtentMapKind::Hole }
    }

    #[test]
    fn parts_end_where_old_extents_end_and_are_whole_otherwise() {
        let new = [extent(0, 4, 1 << 20), hole(4, 6), extent(6, 9, 2 << 20)];
        let old = [hole(0, 1), extent(1, 5, 3 << 20), hole(5, 8)];
        let (parts, bytes) = replacing(&new, &old, |_, _| false);
        let [first, second, third] = &new;
        let third = third.part(6 * SECTOR, 8 * SECTOR);
        assert_eq!(parts, [first.clone(), second.clone(), third]);
        assert_eq!(bytes, 4 * SECTOR);
    }

    #[test]
    fn kept_extents_split_the_parts_around_them() {
        let shared = extent(0, 8, 1 << 20);
        let a = 2 * SECTOR;
        let b = 5 * SECTOR;
        let old = [hole(0, 2), shared.part(a, b), extent(5, 8, 2 << 20)];
        let (parts, bytes) =
            replacing(std::slice::from_ref(&shared), &old, |new, old| new.kind == old.kind);
        assert_eq!(parts, [shared.part(0, a), shared.part(b, 8 * SECTOR)]);
        assert_eq!(bytes, 3 * SECTOR);
        let same = [shared.clone()];
        assert_eq!(replacing(&same, &same, |new, old| new.kind == old.kind), (vec![], 0));
    }
}
