//! An inode in memory.
//!
//! 1. What is here is the truth; the tree is what is left of it when it is not in memory.
//! 2. Reads look into the running set, the frozen one, then the tree, in this order: an entry
//!    leaves a set only after it is in the tree; or, by its name, in `late`, which comes between
//!    and has a lock of its own: who merges is at it for longer than anybody may hold the state.
//! 3. What the tree says of a file's size may lag behind, but never tells of bytes that are not
//!    in extents: data is written after it is taken.
//! 4. The entries of a directory change under its lock `entries`, what is asked about an inode
//!    before it is changed stays so under its lock `operation`; all else is short, under the
//!    state's own, where nothing is awaited.

use std::ops::Range;

use userbtrfs_btree::Tree;
use userbtrfs_format::{DirEntryKind, FileKind, InodeFlags, InodeItem, Timestamp};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::order::Identity;
use userbtrfs_sync::{Arc, Class, Mutex, MutexGuard, OnceLock};

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::dcache::{DentryBudget, DentryCache};
use crate::inode::log_state::range_set::RangeSet;
use crate::inode::log_state::tracker::ChangeVersion;
use crate::inode::pending::deferred_dir_items::DeferredDirItems;
use crate::inode::pending::delayed_items::{Delayed, DelayedItems, RefIndex};
use crate::inode::pending::extents::{ExtentChanges, PendingExtent, few_until, flattened};
use crate::inode::tree::ondisk;
use crate::inode::tree::ondisk::InodeRefLen;
use crate::inode::{Entry, EntryTarget, TreeRoots};

/// An inode in memory.
pub(crate) struct Inode {
    id: InodeId,
    tree: Arc<Tree>,
    entries: Mutex<()>,
    operation: Mutex<()>,
    /// Filled by whoever needs it first; never before the inode stands in the table, so that
    /// what is read from the tree cannot be older than what another one changed.
    state: OnceLock<Mutex<State>>,
    /// Of a directory. It is not locked together with the state.
    late: Mutex<Option<Arc<DeferredDirItems>>>,
    /// Of a file, as who keeps its content says.
    unfinished: AtomicU64,
}

/// What is in memory of an inode, and not in its tree.
pub(crate) enum InMemory {
    /// Nothing.
    Nothing,
    /// At most that these are its attributes; [`Inode::item_to_log`] tells the same.
    Attributes(InodeItem),
    /// Maybe more.
    More,
}

/// What there is of an inode in memory.
pub(in crate::inode) struct State {
    pub(in crate::inode) item: InodeItem,
    pub(in crate::inode) running: Option<Arc<DelayedItems>>,
    pub(in crate::inode) merging: Option<Arc<DelayedItems>>,
    /// Of a directory.
    pub(in crate::inode) dentry_cache: Option<Box<DentryCache>>,
    /// Where the one name of a directory is, once that was seen.
    pub(in crate::inode) parent: Option<u64>,
    /// Of the tree, as long as nothing was merged since it was looked at.
    pub(in crate::inode) ref_len: Option<InodeRefLen>,
    /// The size of a file that the tree may know, where that is not its size.
    pub(in crate::inode) disk_size: Option<u64>,
    /// Grows with each change of a file's extents, of what they hold, or of how far the tree may
    /// know of them.
    pub(in crate::inode) extents_version: u64,
    pub(in crate::inode) xattrs: KnownXattrs,
    /// The place for the next entry of a directory, once it was needed.
    pub(in crate::inode) next_index: Option<u64>,
    /// The last transaction that added an entry to a directory, and the place of its first one.
    pub(in crate::inode) first_added: Option<(u64, u64)>,
    /// The transaction of which the tree said that it changed the inode last; 0 for a new one.
    pub(in crate::inode) stored_transid: u64,
    /// What the running transaction changed of a file's extents, and its log does not know.
    pub(in crate::inode) changed: ChangedRanges,
    /// How many keep it though it may have no name.
    pub(in crate::inode) opens: u32,
    /// It is listed among the inodes without a name, or will be.
    pub(in crate::inode) listed: bool,
    /// It never had a name, and so may still get one.
    pub(in crate::inode) linkable: bool,
    /// It is deleted, or that is under way.
    pub(in crate::inode) dead: bool,
}

