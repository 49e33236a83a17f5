//! The cache of a directory's names, present and absent.
//!
//! 1. The cache is never stale: a change of an entry updates it in the same step.
//! 2. Memory is bounded, for one directory and by a [`DentryBudget`] for all: a directory that has
//!    too many names here, or needs memory when none is left, drops its own names.
//! 3. The cache of a directory that was created in this mount is *complete*: a name that is not
//!    cached does not exist. When such a cache drops its names it keeps the hashes of all existing
//!    names, if memory allows: they still rule out most other names.
//! 4. The hashes of names that a damaged directory stores twice are noted until one of the two
//!    entries is removed.
//! 5. A name that was read from a tree is cached only if nothing changed since before it was read.

use std::collections::{BTreeSet, HashMap};

use userbtrfs_btree::ShortKeys;
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicUsize, Ordering};

use crate::inode::Entry;
use crate::inode::dir::name_filter::NameFilter;
use crate::inode::log_state::few::Few;

/// The most names that are cached for one directory.
const NAMES_MAX: usize = 16 << 10;

/// The most names in the cache for which sorting them is faster than reading a tree.
const SORTED_MAX: usize = 128;

/// The most names that are noted as stored twice in one directory.
const DOUBLED_MAX: usize = 1024;

/// The greatest distance of indexes that counts as sequential access.
const CLOSE: u64 = 16;

/// The approximate memory for a name beside its bytes, with its entry.
const NAME_BYTES: usize = 2 * size_of::<(u32, Few<Dentry>)>() + size_of::<Entry>() + 64;

/// A limit on the memory of all dentry caches.
pub(in crate::inode) struct DentryBudget {
    max: usize,
    taken: AtomicUsize,
}

/// The cached names of a directory (Linux: dcache).
pub(in crate::inode) struct DentryCache {
    budget: Arc<DentryBudget>,
    /// Bytes charged to the budget.
    taken: usize,
    by_hash: HashMap<u32, Few<Dentry>, ShortKeys>,
    count: usize,
    whole: Completeness,
    /// Incremented by each change.
    version: u64,
    /// The index of the last entry that was looked up in the tree.
    last: u64,
    /// The hashes of names that the tree was seen to have twice.
    doubled: BTreeSet<u32>,
}

/// How complete the cache is.
#[derive(Default)]
enum Completeness {
    /// Not complete.
    #[default]
    Unknown,
    /// All existing names are cached.
    Names,
    /// The hashes of all existing names are known.
    Hashes(NameFilter),
}

enum Dentry {
    There(Arc<Entry>),
    Absent(Box<[u8]>),
}

/// The result of looking a name up in the cache.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::inode) enum CachedName {
    There(Arc<Entry>),
    Absent,
    /// Not cached; the result of reading the tree may be cached if this is still the version.
    Nothing(u64),
}

/// The existing names that share a hash, as far as they are known.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::inode) enum HashCollisions {
    /// Their number and their total length.
    Exactly {
        count: usize,
        len: usize,
    },
    /// An upper limit of their number.
    AtMost(usize),
    Unknown,
}

impl DentryBudget {
    /// Creates a budget of `max` bytes.
    pub(in crate::inode) fn new(max: usize) -> Self {
        Self { max, taken: AtomicUsize::new(0) }
    }

    fn has(&self, bytes: usize) -> bool {
        self.taken.load(Ordering::Relaxed).saturating_add(bytes) <= self.max
    }
}

impl Dentry {
    /// Returns the approximate memory in use.
    fn bytes(&self) -> usize {
        NAME_BYTES + self.name().len()
    }

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

impl DentryCache {
    /// Creates an empty cache that is not complete.
    pub(in crate::inode) fn unknown(budget: &Arc<DentryBudget>) -> Self {
        Self::new(budget, Completeness::Unknown)
    }

    /// Creates the complete cache of a new directory.
    pub(in crate::inode) fn of_new(budget: &Arc<DentryBudget>) -> Self {
        Self::new(budget, Completeness::Names)
    }

