//! Tracking and repair of bad copies.
//!
//! 1. A read that finds a bad copy and uses another one records that; it writes nothing.
//! 2. A record describes what was read, which may have been freed and its space reused before the
//!    repair. The caller must rule that out: see [`Volume::repair`].
//! 3. Nothing depends on a repair. A bad copy that is not recorded because the list is full, or
//!    that cannot be repaired, is found again by the next read of it.

use userbtrfs_device::Buffer;
use userbtrfs_format::{Expectation, Logical};
use userbtrfs_sync::Arc;

use crate::bad_mirrors::{BadMirror, MirrorStats};
use crate::chunk_map::Range;
use crate::error::WriteError;
use crate::volume::Volume;

impl Volume {
    /// Records a bad copy, to be repaired if the volume is open for writing.
    pub fn note_bad_copy(&self, what: BadMirror) {
        self.bad_copies.count_bad();
        if self.check_writable().is_ok() {
            self.bad_copies.note(what);
        }
    }

    /// Takes the bad copies recorded since the last call, sorted by address.
    pub fn take_bad_copies(&self) -> Vec<BadMirror> {
        self.bad_copies.take()
    }

    /// The numbers of bad and repaired copies.
    pub fn copy_stats(&self) -> MirrorStats {
        self.bad_copies.stats()
    }

    /// Reads all copies of a range, and overwrites each bad one with one that `is_good`. Does
    /// nothing if no copy is good. The repair is durable after the next flush.
    ///
    /// The caller ensures that the range is not written meanwhile, and that `is_good` accepts only
    /// the current content of the range.
    pub fn repair(
        &self,
        range: Range,
        is_good: impl Fn(&Arc<Buffer>) -> bool,
    ) -> Result<(), WriteError> {
        self.check_writable()?;
        let mapping = self.place(range.logical, range.len as u64)?;
        let read = |at| self.device().read(at, range.len).ok().map(Arc::new).filter(&is_good);
        let copies: Vec<_> = mapping.copies().map(|copy| (copy.0, read(copy.0))).collect();
        let Some(good) = copies.iter().find_map(|(_, copy)| copy.clone()) else { return Ok(()) };
        for (at, _) in copies.iter().filter(|(_, copy)| copy.is_none()) {
            let failed = |source| WriteError::Range { logical: range.logical, source };
            self.device().write(*at, Arc::clone(&good), false).map_err(failed)?;
            self.bad_copies.count_repaired();
        }
        Ok(())
    }

    /// Repairs a tree block: see [`Volume::repair`].
    pub fn repair_block(&self, logical: Logical, expected: &Expectation) -> Result<(), WriteError> {
        let range = Range { logical, len: self.geometry().nodesize as usize };
        self.repair(range, |copy| self.verify(Arc::clone(copy).into(), logical, expected).is_ok())
    }
}
