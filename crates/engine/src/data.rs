//! Data of files: in memory, in extents on disk, and on its way from one to the other.
//!
//! | folder      | holds                                                                         |
//! |-------------|-------------------------------------------------------------------------------|
//! | `cache`     | the page cache: the blocks of each file, dirty or clean, and the bound of all |
//! | `read`      | reads: extent maps, device requests, checksums, readahead                     |
//! | `writeback` | from dirty blocks to extents: allocate, submit, complete                      |
//! | `ops`       | the system calls: write, direct I/O, truncate, fallocate                      |
//!
//! The way of a read: what is in memory is taken from there. For the rest, the file's extents
//! become *pieces*, each a part of one extent that can be fetched at once; all pieces of a window
//! are submitted together; while they are on their way their checksums are looked up; each piece
//! is then verified, taken from another copy where the first is bad, and decompressed.
//!
//! The way of a write: space is reserved for what it newly dirties, the bytes are copied into
//! memory, and the file grows there. Later what is dirty is written back: space is allocated, the
//! data submitted, its checksums computed meanwhile; when it is on the device, its extents are put
//! into the file, in one change.
//!
//! 1. No byte leaves this module unverified, unless its inode is NODATASUM.
//! 2. What a read holds in memory is bounded by its window, and by one compressed extent for
//!    each piece in flight.
//! 3. Gaps between extents, holes and preallocated extents read as zeros; nothing reads past the
//!    size of the file.
//! 4. What is in memory is newer than what is beneath, or the same.

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
pub(crate) use read::extent_map::{ExtentMap, ExtentMapKind, ExtentMaps, InlineData};
pub(crate) use read::extent_reader::{ReadExtents, fetch};
pub(crate) use read::readahead::Stream;
pub(crate) use read::requests::{ReadRequest, ReadSource, pieces};
pub(crate) use writeback::context::{WriteContext, WriteOptions, WritebackHandle};
pub(crate) use writeback::ordered::OrderedExtents;

use userbtrfs_format::{InodeFlags, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::TransactionManager;

use crate::error::InodeId;
use crate::inode::{ExtentChanges, Inode};

/// What reading needs to know of what is beneath a file, at one moment.
#[derive(Clone)]
pub(crate) struct BackingExtents {
    /// Which file.
    pub(crate) id: InodeId,
    /// Its inode, which knows what waits to come into the tree.
    pub(crate) inode: Arc<Inode>,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Whether its data has checksums.
    pub(crate) checksummed: bool,
    /// Who knows which checksums wait to come into their tree; nothing where none do.
    pub(crate) transactions: Option<Arc<TransactionManager>>,
    /// What is on its way, and so about to be put over what is beneath; where that counts.
    pub(crate) arriving: Option<Arc<ExtentChanges>>,
}

impl BackingExtents {
    /// The file as it is now.
    pub(crate) fn new(inode: &Arc<Inode>, transactions: Option<&Arc<TransactionManager>>) -> Self {
        let (id, item) = (inode.id(), inode.item());
        let free = item.flags.contains(InodeFlags::NODATASUM) || id.subvolume == TreeId::ROOT;
        let (inode, transactions) = (Arc::clone(inode), transactions.cloned());
        Self { id, inode, size: item.size, checksummed: !free, transactions, arriving: None }
    }
}
