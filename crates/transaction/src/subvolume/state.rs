//! The ids of subvolumes, and their names.

use userbtrfs_format::TreeId;
use userbtrfs_sync::{Class, Mutex};

/// The name of a subvolume in its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeName {
    /// The subvolume that holds the name.
    pub parent: TreeId,
    /// The directory there.
    pub dir: u64,
    /// The index of the name in the directory: the offset of its DIR_INDEX.
    pub index: u64,
    /// The name.
    pub name: Vec<u8>,
}

/// The next id for a subvolume, and the right to change root items.
pub(crate) struct SubvolumeIds {
    /// `None` before the first call.
    pub(super) next: Mutex<Option<u64>>,
    pub(super) change: Mutex<()>,
}

impl SubvolumeIds {
    pub(crate) fn new() -> Self {
        Self {
            next: Mutex::new(Class::CacheShard, None),
            change: Mutex::new(Class::SubvolumeRoots, ()),
        }
    }
}
