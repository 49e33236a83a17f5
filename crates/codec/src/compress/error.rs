//! The errors of compression and decompression.

use super::lzo::BlockError;

/// The reason why a stream could not be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// The content of the stream is longer than the destination.
    #[error("the stream holds more than the {limit} bytes expected")]
    TooLong {
        /// Length of the destination in bytes.
        limit: usize,
    },
    /// The zlib stream is damaged: its header, a code, its end or its Adler-32.
    #[error("damaged zlib stream")]
    Zlib,
    /// The zstd frame is damaged; the message is from zstd.
    #[error("damaged zstd frame: {0}")]
    Zstd(&'static str),
    /// The LZO stream is damaged.
    #[error("damaged lzo stream: {0}")]
    Lzo(#[from] LzoError),
}

/// The reason why content could not be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressError {
    /// The content is longer than [`MAX_CONTENT`](super::MAX_CONTENT).
    #[error("{length} bytes are more than one compressed extent holds")]
    TooLong {
        /// Length of the content in bytes.
        length: usize,
    },
    /// zstd returned an error; the message is from zstd.
    #[error("zstd: {0}")]
    Zstd(&'static str),
}

/// The reason why a text names no compression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// The algorithm is unknown, or the level is not a number.
    #[error("unrecognized compression {0}")]
    Unknown(String),
    /// The algorithm does not have the level.
    #[error("compression level {level} is out of range for {algorithm} ({least} to {most})")]
    Level {
        /// The name of the algorithm.
        algorithm: &'static str,
        /// The level.
        level: i32,
        /// The least level.
        least: i32,
        /// The highest level.
        most: i32,
    },
}

/// An error in an LZO stream. Offsets count from the stream's start.
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
        /// The start of the header.
        offset: usize,
        /// The stream's total length.
        total: usize,
    },
    /// The segment is longer than any compressed sector.
    #[error("segment at {offset} is {length} bytes long")]
    SegmentTooLong {
        /// The start of the segment's data.
        offset: usize,
        /// The length its header claims.
        length: usize,
    },
    /// The segment ends beyond the stream.
    #[error("segment at {offset} of {length} bytes crosses the end at {total}")]
    SegmentPastEnd {
        /// The start of the segment's data.
        offset: usize,
        /// The length its header claims.
        length: usize,
        /// The stream's total length.
        total: usize,
    },
    /// A segment that is not the last decodes to less than a sector.
    #[error("segment before {offset} holds {held} bytes and is not the last")]
    ShortSegment {
        /// The start of the next segment's header.
        offset: usize,
        /// The number of bytes that the short segment decoded to.
        held: usize,
    },
    /// The block in a segment is damaged.
    #[error("segment at {offset}: {source}")]
    Block {
        /// The start of the segment's data.
        offset: usize,
        /// The error in the block.
        source: BlockError,
    },
}
