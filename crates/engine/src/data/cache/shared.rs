//! The lists and counts that the files of a page cache share.
//!
//! 1. A list holds references to files, and files refer to these lists. So the lists take any type
//!    of file that can evict a block.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Weak;
use std::time::Instant;

use userbtrfs_btree::ShortKeys;
use userbtrfs_device::Buffer;
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_transaction::TransactionManager;

use crate::data::cache::blocks::{Evicted, Usage};
use crate::data::cache::writeback_errors::WritebackErrors;
use crate::data::helpers::Helpers;
use crate::data::units::BLOCK;
use crate::error::InodeId;
use crate::units::SECTOR;

const SHARDS: usize = 16;

/// The most blocks that are read at once, so that a read does not evict its own blocks.
const AHEAD_MAX: u64 = 16;

/// The most blocks that one call of `shrink` looks at.
const LOOKS_MAX: usize = 4096;

/// The most entries for dropped blocks in the eviction list, besides one per existing block.
const GONE_MAX: u64 = 1024;

/// A file whose blocks are in the eviction list.
pub(in crate::data) trait CachedFile {
    /// Drops the block with this ticket, if it is not in use.
    fn evict(&self, first: u64, ticket: u64) -> Evicted;
}

/// Files by their inodes.
type Files<F> = HashMap<InodeId, Weak<F>, ShortKeys>;

/// The state that the files in memory share.
pub(in crate::data) struct CacheShared<F> {
    shards: [Mutex<Files<F>>; SHARDS],
    /// The eviction list: the first sectors and the tickets of blocks, oldest first; some are gone.
    ages: Mutex<VecDeque<(Arc<F>, u64, u64)>>,
    /// The unfinished files, in the order in which runs were taken from them or they became dirty.
    unfinished: Mutex<Unfinished<F>>,
    pub(in crate::data) failures: WritebackErrors,
    usage: Counters,
    pub(in crate::data) bytes_max: u64,
    pub(in crate::data) ahead_max: u64,
    /// The buffer that blocks of zeros share.
    pub(in crate::data) zeros: Arc<Buffer>,
    /// The threads that may help to compress and decompress.
    pub(in crate::data) helpers: Helpers,
    /// `None` if the filesystem is open read-only.
    pub(in crate::data) transactions: Option<Arc<TransactionManager>>,
}

struct Unfinished<F> {
    files: BTreeMap<u64, UnfinishedFile<F>>,
    next: u64,
}

/// The counts of all blocks.
#[derive(Default)]
struct Counters {
    bytes: AtomicU64,
    blocks: AtomicU64,
    unfinished: AtomicU64,
    pinned: AtomicU64,
    /// The highest value of `unfinished`.
    #[cfg(test)]
    unfinished_peak: AtomicU64,
}

/// The position of a file in the list of unfinished files, and since when it has been dirty.
#[derive(Clone, Copy)]
pub(in crate::data) struct Listed {
    place: u64,
    pub(in crate::data) since: Instant,
}

/// A file with sectors that are dirty or being written.
pub(crate) struct UnfinishedFile<F> {
    /// The file.
    pub(crate) pages: Arc<F>,
    /// Since when it has been dirty.
    pub(crate) since: Instant,
}

impl<F> Clone for UnfinishedFile<F> {
    fn clone(&self) -> Self {
        Self { pages: Arc::clone(&self.pages), since: self.since }
    }
}

impl<F> Default for Unfinished<F> {
    fn default() -> Self {
        Self { files: BTreeMap::new(), next: 0 }
    }
}

