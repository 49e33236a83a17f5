//! The state of subvolumes in the running transaction: ids, and snapshots to be made.

use userbtrfs_format::{Timestamp, TreeId};
use userbtrfs_sync::{Class, Mutex};
use uuid::Uuid;

use crate::commit::Handle;
use crate::space::Reservation;

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

/// Adds the entry of a snapshot to its directory, as a delayed change of the transaction of the
/// handle.
pub type AddEntry = Box<dyn FnOnce(&Handle<'_>) + Send>;

/// A snapshot to be made.
pub struct NewSnapshot {
    /// The subvolume that it is a snapshot of.
    pub source: TreeId,
    /// Its id, from [`take_id`](super::take_id).
    pub id: TreeId,
    /// Its name.
    pub name: SubvolumeName,
    /// Its UUID.
    pub uuid: Uuid,
    /// The time of its creation.
    pub created: Timestamp,
    /// Whether it may not be changed.
    pub read_only: bool,
    /// The space for the items that the commit changes for it.
    pub reservation: Reservation,
    /// Called when it is made, unless the subvolume of its name is deleted. Until then the caller
    /// keeps the name free, and the directory in place.
    pub add_entry: AddEntry,
}

/// The snapshots that the commit of the running transaction makes.
pub(crate) struct PendingSnapshots(pub(super) Mutex<Vec<NewSnapshot>>);

impl PendingSnapshots {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Class::ChangedRoots, Vec::new()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
