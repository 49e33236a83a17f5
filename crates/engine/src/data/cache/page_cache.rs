//! The page cache: all files in memory, and the bound of their memory.
//!
//! 1. There is at most one [`FilePages`] of a file. It lives while there is a reference to it; the
//!    eviction list holds one for each of its blocks.
//! 2. Blocks that are not in use are evicted, oldest first; a block that was accessed since it was
//!    last looked at stays for another round. Unfinished blocks and blocks with another holder
//!    stay.
//! 3. The bound may be exceeded by blocks that cannot be evicted, and by the blocks of one read or
//!    write. Writers keep the former within the bound.

use userbtrfs_format::TreeId;
use userbtrfs_sync::Arc;
use userbtrfs_transaction::TransactionManager;

use crate::data::cache::file_pages::FilePages;
use crate::data::cache::shared::{self, CacheShared};
use crate::data::cache::writeback_errors::WritebackErrors;
use crate::data::helpers::Helpers;
use crate::error::InodeId;
use crate::inode::Inode;

/// The page cache: all files in memory, and the bound of their memory.
pub(crate) struct PageCache {
    shared: Arc<CacheShared<FilePages>>,
}

/// A file with sectors that are dirty or being written.
pub(crate) type UnfinishedFile = shared::UnfinishedFile<FilePages>;

impl PageCache {
    /// Returns an empty cache of about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize, transactions: Option<Arc<TransactionManager>>) -> Self {
        Self { shared: Arc::new(CacheShared::new(bytes_max as u64, transactions)) }
    }

    /// Returns the cached file of an inode, and creates it if there is none.
    pub(crate) fn pages(&self, inode: &Arc<Inode>) -> Arc<FilePages> {
        self.get(inode.id()).unwrap_or_else(|| {
            let new = FilePages::new(inode, &self.shared);
            self.shared.get_or_insert(inode.id(), new)
        })
    }

    /// Returns the threads that may help to compress.
    pub(in crate::data) fn helpers(&self) -> &Helpers {
        &self.shared.helpers
    }

    /// Returns the cached file of an inode; `None` if there is none.
    pub(crate) fn get(&self, id: InodeId) -> Option<Arc<FilePages>> {
        self.shared.get(id)
    }

    /// Drops the clean sectors of a file that was deleted.
    pub(crate) fn forget(&self, id: InodeId) {
        if let Some(pages) = self.get(id) {
            pages.drop_clean();
        }
    }

    /// Drops the clean sectors of all files of a subvolume that was deleted.
    pub(crate) fn forget_subvolume(&self, id: TreeId) {
        for pages in self.shared.files(|file| file.subvolume == id) {
            pages.drop_clean();
        }
        self.shared.forget_ages(|pages| pages.id().subvolume == id);
    }

    /// Returns the writeback errors.
    pub(in crate::data) fn failures(&self) -> &WritebackErrors {
        &self.shared.failures
    }

    /// Returns the bytes of all sectors that are dirty or being written.
    pub(crate) fn unfinished_bytes(&self) -> u64 {
        self.shared.unfinished_bytes()
    }

    /// Returns the bytes of memory that cannot be evicted because of such sectors.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.shared.pinned_bytes()
    }

    /// Returns about how many bytes all files may take.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.shared.bytes_max
    }

    /// Returns the most bytes that were ever unfinished.
    #[cfg(test)]
    pub(crate) fn unfinished_peak(&self) -> u64 {
        self.shared.unfinished_peak()
    }

    /// Returns about how many bytes all files take.
    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.shared.used_bytes()
    }

    /// Returns the number of files in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns the unfinished files, those first from which nothing was taken for the longest time.
    pub(crate) fn unfinished_files(&self) -> Vec<UnfinishedFile> {
        self.shared.oldest_unfinished(usize::MAX)
    }

    /// Returns the first `max` of them.
    pub(in crate::data) fn oldest_unfinished(&self, max: usize) -> Vec<UnfinishedFile> {
        self.shared.oldest_unfinished(max)
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        // The lists hold files, which hold the lists.
        self.shared.clear();
    }
}
