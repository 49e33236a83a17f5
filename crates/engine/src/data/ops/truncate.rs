//! Truncation: files that become longer or shorter, and extents that are dropped.
//!
//! 1. A file is cut in bounded steps, each in a transaction that may be a later one: from its end
//!    backwards, so that after a crash it is as long as it has data for.
//! 2. Callers see the new size at once. Until the last step the size on disk is larger.
//! 3. All of a step that can fail is done before anything changes: extents stay until they are
//!    dropped.
//! 4. The last sector is written again after a cut, with zeros beyond the end: so the old bytes do
//!    not reappear if a later write fails. But a cut must not need space: if there is none, the old
//!    bytes stay on disk, hidden by the size, and extending the file zeros them
//!    ([`WriteContext::settle_end`]).

use std::ops::Range;

use userbtrfs_sync::Arc;
use userbtrfs_transaction::{HandleKind, Reservation};

use crate::data::ops::write::Times;
use crate::data::writeback::context::{SIZE_MAX, WriteContext, advance_size, size_of};
use crate::data::writeback::reservation::{CUT_ITEMS, DelallocReserved};
use crate::data::writeback::write_extent::difference;
use crate::data::{Delta, ExtentMaps, FilePages};
use crate::error::{Error, Result};
use crate::inode::{ExtentMapKind, InlineData};
use crate::units::{SECTOR, sector_end, sector_start};

/// The rest of a truncated inline file: its bytes, and how many there were before.
type ShortInline = Option<(Arc<[u8]>, u64)>;

impl WriteContext {
    /// Sets the size of a file: drops bytes at its end, or adds zeros.
    pub(crate) fn set_len(&self, pages: &Arc<FilePages>, size: u64) -> Result<()> {
        self.transactions.check()?;
        if size > SIZE_MAX {
            return Err(Error::FileTooLarge);
        }
        let _operation = pages.inode().lock_operation();
        match size < size_of(pages) {
            true => self.shrink(pages, size),
            false => self.grow(pages, size, Times::Now),
        }
    }

    /// Extends a file, or only updates its times. The caller holds the operation lock.
    pub(in crate::data) fn grow(
        &self,
        pages: &Arc<FilePages>,
        size: u64,
        times: Times,
    ) -> Result<()> {
        let _growing = self.settle_end(pages, size)?;
        let reservation = self.nodes.reserve(1)?;
        self.grow_with(pages, size, times, reservation)
    }

    /// Extends a file, or only updates its times, with space reserved for the inode. The caller
    /// holds the operation lock, and has called `settle_end`.
    pub(in crate::data) fn grow_with(
        &self,
        pages: &Arc<FilePages>,
        size: u64,
        times: Times,
        reservation: Reservation,
    ) -> Result<()> {
        let inode = pages.inode();
        self.nodes.change_file(inode, HandleKind::Operation, Some(reservation), |change| {
            change.set_size(size.max(change.size()));
            times.touch(change);
            advance_size(change, pages, 0);
        })
    }

    /// Truncates a file. The caller holds the operation lock.
    pub(in crate::data) fn shrink(&self, pages: &Arc<FilePages>, size: u64) -> Result<()> {
        let cut = self.cut(pages, size);
        // If this fails (there is no space, the sector is damaged), extending the file does it.
        let _left = self.zero_tail(pages, size);
        cut
    }

    /// Zeros the last sector beyond the end of a file.
    fn zero_tail(&self, pages: &Arc<FilePages>, size: u64) -> Result<()> {
        let (last, end) = (sector_start(size), sector_end(size));
        if last < end && self.holds_data(pages, last..end)? {
            self.redirty_end(pages, size)?;
        }
        Ok(())
    }

    fn cut(&self, pages: &Arc<FilePages>, size: u64) -> Result<()> {
        let mut done = self.shrink_step(pages, size, true)?;
        while !done {
            // Move the change into the tree, so that the next step finds other extents there.
            let merged = self.transactions.merge_most().map_err(Error::from);
            done = match merged.and_then(|()| self.shrink_step(pages, size, false)) {
                Ok(done) => done,
                Err(error) => {
                    // The extents beyond the end are dropped when the file grows or is deleted.
                    let inode = pages.inode();
                    self.nodes.change_file(inode, HandleKind::Operation, None, |change| {
                        change.set_disk_size(change.disk_size().min(size));
                    })?;
                    return Err(error);
                }
            };
        }
        Ok(())
    }

