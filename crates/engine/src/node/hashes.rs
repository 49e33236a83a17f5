//! A set of hashes of names, of few bytes each.
//!
//! 1. Those that begin with the same two bytes stand together, in order, by their other two.

use std::collections::HashMap;

use userbtrfs_btree::ShortKeys;

/// See the module's text.
#[derive(Default)]
pub(super) struct Hashes {
    by_start: HashMap<u16, Vec<u16>, ShortKeys>,
}

/// About what a start takes in memory, in a map that is half full.
const START_BYTES: usize = 2 * size_of::<(u16, Vec<u16>)>() + 16;

impl Hashes {
    pub(super) fn contains(&self, hash: u32) -> bool {
        let (start, end) = halves(hash);
        self.by_start.get(&start).is_some_and(|ends| ends.binary_search(&end).is_ok())
    }

    /// Adds a hash; gives how many bytes more it all takes in memory now.
    pub(super) fn insert(&mut self, hash: u32) -> usize {
        let (start, end) = halves(hash);
        let ends = self.by_start.entry(start).or_default();
        let before = if ends.is_empty() { 0 } else { START_BYTES + 2 * ends.capacity() };
        if let Err(at) = ends.binary_search(&end) {
            if ends.len() == ends.capacity() {
                ends.reserve_exact(ends.len() / 4 + 1);
            }
            ends.insert(at, end);
        }
        START_BYTES + 2 * ends.capacity() - before
    }

    /// About what it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.by_start.values().map(|ends| START_BYTES + 2 * ends.capacity()).sum()
    }
}

impl FromIterator<u32> for Hashes {
    fn from_iter<I: IntoIterator<Item = u32>>(hashes: I) -> Self {
        let mut set = Self::default();
        for hash in hashes {
            set.insert(hash);
        }
        set
    }
}

fn halves(hash: u32) -> (u16, u16) {
    let [a, b, c, d] = hash.to_be_bytes();
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_set_of_few_bytes_each() {
        let hash = |number: u32| number.wrapping_mul(0x9E37_79B1);
        let mut hashes: Hashes = (0..1000).map(hash).collect();
        assert!((0..1000).all(|number| hashes.contains(hash(number))));
        assert!((1000..2000).all(|number| !hashes.contains(hash(number))));
        let before = hashes.bytes();
        assert_eq!(hashes.insert(hash(7)), 0);
        let grown: usize = (1000..1_000_000).map(|number| hashes.insert(hash(number))).sum();
        assert_eq!(hashes.bytes(), before + grown);
        assert!(hashes.bytes() < 8_000_000, "{} bytes", hashes.bytes());
    }
}
