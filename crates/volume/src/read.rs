//! Reads of logical ranges, one at a time or many in flight.
//!
//! 1. A read specifies the copy. The caller decides to try the next one, since only the caller can
//!    distinguish a good copy from a bad one.
//! 2. [`PendingReads`] belong to the thread that submitted them.

use userbtrfs_device::{Buffer, Request, Ticket};
use userbtrfs_format::{BlockGroupFlags, Chunk, Expectation, Logical};

use crate::bad_mirrors::BadMirror;
use crate::chunk_map::{Mapping, Range};
use crate::error::{MirrorError, ReadError};
use crate::node_bytes::{NodeBytes, TreeBlock};
use crate::volume::Volume;

/// Reads in flight.
pub struct PendingReads {
    /// For each range, the error if it was not submitted.
    outcomes: Vec<Result<(), ReadError>>,
    ticket: Ticket,
}

impl Volume {
    /// Translates a range; fails if it does not lie in one chunk.
    pub fn map(&self, logical: Logical, len: u64) -> Result<Mapping, ReadError> {
        self.chunks.read().map(logical, len)
    }

    /// The chunk that contains an address.
    pub fn chunk_of(&self, logical: Logical) -> Result<Chunk, ReadError> {
        let unmapped = ReadError::Unmapped { logical, len: 1 };
        self.chunks.read().chunk_of(logical).cloned().ok_or(unmapped)
    }

    /// The chunks, by address.
    pub fn chunks(&self) -> Vec<Chunk> {
        self.chunks.read().iter().cloned().collect()
    }

    /// The first chunk that has all these flags.
    pub fn chunk_with(&self, flags: BlockGroupFlags) -> Option<Chunk> {
        self.chunks.read().iter().find(|chunk| chunk.flags.contains(flags)).cloned()
    }

    /// Reads copy number `copy` of a range; returns `None` if there is no such copy.
    pub fn read(&self, range: Range, copy: usize) -> Result<Option<Buffer>, ReadError> {
        let mapping = self.map(range.logical, range.len as u64)?;
        let Some(physical) = mapping.copy(copy) else { return Ok(None) };
        Ok(Some(self.device.read(physical.0, range.len)?))
    }

    /// Starts to read the first copy of each range.
    pub fn submit(&self, ranges: &[Range]) -> PendingReads {
        let mut requests = Vec::with_capacity(ranges.len());
        let outcomes = ranges
            .iter()
            .map(|range| {
                let mapping = self.map(range.logical, range.len as u64)?;
                let offset = mapping.copies().next().expect("there is a first copy").0;
                requests.push(Request::Read { offset, buffer: Buffer::unspecified(range.len) });
                Ok(())
            })
            .collect();
        PendingReads { outcomes, ticket: self.device.submit(requests) }
    }

    /// Waits for reads; returns the results in the order of their ranges.
    pub fn wait(&self, pending: PendingReads) -> Vec<Result<Buffer, ReadError>> {
        let mut completions = self.device.wait(pending.ticket).into_iter();
        let mut next = || completions.next().expect("one completion for each request");
        pending
            .outcomes
            .into_iter()
            .map(|outcome| outcome.and_then(|()| Ok(next().into_buffer()?)))
            .collect()
    }

    /// Returns true if [`Volume::wait`] would return at once.
    pub fn is_ready(&self, pending: &PendingReads) -> bool {
        self.device.is_ready(&pending.ticket)
    }

    /// Reads and verifies a tree block, from the first copy that is good.
    pub fn read_block(
        &self,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<TreeBlock, ReadError> {
        self.try_copies(logical, expected, Vec::new())
    }

    /// Verifies a tree block whose first copy was already read; tries the others if it is bad.
    pub fn accept_block(
        &self,
        logical: Logical,
        expected: &Expectation,
        first: Result<Buffer, ReadError>,
    ) -> Result<TreeBlock, ReadError> {
        let bad = match first {
            Ok(buffer) => match self.verify(buffer.into(), logical, expected) {
                Ok(block) => return Ok(block),
                Err(error) => error,
            },
            Err(ReadError::Device(error)) => error.into(),
            Err(other) => return Err(other),
        };
        self.try_copies(logical, expected, vec![bad])
    }

    /// Tries the copies after those that failed.
    fn try_copies(
        &self,
        logical: Logical,
        expected: &Expectation,
        failed: Vec<MirrorError>,
    ) -> Result<TreeBlock, ReadError> {
        let len = self.geometry.nodesize;
        let mapping = self.map(logical, u64::from(len))?;
        let tried = failed.len();
        let mut copies: Vec<_> = mapping.copies().zip(failed).collect();
        for physical in mapping.copies().skip(tried) {
            let read = self.device.read(physical.0, len as usize).map_err(MirrorError::from);
            match read.and_then(|buffer| self.verify(buffer.into(), logical, expected)) {
                Ok(block) => {
                    if !copies.is_empty() {
                        self.note_bad_copy(BadMirror::Block(logical, *expected));
                    }
                    return Ok(block);
                }
                Err(error) => copies.push((physical, error)),
            }
        }
        Err(ReadError::Block { logical, tree: expected.owner, copies })
    }

    pub(crate) fn verify(
        &self,
        bytes: NodeBytes,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<TreeBlock, MirrorError> {
        Ok(TreeBlock::verify(bytes, logical, &self.geometry, expected)?)
    }
}
