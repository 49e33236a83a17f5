//! Files that become longer or shorter, and extents that go.
//!
//! 1. A file is cut in bounded steps, each in a transaction that may be a later one: from its end
//!    backwards, so that after a crash it is as long as it has data for.
//! 2. Callers see the new size at once. Until the last step the tree goes on to know of more.
//! 3. What can fail of a step is done before anything changes: what was taken stays until it goes.
//! 4. What a cut leaves of the last sector is written again, with zeros behind the end: so what was
//!    taken away does not come back if a later write fails. But cutting needs no space: without
//!    any it stays on the disk, hidden by the size, and growing writes the zeros
//!    ([`WriteContext::settle_end`]).

use std::ops::Range;

use userbtrfs_sync::Arc;
use userbtrfs_transaction::{HandleKind, Reservation};

use crate::data::ops::write::Times;
use crate::data::writeback::context::{
    SECTOR, SIZE_MAX, WriteContext, advance_size, sector_end, sector_start, size_of,
};
use crate::data::writeback::reservation::{CUT_ITEMS, DelallocReserved};
use crate::data::writeback::write_extent::difference;
use crate::data::{Delta, ExtentMapKind, ExtentMaps, FilePages};
use crate::error::{Error, Result};
use crate::inode::{Inline, PendingExtentKind};

/// What is left of a file that is kept in the tree: its bytes, and how many there were.
type ShortInline = Option<(Arc<[u8]>, u64)>;

impl WriteContext {
    /// Gives a file this size: bytes go, or zeros come.
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

    /// Makes a file longer, or touches it. The operation lock is held.
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

    /// Makes a file longer, or touches it, with space that was reserved for the inode. The
    /// operation lock is held, and the end settled.
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

    /// Makes a file shorter. The operation lock is held.
    pub(in crate::data) fn shrink(&self, pages: &Arc<FilePages>, size: u64) -> Result<()> {
        let cut = self.cut(pages, size);
        // Who cannot do it now (there is no space, the sector is damaged) does when it grows.
        let _left = self.zero_tail(pages, size);
        cut
    }

    /// Makes zeros of what is behind the end of a file, in its last sector.
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
            // So that the next step finds other extents in the tree.
            let merged = self.transactions.merge_most().map_err(Error::from);
            done = match merged.and_then(|()| self.shrink_step(pages, size, false)) {
                Ok(done) => done,
                Err(error) => {
                    // What is left behind the end goes when the file grows, or with it.
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

    /// Takes the last extents of a file, and the first time cuts what is in memory. Says whether
    /// that was all.
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
                change.put(start, u64::MAX, PendingExtentKind::Hole, false);
                change.add_bytes(difference(0, bytes));
                if let Some((data, before)) = inline {
                    change.add_bytes(difference(data.len() as u64, before));
                    change.put(0, SECTOR, PendingExtentKind::Inline(Inline::plain(data)), false);
                }
                let known = if start > keep { start } else { size };
                change.set_disk_size(change.disk_size().min(known));
                advance_size(change, pages, 0);
            },
        )?;
        pages.account.settle(DelallocReserved::default(), dropped, self.costs);
        Ok(start == keep)
    }

    /// What is left of a file that is kept in the tree, where a part of it goes. What was
    /// compressed may be too long then: it stays as it is, and is hidden by the size.
    fn short_inline(&self, pages: &Arc<FilePages>, size: u64) -> Result<ShortInline> {
        if size == 0 || size > self.inline_fits() {
            return Ok(None);
        }
        let source = pages.beneath();
        let tree_roots = self.nodes.tree_roots();
        let first = ExtentMaps::new(tree_roots, &source, 0, SECTOR).next()?.map(|first| first.kind);
        let Some(ExtentMapKind::Inline(data)) = first else { return Ok(None) };
        // The file may have grown in memory: that is on its way out of the tree.
        if size >= data.ram_bytes() {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(size).expect("below a sector")];
        pages.read_locked(tree_roots, 0, &mut bytes)?;
        Ok(Some((bytes.into(), data.ram_bytes())))
    }

    /// Makes a hole of what is `wanted` in a range of whole sectors, in memory of all of it. The
    /// operation lock is held.
    pub(in crate::data) fn remove(
        &self,
        pages: &Arc<FilePages>,
        range: Range<u64>,
        times: Times,
        wanted: impl Fn(&ExtentMapKind) -> bool,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            // A hole in the middle of what is dirty makes two runs of one. Space for both comes at
            // once: callers that wait for space hold none.
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
                        change.put(hole.start, hole.end, PendingExtentKind::Hole, false);
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

    /// What is wanted of the first segments of a range, at most so many: where, how many bytes the
    /// file counts for it, and where the segments end that were looked at.
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
            let len = match &segment.kind {
                ExtentMapKind::Hole => continue,
                ExtentMapKind::Inline(data) => data.ram_bytes(),
                _ => segment.end - segment.start,
            };
            if !wanted(&segment.kind) {
                continue;
            }
            bytes += len;
            match holes.last_mut() {
                Some(last) if last.end == segment.start => last.end = segment.end,
                _ => holes.push(segment.start..segment.end),
            }
        }
        Ok((holes, bytes, end))
    }
}
