//! Space that was promised to changes that wait.
//!
//! 1. What an operation was promised comes here after all that it changed waits, and goes when
//!    all that waited is in trees.
//! 2. No more is kept than all that waits can cost together: many changes fall into one leaf.

use userbtrfs_sync::{Class, Mutex};
use userbtrfs_transaction::Reservation;

/// See the module's text.
pub(in crate::inode) struct DelayedReservation {
    held: Mutex<Option<Reservation>>,
}

impl DelayedReservation {
    pub(in crate::inode) fn new() -> Self {
        Self { held: Mutex::new(Class::CacheShard, None) }
    }

    /// Takes in what was promised; at most so many bytes are kept in all.
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

    /// Takes all out. Who does so before it takes what waits, takes at least the changes that
    /// this was for.
    pub(in crate::inode) fn take(&self) -> Option<Reservation> {
        self.held.lock().take()
    }
}
