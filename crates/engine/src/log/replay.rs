//! Replaying the logs that a filesystem was left with.
//!
//! What was fsynced since the last commit is in logs, one for each subvolume. A replay is done
//! before anybody uses the filesystem, in stages over each log:
//!
//! 0. `Logs`, `extents`: all blocks of all logs are pinned, and the extents that they name taken
//!    out of free space, before anything else is allocated.
//! 1. `inodes`: inodes become what was logged of them, or are made; names and attributes go that
//!    were gone when their inode was logged, and what lay behind the end of files.
//! 2. `names`: entries of directories, where what they lead to is there.
//! 3. `names`, `extents`: attributes, names of inodes, contents.
//! 4. `settle`: link counts and bytes become what there is; who has no name left is listed to be
//!    deleted.
//!
//! 1. One commit ends it. Whatever interrupts it before leaves the logs as they were, and all
//!    that they lead to: a replay that starts again ends the same.
//! 2. Everything goes through inodes in memory, as changes that wait; no tree is edited here.
//! 3. An inode that was logged without a name is not replayed: it was to be deleted. Nor is the
//!    log of a subvolume that is gone.
//! 4. What is damaged is an error that names it, and nothing is written; to salvage is to leave
//!    out what of a log is damaged, and to tell of it. All else ends a replay, also the lack of
//!    space: then the log stays.
//! 5. Once something of a log is left out, nothing goes because that log does not have it: it may
//!    have been in what was left out.

mod extents;
mod inodes;
mod names;
mod settle;

use std::collections::BTreeSet;

use userbtrfs_device::Device;
use userbtrfs_format::{FileKind, ItemKind, Key, SUPERBLOCK_OFFSETS, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{HandleKind, TransactionManager, TransactionOptions};
use userbtrfs_volume::{ReadError, Volume, read_superblock_copy};

use self::extents::Extents;
use super::items::{LogItem, LogTree, Logs};
use crate::error::{Error, InodeId, LogDamage, Result};
use crate::inode::{DelayedItemsFlusher, Inode, Inodes, InodesOptions, TreeRoots};

/// How a replay is done.
pub(crate) struct ReplayOptions {
    pub(crate) node_cache_bytes: usize,
    pub(crate) transactions: TransactionOptions,
    pub(crate) nodes: InodesOptions,
    /// Whether what is damaged is left out.
    pub(crate) salvage: bool,
}

/// What a replay did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Replayed {
    /// The transaction that the log followed.
    pub generation: u64,
    /// The subvolumes with a log.
    pub subvolumes: u64,
    /// Inodes that were logged.
    pub inodes: u64,
    /// Names that came.
    pub names_added: u64,
    /// Names that went.
    pub names_removed: u64,
    /// Ranges of files that were logged.
    pub extents: u64,
    /// Inodes that were left without a name, and are deleted.
    pub deleted: u64,
    /// What was damaged, where it was asked to leave that out.
    pub left_out: Vec<SkippedItem>,
}

/// Something in a log that was damaged, and was left out.
#[derive(Debug)]
#[non_exhaustive]
pub struct SkippedItem {
    /// The subvolume; nothing where it is the list of logs itself.
    pub subvolume: Option<TreeId>,
    /// The item; nothing where it is a tree block.
    pub key: Option<Key>,
    /// What is wrong.
    pub error: Error,
}

/// Whether a log waits to be replayed: only the primary superblock names one.
pub(crate) fn is_pending(device: &dyn Device) -> bool {
    let [primary, ..] = SUPERBLOCK_OFFSETS;
    let superblock = read_superblock_copy(device, primary).and_then(Result::ok);
    superblock.is_some_and(|superblock| superblock.log_root.is_some())
}

/// Replays the logs of the filesystem on these devices; one commit, and they are no more.
pub(crate) fn replay(devices: Vec<Arc<dyn Device>>, options: &ReplayOptions) -> Result<Replayed> {
    end(devices, options, options.salvage, |nodes, logs, report| {
        replay_logs(nodes, logs, report, options.salvage)
    })
}

