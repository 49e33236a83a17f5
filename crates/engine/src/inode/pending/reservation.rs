//! Space that is reserved for delayed items (Linux: delayed_block_rsv).
//!
//! 1. The reservation of an operation is added after all its changes are delayed items, and
//!    released when all delayed items are in trees.
//! 2. No more is kept than all delayed items can cost together: many changes fall into one leaf.

use userbtrfs_sync::{Class, Mutex};
use userbtrfs_transaction::Reservation;

/// The reservation of all delayed items.
pub(in crate::inode) struct DelayedReservation {
    held: Mutex<Option<Reservation>>,
}

impl DelayedReservation {
    pub(in crate::inode) fn new() -> Self {
        Self { held: Mutex::new(Class::CacheShard, None) }
    }

    /// Adds a reservation; keeps at most `most` bytes in all.
    pub(in crate::inode) fn hold(&self, promised: Reservation, most: u64) {
        let excess = {
            let mut held = self.held.lock();
            let held = match held.as_mut() {
                Some(held) => {
                    held.merge(promised);
                    held
                }
                None => held.insert(promised),
            };
            held.split(held.bytes().saturating_sub(most))
        };
        drop(excess);
    }

    /// Takes the whole reservation. If it is taken before the delayed items are, these include all
    /// changes that it was made for.
    pub(in crate::inode) fn take(&self) -> Option<Reservation> {
        self.held.lock().take()
    }
}
