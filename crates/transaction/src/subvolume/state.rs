//! The ids of subvolumes, and their names.

use std::ops::ControlFlow;

use userbtrfs_format::{FIRST_FREE_OBJECTID, ItemKind, Key, LAST_FREE_OBJECTID, TreeId};
use userbtrfs_sync::{Class, Mutex};

use crate::editor::{Items as _, TreeItems};
use crate::error::Result;
use crate::roots::TreeRoots;

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
    pub(super) next: Mutex<u64>,
    pub(super) change: Mutex<()>,
}

impl SubvolumeIds {
    /// Finds the next id, as in Linux once when a filesystem is opened: the id of a subvolume that
    /// is dropped later must not be given to another one, which would be taken for the former.
    pub(crate) fn load(tree_roots: &TreeRoots) -> Result<Self> {
        let next = last_subvolume(tree_roots)?.saturating_add(1).max(FIRST_FREE_OBJECTID);
        Ok(Self {
            next: Mutex::new(Class::CacheShard, next),
            change: Mutex::new(Class::SubvolumeRoots, ()),
        })
    }
}

fn last_subvolume(tree_roots: &TreeRoots) -> Result<u64> {
    let mut last = 0;
    let end = Key::new(LAST_FREE_OBJECTID, ItemKind(u8::MAX), u64::MAX);
    TreeItems::new(tree_roots, TreeId::ROOT)?.visit(&end, &mut |key, _| {
        last = key.objectid;
        ControlFlow::Break(())
    })?;
    Ok(last)
}
