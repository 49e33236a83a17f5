//! The frame btrfs puts around LZO blocks.
//!
//! 1. A stream starts with its total length, this header included, as a little-endian `u32`.
//! 2. Segments follow, each a little-endian `u32` length and as many bytes of one LZO1X block.
//! 3. Each segment but the last decodes to one sector exactly; the last to one at most.
//! 4. A segment's header does not cross a sector's boundary in the stream: fewer than four bytes
//!    before one are padding.

use super::super::DecompressError;
use super::{BlockError, compress_block, decompress_block, worst_length};

/// Bytes of content in a segment, and the distance of the boundaries no header crosses.
const SECTOR: usize = 4096;

/// Size of the stream's and of each segment's header.
const HEADER: usize = 4;

/// What is wrong with an LZO stream. Offsets count from the stream's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LzoError {
    /// The input is shorter than the stream's header.
    #[error("{length} bytes hold no total length")]
    NoHeader {
        /// Length of the input.
        length: usize,
    },
    /// The total length is less than its own header or more than the input.
    #[error("total length {total} in {available} bytes")]
    BadTotalLength {
        /// The length the stream claims.
        total: usize,
        /// Length of the input.
        available: usize,
    },
    /// The stream ends inside a segment's header.
    #[error("segment header at {offset} crosses the end at {total}")]
    HeaderPastEnd {
        /// Where the header starts.
        offset: usize,
        /// The stream's total length.
        total: usize,
    },
    /// The segment is longer than a sector of content ever becomes.
    #[error("segment at {offset} is {length} bytes long")]
    SegmentTooLong {
        /// Where the segment's data starts.
        offset: usize,
        /// The length its header claims.
        length: usize,
    },
    /// The segment ends beyond the stream.
    #[error("segment at {offset} of {length} bytes crosses the end at {total}")]
    SegmentPastEnd {
        /// Where the segment's data starts.
        offset: usize,
        /// The length its header claims.
        length: usize,
        /// The stream's total length.
        total: usize,
    },
    /// A segment that is not the last decodes to less than a sector.
    #[error("segment before {offset} holds {held} bytes and is not the last")]
    ShortSegment {
        /// Where the next segment's header starts.
        offset: usize,
        /// Bytes the short segment decoded to.
        held: usize,
    },
    /// The block in a segment is damaged.
    #[error("segment at {offset}: {source}")]
    Block {
        /// Where the segment's data starts.
        offset: usize,
        /// What is wrong with it.
        source: BlockError,
    },
}

/// Decompresses the stream at the head of `src` and returns how many bytes it held.
pub fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    let mut segments = Segments::new(src)?;
    let mut held = 0;
    while let Some((offset, data)) = segments.next_segment()? {
        if held % SECTOR != 0 {
            return Err(LzoError::ShortSegment { offset, held: held % SECTOR }.into());
        }
        held += decode_segment(offset, data, dst, held)?;
    }
    Ok(held)
}

/// Decodes one segment to `dst[held..]` and returns how many bytes it held.
fn decode_segment(
    offset: usize,
    data: &[u8],
    dst: &mut [u8],
    held: usize,
) -> Result<usize, DecompressError> {
    let limit = dst.len();
    let room = SECTOR.min(limit - held);
    decompress_block(data, &mut dst[held..][..room]).map_err(|source| match source {
        BlockError::OutputOverrun if room < SECTOR => DecompressError::TooLong { limit },
        _ => LzoError::Block { offset, source }.into(),
    })
}

/// The segments of a stream, in order.
struct Segments<'a> {
    /// The stream: as many bytes as its total length says.
    stream: &'a [u8],
    /// Where the next header, or the padding before it, starts.
    offset: usize,
}

impl<'a> Segments<'a> {
    fn new(src: &'a [u8]) -> Result<Self, LzoError> {
        let total = length_at(src, 0).ok_or(LzoError::NoHeader { length: src.len() })?;
        match src.get(..total) {
            Some(stream) if total >= HEADER => Ok(Self { stream, offset: HEADER }),
            _ => Err(LzoError::BadTotalLength { total, available: src.len() }),
        }
    }

    /// The next segment's offset and data; `None` at the end of the stream.
    fn next_segment(&mut self) -> Result<Option<(usize, &'a [u8])>, LzoError> {
        let header = past_padding(self.offset);
        let total = self.stream.len();
        if header >= total {
            return Ok(None);
        }
        let length = length_at(self.stream, header)
            .ok_or(LzoError::HeaderPastEnd { offset: header, total })?;
        let offset = header + HEADER;
        if length > worst_length(SECTOR) {
            return Err(LzoError::SegmentTooLong { offset, length });
        }
        let data = self.stream[offset..].get(..length).ok_or(LzoError::SegmentPastEnd {
            offset,
            length,
            total,
        })?;
        self.offset = offset + length;
        Ok(Some((offset, data)))
    }
}

/// Puts the stream of `src` into `dst`, which is empty.
pub fn compress(src: &[u8], dst: &mut Vec<u8>) {
    let segment_bound = HEADER - 1 + HEADER + worst_length(SECTOR);
    dst.resize(HEADER + src.len().div_ceil(SECTOR) * segment_bound, 0);
    let mut end = HEADER;
    for sector in src.chunks(SECTOR) {
        let header = past_padding(end);
        let data = header + HEADER;
        dst[end..header].fill(0);
        let length = compress_block(sector, &mut dst[data..]);
        put_length(dst, header, length);
        end = data + length;
    }
    put_length(dst, 0, end);
    dst.truncate(end);
}

/// The first place at or after `offset` where a segment's header fits.
fn past_padding(offset: usize) -> usize {
    let left = SECTOR - offset % SECTOR;
    if left < HEADER { offset + left } else { offset }
}

fn length_at(stream: &[u8], offset: usize) -> Option<usize> {
    let length = u32::from_le_bytes(*stream.get(offset..)?.first_chunk()?);
    usize::try_from(length).ok()
}

fn put_length(stream: &mut [u8], offset: usize, length: usize) {
    let length = u32::try_from(length).expect("a compressed extent is far shorter than 4 GiB");
    stream[offset..][..HEADER].copy_from_slice(&length.to_le_bytes());
}
