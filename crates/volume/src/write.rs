//! Writes of logical ranges to all of their copies.
//!
//! 1. A call that returns, even with an error, has nothing in flight.
//! 2. The first error, in the order of the given blocks, is returned; later blocks may not have
//!    been written. Writes are not retried.
//! 3. Writes are durable after the next [`Volume::flush`], not before.

use std::collections::VecDeque;
use std::ops::Range;

use userbtrfs_device::{Buffer, Device, DeviceError, Request, Ticket};
use userbtrfs_format::{Logical, Physical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use userbtrfs_sync::Arc;

use crate::Volume;
use crate::chunk_map::Mapping;
use crate::error::WriteError;

/// Number of requests submitted to the device together. It may merge adjacent ones.
const BATCH: usize = 128;

/// Number of batches in flight while the next is collected.
const IN_FLIGHT: usize = 3;

impl Volume {
    /// Writes each buffer to all copies at its logical address, and waits. A range must lie in one
    /// chunk; ranges must not overlap. Adjacent ranges should be given in ascending order, which
    /// devices handle best.
    pub fn write_blocks(
        &self,
        blocks: impl IntoIterator<Item = (Logical, Arc<Buffer>)>,
    ) -> Result<(), WriteError> {
        self.check_writable()?;
        let mut writes = Writes::on(&**self.device());
        let mut unplaced = Ok(());
        for (logical, buffer) in blocks {
            unplaced = self.push_copies(&mut writes, logical, &buffer);
            if unplaced.is_err() || writes.result.is_err() {
                break;
            }
        }
        // The pushed blocks come before the one that could not be mapped, and so do their errors.
        writes.finish().and(unplaced)
    }

    fn push_copies(
        &self,
        writes: &mut Writes<'_>,
        logical: Logical,
        buffer: &Arc<Buffer>,
    ) -> Result<(), WriteError> {
        // The volume may have been stopped meanwhile.
        self.check_writable()?;
        for Physical(offset) in self.place(logical, buffer.len() as u64)?.copies() {
            let buffer = Arc::clone(buffer).into();
            writes.push(logical, Request::Write { offset, buffer, fua: false });
        }
        Ok(())
    }

    /// Flushes the writes that completed before the call, and waits. After a failed flush all later
    /// ones fail. The writes are durable only if [`Volume::check_durable`] then succeeds.
    pub fn flush(&self) -> Result<(), WriteError> {
        self.check_writable()?;
        self.barriers.run(self.name(), || self.device().flush().map_err(WriteError::Flush))
    }

    /// Waits for all flushes in progress, of all threads, and fails if any flush has ever failed.
    /// If it succeeds, all flushes until now have taken effect, as far as the device reports.
    pub fn check_durable(&self) -> Result<(), WriteError> {
        self.barriers.check(self.name())
    }

    /// Discards all copies of a range, and waits. The range must lie in one chunk; superblock
    /// copies in it are skipped. Succeeds without effect if the device does not support it.
    pub fn discard(&self, logical: Logical, len: u64) -> Result<(), WriteError> {
        self.check_writable()?;
        let mapping = self.map_for_writing(logical, len)?;
        let pieces = mapping.copies().flat_map(|copy| outside_superblocks(copy.0..copy.0 + len));
        let requests: Vec<_> = pieces
            .map(|piece| Request::Discard { offset: piece.start, len: piece.end - piece.start })
            .collect();
        let ticket = self.device().submit(requests);
        let results = self.device().wait(ticket).into_iter().map(|done| done.result);
        match results.filter_map(Result::err).find(|error| !is_unsupported(error)) {
            Some(source) => Err(WriteError::Range { logical, source }),
            None => Ok(()),
        }
    }

    /// Discards a range of the device, by its offset, that no chunk takes, and waits. Superblock
    /// copies in it are skipped. Succeeds without effect if the device does not support it.
    pub fn discard_unallocated(&self, start: u64, len: u64) -> Result<(), WriteError> {
        self.check_writable()?;
        let end = start.saturating_add(len).min(self.device().len());
        for piece in outside_superblocks(start..end) {
            let result = self.device().discard(piece.start, piece.end - piece.start);
            match result {
                Err(source) if !is_unsupported(&source) => {
                    return Err(WriteError::Range { logical: Logical(start), source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Announces that the volume, which is open for writing, will soon be closed: see
    /// [`Device::mark_closing`].
    pub fn mark_closing(&self) {
        self.device().mark_closing();
    }

    pub(crate) fn check_writable(&self) -> Result<(), WriteError> {
        let device = || self.name().into();
        match (self.is_writable(), self.is_stopped()) {
            (false, _) => Err(WriteError::ReadOnly { device: device() }),
            (true, true) => Err(WriteError::Stopped { device: device() }),
            (true, false) => Ok(()),
        }
    }

    /// Maps a range to write; fails if it does not lie in one chunk or overlaps a superblock.
    pub(crate) fn place(&self, logical: Logical, len: u64) -> Result<Mapping, WriteError> {
        let mapping = self.map_for_writing(logical, len)?;
        let on_superblock = |copy: &Physical| {
            let range = copy.0..copy.0 + len;
            superblocks().any(|at| at.start < range.end && range.start < at.end)
        };
        match mapping.copies().find(on_superblock) {
            Some(physical) => Err(WriteError::OnSuperblock { logical, len, physical }),
            None => Ok(mapping),
        }
    }

    fn map_for_writing(&self, logical: Logical, len: u64) -> Result<Mapping, WriteError> {
        self.map(logical, len).map_err(|_| WriteError::Unmapped { logical, len })
    }
}

fn is_unsupported(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Unsupported { .. })
}

/// The bytes of each superblock copy.
fn superblocks() -> impl Iterator<Item = Range<u64>> {
    SUPERBLOCK_OFFSETS.into_iter().map(|at| at.0..at.0 + SUPERBLOCK_SIZE as u64)
}

/// The parts of a range of the device outside of the superblock copies.
fn outside_superblocks(range: Range<u64>) -> Vec<Range<u64>> {
    let mut pieces = Vec::new();
    let mut start = range.start;
    for superblock in superblocks() {
        pieces.push(start..superblock.start.min(range.end));
        start = start.max(superblock.end);
    }
    pieces.push(start..range.end);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Writes in flight, in batches.
struct Writes<'a> {
    device: &'a dyn Device,
    /// The batch that is being collected.
    next: Vec<Request>,
    /// The ranges of `next`.
    ranges: Vec<Logical>,
    /// The batches in flight with their ranges, oldest first.
    in_flight: VecDeque<(Ticket, Vec<Logical>)>,
    /// The first error of the completed batches.
    result: Result<(), WriteError>,
}

impl<'a> Writes<'a> {
    fn on(device: &'a dyn Device) -> Self {
        let (next, ranges, in_flight) = Default::default();
        Self { device, next, ranges, in_flight, result: Ok(()) }
    }

    fn push(&mut self, logical: Logical, request: Request) {
        self.next.push(request);
        self.ranges.push(logical);
        if self.next.len() == BATCH {
            self.submit();
            self.wait_until_in_flight(IN_FLIGHT);
        }
    }

    fn submit(&mut self) {
        let ticket = self.device.submit(std::mem::take(&mut self.next));
        self.in_flight.push_back((ticket, std::mem::take(&mut self.ranges)));
    }

    /// Waits until at most `most` batches are in flight.
    fn wait_until_in_flight(&mut self, most: usize) {
        while self.in_flight.len() > most
            && let Some((ticket, ranges)) = self.in_flight.pop_front()
        {
            let done = ranges.into_iter().zip(self.device.wait(ticket)).try_for_each(
                |(logical, completion)| {
                    completion.result.map_err(|source| WriteError::Range { logical, source })
                },
            );
            let earlier = std::mem::replace(&mut self.result, Ok(()));
            self.result = earlier.and(done);
        }
    }

    /// Waits for all pushed writes.
    fn finish(mut self) -> Result<(), WriteError> {
        self.submit();
        self.wait_until_in_flight(0);
        self.result
    }
}