/// Lets go of the logs of the filesystem on these devices: what was fsynced since the last commit
/// is lost.
pub(crate) fn discard(devices: Vec<Arc<dyn Device>>, options: &ReplayOptions) -> Result<Replayed> {
    end(devices, options, true, |nodes, logs, _| spare_extents(nodes, &logs))
}

/// Opens the filesystem, lets something be done with the logs, and commits. Where that fails,
/// nothing of it is ever durable.
fn end(
    devices: Vec<Arc<dyn Device>>,
    options: &ReplayOptions,
    tolerant: bool,
    with: impl FnOnce(&Inodes, Logs, &mut Replayed) -> Result<()>,
) -> Result<Replayed> {
    let volume = Arc::new(Volume::open_for_replay(devices)?);
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

/// Commits also where nothing changed: the superblock then names no log any more.
fn commit(transactions: &TransactionManager) -> Result<()> {
    transactions.start(HandleKind::Operation)?.subvolume_changed(TreeId::FS);
    Ok(transactions.commit()?)
}

/// Keeps what logs name from being given out in this transaction: until its superblock is durable
/// they are to be replayed. What cannot be had is in use already, or nothing can be said of it.
fn spare_extents(nodes: &Inodes, logs: &Logs) -> Result<()> {
    let mut extents = Extents::default();
    for log in &logs.trees {
        let replay = Replay::new(nodes, log, true);
        for leaf in log.leaves(nodes.tree_roots()).filter_map(Result::ok) {
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

fn replay_logs(nodes: &Inodes, logs: Logs, report: &mut Replayed, salvage: bool) -> Result<()> {
    let unread = logs.unread.into_iter();
    report.left_out.extend(unread.map(|unread| SkippedItem {
        subvolume: unread.subvolume,
        key: None,
        error: unread.error,
    }));
    report.subvolumes = logs.trees.len() as u64;
    let mut extents = Extents::default();
    let mut replays = Vec::new();
    for log in &logs.trees {
        if nodes.tree_roots().root_item(log.subvolume)?.is_some() {
            replays.push(Replay::new(nodes, log, salvage));
        }
    }
    for replay in &mut replays {
        replay.stage(Stage::Extents, &mut extents, report)?;
    }
    for replay in &mut replays {
        for stage in [Stage::Inodes, Stage::Entries, Stage::Rest] {
            replay.stage(stage, &mut extents, report)?;
        }
        replay.settle(report)?;
    }
    extents.give_back_rest(nodes.transactions()?);
    Ok(())
}

/// What is done in one run over a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Extents are taken out of free space.
    Extents,
    Inodes,
    Entries,
    Rest,
}

/// The replay of one log.
struct Replay<'a> {
    nodes: &'a Inodes,
    log: &'a LogTree,
    /// Whether what is damaged is left out.
    salvage: bool,
    /// Whether something was.
    torn: bool,
    /// The inode whose items come, where it is not replayed.
    ignored: Option<u64>,
    /// Inodes whose names changed.
    renamed: BTreeSet<u64>,
    /// Inodes whose contents changed.
    rewritten: BTreeSet<u64>,
}

impl<'a> Replay<'a> {
    fn new(nodes: &'a Inodes, log: &'a LogTree, salvage: bool) -> Self {
        let (renamed, rewritten) = (BTreeSet::new(), BTreeSet::new());
        Self { nodes, log, salvage, torn: log.torn, ignored: None, renamed, rewritten }
    }

    fn tree_roots(&self) -> &'a TreeRoots {
        self.nodes.tree_roots()
    }

    fn id(&self, number: u64) -> InodeId {
        InodeId { subvolume: self.log.subvolume, number }
    }

    /// Goes through the log once.
    fn stage(&mut self, stage: Stage, extents: &mut Extents, report: &mut Replayed) -> Result<()> {
        self.ignored = None;
        for leaf in self.log.leaves(self.tree_roots()) {
            let leaf = match leaf {
                Ok(leaf) => leaf,
                Err(error) => {
                    // It is told of once.
                    self.pass_over(None, error, (stage == Stage::Extents).then_some(&mut *report))?;
                    continue;
                }
            };
            for item in (0..leaf.len()).map(|slot| leaf.item(slot)) {
                let done = self.step(stage, item.key, item.data, extents, report);
                done.or_else(|error| self.leave_out(item.key, error, report))?;
            }
        }
        Ok(())
    }

    /// An error is one of the log, and is told of; or it ends the replay.
    fn leave_out(&mut self, key: Key, error: Error, report: &mut Replayed) -> Result<()> {
        match is_of_log(&error) {
            true => self.pass_over(Some(key), error, Some(report)),
            false => Err(error),
        }
    }

    /// An error of the log is told of, where that is wanted; or it ends the replay.
    fn pass_over(
        &mut self,
        key: Option<Key>,
        error: Error,
        report: Option<&mut Replayed>,
    ) -> Result<()> {
        if !self.salvage {
            return Err(error);
        }
        self.torn = true;
        let subvolume = Some(self.log.subvolume);
        let known = |left_out: &SkippedItem| left_out.key == key && left_out.subvolume == subvolume;
        if let Some(report) =
            report.filter(|report| key.is_none() || !report.left_out.iter().any(known))
        {
            report.left_out.push(SkippedItem { subvolume, key, error });
        }
        Ok(())
    }

    fn step(
        &mut self,
        stage: Stage,
        key: Key,
        data: &[u8],
        extents: &mut Extents,
        report: &mut Replayed,
    ) -> Result<()> {
        if key.kind == ItemKind::INODE_ITEM {
            self.ignored = None;
        }
        if self.ignored == Some(key.objectid) {
            return Ok(());
        }
        let Some(item) = LogItem::parse(key, data).map_err(|why| self.log.damage(key, why))? else {
            return Ok(());
        };
        match (stage, item) {
            (_, LogItem::Inode(inode)) if inode.nlink == 0 => {
                self.ignored = Some(key.objectid);
                Ok(())
            }
            (Stage::Extents, LogItem::Extent(extent)) => extents.take(self, key, &extent),
            (Stage::Inodes, LogItem::Inode(inode)) => self.inode(key, &inode, report),
            (Stage::Entries, LogItem::Entry(entry)) => self.entry(key, &entry, report),
            (Stage::Rest, LogItem::Names(item, names)) => self.names(key, item, &names, report),
            (Stage::Rest, LogItem::Xattrs(xattrs)) => self.xattrs(key, &xattrs),
            (Stage::Rest, LogItem::Extent(extent)) => {
                self.extent(key, &extent, data, extents, report)
            }
            _ => Ok(()),
        }
    }

    /// The inode that an item of the log is of.
    fn logged_inode(&self, key: Key) -> Result<Arc<Inode>> {
        let found = self.nodes.replay_find(self.id(key.objectid))?;
        found.ok_or_else(|| self.log.damage(key, LogDamage::NoInode(key.objectid)))
    }

    /// Checks that an inode is a directory.
    fn check_directory(&self, key: Key, inode: &Inode) -> Result<()> {
        match inode.kind() {
            FileKind::Directory => Ok(()),
            _ => Err(self.log.damage(key, LogDamage::NotADirectory(inode.id().number))),
        }
    }
}

/// Whether it is a log that is damaged, or asks for what cannot be, and nothing else.
fn is_of_log(error: &Error) -> bool {
    match error {
        Error::Log(_) | Error::Overflow | Error::TooManyLinks | Error::NameTooLong => true,
        Error::Read(ReadError::Block { tree, .. }) => *tree == TreeId::TREE_LOG,
        _ => false,
    }
}
