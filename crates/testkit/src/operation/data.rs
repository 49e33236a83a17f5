//! Random operations on file contents: at, before and after every boundary of the format and of the
//! file.

use userbtrfs_format::SECTOR;

use crate::model::Content;

use super::choices::{Choices, is_file};
use super::{AllocateKind, FILE_MAX, Object, Operation};

/// Boundaries: of inline data, a sector, the unit of caching and compression, an extent.
const EDGES: [u64; 7] = [0, 2048, SECTOR, 2 * SECTOR, 128 << 10, 1 << 20, 128 << 20];
/// Far offsets. Linux itself fails in the last possible sector.
const FAR: [u64; 5] = [1 << 31, 1 << 32, 1 << 40, 1 << 62, FILE_MAX - (64 << 20)];
/// Lengths at or near those of a byte, inline data, sectors and a compressed extent.
const LENGTHS: [u64; 7] = [1, 2047, 2048, 2049, SECTOR, 2 * SECTOR, 128 << 10];
/// Random lengths have at most one bit more than this.
const LENGTH_BITS: u64 = 16;
/// The maximum number of bytes of one write.
const LENGTH_MAX: u64 = 512 << 10;
/// The maximum number of bytes in all files together.
const FILLED_MAX: u64 = 12 << 20;

impl Choices {
    fn content(&self, object: &Object) -> Content {
        self.model.content(object).cloned().unwrap_or_default()
    }

    /// Returns the start or the end of a run, or the size.
    fn edge(&mut self, content: &Content) -> u64 {
        let edges: Vec<u64> = content.runs().flat_map(|(start, end)| [start, end]).collect();
        match self.random.pick(&edges) {
            Some(edge) if !self.random.clone().one_in(4) => *edge,
            _ => content.size(),
        }
    }

    fn near(&mut self, edge: u64) -> u64 {
        let by = self.random.below(SECTOR);
        let near = match self.random.below(8) {
            0 => edge.saturating_sub(1),
            1 => edge.saturating_add(1),
            2 => edge / SECTOR * SECTOR,
            3 => edge.checked_next_multiple_of(SECTOR).unwrap_or(edge),
            4 => edge.saturating_sub(by),
            5 => edge.saturating_add(by),
            _ => edge,
        };
        near.min(FILE_MAX)
    }

    fn offset(&mut self, content: &Content) -> u64 {
        let edge = match self.random.below(64) {
            0 => FAR[self.random.index(FAR.len())],
            1..16 => EDGES[self.random.index(EDGES.len())],
            16..40 => self.edge(content),
            _ => return self.random.below(2 * content.size().min(1 << 19) + SECTOR),
        };
        self.near(edge)
    }

    /// Returns a length for a range from `offset`; the range ends within the maximum file size.
    fn length(&mut self, content: &Content, offset: u64) -> u64 {
        let edge = self.edge(content);
        let length = match self.random.below(8) {
            0 if edge > offset => self.near(edge).saturating_sub(offset),
            0 | 1 => LENGTHS[self.random.index(LENGTHS.len())],
            2 => self.random.below(2 * SECTOR),
            _ => self.random.length(LENGTH_BITS),
        };
        length.min(LENGTH_MAX).min(FILE_MAX - offset)
    }

    /// Returns a seed; sometimes that of zeros.
    fn seed(&mut self) -> u32 {
        let seed = u32::try_from(self.random.below(1 << 32)).expect("32 bits");
        if self.random.one_in(16) { 0 } else { seed.max(1) }
    }

    /// Returns an offset to clone to: usually the start of a sector.
    fn place_in_file(&mut self) -> u64 {
        let at = self.random.below(1 << 18);
        match self.random.below(16) {
            0 => at,
            1 => FAR[self.random.index(FAR.len())],
            2..7 => 0,
            _ => at / SECTOR * SECTOR,
        }
    }