/// What is known of extended attributes.
#[derive(Clone, Copy, Default)]
pub(in crate::inode) struct KnownXattrs {
    /// Grows with each change.
    version: u64,
    /// Whether there are any, in the tree or waiting, where that is known.
    are_any: Option<bool>,
}

impl KnownXattrs {
    /// Of what is new and has none.
    pub(in crate::inode) const NONE: Self = Self { version: 0, are_any: Some(false) };

    /// Whether it is known that there are none.
    pub(in crate::inode) fn are_none(self) -> bool {
        self.are_any == Some(false)
    }
}

/// The most extents of a file that are logged at a time.
pub(crate) const EXTENTS_MAX: usize = 1 << 15;

/// Ranges of a file, in bytes, whose extents a transaction changed: more of them than the log takes
/// at a time may be all.
#[derive(Default)]
pub(in crate::inode) struct ChangedRanges {
    transaction: u64,
    ranges: RangeSet,
}

impl ChangedRanges {
    pub(in crate::inode) fn insert(&mut self, transaction: u64, range: Range<u64>) {
        self.turn_to(transaction);
        self.ranges.insert(range);
        if self.ranges.len() > EXTENTS_MAX {
            self.ranges = RangeSet::all();
        }
    }

    fn remove(&mut self, transaction: u64, range: Range<u64>) {
        self.turn_to(transaction);
        self.ranges.remove(range);
    }

    /// Takes what transaction `running` changed.
    fn take(&mut self, running: u64) -> RangeSet {
        self.turn_to(running);
        std::mem::take(&mut self.ranges)
    }

    /// From now on they are those of this transaction.
    pub(in crate::inode) fn turn_to(&mut self, running: u64) {
        if self.transaction != running {
            *self = Self { transaction: running, ranges: RangeSet::default() };
        }
    }
}

impl Inode {
    /// An inode whose state is not known.
    pub(in crate::inode) fn unknown(id: InodeId, tree: Arc<Tree>) -> Self {
        let lock =
            |class| Mutex::with_identity(Identity::of_inode(class, id.subvolume.0, id.number), ());
        let (entries, operation) = (lock(Class::ParentDirectory), lock(Class::ChildInode));
        let late = Mutex::new(Class::InodeState, None);
        let (state, unfinished) = (OnceLock::new(), AtomicU64::new(0));
        Self { id, tree, entries, operation, state, late, unfinished }
    }

    /// It is being made: there was nothing to load.
    pub(in crate::inode) fn become_new(&self, state: State) {
        assert!(self.state.get().is_none(), "a number is given once");
        self.set_state(state);
    }

    /// Makes sure that the state is known.
    pub(in crate::inode) fn load(
        &self,
        tree_roots: &TreeRoots,
        budget: &Arc<DentryBudget>,
    ) -> Result<()> {
        if self.state.get().is_none() {
            let (item, ref_len) = ondisk::inode_item(tree_roots, &self.tree, self.id.number)?;
            let (is_dir, stored_transid) = (item.kind == FileKind::Directory, item.transid);
            let dentry_cache = is_dir.then(|| DentryCache::unknown(budget));
            let parent = ref_len.filter(|_| is_dir).map(|of_ref| of_ref.dir);
            let state = State::new(item, dentry_cache);
            self.set_state(State { parent, ref_len, stored_transid, ..state });
        }
        self.living().map(drop)
    }

    fn set_state(&self, state: State) {
        let id = self.id;
        let identity = Identity::of_inode(Class::InodeState, id.subvolume.0, id.number);
        self.state.get_or_init(|| Mutex::with_identity(identity, state));
    }

