//! The state of inodes that only the tree log of the running transaction needs.
//!
//! A *place* is an index in a directory; it is *committed* if the last committed transaction has
//! its entry. A name is *lost* when its entry is removed. An inode is *stale* if it is in the log,
//! or is a directory whose entries are, and the names or entries in the log are out of date.
//!
//! 1. All state is of one transaction: the first note in the next transaction discards it.
//! 2. A lost name is noted if its place is committed, or if its inode or its directory is in the
//!    log; otherwise the log does not need it. It is noted when the inode loses it, or before; a
//!    reader of the names of an inode leaves out those noted as lost. A lost name that was not
//!    committed is forgotten once it is removed and logged; the fact that the inode lost a name is
//!    not.
//! 3. All name changes of a rename are noted at once, before the first of them is made. From then
//!    until all are made, the inodes and the directories that take part are *moving*. A moving
//!    inode is not logged: it may have no name, and a directory may hold neither the old entry nor
//!    the new one.
//! 4. Evicting an inode from memory changes nothing here. An inode without names that was removed
//!    from the log is *over*: logging a later owner of one of its names need not log it.
//! 5. If there are too many notes, or too many inodes in the log, all state is dropped and
//!    [`TrackerOverflow`] is returned: then only a commit makes changes durable.
//! 6. A directory *needs a commit* in place of a log of all of it, as in Linux, after it moves to
//!    another directory, and after an inode moves from it to another directory, unless all of the
//!    directory, or the inode, was in the log before.

use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;
use userbtrfs_btree::ShortKeys;
use userbtrfs_format::FileKind;
use userbtrfs_sync::{Class, Mutex};
use userbtrfs_transaction::{Coalesced, FullCommitReason, LogTransId, RangeSet};

use crate::error::InodeId;
use crate::inode::log_state::few::Few;
use crate::inode::log_state::freeze::{NamespaceFreeze, NamespaceFreezes};

/// The most lost names that are noted.
const NOTES_MAX: usize = 1 << 18;

/// Tracks which inodes are logged and which names they lost.
pub(crate) struct LogTracker {
    table: Mutex<Table>,
    pauses: NamespaceFreezes,
    /// The most inodes that are tracked.
    inodes_max: usize,
}

#[derive(Default)]
struct Table {
    transaction: u64,
    forgotten: bool,
    notes: usize,
    inodes: HashMap<InodeId, InodeLogState, ShortKeys>,
    stale: Vec<InodeId>,
    /// The inodes that take part in a rename in progress: few for each rename.
    moving: Vec<InodeId>,
}

/// The log state of one inode. For most inodes, only `logged` is set.
#[derive(Default)]
struct InodeLogState {
    logged: Option<LoggedState>,
    is_stale: bool,
    /// Whether extended attributes changed since it was logged.
    xattrs_changed: bool,
    /// The names that it lost.
    lost: Few<RemovedName>,
    /// The number of other names that it lost, which are forgotten.
    lost_before: usize,
    /// Whether it has no name and was removed from the log: see rule 4.
    is_over: bool,
    entries: Option<Box<Entries>>,
}

/// Changes of the names in a directory.
#[derive(Default)]
struct Entries {
    /// Places whose entries were removed and that are not logged.
    gone: RangeSet,
    /// Inodes that were added to `left` and not yet taken.
    untold: Vec<u64>,
    /// By the hash of a name, the inodes that lost it and survive, or are in the log, and those
    /// that got it in the same step, or later. Some of them may be over.
    left: HashMap<u32, Few<u64>, ShortKeys>,
    /// Ranges of places for which the log is authoritative: replay removes entries that it lacks.
    ranges: RangeSet,
    /// The place up to which the new entries are logged.
    listed: u64,
    /// Whether a commit is needed in place of a log of all of the directory: see rule 6.
    needs_commit: bool,
}

