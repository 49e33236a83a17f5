//! What must be in the log so that an inode is there after a crash as it is now.
//!
//! Words as in `node/log_tracker`. Each rule has its stories in docs/log-stories.md.
//!
//! 1. An inode in the log has there all names that it has, and no others; the committed places
//!    that it lost are in ranges for which the log alone speaks, so that replay removes them.
//! 2. The directory of a name in the log is committed, or in the log; so is, where a directory
//!    moved, each directory above it that is new or moved.
//! 3. Who had a name before that is in the log, and lives on, is in the log: replay gives the name
//!    to one and takes it from the other. So is who follows in a place that the log takes away.
//! 4. Of a directory of which all is logged, the new entries are in the log, with what they lead
//!    to, and the places of those that went are in such ranges; who left it is in the log.
//! 5. Whoever has no name any more has no item in the log. Who has none yet is there without one:
//!    replay counts its names, and deletes it. Nobody is there with a link count of 0: Linux
//!    passes over such an inode, and before 6.17 over others that come after it. Who is deleted
//!    while he is logged became stale by that, and is taken out before the group is closed.
//! 6. When a group is closed, no inode of its logs is stale: who leads it logs those anew, once for
//!    all. Where others become stale meanwhile, names are changed no more until it is done.
//! 7. What is logged with an inode that merely must exist is that, its names and its extended
//!    attributes: replay takes away those that the log does not have.
//! 8. The attributes of an inode and its extended ones are of one moment. But of one that is
//!    committed and merely must exist replay keeps the attributes that the commit has.
//!
//! Contents of two inodes may be of two moments; names are all of the last one. Any doubt ends
//! the collecting with the reason why the transaction must be committed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{DirEntryKind, FileKind, InodeItem, ItemKind, Key, TreeId};
use userbtrfs_sync::{Arc, thread};
use userbtrfs_transaction::{FullCommitReason, LogTransId, LogWriter, PendingIoToken};

use super::draft::{self, LogItemBatches, keys_of};
use super::trace::LogVolume;
use crate::data::OrderedExtents;
use crate::error::{Error, InodeId};
use crate::inode::{
    COMPRESSION_FLAGS, Coalesced, EntryTarget, IndexedLink, Inode, Inodes, Link, LogMode,
    NamesToLog, PreviousLogState, ROOT_DIR, RangeSet, RemovedName,
};

/// Items that are changed at once.
const EDITS_MAX: usize = 2048;

/// Inodes that are seen to at once where they merely must exist.
const TOGETHER_MAX: usize = 256;

/// Rounds after which inodes that become stale all the time are left to a commit: more than there
/// are threads that may be past a pause.
const ROUNDS_MAX: usize = 256;

/// Directories above one another after which something must be wrong.
const DEPTH_MAX: usize = 1 << 14;

/// How collecting ends.
pub(super) type LogResult<T> = std::result::Result<T, FullCommitReason>;

/// See the module's text.
pub(super) struct InodeLogger<'a, 'w> {
    pub(super) nodes: &'a Inodes,
    pub(super) writer: &'a mut LogWriter<'w>,
    pub(super) running: u64,
    pub(super) subvolume: TreeId,
    pub(super) drafts: LogItemBatches,
    /// Who is still to be logged, and how; mostly in the order of their numbers.
    pub(super) todo: VecDeque<(u64, Wish)>,
    /// Places of directories for which the log is to speak.
    ranges: BTreeMap<u64, RangeSet>,
    /// Who was seen to by this collector, and how.
    seen: BTreeMap<u64, Wish>,
    /// The inode whose names were looked up last, these, and those that it lost.
    pub(super) named: Option<(u64, Vec<IndexedLink>, Vec<RemovedName>)>,
    amount: LogVolume,
}

/// How an inode is to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// At least that it exists, with the names of now.
    Exists,
    /// All of it, where it is a directory.
    Whole,
}

/// An inode of which all is logged.
pub(super) struct InodeToLog<'a> {
    pub(super) inode: &'a Arc<Inode>,
    /// Of a file: what of it is on its way.
    pub(super) data: Option<&'a OrderedExtents<'a>>,
}

