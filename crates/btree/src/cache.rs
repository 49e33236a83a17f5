//! A cache of shared values, in shards, bounded in bytes. Nodes are kept in one, and contents of
//! files in another.
//!
//! 1. Each shard holds at most its share of the bound, plus one value, plus values in use, which
//!    are never evicted. An insertion that meets many of these in a row may exceed the bound;
//!    later insertions restore it.
//! 2. A value that was referenced since the clock hand last passed it gets another round (CLOCK).
//! 3. If two threads insert a value of the same key, the first one stays.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

use userbtrfs_sync::{Arc, Class, Mutex};

use crate::hash::ShortKeys;

const SHARDS: usize = 16;

/// The number of values examined for one insertion. If all of them are in use, later insertions
/// restore the bound.
const LOOKS_MAX: usize = 64;

/// A cache of values by their keys.
pub struct Cache<K, V> {
    shards: [Mutex<Shard<K, V>>; SHARDS],
    /// Selects the shard of a key. It is keyed with a secret: nobody can choose keys that all
    /// fall into one shard.
    hasher: ShortKeys,
}

struct Shard<K, V> {
    slots: HashMap<K, Slot<V>, ShortKeys>,
    hand: VecDeque<K>,
    bytes: usize,
    bytes_max: usize,
}

struct Slot<V> {
    value: Arc<V>,
    bytes: usize,
    asked_for: bool,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// Creates an empty cache that holds about `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max / SHARDS;
        let shard = |_| {
            let slots = HashMap::default();
            let hand = VecDeque::new();
            Mutex::new(Class::CacheShard, Shard { slots, hand, bytes: 0, bytes_max })
        };
        Self { shards: std::array::from_fn(shard), hasher: ShortKeys::default() }
    }

    /// Returns the value of `key`, if it is cached.
    pub fn get(&self, key: K) -> Option<Arc<V>> {
        let mut shard = self.shard(key).lock();
        let slot = shard.slots.get_mut(&key)?;
        slot.asked_for = true;
        Some(Arc::clone(&slot.value))
    }

    /// Returns whether the value of `key` is cached; does not mark it as referenced.
    pub fn contains(&self, key: K) -> bool {
        self.shard(key).lock().slots.contains_key(&key)
    }

    /// Adds a value of `bytes` bytes, or returns the one that was added first.
    pub fn insert(&self, key: K, value: Arc<V>, bytes: usize) -> Arc<V> {
        let mut shard = self.shard(key).lock();
        if let Some(slot) = shard.slots.get(&key) {
            return Arc::clone(&slot.value);
        }
        shard.make_room(bytes);
        shard.bytes += bytes;
        shard.hand.push_back(key);
        shard.slots.insert(key, Slot { value: Arc::clone(&value), bytes, asked_for: false });
        value
    }

    /// Removes the value of `key`.
    pub fn remove(&self, key: K) {
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        let Some(slot) = shard.slots.remove(&key) else { return };
        shard.bytes -= slot.bytes;
        // Keys of removed values must not accumulate in `hand`.
        if shard.hand.len() > 2 * shard.slots.len() + 64 {
            shard.hand = shard.slots.keys().copied().collect();
        }
    }

    fn shard(&self, key: K) -> &Mutex<Shard<K, V>> {
        // Other bits than those that the hash maps use.
        let number = (self.hasher.hash_one(key) >> 32) % SHARDS as u64;
        &self.shards[usize::try_from(number).expect("below the number of shards")]
    }
}

impl<K: Copy + Eq + Hash, V> Shard<K, V> {
    /// Evicts values until `bytes` bytes fit, or enough values were examined.
    fn make_room(&mut self, bytes: usize) {
        for _ in 0..LOOKS_MAX.min(2 * self.hand.len()) {
            if self.bytes + bytes <= self.bytes_max {
                return;
            }
            let Some(key) = self.hand.pop_front() else { return };
            // A removed value leaves its key in `hand`.
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            let in_use = Arc::strong_count(&slot.value) > 1;
            if in_use || std::mem::take(&mut slot.asked_for) {
                self.hand.push_back(key);
            } else {
                self.bytes -= slot.bytes;
                self.slots.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(cache: &Cache<u64, u64>) -> usize {
        cache.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }

    fn insert(cache: &Cache<u64, u64>, key: u64) -> Arc<u64> {
        cache.insert(key, Arc::new(key), 4096)
    }

    #[test]
    fn the_cache_keeps_its_bound() {
        let cache = Cache::new(1600 * 4096);
        for key in 0..10_000 {
            insert(&cache, key);
        }
        assert!((1500..=1600).contains(&len(&cache)), "{} values", len(&cache));
    }

    #[test]
    fn values_in_use_are_not_evicted() {
        let cache = Cache::new(0);
        let used: Vec<_> = (0..500).map(|key| insert(&cache, key)).collect();
        for (key, used) in (0..).zip(&used) {
            assert!(Arc::ptr_eq(&cache.get(key).unwrap(), used));
        }
    }

    #[test]
    fn referenced_value_outlives_unreferenced_values() {
        let cache = Cache::new(64 * 4096);
        insert(&cache, 0);
        for key in 1..10_000 {
            assert!(cache.get(0).is_some(), "gone after {key}");
            insert(&cache, key);
        }
    }

    #[test]
    fn second_insert_returns_first_value_and_contains_does_not_keep_it() {
        let cache = Cache::new(64 * 4096);
        assert!(Arc::ptr_eq(&insert(&cache, 7), &insert(&cache, 7)));
        for key in 8..10_000 {
            cache.contains(7);
            insert(&cache, key);
        }
        assert!(!cache.contains(7));
    }
}
