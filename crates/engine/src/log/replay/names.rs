//! The second stage, and the names and extended attributes of the third.
//!
//! 1. A name and an index belong to one entry of a directory: an inode that gets them takes them
//!    from the inode that has them.
//! 2. An entry and the name of the inode that it points to are added and removed together.
//! 3. Nothing is removed for a new entry before it is known that the entry will be added.

use userbtrfs_codec::hash::extref_hash;
use userbtrfs_format::{FileKind, ItemKind, Key};
use userbtrfs_sync::Arc;

use super::report::Replayed;
use super::state::Replay;
use crate::error::{LogDamage, Result};
use crate::inode::dir;
use crate::inode::ops;
use crate::inode::{Entry, EntryTarget, Inode, Link, NamesItem};
use crate::log::items::LoggedEntry;

/// Adds an entry of a directory if its target exists. If the log has that name among those of
/// the target, it is added with those instead.
pub(super) fn replay_entry(
    replay: &mut Replay<'_>,
    key: Key,
    logged: &LoggedEntry<'_>,
    report: &mut Replayed,
) -> Result<()> {
    let dir = replay.logged_inode(key)?;
    replay.check_directory(key, &dir)?;
    // The names of subvolumes are changed by commits only, never by a log.
    let EntryTarget::Inode(number) = logged.target else { return Ok(()) };
    let there = ops::replay_entry_at(replay.nodes, &dir, logged.index)?;
    let is_same = |there: &Arc<Entry>| {
        (&*there.name, there.target, there.kind) == (logged.name, logged.target, logged.kind)
    };
    if there.as_ref().is_some_and(is_same) {
        return Ok(());
    }
    let Some(inode) = ops::replay_find(replay.nodes, replay.id(number))? else { return Ok(()) };
    if comes_with_inode(replay, number, key.objectid, logged.name)? {
        return Ok(());
    }
    if let Some(there) = there {
        unname(replay, key, &dir, &there, report)?;
    }
    free_name(replay, key, &dir, logged.name, report)?;
    leave_places(replay, &inode, report)?;
    put_name(replay, &dir, &inode, logged.index, logged.name, report)
}

