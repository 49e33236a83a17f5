//! Collects the items that must be in the log so that an inode survives a crash as it is now.
//!
//! Terms such as *stale* and *moving* are those of `inode/log_state/tracker`. A DIR_LOG_INDEX item
//! covers a range of directory indexes for which the log is authoritative: replay removes the
//! entries in it that the log does not have. Each rule has its stories in docs/log-stories.md.
//!
//! 1. The log has all current names of a logged inode, and no others. The committed directory
//!    indexes that the inode lost are covered by DIR_LOG_INDEX ranges, so that replay removes those
//!    names.
//! 2. The directory of a logged name is committed or logged. If a directory moved, each of its
//!    ancestors that is new or moved is logged, too.
//! 3. An inode that had a logged name before, and still exists, is logged: replay gives the name to
//!    one inode and takes it from the other. So is an inode that took over a name whose entry the
//!    log removes.
//! 4. If a directory is logged as a whole, the log has its new entries and the inodes that they
//!    point to, and DIR_LOG_INDEX ranges over the committed indexes of removed entries. The inodes
//!    that left it are logged.
//! 5. An inode that lost its last name has no item in the log. An inode that has no name yet is
//!    logged without one: replay counts its names, and deletes it. No inode is logged with a link
//!    count of 0: Linux skips such an inode, and before 6.17 also others that follow it. An inode
//!    that is deleted while it is being logged is marked stale; its items are removed from the log
//!    before the log commit is sealed.
//! 6. When a log commit is sealed, no inode in its logs is stale: the leader logs stale inodes
//!    again, once for all members. If there were any, name changes are frozen from then on until no
//!    inode is stale.
//! 7. An inode that must merely exist is logged with its inode item, its names and all its
//!    extended attributes: replay removes extended attributes that the log does not have.
//! 8. The attributes and extended attributes of a logged inode are a consistent snapshot. But for a
//!    committed inode that must merely exist, replay keeps the committed attributes.
//!
//! The contents of two inodes may be logged as of different moments; all names are as of the last
//! one. Any doubt ends the collecting with the reason why the transaction must be committed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use smallvec::SmallVec;
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{DirEntryKind, FileKind, InodeItem, ItemKind, Key, TreeId};
use userbtrfs_sync::{Arc, thread};
use userbtrfs_transaction::{
    Coalesced, FullCommitReason, LogTransId, LogWriter, PendingIoToken, RangeSet,
};

use super::draft::{self, LogItemBatches, keys_of};
use super::trace::LogVolume;
use crate::data::OrderedExtents;
use crate::error::{Error, InodeId};
use crate::inode::dir;
use crate::inode::ops;
use crate::inode::{
    COMPRESSION_FLAGS, EntryTarget, IndexedLink, Inode, Inodes, Link, LogMode, NamesToLog,
    PreviousLogState, ROOT_DIR, RemovedName,
};

/// The number of pending item changes above which they are applied to the log tree.
const EDITS_MAX: usize = 2048;

/// The most inodes that are logged in one batch if they must merely exist.
const TOGETHER_MAX: usize = 256;

/// The rounds after which inodes that keep becoming stale are left to a commit: more than there are
/// threads that may have passed the freeze before it began.
const ROUNDS_MAX: usize = 256;

/// The number of ancestors of a directory above which something must be wrong.
const DEPTH_MAX: usize = 1 << 14;

/// The result of collecting; the error is the reason for a full commit.
pub(super) type LogResult<T> = std::result::Result<T, FullCommitReason>;

/// Logs inodes of one subvolume by the rules of this module.
pub(super) struct InodeLogger<'a, 'w> {
    pub(super) nodes: &'a Inodes,
    pub(super) writer: &'a mut LogWriter<'w>,
    pub(super) running: u64,
    pub(super) subvolume: TreeId,
    pub(super) drafts: LogItemBatches,
    /// The inodes still to be logged, and how much of each; usually in the order of their numbers.
    /// With [`LogMode::All`], only a directory is logged as a whole: see `log_new_dir`.
    pub(super) todo: VecDeque<(u64, LogMode)>,
    /// By directory, the indexes that DIR_LOG_INDEX items are to cover.
    ranges: BTreeMap<u64, RangeSet>,
    /// The inodes that this logger has handled, and how much of each it logged.
    seen: BTreeMap<u64, LogMode>,
    /// The inode whose names were looked up last, its names, and those that it lost.
    pub(super) named: Option<(u64, Vec<IndexedLink>, Vec<RemovedName>)>,
    amount: LogVolume,
}