impl<F: CachedFile> CacheShared<F> {
    /// Returns the state of an empty cache of about `bytes_max` bytes.
    pub(in crate::data) fn new(
        bytes_max: u64,
        transactions: Option<Arc<TransactionManager>>,
    ) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(Class::CacheShard, Files::default())),
            ages: Mutex::new(Class::CacheShard, VecDeque::new()),
            unfinished: Mutex::new(Class::CacheShard, Unfinished::default()),
            failures: WritebackErrors::new(),
            usage: Counters::default(),
            bytes_max,
            ahead_max: (bytes_max / BLOCK as u64 / 8).clamp(1, AHEAD_MAX),
            zeros: Arc::new(Buffer::zeroed(BLOCK)),
            helpers: Helpers::new(),
            transactions,
        }
    }

    /// Returns a file; `None` if there is none.
    pub(in crate::data) fn get(&self, id: InodeId) -> Option<Arc<F>> {
        self.shard(id).lock().get(&id).and_then(Weak::upgrade)
    }

    /// Adds a file, unless there is one of the same inode; returns the one that is there.
    pub(in crate::data) fn get_or_insert(&self, id: InodeId, new: Arc<F>) -> Arc<F> {
        let mut shard = self.shard(id).lock();
        if let Some(there) = shard.get(&id).and_then(Weak::upgrade) {
            // Dropping the new one locks the shard.
            drop(shard);
            return there;
        }
        shard.insert(id, Arc::downgrade(&new));
        new
    }

    /// Returns the files whose inodes are `wanted`.
    pub(in crate::data) fn files(&self, wanted: impl Fn(&InodeId) -> bool) -> Vec<Arc<F>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let of_shard = shard.iter().filter(|(id, _)| wanted(id));
            found.extend(of_shard.filter_map(|(_, file)| file.upgrade()));
        }
        found
    }

    /// Drops the references to files that the eviction list holds, although their blocks may be
    /// gone.
    pub(in crate::data) fn forget_ages(&self, unwanted: impl Fn(&F) -> bool) {
        let mut ages = self.ages.lock();
        let dropped: Vec<_> = ages.iter().filter(|(file, ..)| unwanted(file)).cloned().collect();
        ages.retain(|(file, ..)| !unwanted(file));
        // None may be dropped under the lock.
        drop(ages);
        drop(dropped);
    }

    /// Returns the bytes of all sectors that are dirty or being written.
    pub(in crate::data) fn unfinished_bytes(&self) -> u64 {
        self.usage.unfinished.load(Ordering::Relaxed) * SECTOR
    }

    /// Returns the bytes of memory that cannot be evicted because of such sectors.
    pub(in crate::data) fn pinned_bytes(&self) -> u64 {
        self.usage.pinned.load(Ordering::Relaxed)
    }

    /// Returns the most bytes that were ever unfinished.
    #[cfg(test)]
    pub(in crate::data) fn unfinished_peak(&self) -> u64 {
        self.usage.unfinished_peak.load(Ordering::Relaxed) * SECTOR
    }

    /// Returns about how many bytes all files take.
    #[cfg(test)]
    pub(in crate::data) fn used_bytes(&self) -> u64 {
        self.usage.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of files in memory.
    #[cfg(test)]
    pub(in crate::data) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Returns the first `max` unfinished files: those first from which nothing was taken for the
    /// longest time.
    pub(in crate::data) fn oldest_unfinished(&self, max: usize) -> Vec<UnfinishedFile<F>> {
        self.unfinished.lock().files.values().take(max).cloned().collect()
    }

    /// Drops the references to files that the lists hold.
    pub(in crate::data) fn clear(&self) {
        // None may be dropped under the lock.
        let ages = std::mem::take(&mut *self.ages.lock());
        let files = std::mem::take(&mut self.unfinished.lock().files);
        drop((ages, files));
    }

    fn shard(&self, id: InodeId) -> &Mutex<Files<F>> {
        let [low, ..] = id.number.to_le_bytes();
        &self.shards[usize::from(low) % SHARDS]
    }

    /// Removes a file that is dropped, unless a new one of the same inode has replaced it.
    pub(in crate::data) fn removed(&self, id: InodeId, pages: &Weak<F>) {
        let failures = self.failures.count();
        let is_it = |there: &Weak<F>| Weak::ptr_eq(there, pages);
        let mut shard = self.shard(id).lock();
        let was_last = shard.get(&id).is_some_and(is_it) && shard.remove(&id).is_some();
        drop(shard);
        if was_last {
            self.failures.closed(id, failures);
        }
    }

    /// Updates the counts after the blocks of a file changed.
    pub(in crate::data) fn account(&self, before: Usage, after: Usage) {
        let count = |counter: &AtomicU64, before: u64, after: u64| {
            if before != after {
                counter.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
            }
        };
        count(&self.usage.bytes, before.bytes, after.bytes);
        count(&self.usage.blocks, before.blocks, after.blocks);
        count(&self.usage.unfinished, before.unfinished, after.unfinished);
        count(&self.usage.pinned, before.pinned, after.pinned);
        #[cfg(test)]
        self.usage
            .unfinished_peak
            .fetch_max(self.usage.unfinished.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Appends blocks of a file to the eviction list: their first sectors and tickets.
    pub(in crate::data) fn enlist(&self, pages: &Arc<F>, blocks: Vec<(u64, u64)>) {
        let place = |(first, ticket)| (Arc::clone(pages), first, ticket);
        self.ages.lock().extend(blocks.into_iter().map(place));
    }

    /// Appends a file that has been dirty since `since` to the list of unfinished files.
    pub(in crate::data) fn list(&self, pages: Arc<F>, since: Instant) -> Listed {
        let mut unfinished = self.unfinished.lock();
        unfinished.next += 1;
        let place = unfinished.next;
        unfinished.files.insert(place, UnfinishedFile { pages, since });
        Listed { place, since }
    }

    /// Removes a file from that list. The caller holds a reference to it.
    pub(in crate::data) fn unlist(&self, listed: Listed) {
        // If the cache has been dropped, the entry is gone already.
        let _not_the_last = self.unfinished.lock().files.remove(&listed.place);
    }

    /// Evicts blocks until the bound is met, or enough were looked at.
    pub(in crate::data) fn shrink(&self) {
        for _ in 0..LOOKS_MAX {
            if !self.is_full() {
                return;
            }
            let Some((pages, first, ticket)) = self.ages.lock().pop_front() else { return };
            if pages.evict(first, ticket) == Evicted::Kept {
                self.ages.lock().push_back((pages, first, ticket));
            }
        }
    }

    fn is_full(&self) -> bool {
        let Counters { bytes, blocks, .. } = &self.usage;
        bytes.load(Ordering::Relaxed) > self.bytes_max
            || self.ages.lock().len() as u64 > 2 * blocks.load(Ordering::Relaxed) + GONE_MAX
    }
}