    /// How many bytes of a file are in memory alone. Asked before the attributes, it misses none
    /// that these do not count yet.
    pub(crate) fn unfinished(&self) -> u64 {
        self.unfinished.load(Ordering::Acquire)
    }

    /// So many bytes of a file are in memory alone.
    pub(crate) fn set_unfinished(&self, bytes: u64) {
        self.unfinished.store(bytes, Ordering::Release);
    }

    /// Which it is.
    pub(crate) fn id(&self) -> InodeId {
        self.id
    }

    pub(in crate::inode) fn number(&self) -> u64 {
        self.id.number
    }

    /// The tree of its subvolume.
    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(in crate::inode) fn lock_entries(&self) -> MutexGuard<'_, ()> {
        self.entries.lock()
    }

    /// What is asked about the inode before it is changed stays so.
    pub(crate) fn lock_operation(&self) -> MutexGuard<'_, ()> {
        self.operation.lock()
    }

    /// The state, of an inode that the table gave out. No I/O while it is locked.
    pub(in crate::inode) fn state(&self) -> MutexGuard<'_, State> {
        self.state.get().expect("loaded before it is given out").lock()
    }

    /// The same, of an inode that is not deleted: of another one, what its tree still has would
    /// seem to be there. [`Error::NoInode`] otherwise.
    pub(in crate::inode) fn living(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        match state.dead {
            false => Ok(state),
            true => Err(Error::NoInode(self.id)),
        }
    }

    /// The names that come late, of a directory: to be looked at after the state.
    pub(in crate::inode) fn late(&self) -> MutexGuard<'_, Option<Arc<DeferredDirItems>>> {
        self.late.lock()
    }

    /// What waits of a name, where it is not in a set any more.
    pub(in crate::inode) fn late_name(
        &self,
        hash: u32,
        name: &[u8],
    ) -> Delayed<(EntryTarget, DirEntryKind)> {
        self.late().as_ref().map_or(Delayed::Nothing, |late| late.find(hash, name))
    }

    /// The state if it is there and nobody holds it.
    pub(in crate::inode) fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        self.state.get()?.try_lock()
    }

    /// The attributes.
    pub(crate) fn item(&self) -> InodeItem {
        self.state().item.clone()
    }

    /// How many bytes of a file are in memory alone, and the attributes, where those are known and
    /// nobody is at them: nothing is waited for. Nothing of a deleted one.
    pub(crate) fn at_once(&self) -> Option<(u64, InodeItem)> {
        let unfinished = self.unfinished();
        let state = self.try_state()?;
        (!state.dead).then(|| (unfinished, state.item.clone()))
    }

    /// Whether it has no name yet, and may get its first.
    pub(crate) fn is_linkable(&self) -> bool {
        self.state().is_linkable()
    }

    /// Its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.state().item.size
    }

    /// What it is.
    pub(crate) fn kind(&self) -> FileKind {
        self.state().item.kind
    }

    /// What it is, and its flags.
    pub(in crate::inode) fn kind_and_flags(&self) -> (FileKind, InodeFlags) {
        let state = self.state();
        (state.item.kind, state.item.flags)
    }

    /// What waits to come into a file between two offsets, widened to whole sectors: ascending,
    /// disjoint, and clipped to that; but only a few times `max` ranges. And the offset up to which
    /// those are all: until there everything else is as the tree says.
    ///
    /// To be asked before the tree is, by a new cursor: a merge moves ranges from here to there,
    /// and while it cuts items the tree shows the same as ever for what does not wait.
    pub(crate) fn pending_extents(
        &self,
        start: u64,
        end: u64,
        max: usize,
    ) -> (Vec<PendingExtent>, u64) {
        let (extents, until, _) = self.pending_extents_under(None, start, end, max);
        (extents, until)
    }

    /// The same, where something else is about to be put over it; and whether that is all there is
    /// of the file, since the tree knows nothing of it.
    pub(crate) fn pending_extents_under(
        &self,
        above: Option<&ExtentChanges>,
        start: u64,
        end: u64,
        max: usize,
    ) -> (Vec<PendingExtent>, u64, bool) {
        let state = self.state();
        let sets = || above.into_iter().chain(state.sets().map(|set| &set.extents));
        let until = few_until(sets(), start, end, max);
        let is_all = state.sets().any(|set| set.created);
        (flattened(sets(), start, until), until, is_all)
    }

    /// What changes with each change of what the log would have of the inode alone; while it is in
    /// memory, unless the running transaction evicted it after it had changed it.
    pub(crate) fn stamp(&self, running: u64) -> Option<ChangeVersion> {
        let state = self.state();
        let is_known = state.stored_transid < running;
        is_known.then_some((state.item.sequence, state.extents_version))
    }

    /// The attributes, with the size that the tree may know.
    pub(crate) fn item_to_log(&self) -> InodeItem {
        self.state().item_to_log()
    }

    /// What changes with each change of extended attributes, and with it what else that changes.
    pub(crate) fn xattrs_version(&self) -> u64 {
        self.state().xattrs.version
    }

    /// What is in memory of it.
    pub(in crate::inode) fn in_memory(&self) -> InMemory {
        let Some(state) = self.state.get() else { return InMemory::More };
        let state = state.lock();
        match state.dead || state.sets().next().is_some() {
            true => InMemory::More,
            false => InMemory::Attributes(state.item_to_log()),
        }
    }

    /// Whether the tree may know as much of a file as this size, as far as it is still that long.
    pub(crate) fn may_know_size(&self, size: u64) -> bool {
        let state = self.state();
        state.disk_size() >= size.min(state.item.size)
    }

    /// The size of a file of which all is committed but what waits in memory alone: its extents,
    /// and that size. Nothing where the running transaction changed them, or may have.
    pub(crate) fn committed_size(&self, running: u64) -> Option<u64> {
        let state = self.state();
        let is_committed = state.changed.transaction < running && state.stored_transid < running;
        is_committed.then(|| state.disk_size())
    }

    /// Takes the ranges of a file whose extents the running transaction changed; nothing where
    /// that is not known, and may be all.
    pub(crate) fn take_changed(&self, running: u64) -> Option<RangeSet> {
        let mut state = self.state();
        let changed = state.changed.take(running);
        // Next time it is known.
        let stored = std::mem::take(&mut state.stored_transid);
        (stored < running).then_some(changed)
    }

    /// Puts back what was taken and is still not in the log.
    pub(crate) fn put_back_changed(&self, running: u64, range: Range<u64>) {
        self.state().changed.insert(running, range);
    }

    /// The log knows of a range, of which it was told that it changed.
    pub(crate) fn forget_changed(&self, running: u64, range: Range<u64>) {
        self.state().changed.remove(running, range);
    }

    /// The place of the first entry that the running transaction added to a directory; those
    /// before it are committed. Nothing where it added none.
    pub(crate) fn first_added(&self, running: u64) -> Option<u64> {
        let state = self.state();
        match state.item.generation == running {
            true => Some(0),
            false => state.first_added.filter(|(of, _)| *of == running).map(|(_, first)| first),
        }
    }

    /// A number that grows with each change of the extents, of what they hold, or of how far the
    /// tree may know of them.
    pub(crate) fn extents_version(&self) -> u64 {
        self.state().extents_version
    }

    /// Data was written to memory, as far as `end`. What the tree knows of the size stays, until
    /// the data is in extents; until then the caller keeps the inode. Set-id bits stay, too:
    /// whether they go is for those who know who writes. So do the times, where `now` is nothing.
    pub(crate) fn written_to(&self, end: u64, now: Option<Timestamp>) {
        let mut state = self.state();
        let size = state.item.size.max(end);
        state.set_size(size);
        state.touch(now);
    }
}

