//! LZO extents: LZO1X blocks and the frame btrfs puts around them.
//!
//! 1. [`decompress`] and [`compress`] speak of whole extents, in segments of one sector.
//! 2. [`decompress_block`] and [`compress_block`] speak of one LZO1X block, which is one segment.
//! 3. The instruction set is the one described in the kernel's `Documentation/staging/lzo.rst`;
//!    its run-length variant is not btrfs's and is not read.

mod decode;
mod encode;
mod framing;

pub use decode::{BlockError, decompress_block};
pub use encode::{compress_block, worst_length};
pub use framing::{LzoError, compress, decompress};

/// The block's last instruction: a far copy of three bytes from the distance 16384.
const END: [u8; 3] = [0x11, 0, 0];

/// Distances from here on, exclusive, are of the far copies.
const FAR: usize = 16384;

/// Distances up to here have the short, two-byte copies.
const NEAR: usize = 2048;

#[cfg(test)]
mod tests;
