//! A file that takes the space at the start of the device, so that what is written meanwhile lies
//! near its end, where the next resize finds it.
//!
//! 1. It has no name and no data, only preallocated space: most of what is free after a resize. A
//!    crash leaves an orphan, which the next mount deletes.
//! 2. It is deleted before the next resize that is not refused: then all that it took is free for
//!    what is relocated.
//! 3. It is deleted before a snapshot of its subvolume, which would copy it.

use anyhow::Result;
use userbtrfs::{Allocate, BlockGroupFlags, Error, File, Filesystem, TreeId};
use userbtrfs_format::{BlockGroupItem, CompatRoFlags, ItemKind, Key};

use crate::model::Outcome;

use super::outcome::outcome;

/// The part of the filesystem that stays free.
const FREE_PART: u64 = 6;
/// The length of a piece that is taken of a block group, in bytes.
const PIECE: u64 = 1 << 20;
/// The length of a piece that is taken of what is left then, and the number of these.
const SMALL_PIECE: u64 = 64 << 10;
const SMALL_PIECES: u64 = 100;

/// The file, while there is one.
#[derive(Default)]
pub(super) struct Ballast(Option<File>);

impl Ballast {
    /// Takes the free space of a filesystem but for a part.
    pub(super) fn of(filesystem: &Filesystem) -> Result<Self, Error> {
        let space = filesystem.space_left()?;
        let end = space.available.saturating_sub(space.total / FREE_PART);
        let file = filesystem.root().create_unnamed(0o600)?.open()?;
        let mut at = 0;
        let mut allocate = |len: u64| {
            let len = len.min(end.saturating_sub(at));
            let from = at;
            at += len;
            let kind = Allocate::Reserve { keep_size: false };
            if len > 0 { file.allocate(from, len, kind) } else { Ok(()) }
        };
        // Pieces small enough for the free ranges of the block groups that there are.
        for _ in 0..free_in_groups(filesystem)? / PIECE {
            allocate(PIECE)?;
        }
        for _ in 0..SMALL_PIECES {
            allocate(SMALL_PIECE)?;
        }
        allocate(u64::MAX)?;
        Ok(Self(Some(file)))
    }

    /// Returns whether there is one.
    pub(super) fn is_held(&self) -> bool {
        self.0.is_some()
    }

    /// Deletes it.
    pub(super) fn delete(&mut self) -> Outcome {
        self.0.take().map_or(Ok(()), |file| outcome(file.close()))
    }

    /// Deletes it if it is in the subvolume that is about to be copied.
    pub(super) fn delete_before_snapshot(&mut self, source: TreeId) -> Outcome {
        let is_copied = self.0.as_ref().is_some_and(|file| file.inode().id().subvolume == source);
        if is_copied { self.delete() } else { Ok(()) }
    }
}

/// Returns the free bytes in the block groups of data.
fn free_in_groups(filesystem: &Filesystem) -> Result<u64, Error> {
    let kinds = filesystem.usage()?.kinds;
    let of_data = kinds.iter().filter(|kind| kind.flags.contains(BlockGroupFlags::DATA));
    Ok(of_data.map(|kind| kind.total - kind.used).sum())
}

/// Returns the bytes that are used in the block groups that take space of the device beyond an
/// offset, as of the last commit.
pub fn used_beyond(filesystem: &Filesystem, offset: u64) -> Result<u64> {
    let has_own_tree = filesystem.superblock().compat_ro.contains(CompatRoFlags::BLOCK_GROUP_TREE);
    let tree = if has_own_tree { TreeId::BLOCK_GROUP } else { TreeId::EXTENT };
    let mut used = 0;
    for chunk in filesystem.volume().chunks() {
        let is_beyond = chunk.stripes.iter().any(|it| it.physical.0 + chunk.len > offset);
        let wanted = Key::new(chunk.logical.0, ItemKind::BLOCK_GROUP_ITEM, chunk.len);
        filesystem.show_items(tree, &wanted, |key, _, item| {
            if is_beyond && *key == wanted {
                used +=
                    BlockGroupItem::parse(chunk.len, item).expect("verified with its block").used;
            }
            false
        })?;
    }
    Ok(used)
}
