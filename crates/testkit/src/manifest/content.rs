//! The digest that names a file's content.
//!
//! 1. It is SHA-256 over every block of the file, 4096 bytes each, that has a byte other than zero,
//!    ascending: its offset as eight little-endian bytes, then its bytes. A last, short block
//!    counts as filled up with zeros.
//! 2. So it is the same whether zeros are stored, preallocated or a hole, and a file of a tebibyte
//!    costs only what is stored. The size is not in it: it is an attribute of its own.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The unit in which content is looked at, in bytes.
const BLOCK: usize = 4096;

/// A digest in the making; content is given in ascending order and may leave out zeros.
#[derive(Clone, Debug, Default)]
pub struct ContentDigest {
    hash: Sha256,
    /// Offset of the block being filled, a multiple of `BLOCK`.
    offset: u64,
    /// The bytes of that block up to where content was given.
    block: Vec<u8>,
}

impl ContentDigest {
    /// Adds bytes at an offset.
    ///
    /// Panics if the offset is before the end of what was given.
    pub fn update(&mut self, offset: u64, mut bytes: &[u8]) {
        self.skip_to(offset);
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            self.close_if_full();
            bytes = later;
        }
    }

    /// The digest in hexadecimal.
    pub fn finish(mut self) -> String {
        self.close();
        let mut text = String::new();
        for byte in self.hash.finalize() {
            write!(text, "{byte:02x}").expect("a string takes everything");
        }
        text
    }

    /// Takes what lies between the end of the content so far and `offset` as zeros.
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
