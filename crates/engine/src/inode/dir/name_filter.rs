//! A multiset of names that takes a few bytes for each, and rules out most names that are not in
//! it.
//!
//! 1. Names whose hashes begin with the same two bytes are in one sorted list. Each is stored as
//!    the third byte of its hash and a *fingerprint*: a byte of another, keyed hash. The hashes of
//!    names that differ only in their numbers often collide; fingerprints distinguish those, and an
//!    attacker cannot choose names with equal fingerprints.
//! 2. Each name is stored as often as it was added and not removed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use userbtrfs_btree::ShortKeys;

/// A multiset of names, stored as parts of their hashes.
#[derive(Default)]
pub(in crate::inode) struct NameFilter {
    by_start: HashMap<u16, Vec<u16>, ShortKeys>,
}

/// The approximate memory for a list, in a map that is half full.
const START_BYTES: usize = 2 * size_of::<(u16, Vec<u16>)>() + 16;

/// A full list grows by this fraction of its length.
const GROWTH: usize = 8;

impl NameFilter {
    /// Returns false if the name is certainly not in the set.
    pub(in crate::inode) fn may_have(&self, hash: u32, name: &[u8]) -> bool {
        let (start, end) = self.place(hash, name);
        self.by_start.get(&start).is_some_and(|ends| ends.binary_search(&end).is_ok())
    }

    /// Returns an upper limit of the number of names with this hash.
    pub(in crate::inode) fn count_alike(&self, hash: u32) -> usize {
        let (start, third) = split(hash);
        let Some(ends) = self.by_start.get(&start) else { return 0 };
        let third_of = |end: u16| end.to_be_bytes()[0];
        let from = ends.partition_point(|end| third_of(*end) < third);
        ends[from..].iter().take_while(|end| third_of(**end) == third).count()
    }

    /// Adds a name; returns how many more bytes of memory are in use.
    pub(in crate::inode) fn insert(&mut self, hash: u32, name: &[u8]) -> usize {
        let (start, end) = self.place(hash, name);
        let ends = self.by_start.entry(start).or_default();
        let before = if ends.is_empty() { 0 } else { bytes_of(ends) };
        if ends.len() == ends.capacity() {
            ends.reserve_exact(ends.len() / GROWTH + 1);
        }
        let at = ends.partition_point(|other| *other < end);
        ends.insert(at, end);
        bytes_of(ends) - before
    }

    /// Removes a name that was added; returns how many fewer bytes of memory are in use.
    pub(in crate::inode) fn remove(&mut self, hash: u32, name: &[u8]) -> usize {
        let (start, end) = self.place(hash, name);
        let Entry::Occupied(mut list) = self.by_start.entry(start) else {
            unreachable!("names alike stand where they were put")
        };
        let at = list.get().binary_search(&end).expect("what is taken out was put in");
        list.get_mut().remove(at);
        if list.get().is_empty() { bytes_of(&list.remove()) } else { 0 }
    }

    /// Returns the approximate memory in use.
    pub(in crate::inode) fn bytes(&self) -> usize {
        self.by_start.values().map(bytes_of).sum()
    }

    /// Returns the list of a name, and its value in it.
    fn place(&self, hash: u32, name: &[u8]) -> (u16, u16) {
        let (start, third) = split(hash);
        let [print, ..] = self.by_start.hasher().hash_one(name).to_le_bytes();
        (start, u16::from_be_bytes([third, print]))
    }
}

/// Returns the approximate memory for a list with its content.
fn bytes_of(ends: &Vec<u16>) -> usize {
    START_BYTES + 2 * ends.capacity()
}

/// Splits off the first two bytes of a hash, and the third.
fn split(hash: u32) -> (u16, u8) {
    let [first, second, third, _] = hash.to_be_bytes();
    (u16::from_be_bytes([first, second]), third)
}

#[cfg(test)]
mod tests {
    use userbtrfs_codec::hash::name_hash;

    use super::*;
    use crate::inode::testing::alike;

    fn name(number: u32) -> Vec<u8> {
        format!("n-{number:010}").into_bytes()
    }

    fn insert(hashes: &mut NameFilter, name: &[u8]) -> usize {
        hashes.insert(name_hash(name), name)
    }

    fn may_have(hashes: &NameFilter, name: &[u8]) -> bool {
        hashes.may_have(name_hash(name), name)
    }

    #[test]
    fn filter_is_compact_multiset() {
        let mut hashes = NameFilter::default();
        let mut bytes: usize = (0..300_000).map(|at| insert(&mut hashes, &name(at))).sum();
        assert!((0..300_000).all(|number| may_have(&hashes, &name(number))));
        let mistaken = (300_000..600_000).filter(|at| may_have(&hashes, &name(*at))).count();
        assert!(mistaken < 1000, "{mistaken} of 300000");
        assert_eq!(hashes.bytes(), bytes);
        assert!(bytes < 300_000 * 4 + (START_BYTES << 16), "{bytes} bytes");
        bytes += insert(&mut hashes, &name(7));
        for number in (0..300_000).chain([7]) {
            assert!(may_have(&hashes, &name(number)));
            bytes -= hashes.remove(name_hash(&name(number)), &name(number));
        }
        assert_eq!((hashes.bytes(), bytes), (0, 0));
    }

    #[test]
    fn names_of_one_hash_are_counted_and_mostly_distinguished() {
        let [one, two] = alike();
        let hash = name_hash(&one);
        // The random key of the process decides.
        let told_apart = (0..64_u32).filter(|salt| {
            let mut hashes = NameFilter::default();
            let salted = |name: &[u8]| [name, &salt.to_le_bytes()].concat();
            hashes.insert(hash, &salted(&one));
            assert_eq!(hashes.count_alike(hash), 1);
            let told_apart = !hashes.may_have(hash, &salted(&two));
            hashes.insert(hash, &salted(&two));
            assert_eq!((hashes.count_alike(hash), hashes.count_alike(!hash)), (2, 0));
            hashes.remove(hash, &salted(&one));
            assert!(hashes.may_have(hash, &salted(&two)));
            told_apart
        });
        assert!(told_apart.count() > 48);
    }
}
