//! Free space as bitmaps: a bit for each sector, 1 if it is free.

use std::ops::{ControlFlow, Range};

use userbtrfs_format::{ItemKind, Key};

use super::group::{RangeChange, info_key};
use crate::damage::Damage;
use crate::editor::{Changes, Items};
use crate::error::Result;
use crate::units::SECTOR;

/// The bytes that a bitmap covers; the last of a group may cover less.
pub(super) const COVERED: u64 = 256 * 8 * SECTOR;

/// The bytes of a full bitmap.
pub(super) const BITMAP_SIZE: usize = 256;

/// The free space of a part of a group.
pub(super) struct Bitmap {
    range: Range<u64>,
    bits: Vec<u8>,
}

impl Bitmap {
    /// Returns a bitmap without a free bit.
    fn new(range: Range<u64>) -> Self {
        let sectors = (range.end - range.start) / SECTOR;
        let bytes = usize::try_from(sectors.div_ceil(8)).expect("a bitmap is small");
        Self { range, bits: vec![0; bytes] }
    }

    fn key(&self) -> Key {
        let len = self.range.end - self.range.start;
        Key::new(self.range.start, ItemKind::FREE_SPACE_BITMAP, len)
    }

    /// Returns the index of the byte, and the mask of the bit, of a sector.
    fn bit_of(&self, at: u64) -> (usize, u8) {
        let sector = (at - self.range.start) / SECTOR;
        (usize::try_from(sector / 8).expect("within the bitmap"), 1 << (sector % 8))
    }

    fn is_free(&self, at: u64) -> bool {
        let (byte, bit) = self.bit_of(at);
        self.bits[byte] & bit != 0
    }

    /// Flips the bits of the part of `range` that it covers; returns false if one has the new value
    /// already.
    fn change_range(&mut self, range: &Range<u64>, change: RangeChange) -> bool {
        let was_free = change == RangeChange::Allocated;
        for at in sectors(&overlap(&self.range, range)) {
            if self.is_free(at) != was_free {
                return false;
            }
            let (byte, bit) = self.bit_of(at);
            self.bits[byte] ^= bit;
        }
        true
    }
}

/// Allocates or frees a range; returns by how many the number of free runs grows.
pub(super) fn change_range(
    items: &impl Items,
    group: &Range<u64>,
    range: &Range<u64>,
    change: RangeChange,
    changes: &mut Changes,
) -> Result<i32> {
    let before = range.start.checked_sub(SECTOR).filter(|at| *at >= group.start);
    let after = Some(range.end).filter(|at| *at < group.end);
    let reach = before.unwrap_or(range.start)..after.map_or(range.end, |at| at + SECTOR);
    let mut bitmaps = load(items, group, &reach)?;
    let is_free = |at: u64| {
        let covers = |bitmap: &&Bitmap| bitmap.range.contains(&at);
        bitmaps.iter().find(covers).expect("the bitmaps reach as far").is_free(at)
    };
    let free_neighbours = [before, after].into_iter().flatten().filter(|at| is_free(*at)).count();
    let free_neighbours = i32::try_from(free_neighbours).expect("at most two");
    for bitmap in bitmaps.iter_mut().filter(|bitmap| !overlap(&bitmap.range, range).is_empty()) {
        if !bitmap.change_range(range, change) {
            return Err(not_so(range, change).into());
        }
        changes.put(bitmap.key(), bitmap.bits.clone());
    }
    Ok(match change {
        RangeChange::Allocated => free_neighbours - 1,
        RangeChange::Freed => 1 - free_neighbours,
    })
}

fn not_so(range: &Range<u64>, change: RangeChange) -> Damage {
    let start = range.start;
    let len = range.end - range.start;
    match change {
        RangeChange::Allocated => Damage::NotFree { start, len },
        RangeChange::Freed => Damage::AlreadyFree { start, len },
    }
}

/// Returns the bitmaps that together cover `range` of a group.
pub(super) fn load(
    items: &impl Items,
    group: &Range<u64>,
    range: &Range<u64>,
) -> Result<Vec<Bitmap>> {
    let from = Key::new(range.start, ItemKind::FREE_SPACE_BITMAP, u64::MAX);
    let mut bitmaps: Vec<Bitmap> = Vec::new();
    let mut damaged = None;
    items.visit(&from, &mut |key, data| {
        if key.objectid >= range.end {
            return ControlFlow::Break(());
        }
        if key.objectid < group.start || key.kind == ItemKind::FREE_SPACE_INFO {
            return ControlFlow::Continue(());
        }
        let follows = match bitmaps.last() {
            None => key.objectid <= range.start,
            Some(last) => key.objectid == last.range.end,
        };
        let end = key.objectid.checked_add(key.offset).filter(|end| *end <= group.end);
        let fits = key.kind == ItemKind::FREE_SPACE_BITMAP && follows;
        let Some(end) = end.filter(|_| fits) else {
            damaged = Some(key);
            return ControlFlow::Break(());
        };
        bitmaps.push(Bitmap { range: key.objectid..end, bits: data.to_vec() });
        ControlFlow::Continue(())
    })?;
    let short = || bitmaps.last().is_none_or(|last| last.range.end < range.end);
    match damaged.or_else(|| short().then(|| info_key(group))) {
        Some(key) => Err(Damage::FreeSpaceItem(key).into()),
        None => Ok(bitmaps),
    }
}

/// Returns the free runs of consecutive bitmaps.
pub(super) fn runs(bitmaps: &[Bitmap]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for bitmap in bitmaps {
        for at in sectors(&bitmap.range).filter(|at| bitmap.is_free(*at)) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end = at + SECTOR,
                _ => runs.push(at..at + SECTOR),
            }
        }
    }
    runs
}

/// Adds the bitmaps of a group with these free ranges, which are in order.
pub(super) fn put_all(group: &Range<u64>, free: &[Range<u64>], changes: &mut Changes) {
    let mut free = free.iter().peekable();
    let mut start = group.start;
    while start < group.end {
        let end = group.end.min(start.saturating_add(COVERED));
        let mut bitmap = Bitmap::new(start..end);
        while let Some(range) = free.peek().filter(|range| range.start < end) {
            bitmap.change_range(range, RangeChange::Freed);
            if range.end > end {
                break;
            }
            free.next();
        }
        changes.put(bitmap.key(), bitmap.bits);
        start = end;
    }
}

/// Removes bitmaps.
pub(super) fn remove_all(bitmaps: &[Bitmap], changes: &mut Changes) {
    for bitmap in bitmaps {
        changes.remove(bitmap.key());
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}

fn sectors(range: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    range.clone().step_by(usize::try_from(SECTOR).expect("a sector is small"))
}
