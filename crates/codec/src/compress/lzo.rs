//! LZO extents: LZO1X blocks and the framing that btrfs uses for them.
//!
//! 1. [`decompress`] and [`compress`] process whole extents, in segments of one sector.
//! 2. [`decompress_block`] and [`compress_block`] process one LZO1X block, which is one segment.
//! 3. The instruction set is the one described in the kernel's `Documentation/staging/lzo.rst`;
//!    its run-length variant is not used by btrfs and not supported.

mod decode;
mod encode;
mod framing;

pub use decode::{BlockError, decompress_block};
pub use encode::{compress_block, worst_length};
pub use framing::{compress, decompress};

/// The end marker: encoded as a far copy of three bytes from the distance 16384.
const END: [u8; 3] = [0x11, 0, 0];

/// Far copies have distances above this.
const FAR: usize = 16384;

/// Copies encoded in two bytes have distances up to this.
const NEAR: usize = 2048;

#[cfg(test)]
mod tests;
