//! Replays the logs that a filesystem was left with.
//!
//! What was fsynced since the last commit is in logs, one for each subvolume. A replay is done
//! before the filesystem is used, in stages over each log:
//!
//! 0. `Logs`, `extents`: all blocks of all logs are pinned, and the extents that they refer to
//!    taken out of free space, before anything else is allocated.
//! 1. `inodes`: inodes are changed to what was logged of them, or created; names and attributes
//!    that no longer existed when their inode was logged are removed, and so are extents beyond
//!    EOF.
//! 2. `names`: directory entries are added if their targets exist.
//! 3. `names`, `extents`: extended attributes, names of inodes, and contents are replayed.
//! 4. `settle`: link counts and byte counts are corrected; inodes without a name are listed to be
//!    deleted.
//!
//! Rules:
//!
//! 1. One commit ends a replay. If it is interrupted before, the logs and all that they refer to
//!    are unchanged: a replay that starts again ends the same.
//! 2. All changes are made to inodes in memory, as pending changes; no tree is edited here.
//! 3. An inode that was logged with a link count of 0 is not replayed: it was to be deleted. Nor is
//!    the log of a deleted subvolume.
//! 4. Damage is an error that names the damaged item, and nothing is written; a salvage skips
//!    damaged parts of a log, and reports them. Any other error ends a replay, also a lack of
//!    space: then the log is kept.
//! 5. Once a part of a log is skipped, nothing is removed because that log does not have it: it may
//!    have been in the skipped part.

mod extents;
mod inodes;
mod missing;
mod names;
mod progress;
mod report;
mod settle;
mod state;

use std::ops::RangeInclusive;