    fn new(budget: &Arc<DentryBudget>, whole: Completeness) -> Self {
        let budget = Arc::clone(budget);
        let by_hash = HashMap::default();
        let doubled = BTreeSet::new();
        Self { budget, taken: 0, by_hash, count: 0, whole, version: 0, last: 0, doubled }
    }

    fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        self.budget.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&mut self, bytes: usize) {
        self.taken -= bytes;
        self.budget.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(in crate::inode) fn find(&self, hash: u32, name: &[u8]) -> CachedName {
        let mut alike = self.by_hash.get(&hash).into_iter().flat_map(|alike| alike.iter());
        match alike.find(|dentry| dentry.name() == name) {
            Some(Dentry::There(entry)) => CachedName::There(Arc::clone(entry)),
            Some(Dentry::Absent(_)) => CachedName::Absent,
            None => match &self.whole {
                Completeness::Names => CachedName::Absent,
                Completeness::Hashes(hashes) if !hashes.may_have(hash, name) => CachedName::Absent,
                Completeness::Hashes(_) | Completeness::Unknown => {
                    CachedName::Nothing(self.version)
                }
            },
        }
    }

    /// Returns what is known of the existing names with this hash.
    pub(in crate::inode) fn alike(&self, hash: u32) -> HashCollisions {
        match &self.whole {
            Completeness::Unknown => HashCollisions::Unknown,
            Completeness::Names => {
                let alike = self.by_hash.get(&hash).into_iter().flat_map(|alike| alike.iter());
                let lens = alike.filter_map(Dentry::entry).map(|entry| entry.name.len());
                let (count, len) = lens.fold((0, 0), |(count, sum), len| (count + 1, sum + len));
                HashCollisions::Exactly { count, len }
            }
            Completeness::Hashes(hashes) => HashCollisions::AtMost(hashes.count_alike(hash)),
        }
    }

    /// Returns all entries from an index on, in order; `None` if the cache is not complete or too
    /// large.
    pub(in crate::inode) fn list(&self, from: u64) -> Option<Vec<Arc<Entry>>> {
        if self.count > SORTED_MAX || !matches!(self.whole, Completeness::Names) {
            return None;
        }
        let there = self.by_hash.values().flat_map(|alike| alike.iter()).filter_map(Dentry::entry);
        let mut listed: Vec<_> = there.filter(|entry| entry.index >= from).cloned().collect();
        listed.sort_unstable_by_key(|entry| entry.index);
        Some(listed)
    }

    /// Records that an entry was added.
    pub(in crate::inode) fn enter(&mut self, entry: &Arc<Entry>) {
        self.version += 1;
        let hash = entry.hash();
        self.put(hash, Dentry::There(Arc::clone(entry)));
        if let Completeness::Hashes(hashes) = &mut self.whole {
            let more = hashes.insert(hash, &entry.name);
            self.take(more);
        }
    }

    /// Records that an entry was removed. The absent name is not cached: names that are added and
    /// removed repeatedly are found in the delayed items, and memory is better spent on existing
    /// names.
    pub(in crate::inode) fn leave(&mut self, entry: &Entry) {
        self.version += 1;
        let hash = entry.hash();
        if let Completeness::Hashes(hashes) = &mut self.whole {
            let less = hashes.remove(hash, &entry.name);
            self.give_back(less);
        }
        let Some(alike) = self.by_hash.get_mut(&hash) else { return };
        let place = alike.iter().position(|dentry| *dentry.name() == *entry.name);
        let Some(place) = place else { return };
        let bytes = alike.remove(place).bytes();
        if alike.is_empty() {
            self.by_hash.remove(&hash);
        }
        self.count -= 1;
        self.give_back(bytes);
    }

    /// Caches an absent name, if the tree was read in this version.
    pub(in crate::inode) fn learn_absent(&mut self, version: u64, hash: u32, name: &[u8]) {
        if version == self.version {
            self.put(hash, Dentry::Absent(name.into()));
        }
    }

    /// Notes that the tree has a name with this hash twice.
    pub(in crate::inode) fn learn_doubled(&mut self, hash: u32) {
        if self.doubled.len() >= DOUBLED_MAX {
            self.doubled.clear();
        }
        self.doubled.insert(hash);
    }

    /// Returns true if the tree was seen to have a name with this hash twice, and forgets that.
    pub(in crate::inode) fn take_doubled(&mut self, hash: u32) -> bool {
        self.doubled.remove(&hash)
    }

    /// Caches an entry, if the tree was read in this version.
    pub(in crate::inode) fn learn(&mut self, version: u64, entry: &Arc<Entry>) {
        if version == self.version {
            self.put(entry.hash(), Dentry::There(Arc::clone(entry)));
        }
    }

    /// Returns the version if an entry that was looked up in the tree is closely after the previous
    /// one.
    pub(in crate::inode) fn follows(&mut self, index: u64) -> Option<u64> {
        let before = std::mem::replace(&mut self.last, index);
        (before < index && index - before <= CLOSE).then_some(self.version)
    }

    /// Caches entries that follow in the directory, if the tree was read in this version.
    pub(in crate::inode) fn learn_ahead(&mut self, version: u64, entries: &[Arc<Entry>]) {
        for entry in entries {
            self.learn(version, entry);
        }
        self.last = entries.last().map_or(self.last, |entry| entry.index);
    }

    /// Returns true if nothing changed since this version.
    pub(in crate::inode) fn is_version(&self, version: u64) -> bool {
        self.version == version
    }

    fn put(&mut self, hash: u32, dentry: Dentry) {
        if self.count >= NAMES_MAX || !self.budget.has(dentry.bytes()) {
            self.forget();
        }
        let alike = self.by_hash.entry(hash).or_default();
        if let Some(other) = alike.iter_mut().find(|other| other.name() == dentry.name()) {
            *other = dentry;
        } else {
            let bytes = dentry.bytes();
            alike.push(dentry);
            self.count += 1;
            self.take(bytes);
        }
    }

    fn forget(&mut self) {
        self.count = 0;
        let by_hash = std::mem::take(&mut self.by_hash);
        let whole = std::mem::take(&mut self.whole);
        self.give_back(self.taken);
        let hashes = match whole {
            Completeness::Unknown => return,
            Completeness::Names => hashes_of(&by_hash),
            Completeness::Hashes(hashes) => hashes,
        };
        let bytes = hashes.bytes();
        if self.budget.has(bytes) {
            self.take(bytes);
            self.whole = Completeness::Hashes(hashes);
        }
    }
}

/// Returns a filter of the existing names.
fn hashes_of(by_hash: &HashMap<u32, Few<Dentry>, ShortKeys>) -> NameFilter {
    let mut hashes = NameFilter::default();
    for (hash, alike) in by_hash {
        for entry in alike.iter().filter_map(Dentry::entry) {
            hashes.insert(*hash, &entry.name);
        }
    }
    hashes
}

impl Drop for DentryCache {
    fn drop(&mut self) {
        self.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::testing::entry;

    #[test]
    fn complete_cache_knows_absent_names_also_when_full() {
        let mut dentry_cache = DentryCache::of_new(&Arc::new(DentryBudget::new(usize::MAX)));
        let a = entry(2, b"a", 300);
        assert_eq!(dentry_cache.find(a.hash(), b"a"), CachedName::Absent);
        dentry_cache.enter(&a);
        assert_eq!(dentry_cache.find(a.hash(), b"a"), CachedName::There(Arc::clone(&a)));
        assert_eq!(dentry_cache.alike(a.hash()), HashCollisions::Exactly { count: 1, len: 1 });
        dentry_cache.leave(&a);
        assert_eq!(dentry_cache.find(a.hash(), b"a"), CachedName::Absent);
        let name = |number: u64| number.to_string().into_bytes();
        dentry_cache.enter(&a);
        for number in 0..=NAMES_MAX as u64 {
            dentry_cache.enter(&entry(number + 3, &name(number), number));
        }
        assert_eq!(dentry_cache.find(a.hash(), b"a"), CachedName::Nothing(dentry_cache.version));
        assert!(matches!(dentry_cache.alike(a.hash()), HashCollisions::AtMost(1..)));
        let absent = entry(0, b"absent", 0);
        let present = entry(0, &name(7), 0);
        assert_eq!(dentry_cache.find(absent.hash(), b"absent"), CachedName::Absent);
        assert_eq!(dentry_cache.alike(absent.hash()), HashCollisions::AtMost(0));
        assert_eq!(
            dentry_cache.find(present.hash(), &name(7)),
            CachedName::Nothing(dentry_cache.version)
        );
        dentry_cache.leave(&a);
        assert_eq!(dentry_cache.find(a.hash(), b"a"), CachedName::Absent);
        assert_eq!(dentry_cache.alike(a.hash()), HashCollisions::AtMost(0));
    }

    #[test]
    fn result_read_before_change_is_not_cached() {
        let mut dentry_cache = DentryCache::unknown(&Arc::new(DentryBudget::new(usize::MAX)));
        let a = entry(2, b"a", 300);
        let CachedName::Nothing(version) = dentry_cache.find(a.hash(), b"a") else {
            panic!("unknown")
        };
        dentry_cache.enter(&a);
        dentry_cache.learn_absent(version, a.hash(), b"a");
        assert_eq!(dentry_cache.find(a.hash(), b"a"), CachedName::There(Arc::clone(&a)));
        dentry_cache.leave(&a);
        dentry_cache.learn(version, &a);
        assert_eq!(dentry_cache.find(a.hash(), b"a"), CachedName::Nothing(dentry_cache.version));
    }

    #[test]
    fn sequential_lookups_cache_following_names() {
        let mut dentry_cache = DentryCache::unknown(&Arc::new(DentryBudget::new(usize::MAX)));
        let entries = [301, 305].map(|index| entry(index, format!("{index}").as_bytes(), index));
        assert_eq!(dentry_cache.follows(300), None);
        assert_eq!(dentry_cache.follows(300), None);
        let version = dentry_cache.follows(300 + CLOSE).unwrap();
        dentry_cache.learn_ahead(version, &entries);
        assert_eq!(
            dentry_cache.find(entries[1].hash(), b"305"),
            CachedName::There(Arc::clone(&entries[1]))
        );
        assert_eq!(dentry_cache.follows(306), Some(version));
        assert_eq!(dentry_cache.follows(305), None);
    }

    #[test]
    fn cache_over_budget_drops_its_own_names_and_returns_memory() {
        let budget = Arc::new(DentryBudget::new(100 * NAME_BYTES));
        let mut one = DentryCache::of_new(&budget);
        let mut other = DentryCache::of_new(&budget);
        let name = |number: u64| entry(number + 3, &number.to_string().into_bytes(), number);
        one.enter(&name(0));
        for number in 0..100 {
            other.enter(&name(number));
        }
        assert!(other.count < 100 && matches!(other.whole, Completeness::Hashes(_)));
        assert_eq!(other.find(name(200).hash(), b"200"), CachedName::Absent);
        assert_eq!(one.find(name(0).hash(), b"0"), CachedName::There(name(0)));
        other.leave(&name(99));
        drop(other);
        one.leave(&name(0));
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
        let mut none = DentryCache::of_new(&Arc::new(DentryBudget::new(NAME_BYTES)));
        (0..NAME_BYTES as u64).for_each(|number| none.enter(&name(number)));
        assert_eq!(none.find(name(1).hash(), b"1"), CachedName::Nothing(none.version));
        assert!(none.taken <= 2 * NAME_BYTES);
    }
}
