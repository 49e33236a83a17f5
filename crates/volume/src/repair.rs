//! Copies that were found bad, and how they are made good again.
//!
//! 1. A read that finds a copy bad, and takes another one, notes that and goes on; it writes
//!    nothing.
//! 2. A note says what was read, not that it is still there: by the time of the repair the place
//!    may be somebody else's. That is for the caller to know: see [`Volume::repair`].
//! 3. Nothing rests on a repair. What is not noted, for want of room, or cannot be repaired, the
//!    next read that meets it finds again.

use std::collections::BTreeMap;

use userbtrfs_device::Buffer;
use userbtrfs_format::{Expectation, Logical};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::error::WriteError;
use crate::{Range, Volume};

/// The most notes that are kept.
const NOTES_MAX: usize = 1024;

/// A range of which a copy was bad, and another one was taken.
#[derive(Clone, Copy, Debug)]
pub enum BadMirror {
    /// A tree block, and what was to stand there.
    Block(Logical, Expectation),
    /// Data that has checksums.
    Data(Range),
}

/// What was found of bad copies, since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Tree blocks, and pieces of data, of which a copy was bad and another one was taken.
    pub bad: u64,
    /// Copies that were made good again.
    pub repaired: u64,
}

/// See the module's text.
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
    /// Notes a bad copy, to be repaired where the volume is open for writing.
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

    /// What was noted since this was last called, by address.
    pub fn take_bad_copies(&self) -> Vec<BadMirror> {
        std::mem::take(&mut *self.bad_copies.notes.lock()).into_values().collect()
    }

    /// How many copies were bad, and are good again.
    pub fn copy_stats(&self) -> MirrorStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MirrorStats { bad: read(&self.bad_copies.bad), repaired: read(&self.bad_copies.repaired) }
    }

    /// Reads all copies of a range, and writes one that `is_good` over each that is not; nothing
    /// where none is. It is durable with the next flush.
    ///
    /// The caller knows that nobody else writes there meanwhile, and that what is good is what is
    /// to stand there.
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

    /// As [`Volume::repair`], of a tree block.
    pub fn repair_block(&self, logical: Logical, expected: &Expectation) -> Result<(), WriteError> {
        let range = Range { logical, len: self.geometry().nodesize as usize };
        self.repair(range, |copy| self.verify(Arc::clone(copy).into(), logical, expected).is_ok())
    }
}
