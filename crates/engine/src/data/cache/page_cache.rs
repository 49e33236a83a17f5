//! All files in memory, and the bound of what they take.
//!
//! 1. There is at most one [`FilePages`] of a file. It lives while somebody holds it, or while it
//!    has blocks: those hold it.
//! 2. Blocks that are not needed go, oldest first, but what was asked for since it was last looked
//!    at stays for another round. What is unfinished stays; so does what somebody else holds.
//! 3. The bound may be passed by what stays, and by what one read or write brings. Who makes data
//!    dirty sees to it that what stays is no more than the bound.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Weak;
use std::time::Instant;

use userbtrfs_btree::ShortKeys;
use userbtrfs_device::Buffer;
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_transaction::TransactionManager;

use crate::data::cache::block::SECTOR;
use crate::data::cache::blocks::{Evicted, Usage};
use crate::data::cache::file_pages::{BLOCK, FilePages};
use crate::data::cache::writeback_errors::WritebackErrors;
use crate::error::InodeId;
use crate::inode::Inode;

const SHARDS: usize = 16;

/// The most blocks that are read at once, so that a read does not drive out what it brought.
const AHEAD_MAX: u64 = 16;

/// How many blocks are looked at, at most, by one who keeps the bound.
const LOOKS_MAX: usize = 4096;

/// How many places in the list may be of blocks that are gone, beside as many as there are blocks.
const GONE_MAX: u64 = 1024;

/// See the module's text.
pub(crate) struct PageCache {
    shared: Arc<Shared>,
}

/// Files by their inodes.
type Files = HashMap<InodeId, Weak<FilePages>, ShortKeys>;

/// What the files in memory share.
pub(in crate::data) struct Shared {
    shards: [Mutex<Files>; SHARDS],
    /// Blocks, oldest first, by their first sectors and their tickets; some are gone.
    ages: Mutex<VecDeque<(Arc<FilePages>, u64, u64)>>,
    /// The files that are unfinished, in the order in which something was taken of them, or they
    /// became dirty.
    unfinished: Mutex<Unfinished>,
    pub(in crate::data) failures: WritebackErrors,
    usage: Counters,
    bytes_max: u64,
    pub(in crate::data) ahead_max: u64,
    /// What blocks of zeros share.
    pub(in crate::data) zeros: Arc<Buffer>,
    /// Nothing where the filesystem is open for reading.
    pub(in crate::data) transactions: Option<Arc<TransactionManager>>,
}

#[derive(Default)]
struct Unfinished {
    files: BTreeMap<u64, UnfinishedFile>,
    next: u64,
}

/// What all blocks take together.
#[derive(Default)]
struct Counters {
    bytes: AtomicU64,
    blocks: AtomicU64,
    unfinished: AtomicU64,
    pinned: AtomicU64,
    /// The most that it was.
    #[cfg(test)]
    unfinished_peak: AtomicU64,
}

/// Where a file stands among those that are unfinished, and since when some of it is dirty.
#[derive(Clone, Copy)]
pub(in crate::data) struct Listed {
    place: u64,
    pub(in crate::data) since: Instant,
}

/// A file with sectors that are dirty or being written.
#[derive(Clone)]
pub(crate) struct UnfinishedFile {
    /// The file.
    pub(crate) pages: Arc<FilePages>,
    /// Since when some of it is dirty.
    pub(crate) since: Instant,
}

