//! The cached blocks of one file: which sectors are valid, which are dirty, which are being
//! written. Pure bookkeeping and copying; no lock, no I/O.
//!
//! 1. Blocks do not overlap, and none crosses a multiple of 128 KiB. A block is as large as the
//!    write or fill that made it, and grows if the file is written in order in small pieces.
//! 2. Each block has a valid sector.
//! 3. Data filled from disk never replaces valid data.
//! 4. Sectors that read as zeros and were not written take no memory but that of the block's entry.
//!
//! Positions are sectors of the file, counted from its start.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use smallvec::{SmallVec, smallvec};
use userbtrfs_device::{Buffer, Slice};
use userbtrfs_sync::Arc;

use crate::data::cache::block::{CacheBlock, SECTORS_MAX, bytes, mask, runs};
use crate::data::cache::dirty::{Delta, DirtyRun, DirtyRuns};
use crate::data::units::EXTENT_MAX;
use crate::units::{SECTOR, SECTOR_LEN, to_usize};

/// Sectors between two boundaries that no block crosses.
const UNIT: u64 = SECTORS_MAX as u64;

/// A write of this many sectors gets a block of its own: growing copies the old bytes of a block.
const APART: u32 = SECTORS_MAX / 4;

/// About the memory of a block besides its bytes: its entries in maps that are half full, and in
/// the eviction list.
const BLOCK_BYTES: usize = 2 * size_of::<(u64, CacheBlock)>() + 96;

/// The memory and the sectors of the blocks of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::data) struct Usage {
    /// Bytes of memory.
    pub(in crate::data) bytes: u64,
    pub(in crate::data) blocks: u64,
    /// Sectors that are dirty.
    pub(in crate::data) dirty: u64,
    /// Sectors that are dirty or being written.
    pub(in crate::data) unfinished: u64,
    /// Bytes of memory of blocks with unfinished sectors: these cannot be evicted.
    pub(in crate::data) pinned: u64,
}

/// The outcome of looking at a block for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) enum Evicted {
    /// It is gone, or will be added to the list again.
    Unlisted,
    /// It stays in the list for another round.
    Kept,
}

/// The cached blocks of one file.
pub(in crate::data) struct CacheBlocks {
    /// By their first sectors.
    by_first: BTreeMap<u64, CacheBlock>,
    /// The first sectors of the blocks with unfinished sectors.
    unfinished: BTreeSet<u64>,
    /// The buffer that blocks of zeros share.
    zeros: Arc<Buffer>,
    usage: Usage,
    dirty: Delta,
    next_ticket: u64,
    /// Blocks to add to the eviction list, with their tickets.
    newcomers: Vec<(u64, u64)>,
}

impl CacheBlocks {
    /// Returns an empty set. `zeros` is as long as the largest block.
    pub(in crate::data) fn new(zeros: Arc<Buffer>) -> Self {
        assert!(zeros.len() == bytes(SECTORS_MAX), "zeros for the largest block");
        Self {
            by_first: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            zeros,
            usage: Usage::default(),
            dirty: Delta::default(),
            next_ticket: 0,
            newcomers: Vec::new(),
        }
    }