    /// Returns the offset and the length of a part of a file: usually of whole sectors, or up to
    /// its end.
    fn part_of(&mut self, file: &Object) -> (u64, u64) {
        let content = self.content(file);
        let any = self.offset(&content);
        let offset = match self.random.below(16) {
            0 => any,
            1..7 => 0,
            _ => any.min(content.size()) / SECTOR * SECTOR,
        };
        let any = self.length(&content, offset.min(FILE_MAX));
        let left = content.size().saturating_sub(offset).min(LENGTH_MAX);
        let length = match self.random.below(16) {
            0 => any,
            1..4 => 0,
            4..8 => left,
            8..12 => any.min(left) / SECTOR * SECTOR,
            _ => self.random.below(left + 1) / SECTOR * SECTOR,
        };
        (offset, length)
    }

    fn is_full(&self) -> bool {
        self.model.filled() > FILLED_MAX
    }
}

pub(super) fn truncate(g: &mut Choices) -> Operation {
    let object = g.object(is_file);
    let content = g.content(&object);
    let size = match g.random.below(4) {
        0 => 0,
        _ if g.is_full() => 0,
        _ => g.offset(&content),
    };
    Operation::Truncate { object, size }
}

pub(super) fn write(g: &mut Choices) -> Operation {
    if g.is_full() {
        return truncate(g);
    }
    let object = g.object(is_file);
    let content = g.content(&object);
    let offset = g.offset(&content);
    let length = g.length(&content, offset);
    let seed = g.seed();
    Operation::Write { object, offset, length, seed }
}

pub(super) fn append(g: &mut Choices) -> Operation {
    if g.is_full() {
        return truncate(g);
    }
    let object = g.object(is_file);
    let content = g.content(&object);
    let length = g.length(&content, content.size());
    let seed = g.seed();
    Operation::Append { object, length, seed }
}

pub(super) fn replace(g: &mut Choices) -> Operation {
    let object = g.object(is_file);
    let length = g.length(&Content::default(), 0);
    let seed = g.seed();
    Operation::Replace { object, length, seed }
}

pub(super) fn allocate(g: &mut Choices) -> Operation {
    const KINDS: [AllocateKind; 6] = [
        AllocateKind::Reserve,
        AllocateKind::ReserveKeepSize,
        AllocateKind::Punch,
        AllocateKind::Punch,
        AllocateKind::Zero,
        AllocateKind::ZeroKeepSize,
    ];
    let object = g.object(is_file);
    let content = g.content(&object);
    let kind = KINDS[g.random.index(KINDS.len())];
    let offset = g.offset(&content);
    let length = match g.random.below(16) {
        0 => 0,
        1 if kind == AllocateKind::Punch => FILE_MAX - offset,
        2 => FILE_MAX - offset + 1,
        _ => g.length(&content, offset),
    };
    Operation::Allocate { object, offset, length, kind }
}

pub(super) fn clone(g: &mut Choices) -> Operation {
    let source = g.object(is_file);
    let object = g.object(is_file);
    let at = g.place_in_file();
    let (offset, length) = g.part_of(&source);
    if g.is_full() {
        return truncate(g);
    }
    Operation::Clone { source, offset, length, object, at }
}

pub(super) fn dedupe(g: &mut Choices) -> Operation {
    let source = g.object(is_file);
    let object = g.object(is_file);
    let (offset, length) = g.part_of(&source);
    let at = if g.random.one_in(3) { g.place_in_file() } else { offset };
    Operation::Dedupe { source, offset, length, object, at }
}

/// Draws a defragmentation of all of a file, or of a part of it that usually begins within it.
pub(super) fn defragment(g: &mut Choices) -> Operation {
    const THRESHOLDS: [u32; 4] = [0, 1, 64 << 10, 32 << 20];
    let object = g.object(is_file);
    let (offset, length) = if g.random.one_in(2) { (0, 0) } else { g.part_of(&object) };
    let threshold = THRESHOLDS[g.random.index(THRESHOLDS.len())];
    let compresses = g.random.one_in(3) && !g.algorithms.is_empty();
    let compression = compresses.then(|| g.algorithms[g.random.index(g.algorithms.len())]);
    Operation::Defragment { object, offset, length, threshold, compression }
}

pub(super) fn read(g: &mut Choices) -> Operation {
    let object = g.object(is_file);
    let content = g.content(&object);
    let offset = g.offset(&content);
    let length = g.length(&content, offset).min(FILE_MAX - offset);
    Operation::Read { object, offset, length }
}

pub(super) fn sync(g: &mut Choices) -> Operation {
    Operation::Sync { object: g.object(is_file) }
}
