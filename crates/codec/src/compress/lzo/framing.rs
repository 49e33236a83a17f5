//! The framing of LZO blocks in btrfs.
//!
//! 1. A stream starts with its total length, this header included, as a little-endian `u32`.
//! 2. Segments follow, each a little-endian `u32` length and one LZO1X block of that length.
//! 3. Each segment but the last decodes to exactly one sector; the last to at most one.
//! 4. A segment's header does not cross a sector boundary in the stream: fewer than four bytes
//!    before a boundary are padding.

use super::super::error::{DecompressError, LzoError};
use super::{BlockError, compress_block, decompress_block, worst_length};

/// Bytes of content in a segment, and the unit of the boundaries that no header crosses.
const SECTOR: usize = 4096;

/// Size of the stream's and of each segment's header.
const HEADER: usize = 4;

/// Decompresses the stream at the start of `src` and returns the length of its content.
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

/// Decodes one segment to `dst[held..]` and returns the length of its content.
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
    /// The stream, cut to its total length.
    stream: &'a [u8],
    /// The start of the next header, or of the padding before it.
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

    /// Returns the next segment's offset and data; `None` at the end of the stream.
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

/// Compresses `src` to a stream in `dst`, which must be empty.
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

/// The first offset at or after `offset` at which a segment's header may start.
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
