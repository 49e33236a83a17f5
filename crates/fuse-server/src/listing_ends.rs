//! The ends of directory listings.
//!
//! 1. A listing ends after the last entry that existed when it began. So a program that creates or
//!    renames entries while it lists them reaches the end, and does not see the new ones. Linux
//!    records the end when a directory is opened or rewound; here there is no OPENDIR, and a
//!    listing begins with its first position.
//! 2. One end is recorded for each directory, that of the listing that began last: any other
//!    listing of the same directory ends there, too.
//! 3. An end is removed when a listing has reached it. A listing that is continued without an end
//!    gets one then.

use std::collections::HashMap;

use userbtrfs_fuse::NodeId;
use userbtrfs_sync::{Class, Mutex};

/// The most ends that are recorded. Some listings are abandoned before their end: when there are
/// more, all are removed.
const MAX: usize = 1024;

/// The end of the last listing of each directory.
pub(crate) struct ListingEnds(Mutex<HashMap<NodeId, u64>>);

impl Default for ListingEnds {
    fn default() -> Self {
        Self(Mutex::new(Class::FuseSession, HashMap::new()))
    }
}

impl ListingEnds {
    /// Returns the recorded end of the listing of a directory.
    pub(crate) fn find(&self, dir: NodeId) -> Option<u64> {
        self.0.lock().get(&dir).copied()
    }

    pub(crate) fn note(&self, dir: NodeId, end: u64) {
        let mut ends = self.0.lock();
        if ends.len() >= MAX && !ends.contains_key(&dir) {
            ends.clear();
        }
        ends.insert(dir, end);
    }

    pub(crate) fn forget(&self, dir: NodeId) {
        self.0.lock().remove(&dir);
    }
}
