//! Decoding one LZO1X block.
//!
//! 1. A block is a sequence of instructions; each copies bytes from the output already made, from
//!    the input (literals), or both, in this order.
//! 2. What an instruction below 16 means depends on the literals just before it: none, one to
//!    three, or four and more.
//! 3. The output never grows beyond the destination. Within it, copies may write some bytes more
//!    than asked: they are overwritten later or lie beyond the length returned.

use super::{FAR, NEAR};

/// Bytes that a copy moves at once where there is room.
const CHUNK: usize = 16;

/// The length that the end marker has in place of a copy's.
const END_LENGTH: usize = 3;

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The input ends before the block does.
    #[error("input ends inside the block")]
    Truncated,
    /// The block holds more than its destination takes.
    #[error("output does not fit")]
    OutputOverrun,
    /// A copy starts before the output does.
    #[error("copy from {distance} bytes back with {produced} produced")]
    LookbehindOutOfRange {
        /// How far back the copy starts.
        distance: usize,
        /// Bytes there are.
        produced: usize,
    },
    /// The end marker has a length that is not three.
    #[error("end marker of length {length}")]
    BadEnd {
        /// The length it has.
        length: usize,
    },
    /// Bytes follow the end marker.
    #[error("{count} bytes after the end marker")]
    TrailingBytes {
        /// How many follow.
        count: usize,
    },
}

/// Decodes the block `src` to the head of `dst` and returns how many bytes it held. Bytes of `dst`
/// beyond those are left in any state.
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

/// A copy from the output, and how many literals follow it.
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

    /// The first byte may announce literals in a way of its own.
    fn first_literals(&mut self) -> Result<Literals, BlockError> {
        match self.src.first() {
            Some(&code @ 18..) => {
                self.read = 1;
                self.literals(usize::from(code - 17))
            }
            _ => Ok(Literals::None),
        }
    }

    /// 3 to 8 bytes from within 2 KiB: `LLLDDDSS DDDDDDDD`.
    #[inline]
    fn near_copy(&mut self, code: u8) -> Result<Copy, BlockError> {
        let high = usize::from(self.byte()?);
        let code = usize::from(code);
        let distance = 1 + (high << 3) + (code >> 2 & 7);
        Ok(Copy { length: 1 + (code >> 5), distance, literals: code & 3 })
    }

    /// From within 16 KiB: `001LLLLL` and the distance.
    #[inline]
    fn middle_copy(&mut self, code: u8) -> Result<Copy, BlockError> {
        let length = 2 + self.length(code, 31)?;
        let (back, literals) = self.pair()?;
        Ok(Copy { length, distance: 1 + back, literals })
    }

    /// From 16 to 48 KiB: `0001DLLL` and the rest of the distance. The distance of [`FAR`] itself
    /// marks the block's end.
    fn far_copy(&mut self, code: u8) -> Result<Copy, BlockError> {
        let length = 2 + self.length(code, 7)?;
        let (back, literals) = self.pair()?;
        let high = usize::from(code & 8) << 11;
        Ok(Copy { length, distance: FAR + high + back, literals })
    }

    /// Two bytes from within 1 KiB after few literals, three from the next after many:
    /// `0000DDSS DDDDDDDD`.
    fn tiny_copy(&mut self, code: u8, before: Literals) -> Result<Copy, BlockError> {
        let high = usize::from(self.byte()?);
        let code = usize::from(code);
        let (length, nearest) = if before == Literals::Many { (3, NEAR + 1) } else { (2, 1) };
        Ok(Copy { length, distance: nearest + (high << 2) + (code >> 2), literals: code & 3 })
    }

    /// The length in the bits of `code` under `mask`. Zero there means that it goes on: a zero byte
    /// for each 255 and the first other byte, all on top of `mask`.
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

    /// A distance of 14 bits over two bits of following literals.
    #[inline]
    fn pair(&mut self) -> Result<(usize, usize), BlockError> {
        let pair = self.src[self.read..].first_chunk().ok_or(BlockError::Truncated)?;
        let pair = usize::from(u16::from_le_bytes(*pair));
        self.read += 2;
        Ok((pair >> 2, pair & 3))
    }

    #[inline]
    fn literals(&mut self, length: usize) -> Result<Literals, BlockError> {
        let (src, dst) = (&self.src[self.read..], &mut self.dst[self.written..]);
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

/// Copies exactly `length` literals: for long runs, and near the end of either buffer.
#[inline(never)]
fn copy_literals(src: &[u8], dst: &mut [u8], length: usize) -> Result<(), BlockError> {
    let from = src.get(..length).ok_or(BlockError::Truncated)?;
    dst.get_mut(..length).ok_or(BlockError::OutputOverrun)?.copy_from_slice(from);
    Ok(())
}

/// Copies exactly `length` bytes, also where they overlap what is copied: the run repeats then.
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