/// An inode to be logged as a whole.
pub(super) struct InodeToLog<'a> {
    pub(super) inode: &'a Arc<Inode>,
    /// The data in flight if the inode is a regular file.
    pub(super) data: Option<&'a OrderedExtents<'a>>,
}

/// The result of logging an inode as a whole.
pub(super) struct LoggedInode<'a> {
    pub(super) log_transid: LogTransId,
    /// Makes the log commit wait for data in flight that the log refers to.
    pub(super) pending_io: Option<PendingIoToken<'a>>,
    pub(super) amount: LogVolume,
}

/// Logs stale inodes again until there are none, so that the log commit can be sealed. This
/// terminates: a thread that passed the freeze before it began changes names once, and waits before
/// the next change.
pub(super) fn complete(nodes: &Inodes, writer: &mut LogWriter<'_>) -> LogResult<()> {
    let mut pause = None;
    for _ in 0..ROUNDS_MAX {
        let mut any = false;
        for subvolume in writer.subvolumes() {
            any |= InodeLogger::new(nodes, writer, subvolume).refresh()?;
        }
        if !any {
            return Ok(());
        }
        pause.get_or_insert_with(|| nodes.log_tracker().pause());
    }
    Err(FullCommitReason::Failed)
}

impl<'a, 'w> InodeLogger<'a, 'w> {
    pub(super) fn new(nodes: &'a Inodes, writer: &'a mut LogWriter<'w>, subvolume: TreeId) -> Self {
        let running = writer.generation();
        let drafts = LogItemBatches::default();
        Self {
            nodes,
            writer,
            running,
            subvolume,
            drafts,
            todo: VecDeque::new(),
            ranges: BTreeMap::new(),
            seen: BTreeMap::new(),
            named: None,
            amount: LogVolume::default(),
        }
    }

