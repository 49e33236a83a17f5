//! Decoding one LZO1X block.
//!
//! 1. A block is a sequence of instructions; each copies bytes from the previous output, from
//!    the input (literals), or both, in this order.
//! 2. The meaning of an instruction below 16 depends on the number of literals just before it:
//!    none, one to three, or four and more.
//! 3. The output never grows beyond the destination. Within it, copies may write more bytes than
//!    the instruction specifies: these are overwritten later or lie beyond the returned length.

use super::{FAR, NEAR};

/// Number of bytes that a copy moves at once if there is space.
const CHUNK: usize = 16;

/// The length encoded in the end marker.
const END_LENGTH: usize = 3;

/// An error in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The input ends before the end marker.
    #[error("input ends inside the block")]
    Truncated,
    /// The content of the block is longer than the destination.
    #[error("output does not fit")]
    OutputOverrun,
    /// The source of a copy starts before the output.
    #[error("copy from {distance} bytes back with {produced} produced")]
    LookbehindOutOfRange {
        /// The distance of the copy.
        distance: usize,
        /// The number of bytes decoded before.
        produced: usize,
    },
    /// The end marker has a length other than three.
    #[error("end marker of length {length}")]
    BadEnd {
        /// Its length.
        length: usize,
    },
    /// Bytes follow the end marker.
    #[error("{count} bytes after the end marker")]
    TrailingBytes {
        /// The number of bytes.
        count: usize,
    },
}

/// Decodes the block `src` to the start of `dst` and returns the length of its content. The bytes
/// of `dst` after that are unspecified.
pub fn decompress_block(src: &[u8], dst: &mut [u8]) -> Result<usize, BlockError> {
    let mut decoder = Decoder { src, dst, read: 0, written: 0 };
    decoder.run()?;
    match src.len() - decoder.read {
        0 => Ok(decoder.written),
        count => Err(BlockError::TrailingBytes { count }),
    }
}

/// The literals between the last copy and the next instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Literals {
    None,
    Few,
    Many,
}

/// A copy from the output, and the number of literals that follow it.
struct Copy {
    length: usize,
    distance: usize,
    literals: usize,
}

struct Decoder<'a> {
    src: &'a [u8],
    dst: &'a mut [u8],
    read: usize,
    written: usize,
}

