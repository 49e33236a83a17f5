//! The space, the checksums and the references of file data.
//!
//! 1. Data is reserved, then allocated, then written, and then *counted*: by the first reference to
//!    it, in a transaction that may be later than that of the allocation. The next superblock does
//!    not include data that is not counted, and its space is free after a crash.
//! 2. Space for data is searched, and chunks are made, in a transaction: no commit is writing the
//!    trees that record free space, nor the list of chunks. No lock is held while those trees are
//!    read.
//! 3. The checksums of an extent are added in the transaction that counts it, and before it is
//!    visible in a file. They are in memory or in the tree, and for a moment in both.

use userbtrfs_btree::{Backref, Extent};
use userbtrfs_format::{Logical, TreeId};

use crate::commit::{Handle, HandleKind};
use crate::error::{Error, Result};
use crate::manager::TransactionManager;
use crate::refs;
use crate::space::{NocowGuard, SpaceKind};

/// An extent that is shorter, though more was asked for, is allocated only if neither more free
/// space can be read nor a chunk be made.
const GOOD_LEN: u64 = 1 << 20;

/// A reference of a file to an extent on disk.
#[derive(Clone, Copy, Debug)]
pub struct FileExtentRef {
    /// The subvolume of the file.
    pub root: TreeId,
    /// The inode number of the file.
    pub inode: u64,
    /// The offset in the file where the whole extent would start, in bytes: it wraps below 0.
    pub offset: u64,
    /// The address of the extent.
    pub logical: Logical,
    /// Its length on disk, in bytes.
    pub len: u64,
}

impl FileExtentRef {
    pub(crate) fn extent(&self) -> Extent {
        Extent::Data { logical: self.logical, len: self.len }
    }

    pub(crate) fn backref(&self) -> Backref {
        Backref::File { root: self.root, inode: self.inode, offset: self.offset }
    }
}

impl TransactionManager {
    /// Allocates at most `len_max` and at least `len_min` bytes of data, in whole sectors: behind
    /// the last allocation, if there is space, so that sequential data is contiguous and fills a
    /// block group before it begins another. The caller counts it ([`Handle::allocated_data`]) or
    /// gives it back ([`TransactionManager::give_back_data`]).
    ///
    /// The caller is in no transaction, and has reserved `len_max` bytes
    /// ([`TransactionManager::reserve_data`]), of which it then releases what it got: until then
    /// that counts twice. With a reservation, there is always a free sector.
    pub fn allocate_data(&self, len_max: u64, len_min: u64) -> Result<(Logical, u64)> {
        self.check()?;
        let good = len_max.min(GOOD_LEN).max(len_min);
        if let Ok(found) = self.space.allocate_data_behind(len_max, good, len_min) {
            return Ok(found);
        }
        loop {
            if let Ok(found) = self.space.allocate_data(len_max, good) {
                return Ok(found);
            }
            if !self.open_up_data()? {
                return self.space.allocate_data(len_max, len_min).map_err(|_| Error::NoSpace);
            }
        }
    }

    /// Frees space, all or a part of what was allocated, that was never counted. No write to it is
    /// in flight any more.
    pub fn give_back_data(&self, logical: Logical, len: u64) {
        self.discard_uncounted(logical, len);
        self.space.give_back(logical, len).expect("it was allocated, and no tree refers to it");
    }

    /// Frees space that was taken because a pending log refers to it, and that was never counted: a
    /// replay that is interrupted starts again with that log. So it is free, and discarded on the
    /// device, once the superblock is durable that no longer leads to the log.
    pub fn give_back_logged_data(&self, logical: Logical, len: u64) {
        self.space.pin(logical, len).expect("it was taken, and no tree refers to it");
    }

    /// Reads more free space, or makes a chunk; returns true if either was possible.
    pub(crate) fn open_up_data(&self) -> Result<bool> {
        let _no_commit = self.start(HandleKind::Operation)?;
        Ok(self.space.load_next(&self.tree_roots, SpaceKind::Data)? || self.space.make_data_chunk())
    }

    /// Adds the checksums of consecutive sectors from `logical` on, in stored form. They will be in
    /// the checksum tree when the transaction is committed.
    pub fn add_checksums(&self, _handle: &Handle<'_>, logical: Logical, stored: &[u8]) {
        if self.checksums.add(logical, stored) {
            self.request_merge();
        }
    }

    /// Calls `see` with the checksums of `sectors` sectors from `logical` on that are not in their
    /// tree yet: the index of the sector, and the checksum in stored form. A caller that finds none
    /// looks into the tree after that, not before.
    pub fn pending_checksums(&self, logical: Logical, sectors: u64, see: impl FnMut(u64, &[u8])) {
        self.checksums.visit(logical, sectors, see);
    }

    /// Holds a counted extent, so that it may be overwritten; `None` if it has other references, or
    /// may have. It may be freed meanwhile, but is not allocated again before the guard is dropped.
    /// The caller is in no transaction.
    pub fn hold_if_exclusive(&self, reference: &FileExtentRef) -> Result<Option<NocowGuard>> {
        // References do not move from memory to their tree meanwhile.
        let _no_commit = self.start(HandleKind::Operation)?;
        let (extent, backref) = (reference.extent(), reference.backref());
        let head = self.refs.head(reference.logical);
        let last_snapshot = self.tree_roots.tree(reference.root)?.last_snapshot();
        let only =
            refs::is_exclusive(&self.tree_roots, &extent, backref, head.as_ref(), last_snapshot)?;
        Ok(only.then(|| self.space.hold(reference.logical, reference.len)))
    }
}
