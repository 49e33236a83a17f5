//! Buffered writes.
//!
//! A write reserves space for what it will newly dirty, locks the range, copies the bytes, and
//! extends the file in memory. It joins no transaction.
//!
//! 1. A write is split into parts, each written whole or not at all; it is short only if space runs
//!    out, or on an error after the first part.
//! 2. A writer that extends a file holds its operation lock. The range between the old end and the
//!    new bytes reads as zeros, whatever is on disk.
//! 3. A write never makes the unfinished data exceed its bound: see `throttle`.
//! 4. If no space is left, ranges that may be overwritten in place are, at once.

use std::ops::Range;

use userbtrfs_format::Timestamp;
use userbtrfs_sync::Arc;

use crate::clock;
use crate::data::cache::file_pages::ExtendGuard;
use crate::data::writeback::context::{SIZE_MAX, WriteContext, size_of};
use crate::data::writeback::nocow::INLINE_MAX;
use crate::data::writeback::reservation::{CUT_ITEMS, SpaceNeeded};
use crate::data::{Delta, ExtentMaps, FilePages};
use crate::error::{Error, Result};
use crate::inode::{ExtentMapKind, FileChange, TreeRoots};
use crate::units::{SECTOR, sector_end, sector_start};

/// The most bytes that are reserved and copied in one go: a power of two.
const PART_MAX: u64 = 1 << 20;
/// Nor are they more than one part in `PARTS` of the bound of unfinished data.
const PARTS: u64 = 16;

/// Whether a write may extend the file: if so, the caller holds the operation lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) enum MayExtend {
    Allowed,
    Refused,
}

/// The effect of a change of content on the times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// Set to now.
    Now,
    /// Left alone: the content was changed earlier, and the caller sets the times.
    Kept,
}

impl Times {
    fn now(self) -> Option<Timestamp> {
        (self == Self::Now).then(clock::now)
    }

    /// Applies this to a file whose content changes in a transaction.
    pub(in crate::data) fn touch(self, change: &mut FileChange<'_>) {
        match self {
            Self::Now => change.touch(),
            Self::Kept => change.touch_untimed(),
        }
    }
}

impl WriteContext {
    /// Writes bytes, and returns how many: fewer than given only if space runs out.
    pub(crate) fn write(
        &self,
        pages: &Arc<FilePages>,
        offset: u64,
        bytes: &[u8],
        times: Times,
    ) -> Result<usize> {
        self.transactions.check()?;
        let bytes = reachable(offset, bytes)?;
        let (mut done, mut ended) = (0, Ok(()));
        if offset + bytes.len() as u64 <= size_of(pages) {
            (done, ended) = self.write_parts(pages, offset, bytes, (MayExtend::Refused, times));
        }
        if done < bytes.len() && ended.is_ok() {
            let _operation = pages.inode().lock_operation();
            let (at, rest) = (offset + done as u64, &bytes[done..]);
            let (more, end) = self.write_parts(pages, at, rest, (MayExtend::Allowed, times));
            (done, ended) = (done + more, end);
        }
        if done > 0 { Ok(done) } else { ended.map(|()| 0) }
    }

    /// Appends bytes to a file, all of them or none, and returns their offset.
    pub(crate) fn append(&self, pages: &Arc<FilePages>, bytes: &[u8]) -> Result<u64> {
        self.transactions.check()?;
        let _operation = pages.inode().lock_operation();
        let start = size_of(pages);
        if reachable(start, bytes)?.len() < bytes.len() {
            return Err(Error::FileTooLarge);
        }
        let how = (MayExtend::Allowed, Times::Now);
        let (done, ended) = self.write_parts(pages, start, bytes, how);
        if done > 0 && ended.is_err() {
            self.shrink(pages, start)?;
        }
        ended.map(|()| start)
    }

