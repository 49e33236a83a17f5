//! Content of files that compresses to between a half and a third, by whatever algorithm.
//!
//! A few bytes that cannot be compressed take turns with parts of a short text, at distances that
//! every algorithm's window covers. It is made faster than a disk takes it.

use crate::random::Random;

/// Bytes of the text that is repeated.
const TEXT: usize = 4096;
/// The longest part of it that is taken at once.
const PART_MAX: usize = 48;

/// A source of content; its seed decides all it gives.
pub(crate) struct Content {
    random: Random,
    text: Vec<u8>,
}

impl Content {
    /// A source of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let text = (0..TEXT).map(|_| b" etaoinshrdlucmf"[random.index(16)]).collect();
        Self { random, text }
    }

    /// Fills `target` with the next `len` bytes.
    pub(crate) fn fill(&mut self, target: &mut Vec<u8>, len: usize) {
        target.clear();
        while target.len() < len {
            target.extend_from_slice(&self.random.next().to_le_bytes());
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
    fn a_seed_decides_the_content() {
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
