//! File data: the page cache, the extents on disk, and the I/O between them.
//!
//! | folder      | holds                                                                         |
//! |-------------|-------------------------------------------------------------------------------|
//! | `cache`     | the page cache: the blocks of each file, dirty or clean, and the bound of all |
//! | `read`      | reads: extent maps, device requests, checksums, readahead                     |
//! | `writeback` | from dirty blocks to extents: allocate, submit, complete                      |
//! | `ops`       | the system calls: write, direct I/O, truncate, fallocate                      |
//!
//! A read takes cached blocks from the page cache. For the rest, the file's extents are split into
//! *pieces*, each a part of one extent that can be read in one go; all pieces of a window are
//! submitted together; their checksums are looked up while they are in flight; each piece is then
//! verified, read from another mirror if the first copy is bad, and decompressed.
//!
//! A write reserves space for the sectors that it newly dirties, copies the bytes into the page
//! cache and extends the file there. Writeback later allocates space, submits the data and computes
//! its checksums while it is in flight; once the data is on the device, its extents are put into
//! the file, in one change.
//!
//! 1. No byte leaves this module unverified, unless its inode is NODATASUM.
//! 2. The memory of a read is bounded by its window, and by one compressed extent for each piece in
//!    flight.
//! 3. Gaps between extents, holes and preallocated extents read as zeros; nothing reads past the
//!    size of the file.
//! 4. Cached data is newer than the data on disk, or equal to it.

mod cache;
mod ops;
mod read;
mod writeback;

pub(crate) use cache::dirty::{Delta, DirtyRun, DirtyRuns};
pub(crate) use cache::file_pages::FilePages;
pub(crate) use cache::page_cache::{PageCache, UnfinishedFile};
pub(crate) use cache::writeback_errors::ErrSeq;
pub use ops::fallocate::Allocate;
pub(crate) use ops::write::Times;
pub(crate) use read::checksums::SectorChecksums;
pub(crate) use read::extent_reader::{ReadExtents, fetch};
pub(crate) use read::get_extent::ExtentMaps;
pub(crate) use read::readahead::Stream;
pub(crate) use read::requests::{ReadRequest, ReadSource, pieces};
pub(crate) use writeback::context::{WriteContext, WriteOptions, WritebackHandle};
pub(crate) use writeback::ordered::OrderedExtents;

use userbtrfs_format::{InodeFlags, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::TransactionManager;

use crate::error::InodeId;
use crate::inode::{ExtentChanges, Inode};

/// A snapshot of the state that is needed to read a file from disk.
#[derive(Clone)]
pub(crate) struct BackingExtents {
    /// The file.
    pub(crate) id: InodeId,
    /// The inode, which knows the extents that are not in the tree yet.
    pub(crate) inode: Arc<Inode>,
    /// The size in bytes.
    pub(crate) size: u64,
    /// Whether the data has checksums.
    pub(crate) checksummed: bool,
    /// Knows the checksums that are not in their tree yet; `None` if none can be pending.
    pub(crate) transactions: Option<Arc<TransactionManager>>,
    /// Extents in flight, which will replace those on disk; `None` if the reader ignores them.
    pub(crate) arriving: Option<Arc<ExtentChanges>>,
}

impl BackingExtents {
    /// Returns the present state of the file.
    pub(crate) fn new(inode: &Arc<Inode>, transactions: Option<&Arc<TransactionManager>>) -> Self {
        let (id, item) = (inode.id(), inode.item());
        let free = item.flags.contains(InodeFlags::NODATASUM) || id.subvolume == TreeId::ROOT;
        let (inode, transactions) = (Arc::clone(inode), transactions.cloned());
        Self { id, inode, size: item.size, checksummed: !free, transactions, arriving: None }
    }
}
