//! Names of a directory that come into its tree late.
//!
//! The names of a large directory stand in its tree by their hashes: a few of them fall into nearly
//! as many leaves. So they wait here, packed, while all else that changed with them is merged,
//! until they are many beside those of the directory, or memory or a commit asks for them; then
//! each leaf is come to once for all of them. Memory asks for a part of the hashes at a time, so
//! that nobody waits for long.
//!
//! 1. What is here is older than the sets of the directory, and newer than its tree.
//! 2. It changes only while a merge runs, and is dropped when all of it is in the tree.
//! 3. For each hash there is what becomes of each name that hashes so and changed. What came and
//!    went, and the tree does not know, leaves nothing.

use std::collections::{BTreeMap, HashMap};

use userbtrfs_btree::ShortKeys;
use userbtrfs_format::{DirEntry, DirEntryKind, dir_entries};

use super::EntryTarget;
use super::pending::{NameChange, Said};

/// See the module's text.
#[derive(Default)]
pub(super) struct LateNames {
    /// None of them is empty.
    parts: BTreeMap<Part, PartNames>,
}

/// A sixteenth of all hashes, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part(u8);

impl Part {
    fn of(hash: u32) -> Self {
        let [highest, ..] = hash.to_be_bytes();
        Self(highest >> 4)
    }
}

/// The names that hash to a part.
#[derive(Default)]
struct PartNames {
    /// Where the changes of the names of a hash are packed.
    by_hash: HashMap<u32, u32, ShortKeys>,
    /// What became of the changes of a hash is appended; what was there before stays behind.
    packed: Vec<u8>,
    /// How long the names are together.
    names_len: usize,
}

/// What becomes of a name.
pub(super) struct LateName<'a> {
    pub(super) name: &'a [u8],
    /// What its DIR_ITEM is to hold of it; nothing where it goes.
    pub(super) entry: Option<&'a [u8]>,
    /// Whether the tree has the name.
    below: bool,
}

/// About what a hash takes in memory, and in the list of those that are merged.
const HASH_BYTES: usize = 24;

/// Bytes of a length: before the changes of a hash, and before what a change holds.
const LENGTH: usize = size_of::<u32>();

const THERE: u8 = 1;
const BELOW: u8 = 2;

const SOUND: &str = "packed here";

impl LateNames {
    /// About what all this takes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.parts.values().map(PartNames::bytes).sum()
    }

    /// Takes in what became of names that hash alike.
    pub(super) fn take_in(&mut self, hash: u32, alike: &[NameChange]) {
        let part = Part::of(hash);
        let names = self.parts.entry(part).or_default();
        names.take_in(hash, alike);
        if names.by_hash.is_empty() {
            self.parts.remove(&part);
        }
    }

    /// What waits of a name.
    pub(super) fn find(&self, hash: u32, name: &[u8]) -> Said<(EntryTarget, DirEntryKind)> {
        let found = self.alike(hash).find(|change| change.name == name);
        match found.map(|change| change.entry) {
            Some(Some(entry)) => {
                let entry = parse(entry);
                Said::There((EntryTarget::from_disk(&entry), entry.kind))
            }
            Some(None) => Said::Gone,
            None => Said::Nothing,
        }
    }

    /// How long the entries are that come to those that hash so.
    pub(super) fn len_added(&self, hash: u32) -> usize {
        self.alike(hash).filter_map(|change| change.entry).map(<[u8]>::len).sum()
    }

    /// How long all the names are together.
    pub(super) fn names_len(&self) -> usize {
        self.parts.values().map(|names| names.names_len).sum()
    }

    /// The part that takes most memory.
    pub(super) fn largest(&self) -> Part {
        let largest = self.parts.iter().max_by_key(|(_, names)| names.bytes());
        *largest.expect("what is empty is dropped").0
    }

    /// What becomes of the names of each hash of a part, or of all, in the order of the hashes.
    pub(super) fn iter(&self, part: Option<Part>) -> impl Iterator<Item = (u32, &[u8])> {
        let is_wanted = move |of: &Part| part.is_none_or(|part| part == *of);
        self.parts.iter().filter(move |(of, _)| is_wanted(of)).flat_map(|(_, names)| names.iter())
    }

    /// A part is in the tree, or all is.
    pub(super) fn forget(&mut self, part: Option<Part>) {
        match part {
            Some(part) => drop(self.parts.remove(&part)),
            None => self.parts.clear(),
        }
    }

    fn alike(&self, hash: u32) -> impl Iterator<Item = LateName<'_>> {
        unpacked(self.parts.get(&Part::of(hash)).map_or(&[], |names| names.alike(hash)))
    }
}