    pub(in crate::data) fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the blocks to add to the eviction list since the last call: their first sectors and
    /// their tickets.
    pub(in crate::data) fn take_newcomers(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.newcomers)
    }

    // Lookup.

    /// Returns the valid sectors from `sector` on, as far as they are in one block.
    pub(in crate::data) fn slice(&self, sector: u64) -> Option<Slice> {
        let (block, valid) = self.valid_from(sector)?;
        Some(block.slice(valid))
    }

    /// Copies valid bytes from `offset` on, as far as they are in one block; returns how many.
    pub(in crate::data) fn copy_out(&self, offset: u64, target: &mut [u8]) -> usize {
        let sector = offset / SECTOR;
        let skip = to_usize(offset % SECTOR);
        let Some((block, valid)) = self.valid_from(sector) else { return 0 };
        let start = bytes(valid.start) + skip;
        let end = bytes(valid.end);
        let len = target.len().min(end - start);
        target[..len].copy_from_slice(block.bytes(start..start + len));
        len
    }

    /// Returns the block in which a sector is valid, and its valid sectors from there on.
    fn valid_from(&self, sector: u64) -> Option<(&CacheBlock, Range<u32>)> {
        let (first, block) = self.block_of(sector)?;
        let at = count(first..sector);
        let valid = (block.valid >> at).trailing_ones();
        (valid > 0).then(|| {
            block.ask();
            (block, at..at + valid)
        })
    }

    /// Returns the block that covers a sector, and the first sector of that block.
    fn block_of(&self, sector: u64) -> Option<(u64, &CacheBlock)> {
        let unit = sector / UNIT * UNIT;
        let is_in = |first: u64, block: &CacheBlock| sector - first < u64::from(block.len);
        // Most blocks start at a unit boundary, and an exact lookup is faster than a range lookup.
        if let Some(block) = self.by_first.get(&unit).filter(|block| is_in(unit, block)) {
            return Some((unit, block));
        }
        let (first, block) = self.by_first.range(unit..=sector).next_back()?;
        is_in(*first, block).then_some((*first, block))
    }

    /// Returns the sectors of a range that are not valid: maximal runs, ascending.
    pub(in crate::data) fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        let mut at = range.start;
        for (first, block) in self.by_first.range(self.first_touching(range.start)..range.end) {
            for valid in runs(clipped(block.valid, *first, &range)) {
                let start = first + u64::from(valid.start);
                let end = first + u64::from(valid.end);
                if at < start {
                    found.push(at..start);
                }
                at = end;
            }
        }
        if at < range.end {
            found.push(at..range.end);
        }
        found
    }

    /// Returns the maximal runs of unfinished sectors in a range, ascending, at most `max` of them.
    pub(in crate::data) fn unfinished(&self, range: Range<u64>, max: usize) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        for (first, block) in self.unfinished_blocks(&range) {
            for run in runs(clipped(block.unfinished(), first, &range)) {
                let start = first + u64::from(run.start);
                let end = first + u64::from(run.end);
                let full = found.len() == max;
                match found.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ if full => return found,
                    _ => found.push(start..end),
                }
            }
        }
        found
    }

    /// Returns by how much the dirty sectors and runs would grow if the range became dirty.
    pub(in crate::data) fn new_dirty(&self, range: Range<u64>) -> Delta {
        let around = around(&range);
        let now = self.tally(&around);
        let neighbour = |sector: u64| around.contains(&sector) && self.is_dirty(sector);
        let left = range.start > 0 && neighbour(range.start - 1);
        // The range becomes one run; dirty neighbours on its sides become parts of it.
        let sides = i64::from(left) + i64::from(neighbour(range.end));
        let sectors = to_i64(range.end - range.start) + sides - now.sectors;
        Delta { sectors, runs: 1 - now.runs }
    }

    fn is_dirty(&self, sector: u64) -> bool {
        self.tally(&(sector..sector + 1)).sectors > 0
    }

    /// Counts the dirty sectors of a range, and their runs clipped to the range.
    fn tally(&self, range: &Range<u64>) -> Delta {
        let mut tally = Delta::default();
        let mut end = None;
        for (first, block) in self.unfinished_blocks(range) {
            for run in runs(clipped(block.dirty, first, range)) {
                tally.sectors += i64::from(run.end - run.start);
                tally.runs += i64::from(end != Some(first + u64::from(run.start)));
                end = Some(first + u64::from(run.end));
            }
        }
        tally
    }

    fn unfinished_blocks(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &CacheBlock)> {
        let before = self.unfinished.range(..range.start).next_back();
        let touching = before.filter(|first| range.start - **first < UNIT);
        let start = touching.copied().unwrap_or(range.start);
        let firsts = self.unfinished.range(start..range.end.max(start));
        firsts.map(|first| (*first, &self.by_first[first]))
    }

    /// Returns the first sector of the block that covers `sector`, or `sector` if there is none.
    fn first_touching(&self, sector: u64) -> u64 {
        let before = self.by_first.range(..sector).next_back();
        let touching = before.filter(|(first, block)| sector < **first + u64::from(block.len));
        touching.map_or(sector, |(first, _)| *first)
    }

    // Filling from disk.

    /// Fills in a buffer of sectors as they are on disk, without a copy if no block is in the way.
    pub(in crate::data) fn fill(&mut self, sector: u64, buffer: &Arc<Buffer>) {
        let len = (buffer.len() / SECTOR_LEN) as u64;
        let one_unit = sector / UNIT == (sector + len - 1) / UNIT;
        let free = || self.first_touching(sector) == sector && self.is_free(sector..sector + len);
        if one_unit && free() {
            let len = u32::try_from(len).expect("within a unit");
            self.insert(sector, Arc::clone(buffer), len, mask(0..len));
        } else {
            self.fill_from(sector, buffer);
        }
    }

    /// Copies in sectors as they are on disk, where none are valid.
    pub(in crate::data) fn fill_from(&mut self, sector: u64, source: &[u8]) {
        for missing in self.missing(sector..sector + (source.len() / SECTOR_LEN) as u64) {
            let from = to_bytes(missing.start - sector);
            self.put(missing.start, &source[from..][..to_bytes(missing.end - missing.start)]);
        }
    }

    /// Fills in zeros where the file reads as zeros on disk.
    pub(in crate::data) fn fill_zeros(&mut self, range: Range<u64>) {
        for missing in self.missing(range) {
            let mut at = missing.start;
            while at < missing.end {
                let end = missing.end.min((at / UNIT + 1) * UNIT);
                if self.first_touching(at) == at && self.is_free(at..end) {
                    let zeros = Arc::clone(&self.zeros);
                    let len = count(at..end);
                    self.insert(at, zeros, len, mask(0..len));
                } else {
                    let zeros = Arc::clone(&self.zeros);
                    self.put(at, &zeros[..to_bytes(end - at)]);
                }
                at = end;
            }
        }
    }

    fn is_free(&self, range: Range<u64>) -> bool {
        self.by_first.range(range).next().is_none()
    }

    /// Copies in whole sectors, and makes them valid.
    fn put(&mut self, sector: u64, source: &[u8]) {
        let mut done = 0;
        while done < source.len() {
            let at = sector + (done / SECTOR_LEN) as u64;
            done += self.copy_in(to_place(at), &source[done..], 0);
        }
    }

    // Writing.

    /// Writes bytes from `offset` on and makes them valid and dirty. Sectors that are written in
    /// part must be valid.
    pub(in crate::data) fn write(&mut self, offset: u64, source: &[u8]) -> Delta {
        let range = sectors_of(offset, source.len());
        let before = self.tally(&around(&range));
        let mut done = 0;
        while done < source.len() {
            done += self.copy_in(offset + done as u64, &source[done..], u32::MAX);
        }
        self.account(&range, before)
    }

    /// Copies as many bytes as one block takes. Makes their sectors valid, and dirty if `dirty` is
    /// all ones.
    fn copy_in(&mut self, offset: u64, source: &[u8], dirty: u32) -> usize {
        let range = sectors_of(offset, source.len());
        let (first, at, count) = self.make_room(range);
        let skip = to_usize(offset % SECTOR);
        let from = bytes(at) + skip;
        let len = source.len().min(bytes(count) - skip);
        let sectors = mask(at..at + count);
        self.change(first, |block| {
            let head = u32::from(skip > 0) << at;
            let tail = u32::from(!(skip + len).is_multiple_of(SECTOR_LEN)) << (at + count - 1);
            let edges = head | tail;
            assert!(block.valid & edges == edges, "what is written in part is valid");
            block.bytes_mut(from..from + len)[from..][..len].copy_from_slice(&source[..len]);
            block.valid |= sectors;
            block.dirty |= sectors & dirty;
        });
        len
    }

    /// Makes sure that a block covers the first sectors of a range. Returns the first sector of the
    /// block, the index of the range in it, and the number of sectors covered.
    fn make_room(&mut self, range: Range<u64>) -> (u64, u32, u32) {
        let sector = range.start;
        let limit = self.limit(sector);
        let before = self.by_first.range(..=sector).next_back();
        let near = before.filter(|(first, block)| {
            sector <= **first + u64::from(block.len) && sector / UNIT == **first / UNIT
        });
        let Some((&first, block)) = near else { return self.new_block(range, limit) };
        let len = block.len;
        let at = count(first..sector);
        if at == len {
            let coming = count(range.start..range.end.min(limit));
            if block.shares(&self.zeros) || coming >= APART {
                return self.new_block(range, limit);
            }
            let wanted = count(first..range.end.min(limit)).next_power_of_two();
            self.change(first, |block| block.grow(wanted.min(count(first..limit))));
        }
        let len = self.by_first[&first].len;
        (first, at, count(sector..range.end.min(first + u64::from(len))))
    }

    /// Returns where a block that covers `sector` must end.
    fn limit(&self, sector: u64) -> u64 {
        let unit_end = (sector / UNIT + 1) * UNIT;
        let next = self.by_first.range(sector + 1..unit_end).next();
        next.map_or(unit_end, |(first, _)| *first)
    }

    fn new_block(&mut self, range: Range<u64>, limit: u64) -> (u64, u32, u32) {
        let len = count(range.start..range.end.min(limit));
        let buffer = Arc::new(Buffer::unspecified(bytes(len)));
        self.insert(range.start, buffer, len, 0);
        (range.start, 0, len)
    }

    /// Zeros the bytes after `offset` in its sector, if that is valid.
    pub(in crate::data) fn zero_tail(&mut self, offset: u64) {
        let sector = offset / SECTOR;
        let skip = to_usize(offset % SECTOR);
        if skip > 0 && self.missing(sector..sector + 1).is_empty() {
            self.copy_in(offset, &self.zeros.clone()[..SECTOR_LEN - skip], 0);
        }
    }

    // Writing back.

    /// Takes dirty sectors of a range that are not already being written, at most `max` bytes, and
    /// marks them as being written. Runs are maximal, up to the length of an extent.
    pub(in crate::data) fn take_dirty(
        &mut self,
        range: Range<u64>,
        max: u64,
    ) -> (DirtyRuns, Delta) {
        let mut taken = DirtyRuns::new();
        let mut left = (max / SECTOR).max(1);
        let firsts: SmallVec<[u64; 4]> =
            self.unfinished_blocks(&range).map(|(first, _)| first).collect();
        let before = self.dirty;
        for first in firsts {
            let block = &self.by_first[&first];
            for run in runs(clipped(block.dirty & !block.writing, first, &range)) {
                let run = run.start..run.end.min(run.start.saturating_add(clamp(left)));
                if run.is_empty() {
                    return (taken, self.dirty.since(before));
                }
                left -= u64::from(run.end - run.start);
                self.take_run(first, run, &mut taken);
            }
        }
        (taken, self.dirty.since(before))
    }

    fn take_run(&mut self, first: u64, run: Range<u32>, taken: &mut DirtyRuns) {
        let bits = mask(run.clone());
        let part = self.by_first[&first].slice(run.clone());
        let sectors = first + u64::from(run.start)..first + u64::from(run.end);
        self.change_bits(sectors.clone(), |block| {
            (block.dirty, block.writing) = (block.dirty & !bits, block.writing | bits);
        });
        let start = to_place(sectors.start);
        let end = to_place(sectors.end);
        match taken.last_mut() {
            Some(last) if last.end == start && end - last.start <= EXTENT_MAX => {
                last.parts.push(part);
                last.end = end;
            }
            _ => taken.push(DirtyRun { start, end, parts: smallvec![part] }),
        }
    }

    /// Ends the writing of a range that is on disk now.
    pub(in crate::data) fn written(&mut self, range: Range<u64>) {
        self.change_unfinished(range, |block, bits| block.writing &= !bits);
    }

    /// Ends the writing of a range that failed: its sectors become invalid, unless they were
    /// written to again.
    pub(in crate::data) fn failed(&mut self, range: Range<u64>) {
        self.change_unfinished(range, |block, bits| {
            block.valid &= !(block.writing & bits & !block.dirty);
            block.writing &= !bits;
        });
    }

    // Dropping.

    /// Drops the sectors of a range, dirty or not. None of them is being written.
    pub(in crate::data) fn discard(&mut self, range: Range<u64>) -> Delta {
        let before = self.tally(&around(&range));
        let touched = self.by_first.range(self.first_touching(range.start)..range.end);
        for first in touched.map(|(first, _)| *first).collect::<Vec<_>>() {
            let bits = clipped(u32::MAX, first, &range);
            self.change(first, |block| {
                assert!(block.writing & bits == 0, "nobody drops what is being written");
                (block.valid, block.dirty) = (block.valid & !bits, block.dirty & !bits);
            });
        }
        self.account(&range, before)
    }

    /// Drops the sectors that are neither dirty nor being written.
    pub(in crate::data) fn drop_clean(&mut self) {
        for first in self.by_first.keys().copied().collect::<Vec<_>>() {
            self.change(first, |block| block.valid = block.unfinished());
        }
    }

    /// Drops the block with this ticket, if it is not in use.
    pub(in crate::data) fn evict(&mut self, first: u64, ticket: u64) -> Evicted {
        let zeros = Arc::clone(&self.zeros);
        let here = self.by_first.get_mut(&first).filter(|block| block.ticket == ticket);
        let Some(block) = here else { return Evicted::Unlisted };
        if block.unfinished() != 0 {
            block.listed = false;
            return Evicted::Unlisted;
        }
        let in_use = block.in_use() && !block.shares(&zeros);
        if block.take_asked() || in_use {
            return Evicted::Kept;
        }
        self.change(first, |block| block.valid = 0);
        Evicted::Unlisted
    }

    // Bookkeeping.

    fn insert(&mut self, first: u64, buffer: Arc<Buffer>, len: u32, valid: u32) {
        let mut block = CacheBlock::new(buffer, len, self.next_ticket);
        block.valid = valid;
        self.next_ticket += 1;
        self.usage = self.usage.with(Usage::of(&block, &self.zeros));
        enlist(&mut self.newcomers, first, &mut block);
        let before = self.by_first.insert(first, block);
        assert!(before.is_none(), "blocks do not overlap");
    }

    /// Changes a block, and updates the counts of all blocks except those of the runs.
    fn change(&mut self, first: u64, change: impl FnOnce(&mut CacheBlock)) {
        let Self { by_first, unfinished, zeros, usage, newcomers, .. } = self;
        let block = by_first.get_mut(&first).expect("asked for by its place");
        let before = Usage::of(block, zeros);
        let was_unfinished = block.unfinished() != 0;
        change(block);
        *usage = usage.without(before);
        let is_unfinished = block.unfinished() != 0;
        if is_unfinished && !was_unfinished {
            unfinished.insert(first);
        } else if was_unfinished && !is_unfinished {
            unfinished.remove(&first);
            enlist(newcomers, first, block);
        }
        match block.valid {
            0 => drop(by_first.remove(&first)),
            _ => *usage = usage.with(Usage::of(block, zeros)),
        }
    }

    /// Changes the state of sectors of a range that are being written.
    fn change_unfinished(&mut self, range: Range<u64>, change: impl Fn(&mut CacheBlock, u32)) {
        let firsts: SmallVec<[u64; 4]> =
            self.unfinished_blocks(&range).map(|(first, _)| first).collect();
        for first in firsts {
            let bits = clipped(u32::MAX, first, &range);
            self.change(first, |block| change(block, bits));
        }
    }

    /// Changes the state of sectors that are in one block.
    fn change_bits(&mut self, sectors: Range<u64>, change: impl FnOnce(&mut CacheBlock)) {
        let before = self.tally(&around(&sectors));
        self.change(self.first_touching(sectors.start), change);
        self.account(&sectors, before);
    }

    /// Updates the counts after the dirty sectors of a range changed; returns the change.
    fn account(&mut self, range: &Range<u64>, before: Delta) -> Delta {
        let change = self.tally(&around(range)).since(before);
        self.dirty.sectors += change.sectors;
        self.dirty.runs += change.runs;
        change
    }
}

