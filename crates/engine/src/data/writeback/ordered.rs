//! The data of one file in flight (Linux: ordered extents).
//!
//! 1. Its addresses and checksums are known, so it can be logged. When it has *landed*, it is on
//!    the device and in the extents of the file.
//! 2. The writeback lock of the file is held until then: nothing else changes the file on disk.
//! 3. It lands once, in the transaction of the thread that logged it, or else in one of its own.
//! 4. A failed extent leaves the file as it was. Its space is freed only after the transaction was
//!    marked for a full commit, so that no log that refers to it becomes durable.

use std::ops::Range;

use smallvec::SmallVec;
use userbtrfs_format::Logical;
use userbtrfs_sync::{Arc, MutexGuard, thread};
use userbtrfs_transaction::{Handle, HandleKind, LogTransId};

use crate::data::backing_extents::BackingExtents;
use crate::data::cache::file_pages::FilePages;
use crate::data::writeback::batch::{WritebackBatch, record_failures};
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::write_extent::WriteExtent;
use crate::error::Result;
use crate::inode::ops;
use crate::inode::{ExtentChanges, ExtentMap, FileChange};

/// The data of one file in flight.
pub(crate) struct OrderedExtents<'a> {
    context: &'a WriteContext,
    pages: &'a Arc<FilePages>,
    /// The size of the file including this data.
    size: u64,
    /// `None` once the data has landed.
    flying: Option<OrderedExtent<'a>>,
    /// The log commit that it was logged with.
    log_transid: Option<LogTransId>,
    has_failed: bool,
}

struct OrderedExtent<'a> {
    transfer: WritebackBatch<'a>,
    _one: MutexGuard<'a, ()>,
}

impl<'a> OrderedExtents<'a> {
    /// Wraps the batch in flight of a file that has no other dirty data; `one` is its writeback
    /// lock. If some of it has failed already, the rest lands at once.
    pub(in crate::data) fn new(
        context: &'a WriteContext,
        pages: &'a Arc<FilePages>,
        size: u64,
        transfer: WritebackBatch<'a>,
        one: MutexGuard<'a, ()>,
    ) -> Self {
        let has_failed = transfer.has_failed();
        let flying = Some(OrderedExtent { transfer, _one: one });
        let mut new = Self { context, pages, size, flying, log_transid: None, has_failed };
        if has_failed {
            new.land(None);
        }
        new
    }

    /// The file.
    pub(crate) fn pages(&self) -> &Arc<FilePages> {
        self.pages
    }

    fn write_extents(&self) -> impl Iterator<Item = &WriteExtent> {
        self.flying.iter().flat_map(|flying| flying.transfer.on_its_way())
    }

    /// Returns true if some of it could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns true if nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.write_extents().next().is_none()
    }

    /// Returns the least size of the file including the data in flight.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    fn extents(&self) -> impl Iterator<Item = ExtentMap> {
        self.write_extents().filter_map(WriteExtent::extent)
    }

    /// Returns the ranges of the file that get new extents.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.extents().map(|extent| extent.start..extent.end)
    }

    /// Returns the checksums of the data in flight, as stored, each with the address of its first
    /// sector.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (Logical, &[u8])> {
        self.write_extents().filter_map(WriteExtent::sums)
    }

    /// Returns the file as it will be on disk when all has landed, as far as its extents go.
    pub(crate) fn source(&self) -> BackingExtents {
        let arriving = self.extents().collect::<ExtentChanges>();
        BackingExtents { arriving: Some(Arc::new(arriving)), ..self.pages.backing_extents() }
    }

    /// Records the log commit that it was logged with.
    pub(crate) fn logged(&mut self, log_transid: LogTransId) {
        self.log_transid = Some(log_transid);
    }

    /// Waits for the data, and puts it into the file. Returns false if some of it failed, also when
    /// called again. Failures are recorded for the users of the file. The caller is in the
    /// transaction of the handle, if any.
    pub(crate) fn land(&mut self, handle: Option<&Handle<'_>>) -> bool {
        let ranges: SmallVec<[_; 1]> = self.ranges().collect();
        if let Some(OrderedExtent { transfer, _one }) = self.flying.take() {
            let failed = transfer.arrive(handle);
            self.has_failed = failed.iter().any(Option::is_some);
            if !self.has_failed {
                self.has_failed = self.know_size(handle).is_err();
            }
            // A caller that needs the failures asks the file for them.
            let _told = record_failures([self.pages], failed);
            if let Some((handle, log_transid)) = handle.zip(self.log_transid) {
                self.know_logged(handle.generation(), log_transid, ranges);
            }
        }
        self.context.purge_if_dead(self.pages);
        !self.has_failed
    }

    /// Sets the size on disk to that at the time when the data was taken: all data that was dirty
    /// then has landed. Data written since, in the middle of the file or in a hole, is not covered
    /// by this sync, but would hold back the size when the extents land one by one.
    fn know_size(&self, handle: Option<&Handle<'_>>) -> Result<()> {
        let nodes = &self.context.nodes;
        let inode = self.pages.inode();
        if inode.may_know_size(self.size) {
            return Ok(());
        }
        let size = self.size;
        let know = |change: &mut FileChange<'_>| {
            let known = change.disk_size();
            change.set_disk_size(known.max(size.min(change.size())));
        };
        match handle {
            Some(handle) => ops::change_file_in(nodes, handle, inode, None, know),
            None => ops::change_file(nodes, inode, HandleKind::Finish, None, know),
        }
    }

    /// Records that what landed is in the log already. If the file grew after the data was taken,
    /// its size grew with the landing, and the log may have the old one: it is logged again.
    fn know_logged(
        &self,
        running: u64,
        log_transid: LogTransId,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) {
        let inode = self.pages.inode();
        for range in ranges {
            inode.forget_changed(running, range);
        }
        // Read before the size, so that a file that grows meanwhile has a later version.
        let version = inode.extents_version();
        if inode.item_to_log().size <= self.size {
            let log_tracker = self.context.nodes.log_tracker();
            log_tracker.landed(running, inode.id(), log_transid, version);
        }
    }
}

impl Drop for OrderedExtents<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.land(None);
        }
    }
}