impl PartNames {
    fn bytes(&self) -> usize {
        self.packed.len() + self.by_hash.len() * HASH_BYTES
    }

    fn take_in(&mut self, hash: u32, alike: &[NameChange]) {
        let old = self.by_hash.get(&hash).map_or_else(Vec::new, |at| self.packed_at(*at).to_vec());
        self.names_len -= names_len(&old);
        let start = self.packed.len();
        self.packed.extend_from_slice(&[0; LENGTH]);
        let is_same = |old: &LateName<'_>, new: &NameChange| *old.name == *new.entry.name;
        for old in unpacked(&old) {
            if !alike.iter().any(|new| is_same(&old, new)) {
                old.pack(&mut self.packed);
            }
        }
        for new in alike {
            let old = unpacked(&old).find(|old| is_same(old, new));
            pack_new(&mut self.packed, new, old.map_or(new.below, |old| old.below));
        }
        self.put(hash, start);
    }

    /// Makes what was packed from `start` on what becomes of the names of a hash.
    fn put(&mut self, hash: u32, start: usize) {
        set_len(&mut self.packed, start);
        if self.packed.len() == start + LENGTH {
            self.packed.truncate(start);
            self.by_hash.remove(&hash);
        } else {
            self.names_len += names_len(&self.packed[start + LENGTH..]);
            self.by_hash.insert(hash, u32::try_from(start).expect("merged before it is so much"));
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut places: Vec<_> = self.by_hash.iter().map(|(hash, at)| (*hash, *at)).collect();
        places.sort_unstable();
        places.into_iter().map(|(hash, at)| (hash, self.packed_at(at)))
    }

    fn alike(&self, hash: u32) -> &[u8] {
        self.by_hash.get(&hash).map_or(&[], |at| self.packed_at(*at))
    }

    fn packed_at(&self, at: u32) -> &[u8] {
        split_len(&self.packed[usize::try_from(at).expect(SOUND)..]).0
    }
}

impl LateName<'_> {
    fn pack(&self, packed: &mut Vec<u8>) {
        let body = self.entry.unwrap_or(self.name);
        pack(packed, self.entry.is_some(), self.below, |packed| packed.extend_from_slice(body));
    }
}

/// Packs what became of a name, unless that is nothing.
fn pack_new(packed: &mut Vec<u8>, new: &NameChange, below: bool) {
    if new.there {
        pack(packed, true, below, |packed| new.entry.on_disk().encode_into(packed));
    } else if below {
        pack(packed, false, true, |packed| packed.extend_from_slice(&new.entry.name));
    }
}

fn pack(packed: &mut Vec<u8>, there: bool, below: bool, body: impl FnOnce(&mut Vec<u8>)) {
    packed.push(if there { THERE } else { 0 } | if below { BELOW } else { 0 });
    let start = packed.len();
    packed.extend_from_slice(&[0; LENGTH]);
    body(packed);
    set_len(packed, start);
}

/// Says in the length at `start` how much was packed behind it.
fn set_len(packed: &mut [u8], start: usize) {
    let len = packed.len() - start - LENGTH;
    let len = u32::try_from(len).expect("names of a hash share an item");
    packed[start..][..LENGTH].copy_from_slice(&len.to_le_bytes());
}