impl State {
    /// Of a directory, with what is known of its names.
    pub(in crate::inode) fn new(item: InodeItem, dentry_cache: Option<DentryCache>) -> Self {
        Self {
            item,
            running: None,
            merging: None,
            dentry_cache: dentry_cache.map(Box::new),
            parent: None,
            ref_len: None,
            disk_size: None,
            extents_version: 0,
            xattrs: KnownXattrs::default(),
            next_index: None,
            first_added: None,
            stored_transid: 0,
            changed: ChangedRanges::default(),
            opens: 0,
            listed: false,
            linkable: false,
            dead: false,
        }
    }

    /// The set that is added to; there is one while something is changed.
    pub(in crate::inode) fn pending(&mut self) -> &mut DelayedItems {
        let running = self.running.as_mut().expect("made when the change began");
        Arc::get_mut(running).expect("only a set that is merged is shared")
    }

    /// It gets the name that an entry of a directory has.
    pub(in crate::inode) fn add_ref(&mut self, dir: u64, entry: &Arc<Entry>, place: RefIndex) {
        self.parent = self.dentry_cache.is_some().then_some(dir);
        self.pending().add_ref(dir, entry, place);
    }

    /// It loses the name that an entry of a directory has.
    pub(in crate::inode) fn remove_ref(&mut self, dir: u64, entry: &Arc<Entry>) {
        self.parent = None;
        self.pending().remove_ref(dir, entry);
    }

