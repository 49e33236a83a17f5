//! Contents and names, the same in every run, by fixed seeds.

use std::collections::HashMap;

use crc_fast::{CrcAlgorithm, checksum};
use userbtrfs_testkit::random::Random;

/// Returns incompressible bytes.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut numbers = Random::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&numbers.number().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns text that compresses well: few words, and a different number in each line.
pub(crate) fn text(seed: u64, length: usize) -> Vec<u8> {
    const WORDS: [&str; 4] = ["extent ", "directory ", "checksum ", "tree "];
    let mut numbers = Random::new(seed);
    let mut bytes = Vec::with_capacity(length + 80);
    while bytes.len() < length {
        let line = numbers.number();
        let word =
            |place: u32| WORDS[usize::try_from((line >> place) & 3).expect("less than four")];
        bytes.extend((0..16).step_by(2).flat_map(|place| word(place).bytes()));
        bytes.extend_from_slice(format!("{:02x}\n", line >> 56).as_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns two different names that begin with `prefix`, with the same length and the same crc32c,
/// so with the same hash under every seed. The prefix determines the names.
pub(crate) fn colliding_names(prefix: &str) -> [String; 2] {
    let mut numbers = Random::new(0);
    let mut seen = HashMap::new();
    loop {
        let name = format!("{prefix}{:016x}", numbers.number());
        let hash = checksum(CrcAlgorithm::Crc32Iscsi, name.as_bytes());
        if let Some(other) = seen.insert(hash, name.clone()) {
            return [other, name];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_depend_on_the_seed_alone() {
        assert_eq!(noise(7, 1001), noise(7, 1001));
        assert_ne!(noise(7, 64), noise(8, 64));
        assert_eq!(text(7, 333).len(), 333);
    }

    #[test]
    fn colliding_names_differ_and_collide() {
        let [a, b] = colliding_names("user.");
        let hash = |name: &str| checksum(CrcAlgorithm::Crc32Iscsi, name.as_bytes());
        assert_ne!(a, b);
        assert_eq!((hash(&a), a.len()), (hash(&b), b.len()));
    }
}