impl Entries {
    /// Adds an inode that left a name of this hash, or that follows there, unless it was added
    /// before.
    fn leave(&mut self, hash: u32, inode: u64) {
        let left = self.left.entry(hash).or_default();
        if !left.contains(&inode) {
            left.push(inode);
            self.untold.push(inode);
        }
    }
}

impl InodeLogState {
    /// Returns true for a directory whose entries are in the log.
    fn has_entries(&self) -> bool {
        self.logged.is_some_and(|logged| logged.mode == LogMode::All)
    }

    /// Returns true for a directory in which a tracked inode left a name of this hash.
    fn has_left(&self, hash: u32) -> bool {
        self.entries.as_ref().is_some_and(|entries| entries.left.contains_key(&hash))
    }
}

/// The part of an inode that is logged, or is to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogMode {
    /// Its existence, names and extended attributes (Linux: LOG_INODE_EXISTS).
    Exists,
    /// All items of the inode (Linux: LOG_INODE_ALL).
    All,
}

/// The state of an inode that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoggedState {
    pub(crate) mode: LogMode,
    /// Its version when all of it was logged ([`crate::inode::Inode::stamp`]), and the log
    /// transaction.
    pub(crate) whole: Option<(ChangeVersion, LogTransId)>,
    /// Whether it is committed and was found to have gained or lost a name.
    pub(crate) names_changed: bool,
}

/// A value that changes with each change of an inode.
pub(crate) type ChangeVersion = (u64, u64);

/// A name that an inode lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemovedName {
    /// The directory.
    pub(crate) dir: u64,
    /// The place in the directory.
    pub(crate) index: u64,
    /// The hash of the name.
    pub(crate) hash: u32,
    /// Whether the place is committed.
    pub(crate) committed: bool,
}

/// A name that is about to be lost.
#[derive(Clone, Copy, Debug)]
pub(in crate::inode) struct NameRemoval {
    pub(in crate::inode) inode: InodeId,
    pub(in crate::inode) lost: RemovedName,
    /// Whether the inode has or gets another name, or is open.
    pub(in crate::inode) survives: bool,
    /// The inode that gets the name in the same step.
    pub(in crate::inode) follower: Option<u64>,
    /// Whether the inode was created in the running transaction.
    pub(in crate::inode) is_new: bool,
    /// The kind of the inode, if it moves to another directory.
    pub(in crate::inode) moved_away: Option<FileKind>,
}

impl NameRemoval {
    /// Returns the removal for an inode that gets another name.
    pub(in crate::inode) fn moved(self) -> Self {
        Self { survives: true, ..self }
    }

    /// Returns the removal for an inode, of this kind, that a rename moves to another directory.
    pub(in crate::inode) fn moved_away(self, kind: FileKind) -> Self {
        Self { moved_away: Some(kind), ..self.moved() }
    }

    /// Returns the removal of a name that another inode gets in the same step, so that a lookup
    /// never finds it free.
    pub(in crate::inode) fn followed_by(self, inode: InodeId) -> Self {
        Self { follower: Some(inode.number), ..self }
    }
}

/// The state of an inode before it was logged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PreviousLogState {
    pub(crate) logged: Option<LoggedState>,
    /// Whether its names in the log were out of date.
    pub(crate) was_stale: bool,
    pub(crate) xattrs_changed: bool,
    /// Whether it lost names.
    pub(crate) lost_names: bool,
}

/// The changes of a directory's entries since they were last taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemovedEntries {
    /// Places whose entries were removed.
    pub(crate) gone: RangeSet,
    /// Inodes that lost a name there and survive, or are in the log.
    pub(crate) left: Vec<u64>,
    /// The place up to which the new entries are logged.
    pub(crate) listed: u64,
}

/// The tracked state was dropped, since there was too much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackerOverflow;

impl From<TrackerOverflow> for FullCommitReason {
    fn from(TrackerOverflow: TrackerOverflow) -> Self {
        Self::Forgotten
    }
}