    /// Writes bytes that were cached for an append-only file, like [`WriteContext::write`]. Returns
    /// [`Error::NotPermitted`], and writes nothing, if that would change existing bytes other than
    /// zeros. Zeros may be overwritten: bytes that arrive out of order find them in their place.
    pub(crate) fn write_grown(
        &self,
        pages: &Arc<FilePages>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize> {
        self.transactions.check()?;
        let bytes = reachable(offset, bytes)?;
        let _operation = pages.inode().lock_operation();
        let there = size_of(pages).saturating_sub(offset);
        let there = usize::try_from(there).map_or(bytes.len(), |there| there.min(bytes.len()));
        let mut before = vec![0; there];
        pages.read(self.nodes.tree_roots(), offset, &mut before, 0)?;
        if before.iter().zip(bytes).any(|(before, new)| *before != 0 && before != new) {
            return Err(Error::NotPermitted);
        }
        let how = (MayExtend::Allowed, Times::Kept);
        let (done, ended) = self.write_parts(pages, offset, bytes, how);
        if done > 0 { Ok(done) } else { ended.map(|()| 0) }
    }

    /// Returns the most bytes that are reserved and copied in one go.
    fn part_max(&self) -> u64 {
        let share = (self.unfinished_max() / PARTS).clamp(SECTOR, PART_MAX);
        1 << share.ilog2()
    }

    /// Writes bytes part by part; returns how many, and the error that ended it early. Without an
    /// error it is short if the file would grow, and may not.
    fn write_parts(
        &self,
        pages: &Arc<FilePages>,
        offset: u64,
        bytes: &[u8],
        how: (MayExtend, Times),
    ) -> (usize, Result<()>) {
        let (mut done, mut part_max) = (0, self.part_max());
        while done < bytes.len() {
            let at = offset + done as u64;
            let part = first_part(at, &bytes[done..], part_max);
            match self.write_part(pages, at, part, how) {
                Ok(true) => done += part.len(),
                Ok(false) => break,
                Err(Error::NoSpace) if part_max > SECTOR => part_max /= 2,
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }

    /// Writes a part; returns false if the file would grow, and may not.
    fn write_part(
        &self,
        pages: &Arc<FilePages>,
        at: u64,
        part: &[u8],
        (growth, times): (MayExtend, Times),
    ) -> Result<bool> {
        let _growing = match growth {
            MayExtend::Allowed => self.settle_end(pages, at)?,
            MayExtend::Refused => None,
        };
        let range = at..at + part.len() as u64;
        let write = |tree_roots: &TreeRoots| pages.write(tree_roots, at, part);
        match self.change(pages, range, (growth, times), write) {
            Err(Error::NoSpace) if self.write_through(pages, at, part, (growth, times))? => {
                Ok(true)
            }
            done => done,
        }
    }

    /// Changes bytes in the page cache, with space reserved for those that become dirty.
    pub(in crate::data) fn change(
        &self,
        pages: &Arc<FilePages>,
        range: Range<u64>,
        (growth, times): (MayExtend, Times),
        change: impl FnOnce(&TreeRoots) -> Result<Delta>,
    ) -> Result<bool> {
        let Range { start, end } = range;
        let _admitted = self.admit(sector_end(end) - sector_start(start))?;
        let mut reserved = self.reserve(pages, pages.new_dirty(start, end))?;
        loop {
            let locked = pages.range.lock_exclusive(sector_start(start)..sector_end(end));
            if growth == MayExtend::Refused && end > size_of(pages) {
                return Ok(false);
            }
            let delta = pages.new_dirty(start, end);
            if let Some(claim) = pages.account.claim(&mut reserved, delta, self.costs) {
                let delta = change(self.nodes.tree_roots())?;
                pages.inode().written_to(end, times.now());
                claim.settle(delta);
                return Ok(true);
            }
            // Dirty data is under writeback by now, or others took the excess of the reservation.
            drop((locked, reserved));
            let sectors = (sector_end(end) - sector_start(start)) / SECTOR;
            let all = Delta { sectors: i64::try_from(sectors).expect("of one part"), runs: 1 };
            // A long run may have become one extent more.
            let SpaceNeeded { data, items } = self.costs.need(all);
            reserved = self.reserve_need(SpaceNeeded { data, items: items + CUT_ITEMS })?;
        }
    }

    /// Prepares a file for growing to `to` bytes or beyond: the range from its end to there reads
    /// as zeros. The caller holds the operation lock, and keeps the guard until the file has grown.
    pub(in crate::data) fn settle_end<'a>(
        &self,
        pages: &'a Arc<FilePages>,
        to: u64,
    ) -> Result<Option<ExtendGuard<'a>>> {
        let size = size_of(pages);
        if to <= size {
            return Ok(None);
        }
        let growing = pages.grow();
        let (last, end) = (sector_start(size), sector_end(size));
        // The bytes on disk beyond the end of a file may be anything, and inline data has no
        // extents behind it: nor has data in flight that becomes inline, and lands before this.
        let may_be_inline = || size <= INLINE_MAX && pages.unfinished_from(0) == Some(0);
        if last < end && (may_be_inline() || self.holds_data(pages, last..end)?) {
            self.redirty_end(pages, size)?;
        }
        if end < to && self.holds_data(pages, end..sector_end(to))? {
            self.remove(pages, end..sector_end(to), Times::Kept, |kind| {
                !matches!(kind, ExtentMapKind::Prealloc(_))
            })?;
        }
        Ok(Some(growing))
    }

    /// Makes the last sector of a file dirty, with zeros beyond the end. The caller holds the
    /// operation lock.
    pub(in crate::data) fn redirty_end(&self, pages: &Arc<FilePages>, size: u64) -> Result<()> {
        let (last, end) = (sector_start(size), sector_end(size));
        let redirty = |tree_roots: &TreeRoots| pages.redirty(tree_roots, last, end);
        self.change(pages, last..size, (MayExtend::Refused, Times::Kept), redirty)?;
        Ok(())
    }

    /// Returns true if a range has written data on disk.
    pub(in crate::data) fn holds_data(&self, pages: &FilePages, range: Range<u64>) -> Result<bool> {
        let source = pages.beneath();
        let mut segments =
            ExtentMaps::new(self.nodes.tree_roots(), &source, range.start, range.end);
        while let Some(segment) = segments.next()? {
            if matches!(segment.kind, ExtentMapKind::Inline(_) | ExtentMapKind::Regular(..)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Calls `change` on bytes in place, sector by sector, like a writer to mapped memory. Returns
    /// how many bytes there were: fewer than given only if the file or space ends.
    pub(crate) fn modify(
        &self,
        pages: &Arc<FilePages>,
        offset: u64,
        len: usize,
        mut change: impl FnMut(&mut [u8]),
    ) -> Result<usize> {
        self.transactions.check()?;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let left = size_of(pages).saturating_sub(at).min((len - done) as u64);
            let part = left.min(SECTOR - at % SECTOR);
            if part == 0 {
                break;
            }
            let part_len = usize::try_from(part).expect("within a sector");
            let modify =
                |tree_roots: &TreeRoots| pages.modify(tree_roots, at, part_len, &mut change);
            match self.change(pages, at..at + part, (MayExtend::Refused, Times::Now), modify) {
                Ok(true) => done += part_len,
                Ok(false) => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Returns the bytes within the largest file size.
fn reachable(offset: u64, bytes: &[u8]) -> Result<&[u8]> {
    match SIZE_MAX.saturating_sub(offset) {
        0 if !bytes.is_empty() => Err(Error::FileTooLarge),
        left => Ok(&bytes[..usize::try_from(left).map_or(bytes.len(), |l| l.min(bytes.len()))]),
    }
}

/// Returns the first part of bytes at an offset: parts end at multiples of `part_max`.
fn first_part(offset: u64, bytes: &[u8], part_max: u64) -> &[u8] {
    let len = part_max - offset % part_max;
    &bytes[..usize::try_from(len).expect("a part in memory").min(bytes.len())]
}
