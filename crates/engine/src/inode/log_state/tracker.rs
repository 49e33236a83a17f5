//! What the running transaction leaves for its log to know, beyond what inodes hold.
//!
//! A *place* is an index in a directory; it is *committed* where the transaction before knows its
//! entry. A name is *lost* when its entry goes. An inode is *stale* when it is in the log, or is a
//! directory whose entries are, and what the log has of its names, or of those entries, is not so
//! any more.
//!
//! 1. All here is of one transaction: the first who notes something in the next one begins anew.
//! 2. A lost name is noted where its place is committed, or where its inode or its directory is in
//!    the log: nobody else needs to know. It is noted in the moment when the inode loses it, or
//!    before; who asks for the names of an inode leaves out those that are noted as lost. One that
//!    was not committed is forgotten when it is gone and the log was told; that there was one is
//!    not.
//! 3. What one rename does is noted at once, before it does any of it. From then on until all is
//!    done whoever takes part is *moving*, the directories too: nobody of them comes into the log
//!    meanwhile, since he may have no name, or they neither the old entry nor the new one.
//! 4. Evicting an inode from memory changes nothing here. Who has no name any more and was taken
//!    out of the log is *over*: who has a name that he had need not know of him.
//! 5. Who would keep too many notes, or know of too many inodes in the log, forgets all, and says
//!    so: then only a commit will do.
//! 6. A directory *needs a commit* instead of a log of all of it, as in Linux, after it moves to
//!    another directory; and after an inode leaves it for another directory, unless the log has
//!    all of the directory, or the inode, before.

use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;
use userbtrfs_btree::ShortKeys;
use userbtrfs_format::FileKind;
use userbtrfs_sync::{Class, Mutex};
use userbtrfs_transaction::{FullCommitReason, LogTransId};

use crate::error::InodeId;
use crate::inode::log_state::few::Few;
use crate::inode::log_state::freeze::{NamespaceFreeze, NamespaceFreezes};
use crate::inode::log_state::range_set::{Coalesced, RangeSet};

/// The most lost names that are kept in mind.
const NOTES_MAX: usize = 1 << 18;

/// See the module's text.
pub(crate) struct LogTracker {
    table: Mutex<Table>,
    pauses: NamespaceFreezes,
    /// The most inodes of which anything is known.
    inodes_max: usize,
}

#[derive(Default)]
struct Table {
    transaction: u64,
    forgotten: bool,
    notes: usize,
    inodes: HashMap<InodeId, InodeLogState, ShortKeys>,
    stale: Vec<InodeId>,
    /// Who takes part in a rename just now: few, of each that is under way.
    moving: Vec<InodeId>,
}

/// What there is of one inode: of most, that it is in the log.
#[derive(Default)]
struct InodeLogState {
    logged: Option<LoggedState>,
    is_stale: bool,
    /// Whether attributes changed since it was logged.
    xattrs_changed: bool,
    /// The names that it lost.
    lost: Few<RemovedName>,
    /// How many others it lost, which are forgotten.
    lost_before: usize,
    /// Whether it has no name, and the log knows all that follows from that.
    is_over: bool,
    entries: Option<Box<Entries>>,
}

/// What happened to names in a directory.
#[derive(Default)]
struct Entries {
    /// Places whose entries went, and that the log does not know of.
    gone: RangeSet,
    /// Who came to `left`, and nobody was told of yet.
    untold: Vec<u64>,
    /// By the hash of a name, who lost it and lives on, or is in the log; and who got it in the
    /// same moment, then or later. Some of them may be over.
    left: HashMap<u32, Few<u64>, ShortKeys>,
    /// Ranges of places that the log says are as the log has them.
    ranges: RangeSet,
    /// The place up to which the log has its new entries.
    listed: u64,
    /// Whether a commit must take the place of a log of all of the directory: see rule 6.
    needs_commit: bool,
}

impl Entries {
    /// Enters who left a name of this hash, or follows there; once, however often.
    fn leave(&mut self, hash: u32, inode: u64) {
        let left = self.left.entry(hash).or_default();
        if !left.contains(&inode) {
            left.push(inode);
            self.untold.push(inode);
        }
    }
}

impl InodeLogState {
    /// Of a directory: whether the log has its entries.
    fn has_entries(&self) -> bool {
        self.logged.is_some_and(|logged| logged.mode == LogMode::All)
    }

    /// Of a directory: whether somebody who is known here left a name of this hash.
    fn has_left(&self, hash: u32) -> bool {
        self.entries.as_ref().is_some_and(|entries| entries.left.contains_key(&hash))
    }
}

