//! Where listings of directories end.
//!
//! 1. A listing has an end: behind the last entry that was there when it began. Who makes or
//!    renames entries as they are listed comes to it, and not to what was made. Linux notes it when
//!    a directory is opened or rewound; here nobody is asked to open one, and a listing begins with
//!    its first place.
//! 2. One end is noted for each directory, that of the listing that began last: another one of the
//!    same directory goes as far.
//! 3. A note is over when a listing has come to its end. Who goes on without one gets an end then.

use std::collections::HashMap;

use userbtrfs_fuse::NodeId;
use userbtrfs_sync::{Class, Mutex};

/// The most directories that are noted. Some listings are left before their end: all are forgotten
/// when there are more.
const MAX: usize = 1024;

/// See the module's text.
pub(crate) struct ListingEnds(Mutex<HashMap<NodeId, u64>>);

impl Default for ListingEnds {
    fn default() -> Self {
        Self(Mutex::new(Class::FuseSession, HashMap::new()))
    }
}

impl ListingEnds {
    /// Where the listing of a directory ends that goes on.
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
