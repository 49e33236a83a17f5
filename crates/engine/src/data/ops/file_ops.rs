//! The operations that change file data, and what they need (Linux: `btrfs_file_operations`).
//!
//! The operations are methods of [`FileOps`]: each file beside this one has those of one system
//! call. What several of them need is a function in a file of its own.

use std::sync::Weak;
use std::time::Duration;

use userbtrfs_sync::Arc;
use userbtrfs_transaction::TransactionManager;

use crate::compression::Compress;
use crate::data::cache::file_pages::FilePages;
use crate::data::cache::page_cache::PageCache;
use crate::data::ops::delalloc::Delalloc;
use crate::data::writeback::context::{WriteContext, WriteOptions};
use crate::data::writeback::repair::repair;
use crate::data::writeback::{Writeback, WritebackHandle};
use crate::error::{Error, Result};
use crate::inode::ops;
use crate::inode::{InodeEvents, Namespace};

/// The operations that change file data, of a filesystem that is open for writing.
pub(crate) struct FileOps {
    pub(in crate::data) context: Arc<WriteContext>,
    pub(in crate::data) delalloc: Delalloc,
    writeback: Arc<Writeback>,
    namespace: Arc<Namespace>,
}

impl FileOps {
    /// Returns the operations of a filesystem, whose background writeback has started.
    ///
    /// # Errors
    /// [`Error::NoThread`] if no thread can be started.
    pub(crate) fn new(
        cache: Arc<PageCache>,
        namespace: &Arc<Namespace>,
        transactions: Arc<TransactionManager>,
        options: WriteOptions,
    ) -> Result<Arc<Self>> {
        let nodes = Arc::clone(namespace.inodes());
        let new = WriteContext::new(cache, nodes, transactions, options);
        let context = Arc::new(new);
        let watch: Weak<dyn InodeEvents> = Arc::downgrade(&context) as Weak<dyn InodeEvents>;
        namespace.watch(watch);
        let writeback = Arc::new(Writeback::new(Arc::clone(&context)));
        let delalloc = Delalloc::new(Arc::clone(&context), Arc::clone(&writeback));
        let namespace = Arc::clone(namespace);
        let ops = Arc::new(Self { context, delalloc, writeback, namespace });
        ops.start_worker(options.age_seconds).map_err(Error::NoThread)?;
        Ok(ops)
    }

    /// Starts to write back data that is older than `age_seconds`; 0: only under memory pressure.
    /// The threads hold a reference only while they work, so that a filesystem without users is
    /// dropped.
    fn start_worker(self: &Arc<Self>, age_seconds: u64) -> std::io::Result<()> {
        let age = (age_seconds > 0).then(|| Duration::from_secs(age_seconds));
        let ops = Arc::downgrade(self);
        self.delalloc.worker.start(age.is_some(), move || {
            let Some(ops) = ops.upgrade() else { return false };
            ops.writeback.write_due(age);
            ops.repair();
            ops::delete_later(&ops.namespace);
            true
        })
    }

    /// Returns the writeback of the filesystem.
    pub(crate) fn writeback(&self) -> &Arc<Writeback> {
        &self.writeback
    }

    /// Returns the hooks by which a transaction writes data back.
    pub(crate) fn writeback_handle(&self) -> WritebackHandle {
        WritebackHandle(Arc::downgrade(&self.writeback))
    }

    /// Writes the dirty data of a file: see [`Writeback::write_back`].
    pub(crate) fn write_back(&self, pages: &Arc<FilePages>) -> Result<()> {
        self.writeback.write_back(pages)
    }

    /// Writes all data, to make it durable; returns a failure that was not reported yet.
    pub(crate) fn settle(&self) -> Result<()> {
        let written = self.writeback.write_back_all();
        let reported = self.context.cache.failures().check_all();
        written.and(reported)
    }

    /// Returns the bytes of data that are dirty or under writeback.
    pub(crate) fn unfinished_bytes(&self) -> u64 {
        self.context.cache.unfinished_bytes()
    }

    /// Sets how data is compressed that is written back from now on.
    pub(crate) fn set_compress(&self, compress: Option<Compress>) {
        self.context.set_compress(compress);
    }

    /// Repairs the bad mirrors that reads have found. The caller holds no lock.
    pub(crate) fn repair(&self) {
        repair(&self.context);
    }

    /// Stops the background threads after their present work.
    pub(crate) fn stop(&self) {
        self.delalloc.worker.stop();
    }
}

impl Drop for FileOps {
    fn drop(&mut self) {
        self.stop();
    }
}
