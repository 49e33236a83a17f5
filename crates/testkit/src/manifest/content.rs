//! The digest of a file's content.
//!
//! 1. It is SHA-256 over all blocks of the file, 4096 bytes each, that are not all zeros,
//!    ascending: the offset as eight little-endian bytes, then the bytes. A short last block is
//!    padded with zeros.
//! 2. So it does not depend on whether zeros are stored, preallocated or a hole, and the cost for a
//!    file of a tebibyte depends only on its data. The size is not included: it is a separate
//!    attribute.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The block size of the digest, in bytes.
const BLOCK: usize = 4096;

/// A digest under construction; content is added in ascending order and may leave out zeros.
#[derive(Clone, Debug, Default)]
pub struct ContentDigest {
    hash: Sha256,
    /// Offset of the block being filled, a multiple of `BLOCK`.
    offset: u64,
    /// The bytes of that block up to the end of the content so far.
    block: Vec<u8>,
}

impl ContentDigest {
    /// Adds bytes at an offset.
    ///
    /// Panics if the offset is before the end of the content so far.
    pub fn update(&mut self, offset: u64, mut bytes: &[u8]) {
        self.skip_to(offset);
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            self.close_if_full();
            bytes = later;
        }
    }

    /// Returns the digest in hexadecimal.
    pub fn finish(mut self) -> String {
        self.close();
        let mut text = String::new();
        for byte in self.hash.finalize() {
            write!(text, "{byte:02x}").expect("a string takes everything");
        }
        text
    }

    /// Treats the bytes between the end of the content so far and `offset` as zeros.
    fn skip_to(&mut self, offset: u64) {
        let end = self.offset + self.block.len() as u64;
        assert!(offset >= end, "content given at {offset}, before its end {end}");
        let within = offset % BLOCK as u64;
        if offset - within != self.offset {
            self.close();
            self.offset = offset - within;
        }
        let within = usize::try_from(within).expect("less than a block");
        self.block.resize(within, 0);
    }

    fn close_if_full(&mut self) {
        if self.block.len() == BLOCK {
            self.close();
            self.offset += BLOCK as u64;
        }
    }

    fn close(&mut self) {
        self.block.resize(BLOCK, 0);
        if self.block.iter().any(|byte| *byte != 0) {
            self.hash.update(self.offset.to_le_bytes());
            self.hash.update(&self.block);
        }
        self.block.clear();
    }
}