impl LogTracker {
    pub(in crate::inode) fn new(inodes_max: usize) -> Self {
        let table = Mutex::new(Class::CacheShard, Table::default());
        Self { table, pauses: NamespaceFreezes::new(), inodes_max }
    }

    /// Freezes name changes: an operation that would add or remove a name waits before it begins,
    /// until the guard is dropped.
    pub(crate) fn pause(&self) -> NamespaceFreeze<'_> {
        self.pauses.begin()
    }

    /// Waits while name changes are frozen. The caller holds no lock and is in no transaction.
    #[inline]
    pub(in crate::inode) fn wait_for_pause(&self) {
        self.pauses.wait();
    }

    /// Notes a name that is lost in transaction `running`.
    pub(in crate::inode) fn note(&self, running: u64, name_removal: &NameRemoval) {
        self.depart(running, std::slice::from_ref(name_removal), &[]);
    }

    /// Notes names that are about to be lost in transaction `running`, all of them at once, and
    /// marks the inodes of `moving` until [`LogTracker::arrived`].
    pub(in crate::inode) fn depart(
        &self,
        running: u64,
        partings: &[NameRemoval],
        moving: &[InodeId],
    ) {
        let mut table = self.table.lock();
        if !table.is_of(running) {
            return;
        }
        for name_removal in partings {
            table.note(name_removal);
            table.follow(name_removal);
        }
        table.moving.extend_from_slice(moving);
        table.forget_too_much(self.inodes_max);
    }

    /// Notes that these names are lost now, and that the inodes of `moving` have their new names.
    pub(in crate::inode) fn arrived(
        &self,
        running: u64,
        partings: &[NameRemoval],
        moving: &[InodeId],
    ) {
        let mut table = self.table.lock();
        let Some(table) = table.of(running) else { return };
        for name_removal in partings {
            table.leave(name_removal);
        }
        for inode in moving {
            if let Some(at) = table.moving.iter().position(|it| it == inode) {
                table.moving.swap_remove(at);
            }
        }
    }

    /// Notes that an inode whose name was noted as lost survives: it has another name, or was
    /// opened meanwhile.
    pub(in crate::inode) fn survived(&self, running: u64, name_removal: &NameRemoval) {
        let mut table = self.table.lock();
        let Some(table) = table.of(running).filter(|_| !name_removal.survives) else { return };
        let trace = table.inodes.get(&name_removal.inode);
        if !trace.is_some_and(|trace| trace.lost.contains(&name_removal.lost)) {
            table.note(&NameRemoval { survives: true, ..*name_removal });
            table.follow(name_removal);
        }
    }

    /// Notes that an inode gained a name.
    pub(crate) fn named(&self, running: u64, inode: InodeId) {
        let mut table = self.table.lock();
        if let Some(table) = table.of(running) {
            table.make_stale(inode);
        }
    }

    /// Notes that extended attributes of an inode changed.
    pub(crate) fn xattrs_changed(&self, running: u64, inode: InodeId) {
        let mut table = self.table.lock();
        if let Some(trace) = table.of(running).and_then(|table| table.inodes.get_mut(&inode)) {
            trace.xattrs_changed = true;
        }
    }

    /// Returns the state of an inode in the log of transaction `running`. `whole` is `None` if a
    /// change was noted since all of it was logged: a change is noted after it is made, but before
    /// the operation returns.
    pub(crate) fn logged(&self, running: u64, inode: InodeId) -> Option<LoggedState> {
        let mut table = self.table.lock();
        let trace = table.of(running)?.inodes.get(&inode)?;
        let is_noted = trace.is_stale || trace.xattrs_changed;
        trace
            .logged
            .map(|logged| LoggedState { whole: logged.whole.filter(|_| !is_noted), ..logged })
    }

    /// Records that inodes are in the log, at least in this mode. Returns the previous state of
    /// each, or `None` for one that is moving, which must be asked for again. The caller reads
    /// their names after that, so that an inode that loses a name meanwhile becomes stale.
    pub(crate) fn log(
        &self,
        running: u64,
        inodes: &[InodeId],
        mode: LogMode,
    ) -> Result<SmallVec<[Option<PreviousLogState>; 1]>, TrackerOverflow> {
        let mut table = self.table.lock();
        table.forget_too_much(self.inodes_max);
        if !table.is_of(running) {
            return Err(TrackerOverflow);
        }
        let Table { inodes: log_tracker, moving, .. } = &mut *table;
        let log = |inode: &InodeId| {
            (!moving.contains(inode)).then(|| log_tracker.entry(*inode).or_default().log(mode))
        };
        Ok(inodes.iter().map(log).collect())
    }

    /// Records the version of an inode when all of it was logged, and the log transaction.
    pub(crate) fn stamp(
        &self,
        running: u64,
        inode: InodeId,
        stamp: ChangeVersion,
        log_transid: LogTransId,
    ) {
        let mut table = self.table.lock();
        let trace = table.of(running).and_then(|table| table.inodes.get_mut(&inode));
        if let Some(logged) = trace.and_then(|trace| trace.logged.as_mut()) {
            logged.whole = Some((stamp, log_transid));
        }
    }

    /// Records that the data of a file that was in flight when all of the file was logged with
    /// `log_transid` is now in its extents.
    pub(crate) fn landed(
        &self,
        running: u64,
        file: InodeId,
        log_transid: LogTransId,
        version: u64,
    ) {
        let mut table = self.table.lock();
        let trace = table.of(running).and_then(|table| table.inodes.get_mut(&file));
        let whole = trace.and_then(|trace| trace.logged.as_mut()?.whole.as_mut());
        if let Some(((_, of), _)) = whole.filter(|(_, of)| *of == log_transid) {
            *of = version;
        }
    }

    /// Records that an inode was removed from the log: it has no name, nor will it have one.
    pub(crate) fn unlog(&self, running: u64, inode: InodeId) {
        let mut table = self.table.lock();
        if let Some(trace) = table.of(running).and_then(|table| table.inodes.get_mut(&inode)) {
            trace.logged = None;
            trace.is_over = true;
            if let Some(entries) = &mut trace.entries {
                entries.listed = 0;
            }
        }
    }

    /// Returns the names that an inode lost, and whether it is moving. The caller holds the inode's
    /// state lock, if the inode is in memory.
    pub(crate) fn lost(&self, running: u64, inode: InodeId) -> (Vec<RemovedName>, bool) {
        let mut table = self.table.lock();
        let Some(table) = table.of(running) else { return Default::default() };
        let lost = table.inodes.get(&inode).map_or_else(Vec::new, |trace| trace.lost.to_vec());
        (lost, table.moving.contains(&inode))
    }

    /// Returns true if an inode lost a name.
    pub(crate) fn lost_any(&self, running: u64, inode: InodeId) -> Result<bool, TrackerOverflow> {
        let mut table = self.table.lock();
        let Some(table) = table.of(running) else { return Ok(false) };
        if table.forgotten {
            Err(TrackerOverflow)
        } else {
            Ok(table.inodes.get(&inode).is_some_and(InodeLogState::lost_any))
        }
    }

    /// Forgets names that an inode lost, but not that it lost some. So an inode that is renamed
    /// many times keeps only the names that were not logged yet.
    pub(crate) fn forget_lost(&self, running: u64, inode: InodeId, over: &[RemovedName]) {
        let mut table = self.table.lock();
        let Some(table) = table.of(running).filter(|_| !over.is_empty()) else { return };
        let Some(trace) = table.inodes.get_mut(&inode) else { return };
        let places: HashSet<_> = over.iter().map(|lost| (lost.dir, lost.index)).collect();
        let all = std::mem::take(&mut trace.lost);
        for lost in all.iter().filter(|lost| !places.contains(&(lost.dir, lost.index))) {
            trace.lost.push(*lost);
        }
        let forgotten = all.len() - trace.lost.len();
        trace.lost_before += forgotten;
        table.notes = table.notes.saturating_sub(forgotten);
    }

    /// Returns the inodes that lost names of these hashes, each in its directory, and survive or
    /// are in the log, and those that got such a name afterwards, except those whose names in the
    /// log are current. Inodes that are over are dropped from the list, so that its length is
    /// limited by the inodes that survive.
    pub(crate) fn left(
        &self,
        running: u64,
        names: impl IntoIterator<Item = (InodeId, u32)>,
    ) -> Vec<u64> {
        let mut table = self.table.lock();
        let Some(table) = table.of(running) else { return Vec::new() };
        names.into_iter().flat_map(|(dir, hash)| table.left(dir, hash)).collect()
    }

    /// Takes the removed entries of a directory.
    pub(crate) fn take_departed(&self, running: u64, dir: InodeId) -> RemovedEntries {
        let mut table = self.table.lock();
        let trace = table.of(running).and_then(|table| table.inodes.get_mut(&dir));
        let Some(entries) = trace.and_then(|trace| trace.entries.as_mut()) else {
            return RemovedEntries::default();
        };
        let gone = std::mem::take(&mut entries.gone);
        let left = std::mem::take(&mut entries.untold);
        RemovedEntries { gone, left, listed: entries.listed }
    }

    /// Records that the new entries of a directory are logged up to this place.
    pub(crate) fn list_until(&self, running: u64, dir: InodeId, place: u64) {
        let mut table = self.table.lock();
        if let Some(trace) = table.of(running).and_then(|table| table.inodes.get_mut(&dir)) {
            trace.entries().listed = place;
        }
    }

    /// Records places of a directory for which the log is authoritative. Returns, for each range of
    /// `places`, the range of the log that results.
    pub(crate) fn add_ranges(
        &self,
        running: u64,
        dir: InodeId,
        places: &RangeSet,
    ) -> Result<Vec<Coalesced>, TrackerOverflow> {
        let mut table = self.table.lock();
        if !table.is_of(running) {
            return Err(TrackerOverflow);
        }
        let ranges = &mut table.inodes.entry(dir).or_default().entries().ranges;
        Ok(places.iter().map(|places| ranges.join(places)).collect())
    }

    /// Takes the stale inodes that `is_of` selects.
    pub(crate) fn take_stale(
        &self,
        running: u64,
        is_of: impl Fn(InodeId) -> bool,
    ) -> Result<Vec<InodeId>, TrackerOverflow> {
        let mut table = self.table.lock();
        let Some(table) = table.of(running) else { return Ok(Vec::new()) };
        if table.forgotten {
            return Err(TrackerOverflow);
        }
        let (taken, left) = std::mem::take(&mut table.stale).into_iter().partition(|id| is_of(*id));
        table.stale = left;
        Ok(taken)
    }
}

impl InodeLogState {
    /// Like [`LogTracker::log`], for one inode.
    fn log(&mut self, mode: LogMode) -> PreviousLogState {
        let before = PreviousLogState {
            logged: self.logged,
            was_stale: std::mem::take(&mut self.is_stale),
            xattrs_changed: self.xattrs_changed,
            lost_names: self.lost_any(),
        };
        if self.logged.is_none() || mode == LogMode::All || before.was_stale {
            self.xattrs_changed = false;
        }
        let known = self.logged.map_or(mode, |logged| logged.mode.max(mode));
        let whole = self.logged.and_then(|logged| logged.whole);
        let names_changed = self.logged.is_some_and(|logged| logged.names_changed);
        self.logged = Some(LoggedState { mode: known, whole, names_changed });
        before
    }

    /// Returns true if its names in the log are current.
    fn is_as_logged(&self) -> bool {
        self.logged.is_some() && !self.is_stale
    }

    fn lost_any(&self) -> bool {
        self.lost_before > 0 || !self.lost.is_empty()
    }

    fn entries(&mut self) -> &mut Entries {
        self.entries.get_or_insert_default()
    }
}

mod moves;
mod table;
#[cfg(test)]
mod tests;
