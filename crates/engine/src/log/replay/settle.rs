//! The last stage: link counts and byte counts are corrected.
//!
//! 1. The entries of a directory without a name are removed, and so on recursively, before any
//!    names are counted.
//! 2. The link count of an inode whose names changed becomes the number of its names. An inode
//!    without any is listed to be deleted. A directory with more than one is damage.
//! 3. The byte count of a file whose contents changed becomes that of its extents.

use std::collections::BTreeSet;

use userbtrfs_format::{FileKind, ItemKind, Key};
use userbtrfs_sync::Arc;

use super::names::unname;
use super::report::Replayed;
use super::state::Replay;
use crate::error::{LogDamage, Result};
use crate::inode::dir;
use crate::inode::ops;
use crate::inode::{Inode, ROOT_DIR};

/// Ends the replay of a log.
pub(super) fn settle(replay: &mut Replay<'_>, report: &mut Replayed) -> Result<()> {
    for number in empty_nameless(replay, report)? {
        let key = inode_key(number);
        let done = settle_links(replay, key, report);
        done.or_else(|error| replay.leave_out(key, error, report))?;
    }
    replay.nodes.transactions()?.merge_pending()?;
    for number in std::mem::take(&mut replay.rewritten) {
        if let Some(inode) = ops::replay_find(replay.nodes, replay.id(number))? {
            ops::replay_bytes(replay.nodes, &inode)?;
        }
    }
    Ok(())
}

/// Empties directories without a name; returns all inodes whose names changed.
fn empty_nameless(replay: &mut Replay<'_>, report: &mut Replayed) -> Result<BTreeSet<u64>> {
    let mut seen = BTreeSet::new();
    while let Some(number) = replay.renamed.pop_first() {
        seen.insert(number);
        let key = inode_key(number);
        let done = empty_if_nameless(replay, key, report);
        done.or_else(|error| replay.leave_out(key, error, report))?;
    }
    Ok(seen)
}

fn empty_if_nameless(replay: &mut Replay<'_>, key: Key, report: &mut Replayed) -> Result<()> {
    match renamed_inode(replay, key)? {
        Some((dir, 0)) if dir.kind() == FileKind::Directory => empty(replay, key, &dir, report),
        _ => Ok(()),
    }
}

/// Returns an inode and the number of its names; `None` if it does not exist, or is the root
/// directory.
fn renamed_inode(replay: &Replay<'_>, key: Key) -> Result<Option<(Arc<Inode>, usize)>> {
    // The name of a subvolume's root is not in the subvolume.
    if key.objectid == ROOT_DIR {
        return Ok(None);
    }
    let Some(inode) = ops::replay_find(replay.nodes, replay.id(key.objectid))? else {
        return Ok(None);
    };
    let names = dir::names(replay.nodes, inode.id())?.len();
    Ok(Some((inode, names)))
}

fn settle_links(replay: &Replay<'_>, key: Key, report: &mut Replayed) -> Result<()> {
    let Some((inode, names)) = renamed_inode(replay, key)? else { return Ok(()) };
    if inode.kind() == FileKind::Directory && names > 1 {
        let why = LogDamage::DirectoryNames { inode: key.objectid, names };
        return Err(replay.log.damage(key, why));
    }
    report.deleted += u64::from(names == 0);
    let links = u32::try_from(names).expect("names stand in items, which are few for an inode");
    ops::replay_links(replay.nodes, &inode, links)
}

/// Removes all entries of a directory.
fn empty(replay: &mut Replay<'_>, key: Key, dir: &Arc<Inode>, report: &mut Replayed) -> Result<()> {
    let mut position = Some(0);
    while let Some(from) = position {
        let (entries, next) = ops::replay_list(replay.nodes, dir, from)?;
        for entry in &entries {
            unname(replay, key, dir, entry, report)?;
        }
        position = next;
    }
    Ok(())
}

fn inode_key(number: u64) -> Key {
    Key::new(number, ItemKind::INODE_ITEM, 0)
}