use userbtrfs_device::{CrashPoint, Device};
use userbtrfs_format::{ItemKind, Key, SUPERBLOCK_OFFSETS, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{HandleKind, TransactionManager, TransactionOptions};
use userbtrfs_volume::{Volume, read_superblock_copy};

use self::extents::Extents;
pub use self::progress::ReplayProgress;
pub use self::report::{IncompleteFile, Replayed, SkippedItem};
use self::state::Replay;
use super::items::{KeyRange, LogItem, Logs};
use crate::error::{Error, Result};
use crate::inode::{DelayedItemsFlusher, Inodes, InodesOptions, TreeRoots};

/// Options of a replay.
pub(crate) struct ReplayOptions {
    pub(crate) node_cache_bytes: usize,
    pub(crate) transactions: TransactionOptions,
    pub(crate) nodes: InodesOptions,
    /// Whether damaged parts of a log are skipped.
    pub(crate) salvage: bool,
    /// Whether a salvage replays contents that are not complete.
    pub(crate) partial: bool,
    /// Where the progress is counted.
    pub(crate) progress: Arc<ReplayProgress>,
}

/// Returns whether a log is to be replayed: only the primary superblock points to one.
pub(crate) fn is_pending(device: &dyn Device) -> bool {
    let [primary, ..] = SUPERBLOCK_OFFSETS;
    let superblock = read_superblock_copy(device, primary).and_then(Result::ok);
    superblock.is_some_and(|superblock| superblock.log_root.is_some())
}

/// Returns whether the primary superblock is damaged: then a log may be pending that no other copy
/// names.
pub(crate) fn may_be_hidden(device: &dyn Device) -> bool {
    let [primary, ..] = SUPERBLOCK_OFFSETS;
    matches!(read_superblock_copy(device, primary), Some(Err(_)))
}

/// Replays the logs of the filesystem on these devices, and drops them, with one commit.
pub(crate) fn replay(devices: Vec<Arc<dyn Device>>, options: &ReplayOptions) -> Result<Replayed> {
    end(devices, options, options.salvage, |nodes, logs, report| {
        replay_logs(nodes, logs, report, options)
    })
}

/// Discards the logs of the filesystem on these devices: what was fsynced since the last commit is
/// lost.
pub(crate) fn discard(devices: Vec<Arc<dyn Device>>, options: &ReplayOptions) -> Result<Replayed> {
    end(devices, options, true, |nodes, logs, _| spare_extents(nodes, &logs))
}

/// Opens the filesystem, calls `with` on its logs, and commits. If that fails, nothing of it
/// becomes durable.
fn end(
    devices: Vec<Arc<dyn Device>>,
    options: &ReplayOptions,
    tolerant: bool,
    with: impl FnOnce(&Inodes, Logs, &mut Replayed) -> Result<()>,
) -> Result<Replayed> {
    let volume = Arc::new(if options.salvage {
        Volume::open_for_salvage(devices)?
    } else {
        Volume::open_for_replay(devices)?
    });
    let tree_roots = Arc::new(TreeRoots::new(volume, options.node_cache_bytes));
    let generation = tree_roots.store().volume().superblock().generation;
    let transactions = TransactionManager::open(tree_roots, options.transactions.clone())?;
    let logs = Logs::find(&transactions, tolerant)?;
    let nodes = Arc::new(Inodes::writable(Arc::clone(&transactions), options.nodes));
    transactions.register(vec![Arc::new(DelayedItemsFlusher(Arc::downgrade(&nodes)))])?;
    let mut report = Replayed { generation, ..Replayed::default() };
    let done = with(&nodes, logs, &mut report).and_then(|()| commit(&transactions));
    if let Err(error) = &done {
        transactions.fail(&error.to_string());
    }
    done.map(|()| report)
}

/// Commits even if nothing changed, so that the superblock no longer points to a log.
fn commit(transactions: &TransactionManager) -> Result<()> {
    transactions.start(HandleKind::Operation)?.subvolume_changed(TreeId::FS);
    transactions.volume().crash_point(CrashPoint::ReplayBeforeCommit);
    transactions.commit()?;
    transactions.volume().crash_point(CrashPoint::ReplayAfterCommit);
    Ok(())
}

/// Keeps the extents that logs refer to from being allocated in this transaction: until its
/// superblock is durable, the logs may still be replayed. An extent that cannot be taken is in use
/// already, or its state is unknown.
fn spare_extents(nodes: &Inodes, logs: &Logs) -> Result<()> {
    let mut extents = Extents::default();
    for log in &logs.trees {
        let replay = Replay::new(nodes, log, true, false);
        for leaf in log.leaves(nodes.tree_roots()).filter_map(|(_, leaf)| leaf.ok()) {
            for item in (0..leaf.len()).map(|slot| leaf.item(slot)) {
                if let Ok(Some(LogItem::Extent(extent))) = LogItem::parse(item.key, item.data) {
                    drop(extents.take(&replay, item.key, &extent));
                }
            }
        }
    }
    extents.give_back_rest(nodes.transactions()?);
    Ok(())
}

fn replay_logs(
    nodes: &Inodes,
    logs: Logs,
    report: &mut Replayed,
    options: &ReplayOptions,
) -> Result<()> {
    let unread = logs.unread.into_iter();
    report.left_out.extend(unread.map(|unread| SkippedItem {
        subvolume: unread.subvolume,
        key: None,
        inodes: unread.subvolume.map(|_| inodes_of(unread.keys)),
        error: unread.error,
    }));
    report.subvolumes = logs.trees.len() as u64;
    let mut extents = Extents::default();
    let mut replays = Vec::new();
    for log in &logs.trees {
        if nodes.tree_roots().root_item(log.subvolume)?.is_some() {
            replays.push(Replay::new(nodes, log, options.salvage, options.partial));
        }
    }
    let progress = &*options.progress;
    for replay in &replays {
        progress.found(replay.log_bytes());
    }
    for replay in &mut replays {
        run_stage(replay, Stage::Extents, &mut extents, report, progress)?;
    }
    let volume = nodes.tree_roots().store().volume();
    volume.crash_point(CrashPoint::ReplayExtentsTaken);
    for replay in &mut replays {
        if replay.torn {
            // Most replays do without this pass, so that it does not count.
            let uncounted = ReplayProgress::default();
            run_stage(replay, Stage::Checksums, &mut extents, report, &uncounted)?;
        }
        for stage in [Stage::Inodes, Stage::Entries, Stage::Rest] {
            run_stage(replay, stage, &mut extents, report, progress)?;
        }
        settle::settle(replay, report)?;
        progress.passed(replay.log_bytes());
        volume.crash_point(CrashPoint::ReplayLogDone);
    }
    extents.give_back_rest(nodes.transactions()?);
    Ok(())
}

/// A stage of a replay: one pass over a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Takes extents out of free space.
    Extents,
    /// Finds contents whose checksums are damaged, if anything is.
    Checksums,
    Inodes,
    Entries,
    Rest,
}

