//! The first stage: inodes are changed or created, and what they had lost when they were logged is
//! removed.

use userbtrfs_format::{FileKind, InodeItem, Key};
use userbtrfs_sync::Arc;

use super::names::unname;
use super::report::{IncompleteFile, Replayed};
use super::state::Replay;
use crate::error::{InodeId, LogDamage, Result};
use crate::inode::Inode;
use crate::inode::ops;

/// Changes an inode to what was logged of it, or creates it.
pub(super) fn replay_inode(
    replay: &mut Replay<'_>,
    key: Key,
    logged: &InodeItem,
    report: &mut Replayed,
) -> Result<()> {
    let id = replay.id(key.objectid);
    let existing = ops::replay_find(replay.nodes, id)?;
    let existing_size = existing.as_ref().map(|inode| inode.item().size);
    if let Some(inode) = existing {
        check_kind(replay, key, logged.kind, inode.kind())?;
        if !replay.torn {
            remove_xattrs(replay, &inode)?;
            remove_names(replay, key, &inode, report)?;
        }
    }
    let Some(logged) = completed(replay, logged, existing_size, id, report) else {
        return Ok(());
    };
    let inode = ops::replay_inode(replay.nodes, id, &logged)?;
    match logged.kind {
        _ if replay.without_contents.contains(&id.number) => {}
        FileKind::Regular => {
            // Before extents are added: some may be preallocated beyond EOF.
            ops::replay_cut(replay.nodes, &inode)?;
            replay.rewritten.insert(id.number);
        }
        FileKind::Symlink => {
            replay.rewritten.insert(id.number);
        }
        _ => {}
    }
    replay.renamed.insert(id.number);
    report.inodes += 1;
    Ok(())
}

fn check_kind(replay: &Replay<'_>, key: Key, logged: FileKind, found: FileKind) -> Result<()> {
    if logged == found {
        return Ok(());
    }
    Err(replay.log.damage(key, LogDamage::Kind { inode: key.objectid, logged, found }))
}

/// Removes the extended attributes that the log does not have: an inode is always logged with
/// all of them.
fn remove_xattrs(replay: &Replay<'_>, inode: &Arc<Inode>) -> Result<()> {
    let id = inode.id();
    for (name, _) in ops::list_xattrs(replay.nodes, id)? {
        if !replay.log.has_xattr(replay.tree_roots(), id.number, &name)? {
            ops::replay_xattr(replay.nodes, inode, &name, None)?;
        }
    }
    Ok(())
}

/// Removes the names in the logged ranges of a directory that are not in the log.
fn remove_names(
    replay: &mut Replay<'_>,
    key: Key,
    dir: &Arc<Inode>,
    report: &mut Replayed,
) -> Result<()> {
    if dir.kind() != FileKind::Directory {
        return Ok(());
    }
    for (first, last) in replay.log.ranges(replay.tree_roots(), key.objectid)? {
        let mut position = Some(first);
        while let Some(from) = position.filter(|from| *from <= last) {
            let (entries, next) = ops::replay_list(replay.nodes, dir, from)?;
            for entry in entries.iter().filter(|entry| entry.index <= last) {
                let dir_number = key.objectid;
                let index = entry.index;
                if !replay.log.has_entry(replay.tree_roots(), dir_number, index, &entry.name)? {
                    unname(replay, key, dir, entry, report)?;
                }
            }
            position = next;
        }
    }
    Ok(())
}

/// Returns the item that an inode of the log is to become. If its contents are not complete it
/// is reported, and its size stays. Returns `None` if the inode is left out.
fn completed(
    replay: &mut Replay<'_>,
    logged: &InodeItem,
    existing_size: Option<u64>,
    inode: InodeId,
    report: &mut Replayed,
) -> Option<InodeItem> {
    let missing = replay.missing.in_file(inode.number, logged.size);
    let has_contents = matches!(logged.kind, FileKind::Regular | FileKind::Symlink);
    if missing.is_empty() || !has_contents {
        return Some(logged.clone());
    }
    // Half a target is none.
    let is_partial = replay.partial && logged.kind == FileKind::Regular;
    let size = logged.size;
    report.incomplete.push(IncompleteFile { inode, size, missing, is_partial });
    if is_partial {
        return Some(logged.clone());
    }
    replay.without_contents.insert(inode.number);
    if logged.kind == FileKind::Symlink && existing_size.is_none() {
        replay.excluded.insert(inode.number);
        return None;
    }
    Some(InodeItem { size: existing_size.unwrap_or(0), ..logged.clone() })
}