impl Usage {
    fn of(block: &CacheBlock, zeros: &Arc<Buffer>) -> Self {
        let buffer = if block.shares(zeros) { 0 } else { bytes(block.len) };
        let bytes = (BLOCK_BYTES + buffer) as u64;
        let unfinished = block.unfinished().count_ones();
        Self {
            bytes,
            blocks: 1,
            dirty: block.dirty.count_ones().into(),
            unfinished: unfinished.into(),
            pinned: if unfinished > 0 { bytes } else { 0 },
        }
    }

    fn with(self, more: Self) -> Self {
        Self {
            bytes: self.bytes + more.bytes,
            blocks: self.blocks + more.blocks,
            dirty: self.dirty + more.dirty,
            unfinished: self.unfinished + more.unfinished,
            pinned: self.pinned + more.pinned,
        }
    }

    fn without(self, less: Self) -> Self {
        Self {
            bytes: self.bytes - less.bytes,
            blocks: self.blocks - less.blocks,
            dirty: self.dirty - less.dirty,
            unfinished: self.unfinished - less.unfinished,
            pinned: self.pinned - less.pinned,
        }
    }
}

/// Queues a block for the eviction list, unless it is in it.
fn enlist(newcomers: &mut Vec<(u64, u64)>, first: u64, block: &mut CacheBlock) {
    if !std::mem::replace(&mut block.listed, true) {
        newcomers.push((first, block.ticket));
    }
}

