//! The epochs between relocations of file data.
//!
//! 1. An epoch ends when a relocation begins to move references to data, and the next one begins
//!    when all are moved, with the checksums. Both happen in a commit, while no thread is in a
//!    transaction: under a handle there is one epoch.
//! 2. The space that data was moved from is not used again before the commit is durable. So bytes
//!    are those of a file if its extents were looked up, and the bytes were read, in one epoch.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

/// A time in which no data is relocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressEpoch(u64);

/// The number of the epoch, doubled; odd between two of them.
#[derive(Default)]
pub(super) struct Epochs(AtomicU64);

impl Epochs {
    /// Returns the present epoch; `None` between two of them.
    pub(super) fn now(&self) -> Option<AddressEpoch> {
        let number = self.0.load(Ordering::SeqCst);
        number.is_multiple_of(2).then_some(AddressEpoch(number))
    }

    /// Ends the epoch; the next one begins when [`Self::begin`] is called.
    pub(super) fn end(&self) {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        assert!(number.is_multiple_of(2), "one relocation at a time");
    }

    pub(super) fn begin(&self) {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        assert!(!number.is_multiple_of(2), "an epoch ended before");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_relocation_begins_another_epoch() {
        let epochs = Epochs::default();
        let first = epochs.now().unwrap();
        epochs.end();
        assert_eq!(epochs.now(), None);
        epochs.begin();
        assert_ne!(epochs.now().unwrap(), first);
    }
}
