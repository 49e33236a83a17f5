//! The data of one file while it is on its way: what Linux calls ordered extents.
//!
//! 1. Its places are known, and its checksums: it can be logged. The file has it once it has
//!    *landed*; then it is on the device.
//! 2. Until it has landed the writeback lock of the file is held: nothing else changes beneath.
//! 3. It lands once, in the transaction of who logged it, or else in one of its own.
//! 4. What fails leaves the file as it was; its space comes free only after the transaction was
//!    marked, so that no log that speaks of it becomes durable.

use std::ops::Range;

use smallvec::SmallVec;
use userbtrfs_format::Logical;
use userbtrfs_sync::{Arc, MutexGuard, thread};
use userbtrfs_transaction::{Handle, HandleKind, LogTransId};

use crate::data::writeback::batch::WritebackBatch;
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::tell;
use crate::data::writeback::write_extent::WriteExtent;
use crate::data::{BackingExtents, FilePages};
use crate::error::Result;
use crate::inode::{ExtentChanges, FileChange, PendingExtent};

/// See the module's text.
pub(crate) struct OrderedExtents<'a> {
    writer: &'a WriteContext,
    pages: &'a Arc<FilePages>,
    /// The size of the file with all of it.
    size: u64,
    /// Nothing where it has landed.
    flying: Option<OrderedExtent<'a>>,
    /// With which group it was logged.
    group: Option<LogTransId>,
    has_failed: bool,
}

struct OrderedExtent<'a> {
    transfer: WritebackBatch<'a>,
    _one: MutexGuard<'a, ()>,
}

impl<'a> OrderedExtents<'a> {
    /// What is on its way of a file, whose writeback lock is given, and has nothing dirty besides.
    /// Where some of it failed already, the rest lands at once.
    pub(in crate::data) fn new(
        writer: &'a WriteContext,
        pages: &'a Arc<FilePages>,
        size: u64,
        transfer: WritebackBatch<'a>,
        one: MutexGuard<'a, ()>,
    ) -> Self {
        let has_failed = transfer.has_failed();
        let flying = Some(OrderedExtent { transfer, _one: one });
        let mut new = Self { writer, pages, size, flying, group: None, has_failed };
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

    /// Whether some of it could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.write_extents().next().is_none()
    }

    /// How long the file is at least with what is on its way.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    fn extents(&self) -> impl Iterator<Item = PendingExtent> {
        self.write_extents().filter_map(WriteExtent::extent)
    }

    /// Which ranges of the file get other extents.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.extents().map(|extent| extent.start..extent.end)
    }

    /// The checksums of what is on its way: each the sectors from there on, as stored.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (Logical, &[u8])> {
        self.write_extents().filter_map(WriteExtent::sums)
    }

    /// The file as it is when all has landed, as far as its extents go.
    pub(crate) fn source(&self) -> BackingExtents {
        let arriving = self.extents().collect::<ExtentChanges>();
        BackingExtents { arriving: Some(Arc::new(arriving)), ..self.pages.beneath() }
    }

    /// It was logged with this group.
    pub(crate) fn logged(&mut self, group: LogTransId) {
        self.group = Some(group);
    }

    /// Waits for it, and puts it into the file; asked again, says whether that failed. Failures
    /// are told to who uses the file. The caller is in the transaction of the handle, if any.
    pub(crate) fn land(&mut self, handle: Option<&Handle<'_>>) -> bool {
        let ranges: SmallVec<[_; 1]> = self.ranges().collect();
        if let Some(OrderedExtent { transfer, _one }) = self.flying.take() {
            let failed = transfer.arrive(handle);
            self.has_failed = failed.iter().any(Option::is_some);
            if !self.has_failed {
                self.has_failed = self.know_size(handle).is_err();
            }
            // Who misses something asks for the failures of the file.
            let _told = tell([self.pages], failed);
            if let Some((handle, group)) = handle.zip(self.group) {
                self.know_logged(handle.generation(), group, ranges);
            }
        }
        self.writer.purge_if_dead(self.pages);
        !self.has_failed
    }

    /// The tree is to know the size that goes with what landed: all that was dirty of the file then
    /// has landed. Of what was written since, in its middle or in a hole of it, nothing is
    /// promised; but that keeps the size back with what lands part by part.
    fn know_size(&self, handle: Option<&Handle<'_>>) -> Result<()> {
        let (nodes, inode) = (&self.writer.nodes, self.pages.inode());
        if inode.may_know_size(self.size) {
            return Ok(());
        }
        let size = self.size;
        let know = |change: &mut FileChange<'_>| {
            let known = change.disk_size();
            change.set_disk_size(known.max(size.min(change.size())));
        };
        match handle {
            Some(handle) => nodes.change_file_in(handle, inode, None, know),
            None => nodes.change_file(inode, HandleKind::Finish, None, know),
        }
    }

    /// What landed is in the log already.
    fn know_logged(
        &self,
        running: u64,
        group: LogTransId,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) {
        let inode = self.pages.inode();
        for range in ranges {
            inode.forget_changed(running, range);
        }
        let log_tracker = self.writer.nodes.log_tracker();
        log_tracker.landed(running, inode.id(), group, inode.extents_version());
    }
}

impl Drop for OrderedExtents<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.land(None);
        }
    }
}
