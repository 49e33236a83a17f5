//! zstd extents, using the reference library.
//!
//! 1. Each thread keeps one context for each direction.
//! 2. A frame's window is at most 2^17 bytes: Linux allocates no more to read one.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use zstd_safe::{CCtx, CParameter, DCtx, ErrorCode};

use super::error::{CompressError, DecompressError};

/// The levels of btrfs.
pub(super) const LEVELS: RangeInclusive<i32> = -15..=15;

/// Base-two logarithm of the largest window that Linux can read.
const WINDOW_LOG: u32 = 17;

/// zstd's stable number for "the destination is too small"; a call returns it negated.
const DESTINATION_TOO_SMALL: usize = 70;

thread_local! {
    static DECOMPRESSOR: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    static COMPRESSOR: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    let limit = dst.len();
    let to_error = |code: ErrorCode| match code.wrapping_neg() {
        DESTINATION_TOO_SMALL => DecompressError::TooLong { limit },
        _ => DecompressError::Zstd(zstd_safe::get_error_name(code)),
    };
    // zstd reads the bytes after a frame as another frame, so the padding must be cut off.
    let length = zstd_safe::find_frame_compressed_size(src).map_err(to_error)?;
    DECOMPRESSOR
        .with_borrow_mut(|context| context.decompress(dst, &src[..length]))
        .map_err(to_error)
}

pub(super) fn compress(level: i32, src: &[u8], dst: &mut Vec<u8>) -> Result<(), CompressError> {
    dst.reserve(zstd_safe::compress_bound(src.len()));
    COMPRESSOR
        .with_borrow_mut(|context| {
            context.set_parameter(CParameter::CompressionLevel(level))?;
            context.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
            context.compress2(dst, src)
        })
        .map_err(|code| CompressError::Zstd(zstd_safe::get_error_name(code)))?;
    Ok(())
}
