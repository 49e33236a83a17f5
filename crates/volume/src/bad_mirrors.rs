//! The records of bad copies: see `repair`.

use std::collections::BTreeMap;

use userbtrfs_format::{Expectation, Logical};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Class, Mutex};

use crate::chunk_map::Range;

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

    pub(crate) fn count_bad(&self) {
        self.bad.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_repaired(&self) {
        self.repaired.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a bad copy, unless the list is full.
    pub(crate) fn note(&self, what: BadMirror) {
        let (BadMirror::Block(logical, _) | BadMirror::Data(Range { logical, .. })) = what;
        let mut notes = self.notes.lock();
        if notes.len() < NOTES_MAX {
            notes.insert(logical, what);
        }
    }

    /// Takes the records, sorted by address.
    pub(crate) fn take(&self) -> Vec<BadMirror> {
        std::mem::take(&mut *self.notes.lock()).into_values().collect()
    }

    pub(crate) fn stats(&self) -> MirrorStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MirrorStats { bad: read(&self.bad), repaired: read(&self.repaired) }
    }
}