/// Returns whether the log has this name of an inode in a directory, as far as it can be read.
fn comes_with_inode(replay: &Replay<'_>, inode: u64, dir: u64, name: &[u8]) -> Result<bool> {
    for item in [NamesItem::Ref(dir), NamesItem::Extref(extref_hash(dir, name))] {
        let logged = match replay.log.names(replay.tree_roots(), inode, item) {
            Err(_) if replay.torn => None,
            logged => logged?,
        };
        if logged.is_some_and(|names| has(&names, dir, name)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes the names that an inode has in an item those that were logged.
pub(super) fn replay_names(
    replay: &mut Replay<'_>,
    key: Key,
    item: NamesItem,
    logged: &[Link],
    report: &mut Replayed,
) -> Result<()> {
    let inode = replay.logged_inode(key)?;
    for link in ops::replay_names(replay.nodes, &inode, item)? {
        if !has(logged, link.dir, &link.name) {
            remove_link(replay, key, &link, report)?;
        }
    }
    for link in logged {
        put_link(replay, key, &inode, link, report)?;
    }
    Ok(())
}

/// Gives an inode a name. If the directory does not exist, it was not logged: then the name is
/// not added.
fn put_link(
    replay: &mut Replay<'_>,
    key: Key,
    inode: &Arc<Inode>,
    link: &Link,
    report: &mut Replayed,
) -> Result<()> {
    let Some(dir) = ops::replay_find(replay.nodes, replay.id(link.dir))? else { return Ok(()) };
    replay.check_directory(key, &dir)?;
    let there = ops::replay_entry_at(replay.nodes, &dir, link.index)?;
    let target = EntryTarget::Inode(key.objectid);
    if there.as_ref().is_some_and(|there| (&*there.name, there.target) == (&*link.name, target)) {
        return Ok(());
    }
    if let Some(there) = there {
        unname(replay, key, &dir, &there, report)?;
    }
    free_name(replay, key, &dir, &link.name, report)?;
    leave_places(replay, inode, report)?;
    put_name(replay, &dir, inode, link.index, &link.name, report)
}

/// Removes the old name of a directory that gets another, if the torn log did not remove it: a
/// directory has one name.
fn leave_places(replay: &mut Replay<'_>, inode: &Arc<Inode>, report: &mut Replayed) -> Result<()> {
    if !replay.torn || inode.kind() != FileKind::Directory {
        return Ok(());
    }
    let key = Key::new(inode.id().number, ItemKind::INODE_ITEM, 0);
    for link in dir::names(replay.nodes, inode.id())? {
        remove_link(replay, key, &link, report)?;
    }
    Ok(())
}

/// Removes a name of an inode that the log no longer has.
fn remove_link(
    replay: &mut Replay<'_>,
    key: Key,
    link: &Link,
    report: &mut Replayed,
) -> Result<()> {
    let dir = ops::replay_find(replay.nodes, replay.id(link.dir))?;
    let dir = dir.ok_or_else(|| replay.log.damage(key, LogDamage::NoInode(link.dir)))?;
    let entry = ops::replay_entry_at(replay.nodes, &dir, link.index)?;
    let of_inode = |entry: &Arc<Entry>| entry.target == EntryTarget::Inode(key.objectid);
    match entry.filter(of_inode) {
        Some(entry) => unname(replay, key, &dir, &entry, report),
        None => Ok(()),
    }
}

/// Removes the entry of this name from a directory, if there is one.
fn free_name(
    replay: &mut Replay<'_>,
    key: Key,
    dir: &Arc<Inode>,
    name: &[u8],
    report: &mut Replayed,
) -> Result<()> {
    let Some(target) = dir::lookup(replay.nodes, dir.id(), name)?.map(|found| found.target) else {
        return Ok(());
    };
    check_target(replay, key, dir, name, target)?;
    match ops::replay_entry(replay.nodes, dir, name)? {
        Some(entry) => unname(replay, key, dir, &entry, report),
        None => Ok(()),
    }
}

fn check_target(
    replay: &Replay<'_>,
    key: Key,
    dir: &Inode,
    name: &[u8],
    target: EntryTarget,
) -> Result<()> {
    let dir = dir.id().number;
    let name = name.to_vec();
    match target {
        EntryTarget::Inode(_) => Ok(()),
        EntryTarget::Subvolume(_) => {
            Err(replay.log.damage(key, LogDamage::Subvolume { dir, name }))
        }
    }
}

fn put_name(
    replay: &mut Replay<'_>,
    dir: &Arc<Inode>,
    inode: &Arc<Inode>,
    index: u64,
    name: &[u8],
    report: &mut Replayed,
) -> Result<()> {
    ops::replay_name(replay.nodes, dir, inode, index, name)?;
    replay.renamed.insert(inode.id().number);
    report.names_added += 1;
    Ok(())
}

/// Removes an entry, and with it the name of its target.
pub(super) fn unname(
    replay: &mut Replay<'_>,
    key: Key,
    dir: &Arc<Inode>,
    entry: &Arc<Entry>,
    report: &mut Replayed,
) -> Result<()> {
    check_target(replay, key, dir, &entry.name, entry.target)?;
    let inode = ops::replay_unname(replay.nodes, dir, entry)?;
    replay.renamed.insert(inode.id().number);
    report.names_removed += 1;
    Ok(())
}

/// Sets extended attributes of an inode to the logged values.
pub(super) fn replay_xattrs(
    replay: &Replay<'_>,
    key: Key,
    logged: &[(&[u8], &[u8])],
) -> Result<()> {
    let inode = replay.logged_inode(key)?;
    for (name, value) in logged {
        if ops::get_xattr(replay.nodes, inode.id(), name)?.as_deref() != Some(*value) {
            ops::replay_xattr(replay.nodes, &inode, name, Some(value))?;
        }
    }
    Ok(())
}

fn has(names: &[Link], dir: u64, name: &[u8]) -> bool {
    names.iter().any(|link| link.dir == dir && link.name == name)
}
