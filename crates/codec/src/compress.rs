//! Compression of file extents: zlib, LZO and zstd as Linux writes and reads them.
//!
//! 1. An extent's content is at most [`MAX_CONTENT`] bytes and is compressed as a whole.
//! 2. Zeros after a stream are no part of it: extents are padded to sectors.
//! 3. Damaged input gives an error; it never writes beyond the destination.
//! 4. After a success the destination beyond the content is zero; after an error its bytes mean
//!    nothing.

pub mod lzo;
mod zlib;
mod zstd;

pub use lzo::{BlockError, LzoError};

/// The most bytes of a file that one compressed extent holds.
pub const MAX_CONTENT: usize = 128 * 1024;

/// A way to compress an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// A zlib stream (RFC 1950).
    Zlib,
    /// LZO1X, cut in segments of one sector each.
    Lzo,
    /// A zstd frame (RFC 8878) whose window is at most [`MAX_CONTENT`].
    Zstd,
}

/// Why a stream could not be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// The stream holds more than the destination takes.
    #[error("the stream holds more than the {limit} bytes expected")]
    TooLong {
        /// Length of the destination in bytes.
        limit: usize,
    },
    /// The zlib stream is damaged: its header, a code, its end or its Adler-32.
    #[error("damaged zlib stream")]
    Zlib,
    /// The zstd frame is damaged; the reason is zstd's.
    #[error("damaged zstd frame: {0}")]
    Zstd(&'static str),
    /// The LZO stream is damaged.
    #[error("damaged lzo stream: {0}")]
    Lzo(#[from] LzoError),
}

/// Why content could not be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressError {
    /// The content is longer than [`MAX_CONTENT`].
    #[error("{length} bytes are more than one compressed extent holds")]
    TooLong {
        /// Length of the content in bytes.
        length: usize,
    },
    /// zstd refused; the reason is its own.
    #[error("zstd: {0}")]
    Zstd(&'static str),
}

impl Compression {
    /// Decompresses the stream at the head of `src` into `dst` and returns how many bytes it held.
    ///
    /// The rest of `dst` is set to zero. A stream that holds more than `dst` takes is
    /// [`DecompressError::TooLong`].
    pub fn decompress(self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
        let held = match self {
            Self::Zlib => zlib::decompress(src, dst),
            Self::Lzo => lzo::decompress(src, dst),
            Self::Zstd => zstd::decompress(src, dst),
        }?;
        dst[held..].fill(0);
        Ok(held)
    }

    /// Puts the compressed form of `src` into `dst`, whose former content is dropped.
    ///
    /// `level` is brought into the range btrfs has: 1 to 9 for zlib, -15 to 15 for zstd, none for
    /// LZO; `None` and 0 are the default, 3. The result may be longer than `src`: whether it is
    /// worth storing is the caller's decision.
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
            Self::Zlib => zlib::compress(level, src, dst),
            Self::Lzo => lzo::compress(src, dst),
            Self::Zstd => zstd::compress(level, src, dst)?,
        }
        Ok(())
    }
}

/// The level to use in the range `least..=most`; zero stands for the default.
fn level_within(level: Option<i32>, least: i32, most: i32) -> i32 {
    const DEFAULT: i32 = 3;
    level.filter(|&level| level != 0).unwrap_or(DEFAULT).clamp(least, most)
}

#[cfg(test)]
mod tests;