    /// Logs an inode as a whole, with the inodes that the rules require.
    pub(super) fn run(mut self, whole: &InodeToLog<'_>) -> LogResult<LoggedInode<'w>> {
        let collected = self.collect(whole);
        // Marked while this thread still has the logs locked: no other can write the incomplete
        // log.
        collected.inspect_err(|reason| self.writer.force_full_commit(*reason))
    }

    fn collect(&mut self, whole: &InodeToLog<'_>) -> LogResult<LoggedInode<'w>> {
        let before = self.log_whole(whole)?;
        self.log_parents(whole.inode, &before)?;
        self.finish()?;
        let awaits_data = whole.data.is_some_and(|data| !data.is_empty());
        let pending_io = awaits_data.then(|| self.writer.pending_io());
        Ok(self.as_logged(pending_io))
    }

    /// Returns the result of logging an inode.
    pub(super) fn as_logged(&self, pending_io: Option<PendingIoToken<'w>>) -> LoggedInode<'w> {
        let amount = LogVolume { inodes: self.seen.len(), ..self.amount };
        LoggedInode { log_transid: self.writer.log_transid(), pending_io, amount }
    }

    /// Logs stale inodes again; returns whether there were any.
    fn refresh(mut self) -> LogResult<bool> {
        let stale = self.take_stale()?;
        let any = !stale.is_empty();
        self.todo.extend(stale.into_iter().map(|id| (id.number, LogMode::Exists)));
        self.finish()?;
        Ok(any)
    }

    /// Logs the inodes in `todo`, and applies all pending changes to the log tree.
    pub(super) fn finish(&mut self) -> LogResult<()> {
        while let Some((number, mode)) = self.todo.pop_front() {
            match mode {
                LogMode::All => self.log_new_dir(number)?,
                LogMode::Exists => self.log_next(number)?,
            }
            self.flush_above(EDITS_MAX)?;
        }
        self.write_ranges()?;
        self.flush_above(0)
    }

    fn take_stale(&self) -> LogResult<Vec<InodeId>> {
        let is_own = |id: InodeId| id.subvolume == self.subvolume;
        Ok(self.nodes.log_tracker().take_stale(self.running, is_own)?)
    }

    pub(super) fn id(&self, number: u64) -> InodeId {
        InodeId { subvolume: self.subvolume, number }
    }

    /// Returns an inode, or `None` if it is deleted.
    pub(super) fn inode(&self, number: u64) -> LogResult<Option<Arc<Inode>>> {
        unless_deleted(self.nodes.inode(self.id(number)))
    }

    /// Marks inodes as logged, and returns the state of each before. Waits for the end of renames
    /// that they take part in.
    pub(super) fn begin(
        &self,
        numbers: &[u64],
        mode: LogMode,
    ) -> LogResult<SmallVec<[PreviousLogState; 1]>> {
        let log_tracker = self.nodes.log_tracker();
        let ids: SmallVec<[_; 1]> = numbers.iter().map(|number| self.id(*number)).collect();
        let begun = log_tracker.log(self.running, &ids, mode)?;
        let wait = |(id, mut before): (InodeId, Option<PreviousLogState>)| loop {
            if let Some(before) = before {
                return Ok(before);
            }
            // The thread that renames the inode may have panicked.
            self.writer.check()?;
            thread::yield_now();
            before = log_tracker.log(self.running, &[id], mode)?[0];
        };
        ids.into_iter().zip(begun).map(wait).collect()
    }

    /// Logs the existence of an inode, and of a batch of those that follow in `todo`, except those
    /// that were handled before.
    fn log_next(&mut self, first: u64) -> LogResult<()> {
        let mut numbers: Vec<_> = self.unseen(first).into_iter().collect();
        while numbers.len() < TOGETHER_MAX
            && let Some(&(number, LogMode::Exists)) = self.todo.front()
        {
            self.todo.pop_front();
            numbers.extend(self.unseen(number));
        }
        self.log_existence_of(numbers)
    }

    /// Marks a number as handled, and returns it; `None` if it was handled before.
    fn unseen(&mut self, number: u64) -> Option<u64> {
        let Entry::Vacant(place) = self.seen.entry(number) else { return None };
        place.insert(LogMode::Exists);
        Some(number)
    }

    /// Logs an inode as a whole if it is a directory, otherwise its existence.
    fn log_new_dir(&mut self, number: u64) -> LogResult<()> {
        let inode = self.inode(number)?.filter(|inode| inode.kind() == FileKind::Directory);
        match inode {
            Some(_) if self.seen.get(&number) == Some(&LogMode::All) => Ok(()),
            Some(inode) => self.log_whole(&InodeToLog { inode: &inode, data: None }).map(drop),
            None => self.log_existence_of(vec![number]),
        }
    }

    /// Logs an inode as a whole; returns its log state before.
    fn log_whole(&mut self, whole: &InodeToLog<'_>) -> LogResult<PreviousLogState> {
        let inode = whole.inode;
        // Read before `begin` clears the noted change of extended attributes.
        let version = inode.xattrs_version();
        self.check_loggable(inode)?;
        let before = self.begin(&[inode.id().number], LogMode::All)?[0];
        self.seen.insert(inode.id().number, LogMode::All);
        #[cfg(not(feature = "experiments"))]
        let known = before;
        #[cfg(feature = "experiments")]
        let known = self.state_as_known(inode, before);
        // Changes after this stamp do not count as logged.
        let stamp = inode.stamp(self.running);
        if (known.logged.is_none() || known.was_stale) && !self.log_names(inode, &known)? {
            return Ok(before);
        }
        if known.logged.is_none() || known.xattrs_changed {
            self.log_xattrs(inode, known.logged.is_none())?;
        }
        match inode.kind() {
            FileKind::Directory => self.log_entries(inode)?,
            FileKind::Symlink => self.log_target(inode)?,
            _ => {}
        }
        let item = match whole.data {
            Some(data) => self.log_content(data, known.logged.is_some())?,
            None => inode.item_to_log(),
        };
        let item = self.with_xattrs_of_its_moment(inode, version, item)?;
        self.put_item(inode.id().number, &item);
        if let Some(stamp) = stamp {
            let log_transid = self.writer.log_transid();
            self.nodes.log_tracker().stamp(self.running, inode.id(), stamp, log_transid);
        }
        Ok(before)
    }

    pub(super) fn put_item(&mut self, number: u64, item: &InodeItem) {
        let key = Key::new(number, ItemKind::INODE_ITEM, 0);
        let counted = InodeItem { nlink: item.nlink.max(1), ..item.clone() };
        self.drafts.put(key, &counted.encode());
    }

    /// Returns the names of an inode, and those that it lost. If it has no name but is about to get
    /// one in a rename, this waits for it. If it changed meanwhile, this looks again: the last name
    /// may have been removed from the tree after the link count was read. Any other inode without a
    /// name but with a link count is damaged, and a log would make it lose its names for good: that
    /// is an error.
    fn names(&self, inode: &Inode) -> LogResult<NamesToLog> {
        loop {
            let named = dir::names_to_log(self.nodes, inode, self.running);
            let named = named.map_err(|_| FullCommitReason::Failed)?;
            if !named.names.is_empty() || named.count == 0 {
                return Ok(named);
            }
            if !named.is_moving && inode.item().sequence == named.sequence {
                return Err(FullCommitReason::Failed);
            }
            self.writer.check()?;
            thread::yield_now();
        }
    }

    /// Logs the names of an inode and what they require. Returns false, and removes the inode from
    /// the log, if it has no name and can get none.
    pub(super) fn log_names(
        &mut self,
        inode: &Inode,
        before: &PreviousLogState,
    ) -> LogResult<bool> {
        let number = inode.id().number;
        // The root directory is its own parent.
        if number == ROOT_DIR {
            return Ok(true);
        }
        let NamesToLog { names, lost, over, is_linkable, .. } = self.names(inode)?;
        if names.is_empty() && is_linkable {
            return Ok(true);
        }
        if names.is_empty() {
            self.withdraw(number, before)?;
            return Ok(false);
        }
        self.log_lost(&lost)?;
        self.nodes.log_tracker().forget_lost(self.running, inode.id(), &over);
        let items = draft::names(number, &names);
        let old = match before.logged {
            Some(_) => self.keys(number, ItemKind::INODE_REF..=ItemKind::INODE_EXTREF)?,
            None => Vec::new(),
        };
        self.replace(inode, old, items)?;
        let named = |name: &Link| (name.dir, name_hash(&name.name));
        self.log_way_to(names.iter().map(|(name, _)| named(name)).collect())?;
        if inode.kind() == FileKind::Directory && !lost.is_empty() {
            self.log_ancestors(&names[0].0)?;
        }
        self.named = Some((number, names, lost));
        Ok(true)
    }

    /// Logs what names, each given as directory and hash, require: their directories, and the
    /// inodes that had them before.
    pub(super) fn log_way_to(&mut self, names: Vec<(u64, u32)>) -> LogResult<()> {
        for alike in names.chunk_by(|(dir, _), (next, _)| dir == next) {
            self.log_dir(alike[0].0)?;
        }
        self.log_previous_owners(names);
        Ok(())
    }

    fn log_previous_owners(&mut self, names: impl IntoIterator<Item = (u64, u32)>) {
        let names = names.into_iter().map(|(dir, hash)| (self.id(dir), hash));
        let left = self.nodes.log_tracker().left(self.running, names);
        self.todo.extend(left.into_iter().map(|other| (other, LogMode::Exists)));
    }

    /// Queues a directory for logging if it is new or moved.
    fn log_dir(&mut self, dir: u64) -> LogResult<()> {
        let Some(inode) = self.inode(dir)? else { return Ok(()) };
        let is_new = inode.item().generation == self.running;
        if is_new || self.nodes.log_tracker().lost_any(self.running, inode.id())? {
            self.todo.push_back((dir, LogMode::Exists));
        }
        Ok(())
    }

    /// Queues all ancestors of a name that are new or moved.
    fn log_ancestors(&mut self, name: &Link) -> LogResult<()> {
        let mut dir = name.dir;
        for _ in 0..DEPTH_MAX {
            self.log_dir(dir)?;
            if dir == ROOT_DIR {
                return Ok(());
            }
            let Some(inode) = self.inode(dir)? else { return Ok(()) };
            let names = self.names(&inode)?.names;
            let Some((name, _)) = names.first() else { return Ok(()) };
            dir = name.dir;
        }
        Err(FullCommitReason::Failed)
    }

    /// Makes the log remove the entries of the names that an inode lost.
    fn log_lost(&mut self, lost: &[RemovedName]) -> LogResult<()> {
        for RemovedName { dir, index, hash, committed } in lost.iter().copied() {
            let id = self.id(dir);
            let logged = self.nodes.log_tracker().logged(self.running, id);
            if logged.is_some_and(|logged| logged.mode == LogMode::All) {
                self.drafts.remove(Key::new(dir, ItemKind::DIR_INDEX, index));
            }
            self.log_previous_owners([(dir, hash)]);
            if !committed {
                continue;
            }
            self.todo.push_back((dir, LogMode::Exists));
            match self.inode(dir)? {
                Some(_) => self.ranges.entry(dir).or_default().insert(index..index + 1),
                // The entry is removed with its directory, if that is known to have lost its own
                // name.
                None if self.nodes.log_tracker().lost_any(self.running, id)? => {}
                None => return Err(FullCommitReason::Forgotten),
            }
        }
        Ok(())
    }

    /// Removes an inode without a name from the log.
    pub(super) fn withdraw(&mut self, number: u64, before: &PreviousLogState) -> LogResult<()> {
        let log_tracker = self.nodes.log_tracker();
        let id = self.id(number);
        log_tracker.unlog(self.running, id);
        if before.logged.is_some() {
            let keys = self.keys(number, ItemKind(0)..=ItemKind(u8::MAX))?;
            self.drafts.replace(keys, BTreeMap::new());
        }
        self.ranges.remove(&number);
        let lost = log_tracker.lost(self.running, id).0;
        let removed_entries = log_tracker.take_departed(self.running, id);
        self.todo.extend(removed_entries.left.into_iter().map(|other| (other, LogMode::Exists)));
        self.log_lost(&lost)
    }

    /// Logs extended attributes in place of those that the log has or is to have; if these are the
    /// first, it has none.
    pub(super) fn log_xattrs(&mut self, inode: &Inode, is_first: bool) -> LogResult<()> {
        let number = inode.id().number;
        let Some(xattrs) = unless_deleted(ops::list_xattrs(self.nodes, inode.id()))? else {
            return Ok(());
        };
        let old = if is_first {
            Vec::new()
        } else {
            self.keys(number, ItemKind::XATTR_ITEM..=ItemKind::XATTR_ITEM)?
        };
        self.replace(inode, old, draft::xattrs(number, &xattrs))
    }

    /// Returns attributes that are consistent with the logged extended attributes. If those changed
    /// after `version`, logs them again and takes what is set together with them: the mode with its
    /// ACL, and the compression flags with their property. Other flags stay as of the contents.
    pub(super) fn with_xattrs_of_its_moment(
        &mut self,
        inode: &Inode,
        mut version: u64,
        mut item: InodeItem,
    ) -> LogResult<InodeItem> {
        for _ in 0..ROUNDS_MAX {
            let now = inode.xattrs_version();
            if now == version {
                return Ok(item);
            }
            version = now;
            self.log_xattrs(inode, false)?;
            let InodeItem { mode, uid, gid, ctime, flags, .. } = inode.item_to_log();
            let flags = (item.flags - COMPRESSION_FLAGS) | (flags & COMPRESSION_FLAGS);
            item = InodeItem { mode, uid, gid, ctime, flags, ..item };
        }
        Err(FullCommitReason::Failed)
    }

    /// Replaces items of names or extended attributes of an inode in the log.
    fn replace(
        &mut self,
        inode: &Inode,
        old: Vec<Key>,
        items: BTreeMap<Key, Vec<u8>>,
    ) -> LogResult<()> {
        let is_new = inode.item().generation == self.running;
        if !is_new && items.values().any(|item| item.len() > self.overwriting_max()) {
            return Err(FullCommitReason::LargeItem);
        }
        self.drafts.replace(old, items);
        Ok(())
    }

    /// Logs the entries that were added to a directory and those that were removed.
    fn log_entries(&mut self, dir: &Inode) -> LogResult<()> {
        let log_tracker = self.nodes.log_tracker();
        let id = dir.id();
        let listed = self.log_departures(dir);
        let Some(first) = dir.first_added(self.running) else { return Ok(()) };
        let mut position = Some(first.max(listed));
        let mut end = listed;
        let mut names = Vec::new();
        while let Some(from) = position {
            let Some((entries, next)) = unless_deleted(dir::list(self.nodes, id, from))? else {
                break;
            };
            for entry in entries {
                let EntryTarget::Inode(number) = entry.target else {
                    // A log cannot hold this entry, and no subvolume is created or moved within a
                    // transaction.
                    return Err(FullCommitReason::Failed);
                };
                let key = Key::new(id.number, ItemKind::DIR_INDEX, entry.index);
                self.drafts.put(key, &entry.to_item());
                if entry.kind == DirEntryKind::Regular {
                    names.push((entry.hash(), number));
                }
                let mode = match entry.kind {
                    DirEntryKind::Directory => LogMode::All,
                    _ => LogMode::Exists,
                };
                self.todo.push_back((number, mode));
                end = entry.index + 1;
            }
            self.flush_above(EDITS_MAX)?;
            position = next;
        }
        log_tracker.list_until(self.running, id, end);
        self.check_names(dir, &names)?;
        Ok(())
    }

    /// Logs the removal of entries from a directory that is logged as a whole; returns the index up
    /// to which the log has its new entries.
    pub(super) fn log_departures(&mut self, dir: &Inode) -> u64 {
        let number = dir.id().number;
        let removed_entries = self.nodes.log_tracker().take_departed(self.running, dir.id());
        let first = dir.first_added(self.running).unwrap_or(u64::MAX);
        for run in removed_entries.gone.iter() {
            let committed = run.start..run.end.min(first);
            if !committed.is_empty() {
                self.ranges.entry(number).or_default().insert(committed);
            }
            for index in run.start.max(first)..run.end.min(removed_entries.listed) {
                self.drafts.remove(Key::new(number, ItemKind::DIR_INDEX, index));
            }
        }
        self.todo.extend(removed_entries.left.into_iter().map(|other| (other, LogMode::Exists)));
        removed_entries.listed
    }

    /// Writes `ranges` as DIR_LOG_INDEX items, merged with those that the log has.
    fn write_ranges(&mut self) -> LogResult<()> {
        for (number, places) in std::mem::take(&mut self.ranges) {
            let key = |start| Key::new(number, ItemKind::DIR_LOG_INDEX, start);
            let log_tracker = self.nodes.log_tracker();
            let id = self.id(number);
            for Coalesced { joined, run } in log_tracker.add_ranges(self.running, id, &places)? {
                for start in joined {
                    self.drafts.remove(key(start));
                }
                self.drafts.put(key(run.start), &(run.end - 1).to_le_bytes());
            }
        }
        Ok(())
    }

    /// Returns the keys of these kinds that the log has or is to have of an inode.
    pub(super) fn keys(&self, number: u64, kinds: RangeInclusive<ItemKind>) -> LogResult<Vec<Key>> {
        let log = self.writer.tree(self.subvolume).map(|log| &**log);
        let keys = self.drafts.keys(self.nodes.tree_roots(), log, keys_of(number, kinds));
        keys.map_err(|_| FullCommitReason::Failed)
    }

    /// Returns the length of the longest item that may overwrite a shorter one. The replay of Linux
    /// needs space in a leaf for all of the new item beside the old one. If no leaf can have that
    /// much, it makes none, and ends in a `BUG` unless there is enough by chance.
    pub(super) fn overwriting_max(&self) -> usize {
        self.nodes.item_max() / 2
    }

    /// Applies the pending changes to the log tree if there are more than `max`.
    pub(super) fn flush_above(&mut self, max: usize) -> LogResult<()> {
        if self.drafts.len() <= max {
            return Ok(());
        }
        self.amount.items += self.drafts.len();
        self.amount.bytes += self.drafts.bytes();
        self.writer.apply(self.subvolume, &mut self.drafts.edits())?;
        self.drafts.clear();
        Ok(())
    }
}

/// Returns the result of a lookup, or `None` if the inode is deleted.
fn unless_deleted<T>(found: crate::error::Result<T>) -> LogResult<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::NoInode(_)) => Ok(None),
        Err(_) => Err(FullCommitReason::Failed),
    }
}
