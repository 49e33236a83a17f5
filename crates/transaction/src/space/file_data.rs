//! The space, the checksums and the users of file data.
//!
//! 1. Data is reserved, then allocated, then written, and then counted: by the first reference to
//!    it, in a transaction that may be a later one than that of the allocation. What is not
//!    counted the next superblock does not know, and a crash leaves free.
//! 2. Space for data is looked for, and made, in a transaction: no commit is writing the trees
//!    that say what is free, nor the list of chunks. No lock is held while those trees are read.
//! 3. The checksums of an extent are added in the transaction that counts it, and before a file
//!    shows it. They are in memory or in the tree, and for a moment in both.

use userbtrfs_btree::{Backref, Extent};
use userbtrfs_format::{Logical, TreeId};

use crate::commit::{Handle, HandleKind};
use crate::error::{Error, Result};
use crate::manager::TransactionManager;
use crate::refs;
use crate::space::{NocowGuard, SpaceKind};

/// An extent that is shorter, though more was asked for, is taken only where neither more of the
/// free space can be read nor a chunk be made.
const GOOD_LEN: u64 = 1 << 20;

/// A reference of a file to an extent on disk.
#[derive(Clone, Copy, Debug)]
pub struct FileExtentRef {
    /// The subvolume of the file.
    pub root: TreeId,
    /// The number of the file.
    pub inode: u64,
    /// Where in the file the whole extent would start, in bytes: it wraps below 0.
    pub offset: u64,
    /// Where the extent is.
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
    /// A place for at most `len_max` and at least `len_min` bytes of data, in whole sectors: after
    /// the one allocated last, if there is room, so that data that comes in a row lies in a row,
    /// and fills a block group before it begins another. It belongs to the caller, who counts it
    /// ([`Handle::allocated_data`]) or gives it back ([`TransactionManager::give_back_data`]).
    ///
    /// The caller is in no transaction, and has reserved `len_max` bytes
    /// ([`TransactionManager::reserve_data`]), of which it then gives back what it got: until then
    /// that counts twice. For who has reserved, there is always a place of one sector.
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

    /// Gives back what was allocated, or a part of it, and never counted. Nothing is being
    /// written there any more.
    pub fn give_back_data(&self, logical: Logical, len: u64) {
        self.discard_uncounted(logical, len);
        self.space.give_back(logical, len).expect("it was allocated, and nobody refers to it");
    }

    /// Gives back what was taken since a pending log names it, and never counted: a replay that is
    /// cut off starts again with that log. So it is free, and given back to the device, once the
    /// superblock is durable that no longer leads to it.
    pub fn give_back_logged_data(&self, logical: Logical, len: u64) {
        self.space.pin(logical, len).expect("it was taken, and nobody refers to it");
    }

    /// Makes more space known, or makes more; says whether there was any.
    pub(crate) fn open_up_data(&self) -> Result<bool> {
        let _no_commit = self.start(HandleKind::Operation)?;
        Ok(self.space.load_next(&self.tree_roots, SpaceKind::Data)? || self.space.make_data_chunk())
    }

    /// Takes down the checksums of sectors from `logical` on, one after the other as they are
    /// stored. They will be in the checksum tree when the transaction is.
    pub fn add_checksums(&self, _handle: &Handle<'_>, logical: Logical, stored: &[u8]) {
        if self.sums.add(logical, stored) {
            self.request_merge();
        }
    }

    /// Shows the checksums of `sectors` sectors from `logical` on, as far as they wait to be put
    /// into their tree: the sector, counted from the first, and the checksum as stored. Who finds
    /// none looks into the tree after that, not before.
    pub fn pending_checksums(&self, logical: Logical, sectors: u64, see: impl FnMut(u64, &[u8])) {
        self.sums.visit(logical, sectors, see);
    }

    /// Holds a counted extent, so that what is in it may be overwritten; nothing where somebody
    /// else than this file refers to it. It may be freed meanwhile, but is nobody else's before it
    /// is let go. The caller is in no transaction.
    pub fn hold_if_only_user(&self, reference: &FileExtentRef) -> Result<Option<NocowGuard>> {
        // References do not move from memory to their tree meanwhile.
        let _no_commit = self.start(HandleKind::Operation)?;
        let (extent, backref) = (reference.extent(), reference.backref());
        let head = self.refs.head(reference.logical);
        let last_snapshot = self.tree_roots.tree(reference.root)?.last_snapshot();
        let only =
            refs::is_only_user(&self.tree_roots, &extent, backref, head.as_ref(), last_snapshot)?;
        Ok(only.then(|| self.space.hold(reference.logical, reference.len)))
    }
}
