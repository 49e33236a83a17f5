//! Data of files: which extents hold it, whether it is what was written, and what it says.
//!
//! The way of a read: the file's extents become *pieces*, each a part of one extent that can be
//! fetched at once; all pieces of a window are submitted together; while they are on their way
//! their checksums are looked up; each piece is then verified, repaired from a second copy where
//! there is one, and decompressed.
//!
//! 1. No byte leaves this module unverified, unless its inode is NODATASUM.
//! 2. What a read holds in memory is bounded by its window, and by one compressed extent for
//!    each piece in flight.
//! 3. Gaps between extents, holes and preallocated extents read as zeros; nothing reads past the
//!    size of the file.

mod cache;
mod checksums;
mod fetch;
mod pieces;
mod segments;
mod stream;

pub(crate) use cache::FileCache;
pub(crate) use fetch::{Fetched, fetch};
pub(crate) use pieces::{Piece, Source, pieces};
pub(crate) use segments::{InlineData, Segment, SegmentKind, Segments};
pub(crate) use stream::Stream;

use userbtrfs_btree::Tree;
use userbtrfs_sync::Arc;

use userbtrfs_format::{InodeFlags, TreeId};

use crate::error::InodeId;
use crate::node::{Content, Inode};

/// What reading needs to know of a file, as it is at one moment.
#[derive(Clone)]
pub(crate) struct FileSource {
    /// Which file.
    pub(crate) id: InodeId,
    /// Its subvolume.
    pub(crate) tree: Arc<Tree>,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Whether its data has checksums.
    pub(crate) checksummed: bool,
    /// Its content, where what the tree has is not it.
    pub(crate) content: Option<Content>,
    /// Grows whenever the content changes.
    pub(crate) version: u64,
}

impl FileSource {
    /// The file as it is now.
    pub(crate) fn of(inode: &Inode) -> Self {
        let (id, tree) = (inode.id(), Arc::clone(inode.tree()));
        let (item, content) = inode.snapshot();
        let free = item.flags.contains(InodeFlags::NODATASUM) || id.subvolume == TreeId::ROOT;
        let (size, version) = (item.size, item.sequence);
        Self { id, tree, size, checksummed: !free, content, version }
    }
}