/// Runs one stage: a pass over the log.
fn run_stage(
    replay: &mut Replay<'_>,
    stage: Stage,
    extents: &mut Extents,
    report: &mut Replayed,
    progress: &ReplayProgress,
) -> Result<()> {
    replay.ignored = None;
    for (keys, leaf) in replay.log.leaves(replay.tree_roots()) {
        match leaf {
            Ok(leaf) => {
                for item in (0..leaf.len()).map(|slot| leaf.item(slot)) {
                    let done = step(replay, stage, item.key, item.data, extents, report);
                    done.or_else(|error| replay.leave_out(item.key, error, report))?;
                }
            }
            Err(error) => {
                // An unreadable block is reported in the first stage only.
                let of_block = (stage == Stage::Extents).then_some((&mut *report, keys));
                pass_over_block(replay, error, of_block)?;
            }
        }
        progress.passed(replay.leaf_bytes());
    }
    Ok(())
}

/// Skips a block that cannot be read, and reports it, if it is given with its keys.
fn pass_over_block(
    replay: &mut Replay<'_>,
    error: Error,
    report: Option<(&mut Replayed, KeyRange)>,
) -> Result<()> {
    if !replay.salvage {
        return Err(error);
    }
    replay.torn = true;
    if let Some((report, keys)) = report {
        replay.missing.add_gap(keys);
        let subvolume = Some(replay.log.subvolume);
        let inodes = Some(inodes_of(keys));
        report.left_out.push(SkippedItem { subvolume, key: None, inodes, error });
    }
    Ok(())
}

fn step(
    replay: &mut Replay<'_>,
    stage: Stage,
    key: Key,
    data: &[u8],
    extents: &mut Extents,
    report: &mut Replayed,
) -> Result<()> {
    if key.kind == ItemKind::INODE_ITEM {
        replay.ignored = None;
    }
    if replay.ignored == Some(key.objectid) {
        return Ok(());
    }
    let Some(item) = LogItem::parse(key, data).map_err(|why| replay.log.damage(key, why))? else {
        return Ok(());
    };
    match (stage, item) {
        (_, LogItem::Inode(inode)) if inode.nlink == 0 => {
            replay.ignored = Some(key.objectid);
            Ok(())
        }
        (_, LogItem::Inode(_)) if replay.excluded.contains(&key.objectid) => {
            replay.ignored = Some(key.objectid);
            Ok(())
        }
        (Stage::Extents, LogItem::Extent(extent)) => extents.take(replay, key, &extent),
        (Stage::Checksums, item) => {
            extents::check_checksums(replay, key, &item);
            Ok(())
        }
        (Stage::Inodes, LogItem::Inode(inode)) => inodes::replay_inode(replay, key, &inode, report),
        (Stage::Entries, LogItem::Entry(entry)) => names::replay_entry(replay, key, &entry, report),
        (Stage::Rest, LogItem::Names(item, names)) => {
            names::replay_names(replay, key, item, &names, report)
        }
        (Stage::Rest, LogItem::Xattrs(xattrs)) => names::replay_xattrs(replay, key, &xattrs),
        (Stage::Rest, LogItem::Extent(_)) if replay.without_contents.contains(&key.objectid) => {
            Ok(())
        }
        (Stage::Rest, LogItem::Extent(extent)) => {
            extents::replay_extent(replay, key, extent, data, extents, report)
        }
        _ => Ok(()),
    }
}

/// Returns the numbers of the inodes whose items have keys of a range.
fn inodes_of(keys: KeyRange) -> RangeInclusive<u64> {
    keys.first.objectid..=keys.end.map_or(u64::MAX, |end| end.objectid)
}
