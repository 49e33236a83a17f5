//! Compressing one LZO1X block, greedily and in one pass.
//!
//! 1. A table maps the hash of four bytes to the position where they were last seen. If the four
//!    bytes there are equal, they are extended to a match. The search steps grow with the distance
//!    from the last match.
//! 2. Match distances are at most [`FAR`], so that two kinds of copies are enough.
//! 3. Literals are moved in whole chunks: the search ends [`CHUNK`] bytes before the end of the
//!    block, and [`worst_length`] includes space after the output.

use super::{END, FAR, NEAR};

/// Number of bytes that a literal copy moves at once.
const CHUNK: usize = 16;

/// Base-two logarithm of the number of table entries.
const TABLE_LOG: u32 = 12;

/// The shortest match worth an instruction.
const MIN_MATCH: usize = 4;

/// The maximum size of a block; the positions in the table are 16 bits wide.
const MAX_BLOCK: usize = 1 << 16;

/// The size of the output buffer that [`compress_block`] needs for `length` bytes.
pub const fn worst_length(length: usize) -> usize {
    length + length / 16 + 64 + 3
}

/// Compresses `src` to the start of `dst` and returns the length of the result.
///
/// # Panics
///
/// If `src` is longer than 64 KiB, or `dst` shorter than [`worst_length`].
pub fn compress_block(src: &[u8], dst: &mut [u8]) -> usize {
    assert!(src.len() <= MAX_BLOCK, "block of {} bytes", src.len());
    assert!(dst.len() >= worst_length(src.len()), "room of {} bytes", dst.len());
    let mut table = Table([0; 1 << TABLE_LOG]);
    let mut output = Output { dst, length: 0 };
    let mut done = 0;
    while let Some(found) = table.next_match(src, done) {
        output.literals(src, done, found.at - done);
        output.copy(found.length, found.distance);
        done = found.at + found.length;
    }
    output.any_literals(&src[done..]);
    output.bytes(END);
    output.length
}

/// `length` bytes at `at` that equal those `distance` bytes before.
struct Match {
    at: usize,
    length: usize,
    distance: usize,
}

/// The last position of four bytes with each hash; 0, which is also a valid position, if none.
struct Table([u16; 1 << TABLE_LOG]);

impl Table {
    /// Returns the first match found at or after `start`, trying two positions per step.
    #[inline]
    fn next_match(&mut self, src: &[u8], start: usize) -> Option<Match> {
        let mut at = start.max(1);
        while at + CHUNK <= src.len() {
            for at in [at, at + 1] {
                let word = word_at(src, at);
                let seen = self.replace(word, at);
                if word_at(src, seen) == word && at - seen <= FAR {
                    let length = MIN_MATCH + common(src, seen + MIN_MATCH, at + MIN_MATCH);
                    return Some(Match { at, length, distance: at - seen });
                }
            }
            at += 2 + (at - start) / 16;
        }
        None
    }

    /// Stores `at` for `word` and returns the previous position.
    #[inline]
    fn replace(&mut self, word: u32, at: usize) -> usize {
        let hash = word.wrapping_mul(0x9e37_79b1) >> (u32::BITS - TABLE_LOG);
        let [low, high, ..] = at.to_le_bytes();
        let slot = &mut self.0[usize::try_from(hash).expect("12 bits")];
        usize::from(std::mem::replace(slot, u16::from_le_bytes([low, high])))
    }
}

#[inline]
fn word_at(src: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*src[at..].first_chunk().expect("the search ends a chunk early"))
}

/// Returns the number of equal bytes from `a` and from `b` on; `b` is the higher position.
#[inline]
fn common(src: &[u8], a: usize, b: usize) -> usize {
    let mut length = 0;
    while let (Some(&x), Some(&y)) =
        (src[a + length..].first_chunk(), src[b + length..].first_chunk())
    {
        let differing = u64::from_le_bytes(x) ^ u64::from_le_bytes(y);
        if differing != 0 {
            return length + usize::try_from(differing.trailing_zeros() / 8).expect("at most 8");
        }
        length += 8;
    }
    let rest = src[a + length..].iter().zip(&src[b + length..]);
    length + rest.take_while(|(x, y)| x == y).count()
}

struct Output<'a> {
    dst: &'a mut [u8],
    length: usize,
}

impl Output<'_> {
    #[inline]
    fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        self.dst[self.length..][..N].copy_from_slice(&bytes);
        self.length += N;
    }

    /// Writes the literals `src[at..][..length]`, after which `src` has at least a chunk. Up to a
    /// chunk is written without a branch on the length, which is hard to predict.
    #[inline]
    fn literals(&mut self, src: &[u8], at: usize, length: usize) {
        if length > CHUNK || self.length == 0 {
            return self.any_literals(&src[at..][..length]);
        }
        let told_by_copy = length <= 3;
        self.dst[self.length - 2] |= if told_by_copy { low_byte(length) } else { 0 };
        self.dst[self.length] = low_byte(length.wrapping_sub(3));
        self.length += usize::from(!told_by_copy);
        self.dst[self.length..][..CHUNK].copy_from_slice(&src[at..][..CHUNK]);
        self.length += length;
    }

    /// Writes all `literals`. The count of up to three is encoded in the copy before them; at the
    /// start of the block, where there is none, the first byte has a code of its own.
    #[inline(never)]
    fn any_literals(&mut self, literals: &[u8]) {
        match literals.len() {
            0 => return,
            length @ ..=238 if self.length == 0 => self.bytes([low_byte(17 + length)]),
            length @ ..=3 => self.dst[self.length - 2] |= low_byte(length),
            length @ ..=18 => self.bytes([low_byte(length - 3)]),
            length => self.long(0, length - 18),
        }
        self.dst[self.length..][..literals.len()].copy_from_slice(literals);
        self.length += literals.len();
    }

    /// Writes a copy of `length` bytes from `distance` back. Two bits of its last but one byte are
    /// free for the number of literals that follow.
    #[inline]
    fn copy(&mut self, length: usize, distance: usize) {
        let back = distance - 1;
        if length > 33 {
            self.long(32, length - 33);
            return self.bytes([low_byte(back << 2), low_byte(back >> 6)]);
        }
        let near = (length - 1) << 5 | (back & 7) << 2 | (back >> 3) << 8;
        let middle = 32 | (length - 2) | back << 10;
        let is_near = distance <= NEAR && length <= 8;
        // Storing four bytes is faster than two or three; the next instruction overwrites the rest.
        let [a, b, c, d, ..] = if is_near { near } else { middle }.to_le_bytes();
        self.dst[self.length..][..4].copy_from_slice(&[a, b, c, d]);
        self.length += if is_near { 2 } else { 3 };
    }

    /// Writes an instruction whose length field is zero, followed by the rest of the length: a zero
    /// byte for each 255, then the remainder, which is not zero.
    #[cold]
    fn long(&mut self, code: u8, mut rest: usize) {
        self.bytes([code]);
        while rest > 255 {
            self.bytes([0]);
            rest -= 255;
        }
        self.bytes([low_byte(rest)]);
    }
}

#[inline]
fn low_byte(value: usize) -> u8 {
    value.to_le_bytes()[0]
}
