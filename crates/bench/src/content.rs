//! File content that compresses to between a half and a third with any algorithm.
//!
//! A few incompressible bytes alternate with parts of a short text, at distances within the window
//! of every algorithm. The content is generated faster than a disk can write it.

use userbtrfs_testkit::random::Random;

/// The length of the text that is repeated, in bytes.
const TEXT: usize = 4096;
/// The maximum length of a part of it.
const PART_MAX: usize = 48;

/// A generator of content, which its seed determines.
pub(crate) struct Content {
    random: Random,
    text: Vec<u8>,
}

impl Content {
    /// Creates a generator with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let text = (0..TEXT).map(|_| b" etaoinshrdlucmf"[random.index(16)]).collect();
        Self { random, text }
    }

    /// Fills `target` with the next `len` bytes.
    pub(crate) fn fill(&mut self, target: &mut Vec<u8>, len: usize) {
        target.clear();
        while target.len() < len {
            target.extend_from_slice(&self.random.number().to_le_bytes());
            let part = 16 + self.random.index(PART_MAX - 15);
            let start = self.random.index(TEXT - PART_MAX);
            target.extend_from_slice(&self.text[start..][..part]);
        }
        target.truncate(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_the_content() {
        let content = |seed| {
            let mut bytes = Vec::new();
            Content::new(seed).fill(&mut bytes, 1000);
            bytes
        };
        assert_eq!(content(1), content(1));
        assert_ne!(content(1), content(2));
        assert_eq!(content(1).len(), 1000);
    }
}
