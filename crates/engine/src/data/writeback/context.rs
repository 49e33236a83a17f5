//! The state that all changes of file data share, in a filesystem that is open for writing.
//!
//! The locks of a file, in their order, and what each protects:
//!
//! 1. its operation lock: the size, against other changes of it;
//! 2. its writeback lock: the file on disk, that is its extents, pending or in the tree. A thread
//!    that adds extents or overwrites them in place holds it, over the I/O;
//! 3. its range lock: the page cache, and so what readers find.
//!
//! Space is reserved before the second is taken: a reservation may write other files back, run
//! delayed items and commit.

use std::ops::Range;

use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_transaction::TransactionManager;

use crate::compression::Compress;
use crate::data::cache::file_pages::FilePages;
use crate::data::cache::page_cache::PageCache;
use crate::data::cache::reservation::{DelallocCosts, DelallocReserved};
use crate::data::read::get_extent::ExtentMaps;
use crate::error::{InodeId, Result};
use crate::inode::{ExtentMapKind, InodeEvents, Inodes, TreeRoots};

/// Workers begin to write when one part in `EARLY` of the bound is unfinished.
const EARLY: u64 = 4;

/// The limits of writeback, and how data is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// The most bytes of data in memory that may be dirty or in flight.
    pub(crate) unfinished_max: u64,
    /// The age in seconds at which data is written back; 0 for no limit.
    pub(crate) age_seconds: u64,
    /// How data is compressed, unless the file has a property.
    pub(crate) compress: Option<Compress>,
}

/// The caches, trees and limits that changes of file data share. It writes nothing: see `writeback`
/// and `delalloc`.
pub(in crate::data) struct WriteContext {
    pub(in crate::data) cache: Arc<PageCache>,
    pub(in crate::data) nodes: Arc<Inodes>,
    pub(in crate::data) transactions: Arc<TransactionManager>,
    pub(in crate::data) costs: DelallocCosts,
    /// The most bytes of data in memory that may be unfinished.
    pub(in crate::data) unfinished_max: u64,
    /// How data is compressed, unless the file has a property.
    compress: Mutex<Option<Compress>>,
}

impl WriteContext {
    /// Returns the context of a filesystem.
    pub(in crate::data) fn new(
        cache: Arc<PageCache>,
        nodes: Arc<Inodes>,
        transactions: Arc<TransactionManager>,
        options: WriteOptions,
    ) -> Self {
        let geometry = transactions.volume().geometry();
        let costs = DelallocCosts {
            nodesize: geometry.nodesize,
            checksum: geometry.checksum_kind.size() as u64,
        };
        let WriteOptions { unfinished_max, compress, .. } = options;
        let compress = Mutex::new(Class::TransactionState, compress);
        Self { cache, nodes, transactions, costs, unfinished_max, compress }
    }

    /// Returns how data is compressed, unless the file has a property.
    pub(in crate::data) fn compress(&self) -> Option<Compress> {
        *self.compress.lock()
    }

    /// Sets how data is compressed that is written back from now on.
    pub(in crate::data) fn set_compress(&self, compress: Option<Compress>) {
        *self.compress.lock() = compress;
    }

    /// Returns the tree roots.
    pub(in crate::data) fn tree_roots(&self) -> &TreeRoots {
        self.nodes.tree_roots()
    }

    /// Returns true if there is so much unfinished data that it is written before it is old.
    pub(in crate::data) fn is_pressed(&self) -> bool {
        self.waiting_bytes() > self.unfinished_max / EARLY
    }

    /// Returns the bytes of unfinished data; more if the memory that it pins is nearer to its own
    /// bound.
    pub(in crate::data) fn waiting_bytes(&self) -> u64 {
        let by_memory = u128::from(self.cache.pinned_bytes()) * u128::from(self.unfinished_max)
            / u128::from(self.cache.bytes_max().max(1));
        self.cache.unfinished_bytes().max(u64::try_from(by_memory).unwrap_or(u64::MAX))
    }

    /// Returns the bytes that the file counts for its extents on disk in a range.
    pub(in crate::data) fn bytes_of(&self, pages: &FilePages, range: Range<u64>) -> Result<u64> {
        let source = pages.backing_extents();
        let mut segments = ExtentMaps::new(self.tree_roots(), &source, range.start, range.end);
        let mut bytes = 0;
        while let Some(segment) = segments.next()? {
            bytes += segment.counted_bytes();
        }
        Ok(bytes)
    }

    /// Returns true if a range has written data on disk.
    pub(in crate::data) fn holds_data(&self, pages: &FilePages, range: Range<u64>) -> Result<bool> {
        let source = pages.backing_extents();
        let mut segments = ExtentMaps::new(self.tree_roots(), &source, range.start, range.end);
        while let Some(segment) = segments.next()? {
            if matches!(segment.kind, ExtentMapKind::Inline(_) | ExtentMapKind::Regular(..)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Drops the cached data of a deleted file. If it is under writeback, the thread that writes it
    /// does that afterwards.
    fn purge(&self, pages: &FilePages) {
        let Some(_idle) = pages.writeback.try_lock() else { return };
        let dropped = pages.discard(0, u64::MAX);
        pages.account.settle(DelallocReserved::default(), dropped, self.costs);
        self.cache.forget(pages.id());
    }

    /// Drops the cached data of a file if it is deleted.
    pub(in crate::data) fn purge_if_dead(&self, pages: &FilePages) {
        if pages.account.is_dead() {
            self.purge(pages);
        }
    }
}

impl InodeEvents for WriteContext {
    fn gone(&self, id: InodeId) {
        if let Some(pages) = self.cache.get(id) {
            pages.account.die();
            self.purge(&pages);
        }
        self.cache.failures().deleted(id);
    }
}
