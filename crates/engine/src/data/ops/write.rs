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

use userbtrfs_sync::Arc;

use crate::data::cache::file_pages::FilePages;
use crate::data::ops::delalloc::MayExtend;
use crate::data::ops::direct::write_through;
use crate::data::ops::extend::settle_end;
use crate::data::ops::file_ops::FileOps;
use crate::data::ops::truncate::shrink;
use crate::data::units::{SIZE_MAX, Times};
use crate::error::{Error, Result};
use crate::inode::TreeRoots;
use crate::units::SECTOR;

/// The most bytes that are reserved and copied in one go: a power of two.
const PART_MAX: u64 = 1 << 20;
/// Nor are they more than one part in `PARTS` of the bound of unfinished data.
const PARTS: u64 = 16;

impl FileOps {
    /// Writes bytes, and returns how many: fewer than given only if space runs out.
    pub(crate) fn write(
        &self,
        pages: &Arc<FilePages>,
        offset: u64,
        bytes: &[u8],
        times: Times,
    ) -> Result<usize> {
        self.context.transactions.check()?;
        let bytes = reachable(offset, bytes)?;
        let mut done = 0;
        let mut ended = Ok(());
        if offset + bytes.len() as u64 <= pages.size() {
            (done, ended) = self.write_parts(pages, offset, bytes, MayExtend::Refused, times);
        }
        if done < bytes.len() && ended.is_ok() {
            let _operation = pages.inode().lock_operation();
            let at = offset + done as u64;
            let rest = &bytes[done..];
            let (more, end) = self.write_parts(pages, at, rest, MayExtend::Allowed, times);
            (done, ended) = (done + more, end);
        }
        if done > 0 { Ok(done) } else { ended.map(|()| 0) }
    }

    /// Appends bytes to a file, all of them or none, and returns their offset.
    pub(crate) fn append(&self, pages: &Arc<FilePages>, bytes: &[u8]) -> Result<u64> {
        self.context.transactions.check()?;
        let _operation = pages.inode().lock_operation();
        let start = pages.size();
        if reachable(start, bytes)?.len() < bytes.len() {
            return Err(Error::FileTooLarge);
        }
        let (done, ended) = self.write_parts(pages, start, bytes, MayExtend::Allowed, Times::Now);
        if done > 0 && ended.is_err() {
            shrink(&self.delalloc, pages, start)?;
        }
        ended.map(|()| start)
    }

    /// Writes bytes that were cached for an append-only file, like [`FileOps::write`]. Returns
    /// [`Error::NotPermitted`], and writes nothing, if that would change existing bytes other than
    /// zeros. Zeros may be overwritten: bytes that arrive out of order find them in their place.
    pub(crate) fn write_grown(
        &self,
        pages: &Arc<FilePages>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize> {
        self.context.transactions.check()?;
        let bytes = reachable(offset, bytes)?;
        let _operation = pages.inode().lock_operation();
        let there = pages.size().saturating_sub(offset);
        let there = usize::try_from(there).map_or(bytes.len(), |there| there.min(bytes.len()));
        let mut before = vec![0; there];
        pages.read(self.context.tree_roots(), offset, &mut before, 0)?;
        if before.iter().zip(bytes).any(|(before, new)| *before != 0 && before != new) {
            return Err(Error::NotPermitted);
        }
        let (done, ended) = self.write_parts(pages, offset, bytes, MayExtend::Allowed, Times::Kept);
        if done > 0 { Ok(done) } else { ended.map(|()| 0) }
    }

    /// Returns the most bytes that are reserved and copied in one go.
    fn part_max(&self) -> u64 {
        let share = (self.context.unfinished_max / PARTS).clamp(SECTOR, PART_MAX);
        1 << share.ilog2()
    }

    /// Writes bytes part by part; returns how many, and the error that ended it early. Without an
    /// error it is short if the file would grow, and may not.
    fn write_parts(
        &self,
        pages: &Arc<FilePages>,
        offset: u64,
        bytes: &[u8],
        growth: MayExtend,
        times: Times,
    ) -> (usize, Result<()>) {
        let mut done = 0;
        let mut part_max = self.part_max();
        while done < bytes.len() {
            let at = offset + done as u64;
            let part = first_part(at, &bytes[done..], part_max);
            match self.write_part(pages, at, part, growth, times) {
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
        growth: MayExtend,
        times: Times,
    ) -> Result<bool> {
        let _growing = match growth {
            MayExtend::Allowed => settle_end(&self.delalloc, pages, at)?,
            MayExtend::Refused => None,
        };
        let range = at..at + part.len() as u64;
        let write = |tree_roots: &TreeRoots| pages.write(tree_roots, at, part);
        match self.delalloc.change(pages, range, growth, times, write) {
            Err(Error::NoSpace)
                if write_through(&self.delalloc, pages, at, part, growth, times)? =>
            {
                Ok(true)
            }
            done => done,
        }
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
        self.context.transactions.check()?;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let left = pages.size().saturating_sub(at).min((len - done) as u64);
            let part = left.min(SECTOR - at % SECTOR);
            if part == 0 {
                break;
            }
            let part_len = usize::try_from(part).expect("within a sector");
            let modify =
                |tree_roots: &TreeRoots| pages.modify(tree_roots, at, part_len, &mut change);
            match self.delalloc.change(pages, at..at + part, MayExtend::Refused, Times::Now, modify)
            {
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