/// What becomes of names that hash alike.
pub(super) fn unpacked(packed: &[u8]) -> impl Iterator<Item = LateName<'_>> {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let (flags, body) = rest.split_first()?;
        let (body, after) = split_len(body);
        rest = after;
        let entry = (flags & THERE != 0).then_some(body);
        let name = entry.map_or(body, |entry| parse(entry).name);
        Some(LateName { name, entry, below: flags & BELOW != 0 })
    })
}

/// How long the names are together of packed changes.
fn names_len(packed: &[u8]) -> usize {
    unpacked(packed).map(|change| change.name.len()).sum()
}

/// What follows a length, and what follows that.
fn split_len(packed: &[u8]) -> (&[u8], &[u8]) {
    let (len, rest) = packed.split_first_chunk().expect(SOUND);
    rest.split_at(usize::try_from(u32::from_le_bytes(*len)).expect(SOUND))
}

fn parse(entry: &[u8]) -> DirEntry<'_> {
    dir_entries(entry).next().and_then(Result::ok).expect(SOUND)
}

#[cfg(test)]
mod tests {
    use super::super::few::Few;
    use super::super::pending::Pending;
    use super::super::testing::{alike, entry};
    use super::*;

    fn take_in(late: &mut LateNames, change: impl FnOnce(&mut Pending)) {
        let mut pending = Pending::default();
        change(&mut pending);
        for (hash, alike) in &pending.entries.by_name {
            late.take_in(*hash, alike);
        }
    }

    #[test]
    fn what_came_and_went_leaves_nothing_and_what_the_tree_has_a_tombstone() {
        let mut late = LateNames::default();
        let (a, again) = (entry(2, b"a", 300), entry(9, b"a", 301));
        let hash = a.hash();
        assert_eq!(late.find(hash, b"a"), Said::Nothing);
        take_in(&mut late, |pending| pending.add_entry(&a));
        assert_eq!(late.find(hash, b"a"), Said::There((a.target, a.kind)));
        assert_eq!(late.len_added(hash), a.on_disk().encode().len());
        take_in(&mut late, |pending| pending.remove_entry(&a));
        assert_eq!(late.find(hash, b"a"), Said::Nothing);
        assert_eq!(late.iter(None).count(), 0);

        take_in(&mut late, |pending| pending.remove_entry(&a));
        assert_eq!(late.find(hash, b"a"), Said::Gone);
        take_in(&mut late, |pending| pending.add_entry(&again));
        assert_eq!(late.find(hash, b"a"), Said::There((again.target, again.kind)));
        take_in(&mut late, |pending| pending.remove_entry(&again));
        assert_eq!(late.find(hash, b"a"), Said::Gone);
        assert_eq!((late.iter(None).count(), late.names_len()), (1, 1));
    }

    #[test]
    fn names_that_hash_alike_are_told_apart() {
        let mut late = LateNames::default();
        let [one, two] = alike();
        let (a, b) = (entry(2, &one, 300), entry(3, &two, 301));
        let hash = a.hash();
        take_in(&mut late, |pending| pending.add_entry(&a));
        take_in(&mut late, |pending| pending.remove_entry(&b));
        assert_eq!(late.find(hash, &one), Said::There((a.target, a.kind)));
        assert_eq!(late.find(hash, &two), Said::Gone);
        let (found, packed) = late.iter(None).next().unwrap();
        let names: Vec<_> = unpacked(packed).map(|change| change.name.to_vec()).collect();
        assert_eq!(late.names_len(), one.len() + two.len());
        assert_eq!((found, names), (hash, vec![one, two]));
        assert!(late.bytes() > packed.len());
        late.take_in(hash, &Few::<NameChange>::default());
        assert_eq!(late.iter(None).count(), 1);
    }
}