/// How much of an inode is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogMode {
    /// That it is, with its names and extended attributes.
    Exists,
    /// All that it is and holds.
    All,
}

/// An inode in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoggedState {
    pub(crate) mode: LogMode,
    /// What it was when all of it was logged ([`crate::inode::Inode::stamp`]), and with which
    /// group.
    pub(crate) whole: Option<(ChangeVersion, LogTransId)>,
    /// Whether it is committed and was found to have gained or lost a name.
    pub(crate) names_changed: bool,
}

/// What changes with each change of an inode.
pub(crate) type ChangeVersion = (u64, u64);

/// A name that an inode lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemovedName {
    /// The directory.
    pub(crate) dir: u64,
    /// The place in it.
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
    /// Who gets the name in the same moment.
    pub(in crate::inode) follower: Option<u64>,
    /// Whether the inode is of the running transaction.
    pub(in crate::inode) is_new: bool,
    /// The kind of the inode, where it moves to another directory.
    pub(in crate::inode) moved_away: Option<FileKind>,
}

impl NameRemoval {
    /// The same, where the inode gets another name.
    pub(in crate::inode) fn moved(self) -> Self {
        Self { survives: true, ..self }
    }

    /// The same, where a rename moves the inode, of this kind, to another directory.
    pub(in crate::inode) fn moved_away(self, kind: FileKind) -> Self {
        Self { moved_away: Some(kind), ..self.moved() }
    }

    /// The same, where another inode gets the name: nobody ever sees it free.
    pub(in crate::inode) fn followed_by(self, inode: InodeId) -> Self {
        Self { follower: Some(inode.number), ..self }
    }
}

/// What was noted of an inode until it was logged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PreviousLogState {
    pub(crate) logged: Option<LoggedState>,
    /// Whether its names in the log are not those that it has.
    pub(crate) was_stale: bool,
    pub(crate) xattrs_changed: bool,
    /// Whether [`LogTracker::lost`] tells of names.
    pub(crate) lost_names: bool,
}

/// What was noted of the entries of a directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemovedEntries {
    /// Places whose entries went since they were last asked for.
    pub(crate) gone: RangeSet,
    /// Who lost a name there since they were last asked for, and lives on or is in the log.
    pub(crate) left: Vec<u64>,
    /// The place up to which the log has its new entries.
    pub(crate) listed: u64,
}

