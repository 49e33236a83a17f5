//! Writing data: many ranges on their way while the next are made.
//!
//! 1. A part goes to all copies of its range; it is written only if every copy is.
//! 2. Each part has a result of its own; a failure of one says nothing of the others. Nothing is
//!    tried again.
//! 3. [`PendingWrites`] belong to the thread that submitted them. Dropped, they are still written,
//!    but nobody learns how that ended.
//! 4. Writes are durable with the next [`Volume::flush`] after they were waited for.

use smallvec::SmallVec;
use userbtrfs_device::{Request, Slice, Ticket};
use userbtrfs_format::{Logical, Physical};

use crate::Volume;
use crate::error::WriteError;

/// Writes that are on their way.
#[must_use = "how they end comes from waiting for them"]
pub struct PendingWrites {
    /// For each part, how many copies were submitted or why none.
    outcomes: Vec<(Logical, Result<usize, WriteError>)>,
    ticket: Ticket,
}

impl Volume {
    /// Starts to write each part at its logical address, to all copies. A part lies in one chunk;
    /// parts in flight together do not overlap. Neighbours given one after the other are what a
    /// device does best.
    pub fn submit_data(&self, parts: impl IntoIterator<Item = (Logical, Slice)>) -> PendingWrites {
        let mut requests = Vec::new();
        let outcomes = parts
            .into_iter()
            .map(|(logical, bytes)| (logical, self.request_copies(logical, &bytes, &mut requests)))
            .collect();
        PendingWrites { outcomes, ticket: self.device().submit(requests) }
    }

    /// Waits for writes; the results stand in the order of their parts.
    pub fn wait_writes(&self, pending: PendingWrites) -> SmallVec<[Result<(), WriteError>; 1]> {
        let done = self.device().wait(pending.ticket);
        let mut done = done.into_iter().map(|completion| completion.result);
        let finish = |(logical, outcome): (Logical, Result<usize, WriteError>)| {
            // All copies are taken from the list, whether one before failed or not.
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