impl Decoder<'_> {
    fn run(&mut self) -> Result<(), BlockError> {
        let mut before = self.first_literals()?;
        loop {
            let code = self.byte()?;
            let copy = match code {
                64.. => self.near_copy(code)?,
                32.. => self.middle_copy(code)?,
                16.. => match self.far_copy(code)? {
                    end if end.distance == FAR => return check_end(&end),
                    copy => copy,
                },
                _ if before == Literals::None => {
                    let length = 3 + self.length(code, 15)?;
                    before = self.literals(length)?;
                    continue;
                }
                _ => self.tiny_copy(code, before)?,
            };
            self.copy(&copy)?;
            before = self.literals(copy.literals)?;
        }
    }

    /// Reads the literals encoded in the first byte, which has codes of its own.
    fn first_literals(&mut self) -> Result<Literals, BlockError> {
        match self.src.first() {
            Some(&code @ 18..) => {
                self.read = 1;
                self.literals(usize::from(code - 17))
            }
            _ => Ok(Literals::None),
        }
    }

    /// Reads a copy of 3 to 8 bytes from within 2 KiB: `LLLDDDSS DDDDDDDD`.
    #[inline]
    fn near_copy(&mut self, code: u8) -> Result<Copy, BlockError> {
        let high = usize::from(self.byte()?);
        let code = usize::from(code);
        let distance = 1 + (high << 3) + (code >> 2 & 7);
        Ok(Copy { length: 1 + (code >> 5), distance, literals: code & 3 })
    }

    /// Reads a copy from within 16 KiB: `001LLLLL` and the distance.
    #[inline]
    fn middle_copy(&mut self, code: u8) -> Result<Copy, BlockError> {
        let length = 2 + self.length(code, 31)?;
        let (back, literals) = self.pair()?;
        Ok(Copy { length, distance: 1 + back, literals })
    }

    /// Reads a copy from 16 to 48 KiB: `0001DLLL` and the rest of the distance. A distance of
    /// exactly [`FAR`] marks the end of the block.
    fn far_copy(&mut self, code: u8) -> Result<Copy, BlockError> {
        let length = 2 + self.length(code, 7)?;
        let (back, literals) = self.pair()?;
        let high = usize::from(code & 8) << 11;
        Ok(Copy { length, distance: FAR + high + back, literals })
    }

    /// Reads a copy `0000DDSS DDDDDDDD`: after one to three literals, of two bytes from within
    /// 1 KiB; after four and more, of three bytes from 2 to 3 KiB.
    fn tiny_copy(&mut self, code: u8, before: Literals) -> Result<Copy, BlockError> {
        let high = usize::from(self.byte()?);
        let code = usize::from(code);
        let (length, nearest) = if before == Literals::Many { (3, NEAR + 1) } else { (2, 1) };
        Ok(Copy { length, distance: nearest + (high << 2) + (code >> 2), literals: code & 3 })
    }

    /// The length in the bits of `code` under `mask`. If they are zero, the length is `mask` plus
    /// 255 for each zero byte that follows plus the first other byte.
    #[inline]
    fn length(&mut self, code: u8, mask: u8) -> Result<usize, BlockError> {
        match code & mask {
            0 => self.long_length(mask),
            length => Ok(usize::from(length)),
        }
    }

    fn long_length(&mut self, mask: u8) -> Result<usize, BlockError> {
        let rest = &self.src[self.read..];
        let zeros = rest.iter().position(|&byte| byte != 0).ok_or(BlockError::Truncated)?;
        self.read += zeros + 1;
        Ok(usize::from(mask) + zeros * 255 + usize::from(rest[zeros]))
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, BlockError> {
        let byte = *self.src.get(self.read).ok_or(BlockError::Truncated)?;
        self.read += 1;
        Ok(byte)
    }

    /// Reads a distance of 14 bits above two bits with the number of following literals.
    #[inline]
    fn pair(&mut self) -> Result<(usize, usize), BlockError> {
        let pair = self.src[self.read..].first_chunk().ok_or(BlockError::Truncated)?;
        let pair = usize::from(u16::from_le_bytes(*pair));
        self.read += 2;
        Ok((pair >> 2, pair & 3))
    }

    #[inline]
    fn literals(&mut self, length: usize) -> Result<Literals, BlockError> {
        let src = &self.src[self.read..];
        let dst = &mut self.dst[self.written..];
        match (src.first_chunk::<CHUNK>(), dst.first_chunk_mut::<CHUNK>()) {
            (Some(from), Some(to)) if length <= CHUNK => *to = *from,
            _ => copy_literals(src, dst, length)?,
        }
        self.read += length;
        self.written += length;
        Ok(match length {
            0 => Literals::None,
            1..=3 => Literals::Few,
            _ => Literals::Many,
        })
    }

    #[inline]
    fn copy(&mut self, copy: &Copy) -> Result<(), BlockError> {
        let &Copy { length, distance, .. } = copy;
        let to = self.written;
        let from = to
            .checked_sub(distance)
            .ok_or(BlockError::LookbehindOutOfRange { distance, produced: to })?;
        let chunked = length.next_multiple_of(CHUNK);
        if distance >= CHUNK && chunked <= self.dst.len() - to {
            for done in (0..length).step_by(CHUNK) {
                self.dst.copy_within(from + done..from + done + CHUNK, to + done);
            }
        } else {
            copy_exactly(self.dst, from, to, length)?;
        }
        self.written += length;
        Ok(())
    }
}

/// Copies exactly `length` literals; used for long runs and near the end of either buffer.
#[inline(never)]
fn copy_literals(src: &[u8], dst: &mut [u8], length: usize) -> Result<(), BlockError> {
    let from = src.get(..length).ok_or(BlockError::Truncated)?;
    dst.get_mut(..length).ok_or(BlockError::OutputOverrun)?.copy_from_slice(from);
    Ok(())
}

/// Copies exactly `length` bytes. If source and destination overlap, the pattern repeats.
#[inline(never)]
fn copy_exactly(dst: &mut [u8], from: usize, to: usize, length: usize) -> Result<(), BlockError> {
    if length > dst.len() - to {
        return Err(BlockError::OutputOverrun);
    }
    let mut done = 0;
    while done < length {
        let step = (to + done - from).min(length - done);
        dst.copy_within(from..from + step, to + done);
        done += step;
    }
    Ok(())
}

fn check_end(end: &Copy) -> Result<(), BlockError> {
    match end.length {
        END_LENGTH => Ok(()),
        length => Err(BlockError::BadEnd { length }),
    }
}