    /// What is known of the names of a directory.
    pub(in crate::inode) fn dentry_cache(&mut self) -> &mut DentryCache {
        self.dentry_cache.as_mut().expect("only directories have names in them")
    }

    /// How long the INODE_REF is in the tree that holds the names in a directory, where that is
    /// known.
    pub(in crate::inode) fn known_ref_len(&self, dir: u64) -> Option<usize> {
        if self.sets().any(|set| set.created) {
            // What is merged of the set that made the inode still counts as waiting.
            return Some(0);
        }
        self.ref_len.filter(|known| known.dir == dir).map(|known| known.len)
    }

    /// Whether it is there without one of its names: it has another, or is open.
    pub(in crate::inode) fn outlives_a_name(&self) -> bool {
        self.item.nlink > 1 || self.opens > 0
    }

    /// Lists the inode among those without a name, or takes it off that list.
    pub(in crate::inode) fn set_listed(&mut self, listed: bool) {
        let known_below = std::mem::replace(&mut self.listed, listed) && !self.pending().created;
        // What came and went in the set that made the inode leaves nothing.
        self.pending().orphan = (listed || known_below).then_some(listed);
    }

    /// The sets, newest first.
    pub(in crate::inode) fn sets(&self) -> impl Iterator<Item = &DelayedItems> {
        self.running.as_deref().into_iter().chain(self.merging.as_deref())
    }

    /// What waits of the entry of a name.
    pub(in crate::inode) fn pending_entry(&self, hash: u32, name: &[u8]) -> Delayed<Arc<Entry>> {
        newest(self.sets().map(|set| set.entries.find(hash, name)))
    }

    /// Sets an attribute, or removes it.
    pub(in crate::inode) fn set_xattr(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.xattrs = KnownXattrs { version: self.xattrs.version + 1, are_any: None };
        self.pending().set_xattr(name, value);
    }

    /// The version of the attributes, where it is not known whether there are any, and the tree can
    /// say: no change of them waits.
    pub(in crate::inode) fn xattrs_to_learn(&self) -> Option<u64> {
        let is_open = self.xattrs.are_any.is_none() && self.sets().all(|set| set.xattrs.is_empty());
        is_open.then_some(self.xattrs.version)
    }

    /// Whether the tree has any, looked at after that `version`. What waits is all that could come
    /// into the tree meanwhile.
    pub(in crate::inode) fn learn_xattrs(&mut self, version: u64, are_any: bool) {
        if self.xattrs.version == version {
            self.xattrs.are_any = Some(are_any);
        }
    }