    /// Drops the last extents of a file; the first step also truncates the page cache. Returns true
    /// if no extents are left beyond the end.
    fn shrink_step(&self, pages: &Arc<FilePages>, size: u64, first: bool) -> Result<bool> {
        let (reservation, most) = self.nodes.reserve_step(pages.inode(), 0)?;
        let _one = pages.writeback.lock();
        let _range = pages.range.lock_exclusive(sector_start(size)..u64::MAX);
        let inline = if first { self.short_inline(pages, size)? } else { None };
        let keep = sector_end(size);
        let start = self.nodes.start_of_last(pages.inode(), keep, most)?;
        let bytes = self.bytes_of(pages, start..u64::MAX)?;
        let mut dropped = Delta::default();
        self.nodes.change_file(
            pages.inode(),
            HandleKind::Operation,
            Some(reservation),
            |change| {
                if first {
                    dropped = pages.truncate(size);
                    change.cut_size(size);
                    change.touch();
                }
                change.put(start, u64::MAX, ExtentMapKind::Hole, false);
                change.add_bytes(difference(0, bytes));
                if let Some((data, before)) = inline {
                    change.add_bytes(difference(data.len() as u64, before));
                    change.put(0, SECTOR, ExtentMapKind::Inline(InlineData::plain(data)), false);
                }
                let known = if start > keep { start } else { size };
                change.set_disk_size(change.disk_size().min(known));
                advance_size(change, pages, 0);
            },
        )?;
        pages.account.settle(DelallocReserved::default(), dropped, self.costs);
        Ok(start == keep)
    }

    /// Returns the rest of an inline file that is cut. If compressed data would become too long,
    /// returns `None`: the item stays as it is, hidden by the size.
    fn short_inline(&self, pages: &Arc<FilePages>, size: u64) -> Result<ShortInline> {
        if size == 0 || size > self.inline_fits() {
            return Ok(None);
        }
        let source = pages.beneath();
        let tree_roots = self.nodes.tree_roots();
        let first = ExtentMaps::new(tree_roots, &source, 0, SECTOR).next()?.map(|first| first.kind);
        let Some(ExtentMapKind::Inline(data)) = first else { return Ok(None) };
        // The file may have grown in memory: then it will not stay inline.
        if size >= data.ram_bytes() {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(size).expect("below a sector")];
        pages.read_locked(tree_roots, 0, &mut bytes)?;
        Ok(Some((bytes.into(), data.ram_bytes())))
    }

    /// Makes holes of the `wanted` segments in a range of whole sectors, and drops all of the range
    /// from the page cache. The caller holds the operation lock.
    pub(in crate::data) fn remove(
        &self,
        pages: &Arc<FilePages>,
        range: Range<u64>,
        times: Times,
        wanted: impl Fn(&ExtentMapKind) -> bool,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            // A hole in the middle of a dirty run makes two runs of it. Space for both is reserved
            // at once: a thread that waits for space holds none.
            let (mut reservation, most) = self.nodes.reserve_step(pages.inode(), CUT_ITEMS)?;
            let cut = reservation.split(self.costs.of_a_cut());
            let _one = pages.writeback.lock();
            let _range = pages.range.lock_exclusive(at..range.end);
            let rest = at..range.end;
            let (holes, bytes, end) = self.removable(pages, rest, most, &wanted)?;
            let mut dropped = Delta::default();
            self.nodes.change_file(
                pages.inode(),
                HandleKind::Operation,
                Some(reservation),
                |change| {
                    for hole in &holes {
                        change.put(hole.start, hole.end, ExtentMapKind::Hole, false);
                    }
                    change.add_bytes(difference(0, bytes));
                    times.touch(change);
                    dropped = pages.discard(at, end);
                    advance_size(change, pages, 0);
                },
            )?;
            let cut = DelallocReserved { data: None, metadata: Some(cut) };
            pages.account.settle(cut, dropped, self.costs);
            at = end;
        }
        Ok(())
    }

    /// Finds the `wanted` segments among the first `most` of a range. Returns their ranges, the
    /// bytes that the file counts for them, and the end of the segments that were looked at.
    fn removable(
        &self,
        pages: &FilePages,
        range: Range<u64>,
        most: usize,
        wanted: impl Fn(&ExtentMapKind) -> bool,
    ) -> Result<(Vec<Range<u64>>, u64, u64)> {
        let source = pages.beneath();
        let mut segments =
            ExtentMaps::new(self.nodes.tree_roots(), &source, range.start, range.end);
        let (mut holes, mut bytes, mut end): (Vec<Range<u64>>, _, _) = (Vec::new(), 0, range.start);
        for _ in 0..most {
            let Some(segment) = segments.next()? else { break };
            end = segment.end;
            if matches!(segment.kind, ExtentMapKind::Hole) || !wanted(&segment.kind) {
                continue;
            }
            bytes += segment.counted_bytes();
            match holes.last_mut() {
                Some(last) if last.end == segment.start => last.end = segment.end,
                _ => holes.push(segment.start..segment.end),
            }
        }
        Ok((holes, bytes, end))
    }
}
