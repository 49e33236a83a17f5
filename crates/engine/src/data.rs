//! File data: the page cache, the extents on disk, and the I/O between them.
//!
//! | folder      | holds                                                                         |
//! |-------------|-------------------------------------------------------------------------------|
//! | `cache`     | the page cache: the blocks of each file, dirty or clean, and the bound of all |
//! | `read`      | reads: extent maps, device requests, checksums, readahead                     |
//! | `writeback` | from dirty blocks to extents: allocate, submit, complete                      |
//! | `ops`       | the system calls: write, direct I/O, truncate, fallocate, clone, dedupe       |
//!
//! A folder uses only those above it in this table, and [`units`], [`backing_extents`] and
//! [`helpers`].
//!
//! A read takes cached blocks from the page cache. For the rest, the file's extents are split into
//! *pieces*, each a part of one extent that can be read in one go; all pieces of a window are
//! submitted together; their checksums are looked up while they are in flight; each piece is then
//! verified, read from another mirror if the first copy is bad, and decompressed: compressed pieces
//! by several threads.
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

mod backing_extents;
mod cache;
mod helpers;
mod ops;
mod read;
mod units;
mod writeback;

pub(crate) use backing_extents::BackingExtents;
pub(crate) use cache::file_pages::FilePages;
pub(crate) use cache::page_cache::PageCache;
pub(crate) use cache::writeback_errors::ErrSeq;
pub use ops::dedupe::Deduped;
pub use ops::defragment::Defragment;
pub use ops::fallocate::Allocate;
pub(crate) use ops::file_ops::FileOps;
pub(crate) use ops::share::ShareRange;
pub(crate) use read::checksums::SectorChecksums;
pub(crate) use read::extent_reader::{ReadExtents, fetch};
pub(crate) use read::get_extent::ExtentMaps;
pub(crate) use read::readahead::Stream;
pub(crate) use read::requests::pieces;
pub(crate) use units::Times;
pub(crate) use writeback::Writeback;
pub(crate) use writeback::context::WriteOptions;
pub(crate) use writeback::ordered::OrderedExtents;
