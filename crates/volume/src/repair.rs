//! Tracking and repair of bad copies.
//!
//! 1. A read that finds a bad copy and uses another one records that; it writes nothing.
//! 2. A record describes what was read, which may have been freed and its space reused before the
//!    repair. The caller must rule that out: see [`Volume::repair`].
//! 3. Nothing depends on a repair. A bad copy that is not recorded because the list is full, or
//!    that cannot be repaired, is found again by the next read of it.

use std::collections::BTreeMap;

use userbtrfs_device::Buffer;
use userbtrfs_format::{Expectation, Logical};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::error::WriteError;
use crate::{Range, Volume};

/// The maximum number of records.
const NOTES_MAX: usize = 1024;

/// A range with a bad copy, which was read from another copy.
#[derive(Clone, Copy, Debug)]
pub enum BadMirror {
    /// A tree block, with the expectation of it.
    Block(Logical, Expectation),
    /// Data that has checksums.
    Data(Range),
}

/// The numbers of bad and repaired copies since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Reads of tree blocks and data ranges that found a bad copy and used another one.
    pub bad: u64,
    /// Copies that were repaired.
    pub repaired: u64,
}

/// The recorded bad copies, and their numbers.
pub(crate) struct BadMirrors {
    notes: Mutex<BTreeMap<Logical, BadMirror>>,
    bad: AtomicU64,
    repaired: AtomicU64,
}

impl BadMirrors {
    pub(crate) fn new() -> Self {
        let notes = Mutex::new(Class::ChunkMap, BTreeMap::new());
        Self { notes, bad: AtomicU64::new(0), repaired: AtomicU64::new(0) }
    }
}

impl Volume {
    /// Records a bad copy, to be repaired if the volume is open for writing.
    pub fn note_bad_copy(&self, what: BadMirror) {
        self.bad_copies.bad.fetch_add(1, Ordering::Relaxed);
        if self.check_writable().is_err() {
            return;
        }
        let (BadMirror::Block(logical, _) | BadMirror::Data(Range { logical, .. })) = what;
        let mut notes = self.bad_copies.notes.lock();
        if notes.len() < NOTES_MAX {
            notes.insert(logical, what);
        }
    }

    /// Takes the bad copies recorded since the last call, sorted by address.
    pub fn take_bad_copies(&self) -> Vec<BadMirror> {
        std::mem::take(&mut *self.bad_copies.notes.lock()).into_values().collect()
    }

    /// The numbers of bad and repaired copies.
    pub fn copy_stats(&self) -> MirrorStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MirrorStats { bad: read(&self.bad_copies.bad), repaired: read(&self.bad_copies.repaired) }
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
            self.bad_copies.repaired.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Repairs a tree block: see [`Volume::repair`].
    pub fn repair_block(&self, logical: Logical, expected: &Expectation) -> Result<(), WriteError> {
        let range = Range { logical, len: self.geometry().nodesize as usize };
        self.repair(range, |copy| self.verify(Arc::clone(copy).into(), logical, expected).is_ok())
    }
}
