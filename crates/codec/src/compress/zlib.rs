//! zlib extents, using libdeflate.
//!
//! 1. Each thread keeps one decompressor, and one compressor for the level it used last.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use super::error::DecompressError;

/// The levels of btrfs.
pub(super) const LEVELS: RangeInclusive<i32> = 1..=9;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    static COMPRESSOR: RefCell<Option<Leveled>> = const { RefCell::new(None) };
}

struct Leveled {
    level: i32,
    compressor: Compressor,
}

impl Leveled {
    fn new(level: i32) -> Self {
        let known = CompressionLvl::new(level).expect("libdeflate has the levels 1 to 9");
        Self { level, compressor: Compressor::new(known) }
    }
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    let limit = dst.len();
    let result =
        DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.zlib_decompress(src, dst));
    result.map_err(|error| match error {
        DecompressionError::InsufficientSpace => DecompressError::TooLong { limit },
        DecompressionError::BadData => DecompressError::Zlib,
    })
}

pub(super) fn compress(level: i32, src: &[u8], dst: &mut Vec<u8>) {
    COMPRESSOR.with_borrow_mut(|slot| {
        let kept = slot.take().filter(|kept| kept.level == level);
        let compressor = &mut slot.insert(kept.unwrap_or_else(|| Leveled::new(level))).compressor;
        dst.resize(compressor.zlib_compress_bound(src.len()), 0);
        let length = compressor.zlib_compress(src, dst).expect("the bound is enough");
        dst.truncate(length);
    });
}
