//! Compression of file extents: zlib, LZO and zstd in the formats that Linux writes and reads.
//!
//! 1. An extent's content is at most [`MAX_CONTENT`] bytes and is compressed as a whole.
//! 2. Zeros after a stream are ignored: extents are padded to sectors.
//! 3. Damaged input returns an error and never causes writes beyond the destination.
//! 4. After success the destination beyond the content is zero; after an error its content is
//!    unspecified.

mod error;
mod heuristic;
pub mod lzo;
mod method;
mod zlib;
mod zstd;

use std::ops::RangeInclusive;

pub use error::{CompressError, DecompressError, LzoError, MethodError};
pub use heuristic::looks_compressible;
pub use lzo::BlockError;
pub use method::CompressionMethod;

/// The maximum number of bytes of a file in one compressed extent.
pub const MAX_CONTENT: usize = 128 * 1024;

/// A compression algorithm of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// A zlib stream (RFC 1950).
    Zlib,
    /// LZO1X, in segments of one sector each.
    Lzo,
    /// A zstd frame (RFC 8878) whose window is at most [`MAX_CONTENT`].
    Zstd,
}

impl Compression {
    /// All algorithms.
    pub const ALL: [Self; 3] = [Self::Zlib, Self::Lzo, Self::Zstd];

    /// Returns the name, as options and properties have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the levels of btrfs; 0 selects the default. LZO has no levels.
    pub const fn levels(self) -> RangeInclusive<i32> {
        match self {
            Self::Zlib => zlib::LEVELS,
            Self::Lzo => 0..=0,
            Self::Zstd => zstd::LEVELS,
        }
    }

    /// Decompresses the stream at the start of `src` into `dst` and returns the content's length.
    ///
    /// The rest of `dst` is set to zero. Fails with [`DecompressError::TooLong`] if the content is
    /// longer than `dst`.
    pub fn decompress(self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
        let held = match self {
            Self::Zlib => zlib::decompress(src, dst),
            Self::Lzo => lzo::decompress(src, dst),
            Self::Zstd => zstd::decompress(src, dst),
        }?;
        dst[held..].fill(0);
        Ok(held)
    }

    /// Compresses `src` into `dst`, replacing its previous content.
    ///
    /// `level` is clamped to the range of btrfs: 1 to 9 for zlib, -15 to 15 for zstd; LZO has no
    /// levels. `None` and 0 select the default, 3. The result may be longer than `src`: the caller
    /// decides if it is worth storing.
    pub fn compress(
        self,
        level: Option<i32>,
        src: &[u8],
        dst: &mut Vec<u8>,
    ) -> Result<(), CompressError> {
        dst.clear();
        if src.len() > MAX_CONTENT {
            return Err(CompressError::TooLong { length: src.len() });
        }
        match self {
            Self::Zlib => zlib::compress(level_within(level, zlib::LEVELS), src, dst),
            Self::Lzo => lzo::compress(src, dst),
            Self::Zstd => zstd::compress(level_within(level, zstd::LEVELS), src, dst)?,
        }
        Ok(())
    }
}

/// The level to use in this range; `None` and 0 select the default.
fn level_within(level: Option<i32>, levels: RangeInclusive<i32>) -> i32 {
    const DEFAULT: i32 = 3;
    level.filter(|&level| level != 0).unwrap_or(DEFAULT).clamp(*levels.start(), *levels.end())
}

#[cfg(test)]
mod tests;
