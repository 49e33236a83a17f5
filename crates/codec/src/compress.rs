//! Compression of file extents: zlib, LZO and zstd in the formats that Linux writes and reads.
//!
//! 1. An extent's content is at most [`MAX_CONTENT`] bytes and is compressed as a whole.
//! 2. Zeros after a stream are ignored: extents are padded to sectors.
//! 3. Damaged input returns an error and never causes writes beyond the destination.
//! 4. After success the destination beyond the content is zero; after an error its content is
//!    unspecified.

pub mod lzo;
mod zlib;
mod zstd;

pub use lzo::{BlockError, LzoError};

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
    /// The content is longer than [`MAX_CONTENT`].
    #[error("{length} bytes are more than one compressed extent holds")]
    TooLong {
        /// Length of the content in bytes.
        length: usize,
    },
    /// zstd returned an error; the message is from zstd.
    #[error("zstd: {0}")]
    Zstd(&'static str),
}

impl Compression {
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
            Self::Zlib => zlib::compress(level, src, dst),
            Self::Lzo => lzo::compress(src, dst),
            Self::Zstd => zstd::compress(level, src, dst)?,
        }
        Ok(())
    }
}

/// The level to use in the range `least..=most`; `None` and 0 select the default.
fn level_within(level: Option<i32>, least: i32, most: i32) -> i32 {
    const DEFAULT: i32 = 3;
    level.filter(|&level| level != 0).unwrap_or(DEFAULT).clamp(least, most)
}

#[cfg(test)]
mod tests;
