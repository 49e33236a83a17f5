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

use userbtrfs_format::Logical;
use userbtrfs_sync::Arc;

use crate::commit::{Handle, HandleKind, WorkerRequests};
use crate::context::TransactionContext;
use crate::error::{Error, Result};
use crate::refs::{self, FileExtentRef};
use crate::space::discard::Discarder;
use crate::space::{NocowGuard, SpaceKind};

/// An extent that is shorter, though more was asked for, is allocated only if neither more free
/// space can be read nor a chunk be made.
const GOOD_LEN: u64 = 1 << 20;

/// The space and the checksums of file data.
pub(crate) struct FileData {
    pub(crate) context: Arc<TransactionContext>,
    pub(crate) discarder: Arc<Discarder>,
    pub(crate) requests: Arc<WorkerRequests>,
}

impl FileData {
    /// Allocates at most `len_max` and at least `len_min` bytes, behind the last allocation if
    /// there is space. The caller is in no transaction, and has a reservation.
    pub(crate) fn allocate(&self, len_max: u64, len_min: u64) -> Result<(Logical, u64)> {
        self.context.check()?;
        let good = len_max.min(GOOD_LEN).max(len_min);
        if let Ok(found) = self.context.space.allocate_data_behind(len_max, good, len_min) {
            return Ok(found);
        }
        loop {
            if let Ok(found) = self.context.space.allocate_data(len_max, good) {
                return Ok(found);
            }
            if !self.open_up()? {
                return self
                    .context
                    .space
                    .allocate_data(len_max, len_min)
                    .map_err(|_| Error::NoSpace);
            }
        }
    }

    /// Allocates `len` bytes in one piece. At most one chunk is made for them, and none of the
    /// last ones that fit on the device. The caller is in no transaction, and has a reservation.
    pub(crate) fn allocate_whole(&self, len: u64) -> Result<(Logical, u64)> {
        self.context.check()?;
        let space = &self.context.space;
        if let Ok(found) = space.allocate_data_behind(len, len, len) {
            return Ok(found);
        }
        let mut may_make_chunk = true;
        loop {
            if let Ok(found) = space.allocate_data(len, len) {
                return Ok(found);
            }
            let _no_commit = Handle::join(&self.context, HandleKind::Operation)?;
            let is_loaded = space.load_next(&self.context.tree_roots, SpaceKind::Data)?;
            let is_made = !is_loaded
                && std::mem::take(&mut may_make_chunk)
                && space.make_spare_data_chunk(len);
            if !is_loaded && !is_made {
                return Err(Error::NoSpace);
            }
        }
    }

    /// Frees space that was never counted.
    pub(crate) fn give_back(&self, logical: Logical, len: u64) {
        self.discarder.discard_uncounted(logical, len);
        self.context
            .space
            .give_back(logical, len)
            .expect("it was allocated, and no tree refers to it");
    }

    /// Frees space of a pending log that was never counted, with the next commit.
    pub(crate) fn give_back_logged(&self, logical: Logical, len: u64) {
        self.context.space.pin(logical, len).expect("it was taken, and no tree refers to it");
    }

    /// Reads more free space, or makes a chunk; returns true if either was possible.
    pub(crate) fn open_up(&self) -> Result<bool> {
        let _no_commit = Handle::join(&self.context, HandleKind::Operation)?;
        Ok(self.context.space.load_next(&self.context.tree_roots, SpaceKind::Data)?
            || self.context.space.make_data_chunk())
    }

    /// Adds the checksums of consecutive sectors from `logical` on, in stored form, under a handle.
    pub(crate) fn add_checksums(&self, logical: Logical, stored: &[u8]) {
        if self.context.checksums.add(logical, stored) {
            self.requests.request_merge();
        }
    }

    /// Holds a counted extent for overwriting; `None` if it has other references, or may have.
    pub(crate) fn hold_if_exclusive(
        &self,
        reference: &FileExtentRef,
    ) -> Result<Option<NocowGuard>> {
        // References do not move from memory to their tree meanwhile.
        let _no_commit = Handle::join(&self.context, HandleKind::Operation)?;
        let extent = reference.extent();
        let backref = reference.backref();
        // After a crash, another file may have the extent again.
        if self.context.refs.was_shared(reference.logical, backref) {
            return Ok(None);
        }
        let head = self.context.refs.head(reference.logical);
        let last_snapshot = self.context.tree_roots.tree(reference.root)?.last_snapshot();
        let only = refs::is_exclusive(
            &self.context.tree_roots,
            &extent,
            backref,
            head.as_ref(),
            last_snapshot,
        )?;
        let hold = || self.context.space.hold(reference.root, reference.logical, reference.len);
        Ok(only.then(hold).flatten())
    }
}
