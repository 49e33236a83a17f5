//! Space and memory for data that is about to become dirty (Linux: delalloc).
//!
//! 1. A writer reserves space for what it will newly dirty, and waits until that may be dirty,
//!    before it locks the range.
//! 2. A thread that waits for either writes data back itself. It holds no lock but operation locks.

use std::ops::Range;

use userbtrfs_sync::Arc;
use userbtrfs_transaction::Reservation;

use crate::data::cache::dirty::Delta;
use crate::data::cache::file_pages::FilePages;
use crate::data::cache::reservation::{CUT_ITEMS, DelallocReserved, SpaceNeeded};
use crate::data::ops::throttle::{DirtyPermit, DirtyThrottle};
use crate::data::units::Times;
use crate::data::writeback::Writeback;
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::worker::Worker;
use crate::error::Result;
use crate::inode::TreeRoots;
use crate::units::{SECTOR, sector_end, sector_start};

/// Whether a write may extend the file: if so, the caller holds the operation lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) enum MayExtend {
    Allowed,
    Refused,
}

/// The reservations of a filesystem for data that is about to become dirty.
pub(in crate::data) struct Delalloc {
    pub(in crate::data) context: Arc<WriteContext>,
    pub(in crate::data) writeback: Arc<Writeback>,
    /// Woken when there is excess dirty data.
    pub(in crate::data) worker: Worker,
    throttle: DirtyThrottle,
}

impl Delalloc {
    /// Returns the reservations of a filesystem; the worker is not started.
    pub(in crate::data) fn new(context: Arc<WriteContext>, writeback: Arc<Writeback>) -> Self {
        Self { context, writeback, worker: Worker::new(), throttle: DirtyThrottle::new() }
    }

    /// Waits until `bytes` more may become dirty; the caller helps to write data back. The caller
    /// holds no lock but operation locks.
    pub(in crate::data) fn admit(&self, bytes: u64) -> Result<DirtyPermit<'_>> {
        if self.context.is_pressed() {
            self.worker.hurry();
        }
        let max = self.context.unfinished_max;
        let unfinished = || self.context.waiting_bytes();
        loop {
            if let Some(admitted) = self.throttle.admit(bytes, max, unfinished) {
                return Ok(admitted);
            }
            self.context.transactions.check()?;
            if self.context.is_pressed() {
                self.writeback.write_oldest();
            } else {
                self.throttle.wait(bytes, max, unfinished);
            }
        }
    }

    /// Reserves `bytes` bytes of data. The caller holds no lock but operation locks.
    pub(in crate::data) fn reserve_bytes(&self, bytes: u64) -> Result<Option<Reservation>> {
        Ok(self.reserve_need(SpaceNeeded { data: bytes, items: 0 })?.data)
    }

    /// Reserves what is needed before `delta` more of a file becomes dirty. The caller holds no
    /// lock but the file's operation lock.
    pub(in crate::data) fn reserve(
        &self,
        pages: &FilePages,
        delta: Delta,
    ) -> Result<DelallocReserved> {
        self.reserve_need(pages.account.more(delta, self.context.costs))
    }

    /// Reserves space. The caller holds no lock but operation locks.
    pub(in crate::data) fn reserve_need(&self, need: SpaceNeeded) -> Result<DelallocReserved> {
        let SpaceNeeded { data, items } = need;
        let metadata = (items > 0).then(|| self.context.nodes.reserve(items)).transpose()?;
        let data = (data > 0).then(|| self.reserve_data(data)).transpose()?;
        Ok(DelallocReserved { data, metadata })
    }

    fn reserve_data(&self, bytes: u64) -> Result<Reservation> {
        match self.context.transactions.reserve_data(bytes) {
            // Writing dirty data frees the extents that it replaces.
            Err(userbtrfs_transaction::Error::NoSpace)
                if self.context.cache.unfinished_bytes() > 0 =>
            {
                let _failed = self.writeback.write_back_all();
                Ok(self.context.transactions.reserve_data(bytes)?)
            }
            reserved => Ok(reserved?),
        }
    }

    /// Changes bytes in the page cache, with space reserved for those that become dirty.
    pub(in crate::data) fn change(
        &self,
        pages: &Arc<FilePages>,
        range: Range<u64>,
        growth: MayExtend,
        times: Times,
        change: impl FnOnce(&TreeRoots) -> Result<Delta>,
    ) -> Result<bool> {
        let Range { start, end } = range;
        let _admitted = self.admit(sector_end(end) - sector_start(start))?;
        let mut reserved = self.reserve(pages, pages.new_dirty(start, end))?;
        loop {
            let locked = pages.range.lock_exclusive(sector_start(start)..sector_end(end));
            if growth == MayExtend::Refused && end > pages.size() {
                return Ok(false);
            }
            let delta = pages.new_dirty(start, end);
            if let Some(claim) = pages.account.claim(&mut reserved, delta, self.context.costs) {
                let delta = change(self.context.tree_roots())?;
                pages.inode().written_to(end, times.now());
                claim.settle(delta);
                return Ok(true);
            }
            // Dirty data is under writeback by now, or others took the excess of the reservation.
            drop((locked, reserved));
            let sectors = (sector_end(end) - sector_start(start)) / SECTOR;
            let all = Delta { sectors: i64::try_from(sectors).expect("of one part"), runs: 1 };
            // A long run may have become one extent more.
            let SpaceNeeded { data, items } = self.context.costs.need(all);
            reserved = self.reserve_need(SpaceNeeded { data, items: items + CUT_ITEMS })?;
        }
    }
}
