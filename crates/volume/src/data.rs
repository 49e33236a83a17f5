//! Asynchronous writes of data: many ranges can be in flight.
//!
//! 1. A part is written to all copies of its range; it fails if the write of any copy fails.
//! 2. Each part has its own result, independent of those of other parts. Writes are not retried.
//! 3. [`PendingWrites`] belong to the thread that submitted them. If they are dropped, the writes
//!    still happen, but their results are lost.
//! 4. Writes are durable after the next [`Volume::flush`] that starts after waiting for them.

use smallvec::SmallVec;
use userbtrfs_device::{Request, Slice, Ticket};
use userbtrfs_format::{Logical, Physical};

use crate::Volume;
use crate::error::WriteError;

/// Writes in flight.
#[must_use = "how they end comes from waiting for them"]
pub struct PendingWrites {
    /// For each part, the number of copies submitted, or the error if none was.
    outcomes: Vec<(Logical, Result<usize, WriteError>)>,
    ticket: Ticket,
}

impl Volume {
    /// Starts to write each part to all copies at its logical address. A part must lie in one
    /// chunk; parts in flight must not overlap. Adjacent parts should be given in ascending order,
    /// which devices handle best.
    pub fn submit_data(&self, parts: impl IntoIterator<Item = (Logical, Slice)>) -> PendingWrites {
        let mut requests = Vec::new();
        let outcomes = parts
            .into_iter()
            .map(|(logical, bytes)| (logical, self.request_copies(logical, &bytes, &mut requests)))
            .collect();
        PendingWrites { outcomes, ticket: self.device().submit(requests) }
    }

    /// Waits for writes; returns the results in the order of their parts.
    pub fn wait_writes(&self, pending: PendingWrites) -> SmallVec<[Result<(), WriteError>; 1]> {
        let done = self.device().wait(pending.ticket);
        let mut done = done.into_iter().map(|completion| completion.result);
        let finish = |(logical, outcome): (Logical, Result<usize, WriteError>)| {
            // All copies are taken from the list, even if an earlier one failed.
            let written = done.by_ref().take(outcome?).fold(Ok(()), Result::and);
            written.map_err(|source| WriteError::Range { logical, source })
        };
        pending.outcomes.into_iter().map(finish).collect()
    }

    fn request_copies(
        &self,
        logical: Logical,
        bytes: &Slice,
        requests: &mut Vec<Request>,
    ) -> Result<usize, WriteError> {
        self.check_writable()?;
        let mapping = self.place(logical, bytes.len() as u64)?;
        let before = requests.len();
        requests.extend(mapping.copies().map(|Physical(offset)| Request::Write {
            offset,
            buffer: bytes.clone(),
            fua: false,
        }));
        Ok(requests.len() - before)
    }
}
