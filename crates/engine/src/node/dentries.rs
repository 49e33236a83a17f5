//! The names of a directory that are known, there or not.
//!
//! 1. What is here is true: whoever changes an entry changes it here in the same step.
//! 2. Memory is bounded: a directory that has too many names here forgets them all.
//! 3. A directory that was made in this run is *complete*: what is not here is not there. When it
//!    forgets its names it keeps their hashes, of which there may be more: they still tell of
//!    most names that they are not there.
//! 4. What was read from a tree enters only if nothing changed since before it was read.

use std::collections::{HashMap, HashSet};

use userbtrfs_sync::Arc;

use super::Entry;

/// The most names that one directory keeps.
const NAMES_MAX: usize = 16 << 10;

/// The most hashes that one directory keeps, at about ten bytes each.
const HASHES_MAX: usize = 7 << 20;

/// See the module's text.
#[derive(Default)]
pub(super) struct Dentries {
    by_hash: HashMap<u32, Vec<Dentry>>,
    count: usize,
    whole: Whole,
    /// Counts changes.
    version: u64,
}

/// What is known of all names of a directory.
#[derive(Default)]
enum Whole {
    /// Nothing.
    #[default]
    Unknown,
    /// All that are there are here.
    Names,
    /// Their hashes, and maybe some more.
    Hashes(HashSet<u32>),
}

enum Dentry {
    There(Arc<Entry>),
    Absent(Box<[u8]>),
}

/// What is known of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    There(Arc<Entry>),
    Absent,
    /// Nothing: what a tree says may enter if this is still the version.
    Nothing(u64),
}

impl Dentry {
    fn name(&self) -> &[u8] {
        match self {
            Self::There(entry) => &entry.name,
            Self::Absent(name) => name,
        }
    }

    fn entry(&self) -> Option<&Arc<Entry>> {
        match self {
            Self::There(entry) => Some(entry),
            Self::Absent(_) => None,
        }
    }
}

impl Dentries {
    /// Those of a new directory.
    pub(super) fn of_new() -> Self {
        Self { whole: Whole::Names, ..Self::default() }
    }

    pub(super) fn find(&self, hash: u32, name: &[u8]) -> Known {
        let mut alike = self.by_hash.get(&hash).into_iter().flatten();
        match alike.find(|dentry| dentry.name() == name) {
            Some(Dentry::There(entry)) => Known::There(Arc::clone(entry)),
            Some(Dentry::Absent(_)) => Known::Absent,
            None if self.has_none(hash) || matches!(self.whole, Whole::Names) => Known::Absent,
            None => Known::Nothing(self.version),
        }
    }

    /// Whether it is known that no name of this hash is there.
    fn has_none(&self, hash: u32) -> bool {
        match &self.whole {
            Whole::Unknown => false,
            Whole::Names => !self.by_hash.contains_key(&hash),
            Whole::Hashes(hashes) => !hashes.contains(&hash),
        }
    }

    /// All entries whose names hash alike, where they are known.
    pub(super) fn alike(&self, hash: u32) -> Option<impl Iterator<Item = &Arc<Entry>>> {
        let known = matches!(self.whole, Whole::Names) || self.has_none(hash);
        let alike = self.by_hash.get(&hash).into_iter().flatten();
        known.then(|| alike.filter_map(Dentry::entry))
    }

    /// An entry was made.
    pub(super) fn enter(&mut self, entry: &Arc<Entry>) {
        self.version += 1;
        let hash = entry.hash();
        self.put(hash, Dentry::There(Arc::clone(entry)));
        if let Whole::Hashes(hashes) = &mut self.whole {
            hashes.insert(hash);
            if hashes.len() > HASHES_MAX {
                self.whole = Whole::Unknown;
            }
        }
    }

    /// An entry was removed.
    pub(super) fn leave(&mut self, entry: &Entry) {
        self.version += 1;
        let hash = entry.hash();
        if !matches!(self.whole, Whole::Names) {
            return self.put(hash, Dentry::Absent(entry.name.clone()));
        }
        if let Some(alike) = self.by_hash.get_mut(&hash) {
            let before = alike.len();
            alike.retain(|dentry| *dentry.name() != *entry.name);
            self.count -= before - alike.len();
            if alike.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// A tree was found to have no such name, and was looked at in this version.
    pub(super) fn learn_absent(&mut self, version: u64, hash: u32, name: &[u8]) {
        if version == self.version {
            self.put(hash, Dentry::Absent(name.into()));
        }
    }

    /// A tree was found to have this entry, and was looked at in this version.
    pub(super) fn learn(&mut self, version: u64, entry: &Arc<Entry>) {
        if version == self.version {
            self.put(entry.hash(), Dentry::There(Arc::clone(entry)));
        }
    }

    fn put(&mut self, hash: u32, dentry: Dentry) {
        if self.count >= NAMES_MAX {
            self.forget();
        }
        let alike = self.by_hash.entry(hash).or_default();
        if let Some(other) = alike.iter_mut().find(|other| other.name() == dentry.name()) {
            *other = dentry;
        } else {
            alike.push(dentry);
            self.count += 1;
        }
    }

    fn forget(&mut self) {
        self.count = 0;
        let by_hash = std::mem::take(&mut self.by_hash);
        if matches!(self.whole, Whole::Names) {
            self.whole = Whole::Hashes(by_hash.into_keys().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::entry;
    use super::*;

    #[test]
    fn a_complete_directory_knows_what_is_absent_and_by_hashes_when_it_is_full() {
        let mut dentries = Dentries::of_new();
        let a = entry(2, b"a", 300);
        assert_eq!(dentries.find(a.hash(), b"a"), Known::Absent);
        dentries.enter(&a);
        assert_eq!(dentries.find(a.hash(), b"a"), Known::There(Arc::clone(&a)));
        dentries.leave(&a);
        assert_eq!(dentries.find(a.hash(), b"a"), Known::Absent);
        let name = |number: u64| number.to_string().into_bytes();
        dentries.enter(&a);
        for number in 0..=NAMES_MAX as u64 {
            dentries.enter(&entry(number + 3, &name(number), number));
        }
        assert_eq!(dentries.find(a.hash(), b"a"), Known::Nothing(dentries.version));
        assert!(dentries.alike(a.hash()).is_none());
        let (absent, present) = (entry(0, b"absent", 0), entry(0, &name(7), 0));
        assert_eq!(dentries.find(absent.hash(), b"absent"), Known::Absent);
        assert!(dentries.alike(absent.hash()).is_some_and(|mut alike| alike.next().is_none()));
        assert_eq!(dentries.find(present.hash(), &name(7)), Known::Nothing(dentries.version));
        dentries.leave(&a);
        assert_eq!(dentries.find(a.hash(), b"a"), Known::Absent);
    }

    #[test]
    fn what_was_read_before_a_change_does_not_enter() {
        let mut dentries = Dentries::default();
        let a = entry(2, b"a", 300);
        let Known::Nothing(version) = dentries.find(a.hash(), b"a") else { panic!("unknown") };
        dentries.enter(&a);
        dentries.learn_absent(version, a.hash(), b"a");
        assert_eq!(dentries.find(a.hash(), b"a"), Known::There(Arc::clone(&a)));
        dentries.leave(&a);
        dentries.learn(version, &a);
        assert_eq!(dentries.find(a.hash(), b"a"), Known::Absent);
    }
}