impl PageCache {
    /// No files, and room for about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize, transactions: Option<Arc<TransactionManager>>) -> Self {
        let bytes_max = bytes_max as u64;
        let shared = Shared {
            shards: std::array::from_fn(|_| Mutex::new(Class::CacheShard, Files::default())),
            ages: Mutex::new(Class::CacheShard, VecDeque::new()),
            unfinished: Mutex::new(Class::CacheShard, Unfinished::default()),
            failures: WritebackErrors::new(),
            usage: Counters::default(),
            bytes_max,
            ahead_max: (bytes_max / BLOCK as u64 / 8).clamp(1, AHEAD_MAX),
            zeros: Arc::new(Buffer::zeroed(BLOCK)),
            transactions,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The file of an inode in memory.
    pub(crate) fn pages(&self, inode: &Arc<Inode>) -> Arc<FilePages> {
        if let Some(there) = self.get(inode.id()) {
            return there;
        }
        let new = FilePages::new(inode, &self.shared);
        let mut shard = self.shared.shard(inode.id()).lock();
        if let Some(there) = shard.get(&inode.id()).and_then(Weak::upgrade) {
            // The new one takes the lock when it goes.
            drop(shard);
            return there;
        }
        shard.insert(inode.id(), Arc::downgrade(&new));
        new
    }

    /// The same, if it is here.
    pub(crate) fn get(&self, id: InodeId) -> Option<Arc<FilePages>> {
        self.shared.shard(id).lock().get(&id).and_then(Weak::upgrade)
    }

    /// Drops what is not unfinished of a file that is gone.
    pub(crate) fn forget(&self, id: InodeId) {
        if let Some(pages) = self.get(id) {
            pages.drop_clean();
        }
    }

    /// What could not be written.
    pub(in crate::data) fn failures(&self) -> &WritebackErrors {
        &self.shared.failures
    }

    /// The bytes of all sectors that are dirty, or being written.
    pub(crate) fn unfinished_bytes(&self) -> u64 {
        self.shared.usage.unfinished.load(Ordering::Relaxed) * SECTOR as u64
    }

    /// The bytes of memory that stay for such sectors.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.shared.usage.pinned.load(Ordering::Relaxed)
    }

    /// About how much all files may take.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.shared.bytes_max
    }

    /// The most bytes that were ever unfinished.
    #[cfg(test)]
    pub(crate) fn unfinished_peak(&self) -> u64 {
        self.shared.usage.unfinished_peak.load(Ordering::Relaxed) * SECTOR as u64
    }

    /// About how much they do.
    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.shared.usage.bytes.load(Ordering::Relaxed)
    }

    /// How many files are in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// The files that are unfinished, those first of which nothing was taken for the longest time.
    pub(crate) fn unfinished_files(&self) -> Vec<UnfinishedFile> {
        self.shared.unfinished.lock().files.values().cloned().collect()
    }

    /// The first of them, at most so many.
    pub(crate) fn oldest_unfinished(&self, max: usize) -> Vec<UnfinishedFile> {
        self.shared.unfinished.lock().files.values().take(max).cloned().collect()
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        // What is here holds its files, and they hold this. None of it goes under the lock.
        let ages = std::mem::take(&mut *self.shared.ages.lock());
        let files = std::mem::take(&mut self.shared.unfinished.lock().files);
        drop((ages, files));
    }
}

impl Shared {
    fn shard(&self, id: InodeId) -> &Mutex<Files> {
        let [low, ..] = id.number.to_le_bytes();
        &self.shards[usize::from(low) % SHARDS]
    }

    /// Forgets a file that is dropped, unless there is another one of its number.
    pub(in crate::data) fn removed(&self, id: InodeId, pages: &Weak<FilePages>) {
        let failures = self.failures.count();
        let is_it = |there: &Weak<FilePages>| Weak::ptr_eq(there, pages);
        let mut shard = self.shard(id).lock();
        let was_last = shard.get(&id).is_some_and(is_it) && shard.remove(&id).is_some();
        drop(shard);
        if was_last {
            self.failures.closed(id, failures);
        }
    }

    /// What the blocks of a file take changed.
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

    /// Puts blocks of a file at the end of the list: their first sectors and tickets.
    pub(in crate::data) fn enlist(&self, pages: &Arc<FilePages>, blocks: Vec<(u64, u64)>) {
        let place = |(first, ticket)| (Arc::clone(pages), first, ticket);
        self.ages.lock().extend(blocks.into_iter().map(place));
    }

    /// Puts a file behind those that are unfinished, of which some is dirty since then.
    pub(in crate::data) fn list(&self, pages: Arc<FilePages>, since: Instant) -> Listed {
        let mut unfinished = self.unfinished.lock();
        unfinished.next += 1;
        let place = unfinished.next;
        unfinished.files.insert(place, UnfinishedFile { pages, since });
        Listed { place, since }
    }

    /// Takes a file away from there. The caller holds it.
    pub(in crate::data) fn unlist(&self, listed: Listed) {
        // Where the cache is dropped already, it does not stand there any more.
        let _not_the_last = self.unfinished.lock().files.remove(&listed.place);
    }

    /// Drops blocks until the bound is kept, or enough were looked at.
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