    /// What waits of an attribute.
    pub(in crate::inode) fn pending_xattr(&self, name: &[u8]) -> Delayed<Arc<[u8]>> {
        newest(self.sets().map(|set| set.xattr(name)))
    }

    /// See [`Inode::is_linkable`].
    pub(in crate::inode) fn is_linkable(&self) -> bool {
        self.linkable && !self.dead
    }

    /// See [`Inode::item_to_log`].
    fn item_to_log(&self) -> InodeItem {
        InodeItem { size: self.disk_size(), ..self.item.clone() }
    }

    /// The size that the tree may know.
    pub(in crate::inode) fn disk_size(&self) -> u64 {
        self.disk_size.unwrap_or(self.item.size)
    }

    /// Whether extents of a file wait: nothing where none do, and whether some are being merged.
    pub(in crate::inode) fn waiting_extents(&self) -> Option<bool> {
        let waits = |set: &Option<Arc<DelayedItems>>| {
            set.as_ref().is_some_and(|set| !set.extents.is_empty())
        };
        let is_merging = waits(&self.merging);
        (is_merging || waits(&self.running)).then_some(is_merging)
    }

    /// Sets the size, if it is another one; the tree may know no more of it than before.
    pub(in crate::inode) fn set_size(&mut self, size: u64) {
        if size != self.item.size {
            let known = self.disk_size();
            self.item.size = size;
            self.set_disk_size(known.min(size));
        }
    }

    /// Sets the size, to less; what the tree may know stays, until the extents behind it are gone.
    pub(in crate::inode) fn cut_size(&mut self, size: u64) {
        let known = self.disk_size();
        self.item.size = size;
        self.disk_size = (known != size).then_some(known);
    }

    /// Sets the size that the tree may know.
    pub(in crate::inode) fn set_disk_size(&mut self, size: u64) {
        let most = self.item.size.max(self.disk_size());
        assert!(size <= most, "the tree knows of no more than there is");
        self.extents_version += u64::from(size != self.disk_size());
        self.disk_size = (size != self.item.size).then_some(size);
    }

    /// The content changed, at this time or at one that somebody else says.
    pub(in crate::inode) fn touch(&mut self, now: Option<Timestamp>) {
        if let Some(now) = now {
            (self.item.mtime, self.item.ctime) = (now, now);
        }
        self.item.sequence = self.item.sequence.wrapping_add(1);
    }

    /// Takes the running set away to be merged, with the attributes of this moment.
    pub(in crate::inode) fn freeze(&mut self) -> Option<(Arc<DelayedItems>, InodeItem)> {
        let set = self.running.take()?;
        self.ref_len = None;
        assert!(self.merging.is_none(), "an inode never has more than two sets");
        self.merging = Some(Arc::clone(&set));
        Some((set, self.item_to_log()))
    }
}

/// What the newest set says that says anything.
fn newest<'a, T: ?Sized + 'a>(
    mut said: impl Iterator<Item = Delayed<&'a Arc<T>>>,
) -> Delayed<Arc<T>> {
    match said.find(|said| !matches!(said, Delayed::Nothing)) {
        Some(Delayed::There(it)) => Delayed::There(Arc::clone(it)),
        Some(Delayed::Gone) => Delayed::Gone,
        Some(Delayed::Nothing) | None => Delayed::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ranges_than_the_log_takes_are_all() {
        let mut changed = ChangedRanges::default();
        let most = EXTENTS_MAX as u64;
        (0..most).for_each(|at| changed.insert(7, 2 * at..2 * at + 1));
        assert_eq!(changed.ranges.len(), EXTENTS_MAX);
        changed.insert(7, 2 * most..2 * most + 1);
        assert_eq!(changed.take(7), RangeSet::all());
        changed.insert(7, 0..1);
        assert_eq!(changed.ranges.len(), 1);
        assert_eq!(changed.take(8), RangeSet::default());
    }
}