/// Returns the bits of a block that lie in a range.
fn clipped(bits: u32, first: u64, range: &Range<u64>) -> u32 {
    let start = range.start.saturating_sub(first).min(UNIT);
    let end = range.end.saturating_sub(first).min(UNIT);
    bits & mask(count(0..start)..count(0..end))
}

/// Returns a range widened by a sector on each side: there, a change of its runs is the same as in
/// the whole file.
fn around(range: &Range<u64>) -> Range<u64> {
    range.start.saturating_sub(1)..range.end.saturating_add(1)
}

/// Returns the sectors that a range of bytes touches.
fn sectors_of(offset: u64, len: usize) -> Range<u64> {
    offset / SECTOR..(offset + len as u64).div_ceil(SECTOR)
}

fn count(sectors: Range<u64>) -> u32 {
    u32::try_from(sectors.end - sectors.start).expect("within a unit")
}

fn clamp(sectors: u64) -> u32 {
    u32::try_from(sectors).unwrap_or(u32::MAX)
}

fn to_place(sector: u64) -> u64 {
    sector * SECTOR
}

fn to_bytes(sectors: u64) -> usize {
    to_usize(sectors) * SECTOR_LEN
}

fn to_i64(n: u64) -> i64 {
    i64::try_from(n).expect("sectors of a file are fewer")
}

#[cfg(test)]
mod tests;