/// What it logged.
pub(super) struct LoggedInode<'a> {
    pub(super) group: LogTransId,
    /// That data comes of which it tells.
    pub(super) pending_io: Option<PendingIoToken<'a>>,
    pub(super) amount: LogVolume,
}

/// Makes the logs what they must be when a group is closed. It comes to an end: who is past the
/// pause changes names once, and waits before the next time.
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
        let (running, drafts) = (writer.generation(), LogItemBatches::default());
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

    /// Logs all of an inode, and what belongs to it.
    pub(super) fn run(mut self, whole: &InodeToLog<'_>) -> LogResult<LoggedInode<'w>> {
        let collected = self.collect(whole);
        // While nobody else can write what is not all.
        collected.inspect_err(|reason| self.writer.force_full_commit(*reason))
    }

    fn collect(&mut self, whole: &InodeToLog<'_>) -> LogResult<LoggedInode<'w>> {
        let before = self.log_whole(whole)?;
        self.log_parents(whole.inode, &before)?;
        self.finish()?;
        let awaits_data = whole.data.is_some_and(|data| !data.is_empty());
        let pending_io = awaits_data.then(|| self.writer.pending_io());
        let amount = LogVolume { inodes: self.seen.len(), ..self.amount };
        Ok(LoggedInode { group: self.writer.group(), pending_io, amount })
    }

    /// Logs stale inodes anew; says whether there were any.
    fn refresh(mut self) -> LogResult<bool> {
        let stale = self.take_stale()?;
        let any = !stale.is_empty();
        self.todo.extend(stale.into_iter().map(|id| (id.number, Wish::Exists)));
        self.finish()?;
        Ok(any)
    }

    /// Logs whoever is still to be.
    fn finish(&mut self) -> LogResult<()> {
        while let Some((number, wish)) = self.todo.pop_front() {
            match wish {
                Wish::Whole => self.log_new_dir(number)?,
                Wish::Exists => self.log_next(number)?,
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

    /// An inode, or nothing where it is deleted.
    pub(super) fn inode(&self, number: u64) -> LogResult<Option<Arc<Inode>>> {
        unless_deleted(self.nodes.inode(self.id(number)))
    }

    /// From now on inodes are in the log. Who takes part in a rename just now is waited for.
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
            // Who was in the middle of it may have panicked.
            self.writer.check()?;
            thread::yield_now();
            before = log_tracker.log(self.running, &[id], mode)?[0];
        };
        ids.into_iter().zip(begun).map(wait).collect()
    }

    /// Logs that inodes exist, at least; those that were not seen to yet.
    fn log_next(&mut self, first: u64) -> LogResult<()> {
        let mut numbers: Vec<_> = self.unseen(first).into_iter().collect();
        while numbers.len() < TOGETHER_MAX
            && let Some(&(number, Wish::Exists)) = self.todo.front()
        {
            self.todo.pop_front();
            numbers.extend(self.unseen(number));
        }
        self.log_existence_of(numbers)
    }

    /// A number that was not seen to yet; from now on it is.
    fn unseen(&mut self, number: u64) -> Option<u64> {
        let Entry::Vacant(place) = self.seen.entry(number) else { return None };
        place.insert(Wish::Exists);
        Some(number)
    }

    /// Logs all of a directory that a new entry leads to.
    fn log_new_dir(&mut self, number: u64) -> LogResult<()> {
        let inode = self.inode(number)?.filter(|inode| inode.kind() == FileKind::Directory);
        match inode {
            Some(_) if self.seen.get(&number) == Some(&Wish::Whole) => Ok(()),
            Some(inode) => self.log_whole(&InodeToLog { inode: &inode, data: None }).map(drop),
            None => self.log_existence_of(vec![number]),
        }
    }

    /// Logs all of an inode; returns what was noted of it before.
    fn log_whole(&mut self, whole: &InodeToLog<'_>) -> LogResult<PreviousLogState> {
        let inode = whole.inode;
        // Before what is noted of it is forgotten.
        let version = inode.xattrs_version();
        self.check_loggable(inode)?;
        let before = self.begin(&[inode.id().number], LogMode::All)?[0];
        self.seen.insert(inode.id().number, Wish::Whole);
        // What changes after this look is not in the log.
        let stamp = inode.stamp(self.running);
        if (before.logged.is_none() || before.was_stale) && !self.log_names(inode, &before)? {
            return Ok(before);
        }
        if before.logged.is_none() || before.xattrs_changed {
            self.log_xattrs(inode, before.logged.is_none())?;
        }
        match inode.kind() {
            FileKind::Directory => self.log_entries(inode)?,
            FileKind::Symlink => self.log_target(inode)?,
            _ => {}
        }
        let item = match whole.data {
            Some(data) => self.log_content(data, before.logged.is_some())?,
            None => inode.item_to_log(),
        };
        let item = self.with_xattrs_of_its_moment(inode, version, item)?;
        self.put_item(inode.id().number, &item);
        if let Some(stamp) = stamp {
            let group = self.writer.group();
            self.nodes.log_tracker().stamp(self.running, inode.id(), stamp, group);
        }
        Ok(before)
    }

    pub(super) fn put_item(&mut self, number: u64, item: &InodeItem) {
        let key = Key::new(number, ItemKind::INODE_ITEM, 0);
        let counted = InodeItem { nlink: item.nlink.max(1), ..item.clone() };
        self.drafts.put(key, &counted.encode());
    }

    /// The names that an inode has, and those that it lost. Who has none just now, and gets one in
    /// the next moment, is waited for. Who changed meanwhile is looked at again: the last name may
    /// have gone from the tree after the inode had counted it. The names of another one that has
    /// none, though it counts some, are damaged: a log would make it lose them for good.
    fn names(&self, inode: &Inode) -> LogResult<NamesToLog> {
        loop {
            let named = self.nodes.names_to_log(inode, self.running);
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

    /// Logs the names of an inode, and what belongs to them; says whether it has any.
    pub(super) fn log_names(
        &mut self,
        inode: &Inode,
        before: &PreviousLogState,
    ) -> LogResult<bool> {
        let number = inode.id().number;
        // The root directory has itself as its name's directory.
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

    /// Logs what belongs to names, each of a directory and with a hash: their directories, and who
    /// had them before.
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
        self.todo.extend(left.into_iter().map(|other| (other, Wish::Exists)));
    }

    /// A directory that is new or moved is in the log.
    fn log_dir(&mut self, dir: u64) -> LogResult<()> {
        let Some(inode) = self.inode(dir)? else { return Ok(()) };
        let is_new = inode.item().generation == self.running;
        if is_new || self.nodes.log_tracker().lost_any(self.running, inode.id())? {
            self.todo.push_back((dir, Wish::Exists));
        }
        Ok(())
    }

    /// So are all above a name.
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

    /// The log takes away the places that an inode lost.
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
            self.todo.push_back((dir, Wish::Exists));
            match self.inode(dir)? {
                Some(_) => self.ranges.entry(dir).or_default().insert(index..index + 1),
                // It goes with the directory, whose own place must be known to have gone.
                None if self.nodes.log_tracker().lost_any(self.running, id)? => {}
                None => return Err(FullCommitReason::Forgotten),
            }
        }
        Ok(())
    }

    /// An inode without a name has nothing in the log.
    pub(super) fn withdraw(&mut self, number: u64, before: &PreviousLogState) -> LogResult<()> {
        let (log_tracker, id) = (self.nodes.log_tracker(), self.id(number));
        log_tracker.unlog(self.running, id);
        if before.logged.is_some() {
            let keys = self.keys(number, ItemKind(0)..=ItemKind(u8::MAX))?;
            self.drafts.replace(keys, BTreeMap::new());
        }
        self.ranges.remove(&number);
        let (lost, removed_entries) =
            (log_tracker.lost(self.running, id).0, log_tracker.take_departed(self.running, id));
        self.todo.extend(removed_entries.left.into_iter().map(|other| (other, Wish::Exists)));
        self.log_lost(&lost)
    }

    /// Logs extended attributes, in the place of those that the log has or is to have; it has none
    /// where these are the first.
    pub(super) fn log_xattrs(&mut self, inode: &Inode, is_first: bool) -> LogResult<()> {
        let number = inode.id().number;
        let Some(xattrs) = unless_deleted(self.nodes.xattrs(inode.id()))? else { return Ok(()) };
        let old = match is_first {
            true => Vec::new(),
            false => self.keys(number, ItemKind::XATTR_ITEM..=ItemKind::XATTR_ITEM)?,
        };
        self.replace(inode, old, draft::xattrs(number, &xattrs))
    }

    /// Attributes, after the extended ones of that `version` were logged, if these are still the
    /// same; otherwise with those that are, which are logged, too: a mode and its access list are
    /// set at once, and so are the property of compression and its flags. Other flags are of the
    /// moment of the contents.
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

    /// Items of names or attributes of an inode take the place of those that the log has.
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

    /// Logs what came into a directory and what left it.
    fn log_entries(&mut self, dir: &Inode) -> LogResult<()> {
        let (log_tracker, id) = (self.nodes.log_tracker(), dir.id());
        let listed = self.log_departures(dir);
        let Some(first) = dir.first_added(self.running) else { return Ok(()) };
        let mut position = Some(first.max(listed));
        let (mut end, mut names) = (listed, Vec::new());
        while let Some(from) = position {
            let Some((entries, next)) = unless_deleted(self.nodes.list(id, from))? else { break };
            for entry in entries {
                let EntryTarget::Inode(number) = entry.target else {
                    // No log can hold it; and nobody makes or moves a subvolume in a transaction.
                    return Err(FullCommitReason::Failed);
                };
                let key = Key::new(id.number, ItemKind::DIR_INDEX, entry.index);
                self.drafts.put(key, &entry.to_item());
                if entry.kind == DirEntryKind::Regular {
                    names.push((entry.hash(), number));
                }
                let wish = match entry.kind {
                    DirEntryKind::Directory => Wish::Whole,
                    _ => Wish::Exists,
                };
                self.todo.push_back((number, wish));
                end = entry.index + 1;
            }
            self.flush_above(EDITS_MAX)?;
            position = next;
        }
        log_tracker.list_until(self.running, id, end);
        self.check_names(dir, &names)?;
        Ok(())
    }

    /// Logs what left a directory all of which is in the log; gives the place up to which the log
    /// has its new entries.
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
        self.todo.extend(removed_entries.left.into_iter().map(|other| (other, Wish::Exists)));
        removed_entries.listed
    }

    /// Writes the places for which the log is to speak, beside those for which it does.
    fn write_ranges(&mut self) -> LogResult<()> {
        for (number, places) in std::mem::take(&mut self.ranges) {
            let key = |start| Key::new(number, ItemKind::DIR_LOG_INDEX, start);
            let (log_tracker, id) = (self.nodes.log_tracker(), self.id(number));
            for Coalesced { joined, run } in log_tracker.add_ranges(self.running, id, &places)? {
                for start in joined {
                    self.drafts.remove(key(start));
                }
                self.drafts.put(key(run.start), &(run.end - 1).to_le_bytes());
            }
        }
        Ok(())
    }

    /// The keys of some kinds that the log has, or is to have, of an inode.
    pub(super) fn keys(
        &self,
        number: u64,
        kinds: std::ops::RangeInclusive<ItemKind>,
    ) -> LogResult<Vec<Key>> {
        let log = self.writer.tree(self.subvolume).map(|log| &**log);
        let keys = self.drafts.keys(self.nodes.tree_roots(), log, keys_of(number, kinds));
        keys.map_err(|_| FullCommitReason::Failed)
    }

    /// The longest item that may be put over one that is shorter. Linux wants room in a leaf for
    /// all of it beside the old one; where no leaf has that, it makes none, and its replay ends in
    /// a `BUG` unless there is some by chance.
    pub(super) fn overwriting_max(&self) -> usize {
        self.nodes.item_max() / 2
    }

    /// Puts what is drafted into the log, if it is more than that.
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

/// What was looked up of an inode; nothing where it is deleted.
fn unless_deleted<T>(found: crate::error::Result<T>) -> LogResult<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::NoInode(_)) => Ok(None),
        Err(_) => Err(FullCommitReason::Failed),
    }
}
