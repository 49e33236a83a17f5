//! Random changes of items whose lengths have a distribution that is hard on full leaves.

use std::collections::BTreeMap;

use userbtrfs_btree::{Edit as _, ItemEdit};
use userbtrfs_format::{Key, item_len_max, item_space};
use userbtrfs_testkit::random::Random;

use super::grove::{ANY, Grove};

/// A distribution of the lengths of items.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lengths {
    /// From 0 to some bytes.
    Tiny,
    /// The largest that fits a leaf, or little less.
    Largest,
    /// One that takes most of a leaf, among many tiny ones.
    LargeAmongTiny,
    /// Near this part of a leaf, so that the last of the items fits or just does not.
    Part(usize),
    /// From 0 to the largest that fits.
    Any,
    /// Those of all other distributions.
    Mixed,
}

impl Lengths {
    pub(super) const ALL: [Self; 8] = [
        Self::Tiny,
        Self::Largest,
        Self::LargeAmongTiny,
        Self::Part(2),
        Self::Part(3),
        Self::Part(4),
        Self::Any,
        Self::Mixed,
    ];

    /// Returns a length of at most `max` bytes, the largest that fits a leaf.
    fn pick(self, random: &mut Random, max: usize) -> usize {
        match self {
            Self::Tiny => random.index(24),
            Self::Largest => max - if random.one_in(2) { 0 } else { random.index(24) },
            Self::LargeAmongTiny if random.one_in(8) => max - random.index(max / 2),
            Self::LargeAmongTiny => Self::Tiny.pick(random, max),
            Self::Part(parts) => item_space(max) / parts - item_space(0) + random.index(24) - 12,
            Self::Any => random.index(max + 1),
            Self::Mixed => Self::ALL[random.index(Self::ALL.len() - 1)].pick(random, max),
        }
    }
}

/// Random changes of trees that are mostly small, so that their ends change often.
pub(super) struct Changes {
    pub(super) random: Random,
    lengths: Lengths,
    len_max: usize,
    /// The space of items above which some are removed.
    space_max: usize,
}

impl Changes {
    pub(super) fn new(seed: u64, lengths: Lengths, nodesize: u32) -> Self {
        let mut random = Random::new(seed);
        let len_max = item_len_max(nodesize);
        let leaves = if random.one_in(4) { 300 } else { 16 };
        Self { random, lengths, len_max, space_max: leaves * item_space(len_max) }
    }

    /// Returns the changes of one call, in the order of their keys.
    pub(super) fn next(&mut self, grove: &Grove, number: usize) -> Vec<ItemEdit> {
        let (tree, items) = &grove.trees[number];
        let keys: Vec<_> = items.keys().copied().collect();
        let used: usize = items.values().map(|data| item_space(data.len())).sum();
        let edits = match self.random.pick(&keys) {
            Some(_) if used > self.space_max => self.removed(&keys),
            Some(_) if self.random.one_in(4) => self.at_an_end(&keys),
            Some(key) if self.random.one_in(2) => self.in_a_leaf(&grove.keys_around(number, key)),
            _ => self.scattered(),
        };
        let mut edits: BTreeMap<_, _> = edits.into_iter().map(|edit| (edit.key(), edit)).collect();
        let is_removed = |key| matches!(edits.get(key), Some(ItemEdit::Remove(_)));
        let is_put = |edit: &ItemEdit| matches!(edit, ItemEdit::Put(..));
        let is_emptied = keys.iter().all(is_removed) && !edits.values().any(is_put);
        // The tree of a subvolume is never empty.
        if is_emptied && tree.id().is_subvolume() {
            edits.remove(&keys[0]);
        }
        edits.into_values().collect()
    }

    /// Returns items anywhere, or at successive keys.
    fn scattered(&mut self) -> Vec<ItemEdit> {
        let any = |random: &mut Random| (1 << 40) - 5000 + random.below(10_000);
        let start = any(&mut self.random);
        let is_run = self.random.one_in(2);
        let mut edits = Vec::new();
        for (step, len) in (0..).zip(self.lens()) {
            let number = if is_run { start + step } else { any(&mut self.random) };
            edits.push(self.put(number, len));
        }
        edits
    }

    /// Returns items before the first of a tree, or after the last.
    fn at_an_end(&mut self, keys: &[Key]) -> Vec<ItemEdit> {
        let lens = self.lens();
        let first = keys[0].objectid - lens.len() as u64;
        let after = keys[keys.len() - 1].objectid + 1;
        let start = if self.random.one_in(2) { first } else { after };
        (start..).zip(lens).map(|(number, len)| self.put(number, len)).collect()
    }

    /// Returns changes in a leaf that has these keys, and next to it.
    fn in_a_leaf(&mut self, leaf: &[Key]) -> Vec<ItemEdit> {
        match self.random.below(4) {
            0 => self.removed(leaf),
            // They become longer or shorter.
            1 => {
                let some = self.run_of(leaf, 3);
                some.into_iter().map(|key| self.put_any(key.objectid)).collect()
            }
            _ => {
                let [first, last] = [leaf[0].objectid, leaf[leaf.len() - 1].objectid];
                let edge = [first - 1, first, first + 1, last - 1, last, last + 1];
                let edge = edge.into_iter().filter(|_| self.random.one_in(3)).collect::<Vec<_>>();
                edge.into_iter().map(|number| self.put_or_remove(number)).collect()
            }
        }
    }

    /// Returns the removal of successive items.
    fn removed(&mut self, keys: &[Key]) -> Vec<ItemEdit> {
        self.run_of(keys, keys.len()).into_iter().map(ItemEdit::Remove).collect()
    }

    /// Returns up to `most` successive keys.
    fn run_of(&mut self, keys: &[Key], most: usize) -> Vec<Key> {
        let start = self.random.index(keys.len());
        let len = 1 + self.random.index(most.min(keys.len() - start));
        keys[start..start + len].to_vec()
    }

    /// Returns the lengths of the items of one call: of a few, or of as many as fill some leaves.
    fn lens(&mut self) -> Vec<usize> {
        let space = item_space(self.len_max) * 3;
        let mut space = if self.random.one_in(4) { self.random.index(space) } else { 0 };
        let mut few = 1 + self.random.index(3);
        let mut lens = Vec::new();
        while few > 0 || space > 0 {
            let len = self.lengths.pick(&mut self.random, self.len_max);
            lens.push(len);
            few = few.saturating_sub(1);
            space = space.saturating_sub(item_space(len));
        }
        lens
    }

    fn put_or_remove(&mut self, number: u64) -> ItemEdit {
        if self.random.one_in(3) {
            ItemEdit::Remove(Key::new(number, ANY, 0))
        } else {
            self.put_any(number)
        }
    }

    fn put_any(&mut self, number: u64) -> ItemEdit {
        let len = self.lengths.pick(&mut self.random, self.len_max);
        self.put(number, len)
    }

    fn put(&mut self, number: u64, len: usize) -> ItemEdit {
        let byte = u8::try_from(self.random.below(256)).unwrap();
        ItemEdit::Put(Key::new(number, ANY, 0), vec![byte; len])
    }
}