/// There was too much to keep in mind.
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

    /// Who would take or give a name waits from now on, before it begins.
    pub(crate) fn pause(&self) -> NamespaceFreeze<'_> {
        self.pauses.begin()
    }

    /// Waits where names are not to change just now. The caller holds nothing.
    #[inline]
    pub(in crate::inode) fn wait_for_pause(&self) {
        self.pauses.wait();
    }

    /// Notes a name that is lost in transaction `running`.
    pub(in crate::inode) fn note(&self, running: u64, name_removal: &NameRemoval) {
        self.depart(running, std::slice::from_ref(name_removal), &[]);
    }

    /// Notes names that are about to be lost in transaction `running`, all of them at once. Who
    /// takes part is `moving` from now on: see [`LogTracker::arrived`].
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

    /// Notes that these names are lost now, and that all who took part have those they were to get.
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

    /// Notes that an inode whose name was noted as lost lives on: it has another name, or was
    /// opened in between.
    pub(in crate::inode) fn survived(&self, running: u64, name_removal: &NameRemoval) {
        let mut table = self.table.lock();
        let Some(table) = table.of(running).filter(|_| !name_removal.survives) else { return };
        let trace = table.inodes.get(&name_removal.inode);
        if !trace.is_some_and(|trace| trace.lost.contains(&name_removal.lost)) {
            table.note(&NameRemoval { survives: true, ..*name_removal });
            table.follow(name_removal);
        }
    }

    /// Notes that an inode has a name more.
    pub(crate) fn named(&self, running: u64, inode: InodeId) {
        let mut table = self.table.lock();
        if let Some(table) = table.of(running) {
            table.make_stale(inode);
        }
    }

    /// Notes that attributes of an inode changed.
    pub(crate) fn xattrs_changed(&self, running: u64, inode: InodeId) {
        let mut table = self.table.lock();
        if let Some(trace) = table.of(running).and_then(|table| table.inodes.get_mut(&inode)) {
            trace.xattrs_changed = true;
        }
    }

    /// How an inode is in the log of transaction `running`. What it was when all of it was logged
    /// counts only as long as nothing is noted of it since: a change is noted after it is made, but
    /// before its caller knows.
    pub(crate) fn logged(&self, running: u64, inode: InodeId) -> Option<LoggedState> {
        let mut table = self.table.lock();
        let trace = table.of(running)?.inodes.get(&inode)?;
        let is_noted = trace.is_stale || trace.xattrs_changed;
        trace
            .logged
            .map(|logged| LoggedState { whole: logged.whole.filter(|_| !is_noted), ..logged })
    }

    /// From now on inodes are in the log, at least in this mode; gives what was noted before of
    /// each, and nothing of one that is moving: that is to be asked for again. Their names are
    /// asked for after that, so that they become stale with each that they lose.
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

    /// What an inode was when all of it was logged, and with which group.
    pub(crate) fn stamp(
        &self,
        running: u64,
        inode: InodeId,
        stamp: ChangeVersion,
        group: LogTransId,
    ) {
        let mut table = self.table.lock();
        let trace = table.of(running).and_then(|table| table.inodes.get_mut(&inode));
        if let Some(logged) = trace.and_then(|trace| trace.logged.as_mut()) {
            logged.whole = Some((stamp, group));
        }
    }

    /// What was on its way of a file when all of it was logged with a group is in its extents now.
    pub(crate) fn landed(&self, running: u64, file: InodeId, group: LogTransId, version: u64) {
        let mut table = self.table.lock();
        let trace = table.of(running).and_then(|table| table.inodes.get_mut(&file));
        let whole = trace.and_then(|trace| trace.logged.as_mut()?.whole.as_mut());
        if let Some(((_, of), _)) = whole.filter(|(_, of)| *of == group) {
            *of = version;
        }
    }

    /// An inode is no longer in the log: it has no name, nor will it have one.
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

    /// The names that an inode lost, and whether it is moving. The caller holds the inode's state,
    /// if that is in memory.
    pub(crate) fn lost(&self, running: u64, inode: InodeId) -> (Vec<RemovedName>, bool) {
        let mut table = self.table.lock();
        let Some(table) = table.of(running) else { return Default::default() };
        let lost = table.inodes.get(&inode).map_or_else(Vec::new, |trace| trace.lost.to_vec());
        (lost, table.moving.contains(&inode))
    }

    /// Whether an inode lost a name.
    pub(crate) fn lost_any(&self, running: u64, inode: InodeId) -> Result<bool, TrackerOverflow> {
        let mut table = self.table.lock();
        let Some(table) = table.of(running) else { return Ok(false) };
        match table.forgotten {
            true => Err(TrackerOverflow),
            false => Ok(table.inodes.get(&inode).is_some_and(InodeLogState::lost_any)),
        }
    }

    /// Forgets names that an inode lost, but not that there were such. However often it moves, it
    /// leaves no more than the log was not told of yet.
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

    /// Who lost names of these hashes, each in its directory, and lives on or is in the log, but
    /// for those that the log has as they are. Who is over is forgotten there: however many had a
    /// name, it leads to no more than live on.
    pub(crate) fn left(
        &self,
        running: u64,
        names: impl IntoIterator<Item = (InodeId, u32)>,
    ) -> Vec<u64> {
        let mut table = self.table.lock();
        let Some(table) = table.of(running) else { return Vec::new() };
        names.into_iter().flat_map(|(dir, hash)| table.left(dir, hash)).collect()
    }

    /// Takes what was noted of the entries of a directory that left it.
    pub(crate) fn take_departed(&self, running: u64, dir: InodeId) -> RemovedEntries {
        let mut table = self.table.lock();
        let trace = table.of(running).and_then(|table| table.inodes.get_mut(&dir));
        let Some(entries) = trace.and_then(|trace| trace.entries.as_mut()) else {
            return RemovedEntries::default();
        };
        let (gone, left) = (std::mem::take(&mut entries.gone), std::mem::take(&mut entries.untold));
        RemovedEntries { gone, left, listed: entries.listed }
    }

    /// The log has the new entries of a directory up to this place.
    pub(crate) fn list_until(&self, running: u64, dir: InodeId, place: u64) {
        let mut table = self.table.lock();
        if let Some(trace) = table.of(running).and_then(|table| table.inodes.get_mut(&dir)) {
            trace.entries().listed = place;
        }
    }

    /// The log says that places of a directory are as the log has them; gives what becomes of the
    /// ranges for which it says so, one after the other.
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

    /// The stale inodes of a subvolume that were not taken before.
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
    /// As [`LogTracker::log`], of one inode.
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

    /// Whether the log has it with the names that it has.
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
