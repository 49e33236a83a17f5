//! An inode in memory.
//!
//! 1. The state in memory is authoritative; the tree is read only if the inode is not in memory.
//! 2. Reads look into the running set, the frozen one, then the tree, in this order: an entry
//!    leaves a set only after it is in the tree, or, for its DIR_ITEM, in `late`. That is between
//!    the sets and the tree, and has its own lock, since a flush uses it for longer than the state
//!    may be locked.
//! 3. The size of a file in the tree may lag behind, but never covers bytes that are not in
//!    extents: the size is recorded after the data is written.
//! 4. The entries of a directory change under its lock `entries`. The results of checks before a
//!    change stay valid under the lock `operation`. All else is short, under the lock of the state,
//!    under which no thread waits.

use std::ops::Range;

use userbtrfs_btree::Tree;
use userbtrfs_format::{DirEntryKind, FileKind, InodeFlags, InodeItem, Timestamp};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::order::Identity;
use userbtrfs_sync::{Arc, Class, Mutex, MutexGuard, OnceLock};
use userbtrfs_transaction::RangeSet;

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::dcache::{DentryBudget, DentryCache};
use crate::inode::incore::changed_ranges::ChangedRanges;
use crate::inode::log_state::tracker::ChangeVersion;
use crate::inode::pending::deferred_dir_items::DeferredDirItems;
use crate::inode::pending::delayed_items::{Delayed, DelayedItems, RefIndex};
use crate::inode::pending::extents::{ExtentChanges, few_until, flattened};
use crate::inode::tree::ondisk;
use crate::inode::tree::ondisk::InodeRefLen;
use crate::inode::{Entry, EntryTarget, ExtentMap, TreeRoots};

/// An inode in memory.
pub(crate) struct Inode {
    id: InodeId,
    tree: Arc<Tree>,
    entries: Mutex<()>,
    operation: Mutex<()>,
    /// Loaded by its first user, and only after the inode is in the cache, so that what is read
    /// from the tree cannot be older than a change by another thread.
    state: OnceLock<Mutex<State>>,
    /// The deferred DIR_ITEMs of a directory. It is not locked together with the state.
    late: Mutex<Option<Arc<DeferredDirItems>>>,
    /// Bytes of a file that are dirty or under writeback, set by the page cache.
    unfinished: AtomicU64,
}

/// The state of an inode that is in memory and not in its tree.
pub(crate) enum InMemory {
    /// Nothing.
    Nothing,
    /// At most the attributes differ from the tree; the value equals [`Inode::item_to_log`].
    Attributes(InodeItem),
    /// Possibly more.
    More,
}

/// The state of an inode in memory.
pub(in crate::inode) struct State {
    pub(in crate::inode) item: InodeItem,
    pub(in crate::inode) running: Option<Arc<DelayedItems>>,
    pub(in crate::inode) merging: Option<Arc<DelayedItems>>,
    /// The known names of a directory.
    pub(in crate::inode) dentry_cache: Option<Box<DentryCache>>,
    /// The parent of a directory, once it is known.
    pub(in crate::inode) parent: Option<u64>,
    /// The length of an INODE_REF in the tree; invalid once a set is frozen.
    pub(in crate::inode) ref_len: Option<InodeRefLen>,
    /// The size that may be written to the tree, if it differs from the size of the file (Linux:
    /// disk_i_size).
    pub(in crate::inode) disk_size: Option<u64>,
    /// Incremented by each change of a file's extents, of their content, or of `disk_size`.
    pub(in crate::inode) extents_version: u64,
    pub(in crate::inode) xattrs: KnownXattrs,
    /// The index of the next entry of a directory, once it was needed.
    pub(in crate::inode) next_index: Option<u64>,
    /// The last transaction that added an entry to a directory, and the index of the first entry
    /// that it added.
    pub(in crate::inode) first_added: Option<(u64, u64)>,
    /// The transid of the inode when it was loaded from the tree; 0 for a new inode.
    pub(in crate::inode) stored_transid: u64,
    /// Ranges of a file whose extents the running transaction changed and did not log yet.
    pub(in crate::inode) changed: ChangedRanges,
    /// The number of open handles, which keep the inode although it may have no name.
    pub(in crate::inode) opens: u32,
    /// The inode has an ORPHAN_ITEM, or will have one.
    pub(in crate::inode) listed: bool,
    /// It never had a name, and may still be linked (O_TMPFILE).
    pub(in crate::inode) linkable: bool,
    /// It is deleted, or being deleted.
    pub(in crate::inode) dead: bool,
}

/// Knowledge about the extended attributes of an inode.
#[derive(Clone, Copy, Default)]
pub(in crate::inode) struct KnownXattrs {
    /// Incremented by each change.
    version: u64,
    /// Whether there are any, in the tree or delayed; `None` if that is not known.
    are_any: Option<bool>,
}

impl KnownXattrs {
    /// The value of a new inode without attributes.
    pub(in crate::inode) const NONE: Self = Self { version: 0, are_any: Some(false) };

    /// Returns true if it is known that there are none.
    pub(in crate::inode) fn are_none(self) -> bool {
        self.are_any == Some(false)
    }
}

impl Inode {
    /// Creates an inode whose state is not loaded.
    pub(in crate::inode) fn unknown(id: InodeId, tree: Arc<Tree>) -> Self {
        let lock =
            |class| Mutex::with_identity(Identity::of_inode(class, id.subvolume.0, id.number), ());
        let entries = lock(Class::ParentDirectory);
        let operation = lock(Class::ChildInode);
        let late = Mutex::new(Class::InodeState, None);
        let state = OnceLock::new();
        let unfinished = AtomicU64::new(0);
        Self { id, tree, entries, operation, state, late, unfinished }
    }

    /// Sets the state of an inode that is being created.
    pub(in crate::inode) fn become_new(&self, state: State) {
        assert!(self.state.get().is_none(), "a number is given once");
        self.set_state(state);
    }

    /// Loads the state if it is not loaded. Fails if the inode is deleted.
    pub(in crate::inode) fn load(
        &self,
        tree_roots: &TreeRoots,
        budget: &Arc<DentryBudget>,
    ) -> Result<()> {
        if self.state.get().is_none() {
            let (item, ref_len) = ondisk::inode_item(tree_roots, &self.tree, self.id.number)?;
            let is_dir = item.kind == FileKind::Directory;
            let stored_transid = item.transid;
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

    /// Returns how many bytes of a file are dirty or under writeback. If it is read before the
    /// attributes, every byte is counted in at least one of the two.
    pub(crate) fn unfinished(&self) -> u64 {
        self.unfinished.load(Ordering::Acquire)
    }

    /// Sets how many bytes of a file are dirty or under writeback.
    pub(crate) fn set_unfinished(&self, bytes: u64) {
        self.unfinished.store(bytes, Ordering::Release);
    }

    /// Returns the subvolume and the number.
    pub(crate) fn id(&self) -> InodeId {
        self.id
    }

    pub(in crate::inode) fn number(&self) -> u64 {
        self.id.number
    }

    /// Returns the tree of its subvolume.
    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(in crate::inode) fn lock_entries(&self) -> MutexGuard<'_, ()> {
        self.entries.lock()
    }

    /// Locks the inode for a change: the results of checks stay valid until the guard is dropped.
    pub(crate) fn lock_operation(&self) -> MutexGuard<'_, ()> {
        self.operation.lock()
    }

    /// Locks the state of a loaded inode. No I/O while it is locked.
    pub(in crate::inode) fn state(&self) -> MutexGuard<'_, State> {
        self.state.get().expect("loaded before it is given out").lock()
    }

    /// Locks the state, or returns [`Error::NoInode`] if the inode is deleted: items that its tree
    /// still has must not be seen.
    pub(in crate::inode) fn living(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.dead { Err(Error::NoInode(self.id)) } else { Ok(state) }
    }

    /// Locks the deferred DIR_ITEMs of a directory. To be read after the state.
    pub(in crate::inode) fn late(&self) -> MutexGuard<'_, Option<Arc<DeferredDirItems>>> {
        self.late.lock()
    }

    /// Returns the deferred DIR_ITEM of a name. To be asked if no set has the name.
    pub(in crate::inode) fn late_name(
        &self,
        hash: u32,
        name: &[u8],
    ) -> Delayed<(EntryTarget, DirEntryKind)> {
        self.late().as_ref().map_or(Delayed::Nothing, |late| late.find(hash, name))
    }

    /// Locks the state if it is loaded and not locked.
    pub(in crate::inode) fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        self.state.get()?.try_lock()
    }

    /// Returns the attributes.
    pub(crate) fn item(&self) -> InodeItem {
        self.state().item.clone()
    }

    /// Returns the number of unwritten bytes and the attributes without blocking; `None` if the
    /// state is not loaded, locked, or that of a deleted inode.
    pub(crate) fn at_once(&self) -> Option<(u64, InodeItem)> {
        let unfinished = self.unfinished();
        let state = self.try_state()?;
        (!state.dead).then(|| (unfinished, state.item.clone()))
    }

    /// Returns true if the inode has no name yet and may be given one.
    pub(crate) fn is_linkable(&self) -> bool {
        self.state().is_linkable()
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.state().item.size
    }

    /// Returns the file type.
    pub(crate) fn kind(&self) -> FileKind {
        self.state().item.kind
    }

    /// Returns the file type and the flags.
    pub(in crate::inode) fn kind_and_flags(&self) -> (FileKind, InodeFlags) {
        let state = self.state();
        (state.item.kind, state.item.flags)
    }

    /// Returns the pending extents between two offsets, widened to whole sectors: ascending,
    /// disjoint and clipped, and at most a few times `max`. Also returns the offset up to which the
    /// list is complete: until there, the tree is current for every other byte.
    ///
    /// Must be called before the tree is read, and with a new cursor: a flush moves extents into
    /// the tree, and while it splits items, the tree shows what it did before for bytes that are
    /// not pending.
    pub(crate) fn pending_extents(
        &self,
        start: u64,
        end: u64,
        max: usize,
    ) -> (Vec<ExtentMap>, u64) {
        let (extents, until, _) = self.pending_extents_under(None, start, end, max);
        (extents, until)
    }

    /// Like [`Inode::pending_extents`], with `above` over the pending extents. Also returns whether
    /// that is the whole file, since the tree has nothing of the inode.
    pub(crate) fn pending_extents_under(
        &self,
        above: Option<&ExtentChanges>,
        start: u64,
        end: u64,
        max: usize,
    ) -> (Vec<ExtentMap>, u64, bool) {
        let state = self.state();
        let sets = || above.into_iter().chain(state.sets().map(|set| &set.extents));
        let until = few_until(sets(), start, end, max);
        let is_all = state.sets().any(|set| set.created);
        (flattened(sets(), start, until), until, is_all)
    }

    /// Returns a value that changes with each change that the log of this inode would contain;
    /// `None` if the running transaction may have evicted the inode after changing it.
    pub(crate) fn stamp(&self, running: u64) -> Option<ChangeVersion> {
        let state = self.state();
        let is_known = state.stored_transid < running;
        is_known.then_some((state.item.sequence, state.extents_version))
    }

    /// Returns the attributes, with the size that may be written to the tree.
    pub(crate) fn item_to_log(&self) -> InodeItem {
        self.state().item_to_log()
    }

    /// Returns a number that grows with each change of extended attributes.
    pub(crate) fn xattrs_version(&self) -> u64 {
        self.state().xattrs.version
    }

    /// Returns what memory holds of the inode.
    pub(in crate::inode) fn in_memory(&self) -> InMemory {
        let Some(state) = self.state.get() else { return InMemory::More };
        let state = state.lock();
        if state.dead || state.sets().next().is_some() {
            InMemory::More
        } else {
            InMemory::Attributes(state.item_to_log())
        }
    }

    /// Returns true if the size that may be written to the tree reaches `size`, or the end of a
    /// file that is shorter now.
    pub(crate) fn may_know_size(&self, size: u64) -> bool {
        let state = self.state();
        state.disk_size() >= size.min(state.item.size)
    }

    /// Returns the on-disk size of a file whose extents and on-disk size are committed, so that at
    /// most dirty data is not; `None` if the running transaction changed them, or may have.
    pub(crate) fn committed_size(&self, running: u64) -> Option<u64> {
        let state = self.state();
        let is_committed = state.changed.transaction() < running && state.stored_transid < running;
        is_committed.then(|| state.disk_size())
    }

    /// Takes the ranges of a file whose extents the running transaction changed; `None` if they are
    /// not known, so that the whole file may have changed.
    pub(crate) fn take_changed(&self, running: u64) -> Option<RangeSet> {
        let mut state = self.state();
        let changed = state.changed.take(running);
        // From the next call on, the ranges are known.
        let stored = std::mem::take(&mut state.stored_transid);
        (stored < running).then_some(changed)
    }

    /// Puts back a range that was taken and not logged.
    pub(crate) fn put_back_changed(&self, running: u64, range: Range<u64>) {
        self.state().changed.insert(running, range);
    }

    /// Removes a changed range that is logged.
    pub(crate) fn forget_changed(&self, running: u64, range: Range<u64>) {
        self.state().changed.remove(running, range);
    }

    /// Returns the index of the first entry that the running transaction added to a directory;
    /// `None` if it added none. Entries before it are committed.
    pub(crate) fn first_added(&self, running: u64) -> Option<u64> {
        let state = self.state();
        if state.item.generation == running {
            Some(0)
        } else {
            state.first_added.filter(|(of, _)| *of == running).map(|(_, first)| first)
        }
    }

    /// Returns a number that grows with each change of the extents, of their content, or of the
    /// size that may be written to the tree.
    pub(crate) fn extents_version(&self) -> u64 {
        self.state().extents_version
    }

    /// Records that data was written to the page cache up to `end`. The size in the tree stays
    /// until the data is in extents; until then the caller keeps the inode. Set-id bits stay, too:
    /// the caller, which knows the writer, removes them. If `now` is `None`, the times stay.
    pub(crate) fn written_to(&self, end: u64, now: Option<Timestamp>) {
        let mut state = self.state();
        let size = state.item.size.max(end);
        state.set_size(size);
        state.touch(now);
    }
}

impl State {
    /// Creates the state of an inode. A directory comes with what is known of its names.
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

    /// Returns the running set, which exists while the inode is being changed.
    pub(in crate::inode) fn pending(&mut self) -> &mut DelayedItems {
        let running = self.running.as_mut().expect("made when the change began");
        Arc::get_mut(running).expect("only a set that is merged is shared")
    }

    /// Adds the name that an entry of a directory has.
    pub(in crate::inode) fn add_ref(&mut self, dir: u64, entry: &Arc<Entry>, place: RefIndex) {
        self.parent = self.dentry_cache.is_some().then_some(dir);
        self.pending().add_ref(dir, entry, place);
    }

    /// Removes the name that an entry of a directory has.
    pub(in crate::inode) fn remove_ref(&mut self, dir: u64, entry: &Arc<Entry>) {
        self.parent = None;
        self.pending().remove_ref(dir, entry);
    }

    /// Returns the known names of a directory.
    pub(in crate::inode) fn dentry_cache(&mut self) -> &mut DentryCache {
        self.dentry_cache.as_mut().expect("only directories have names in them")
    }

    /// Returns the length, in the tree, of the INODE_REF for names in a directory; `None` if that
    /// is not known.
    pub(in crate::inode) fn known_ref_len(&self, dir: u64) -> Option<usize> {
        if self.sets().any(|set| set.created) {
            // While the set that created the inode is being flushed, its names still count as
            // pending.
            return Some(0);
        }
        self.ref_len.filter(|known| known.dir == dir).map(|known| known.len)
    }

    /// Returns true if the inode survives the loss of a name: it has another one, or is open.
    pub(in crate::inode) fn outlives_a_name(&self) -> bool {
        self.item.nlink > 1 || self.opens > 0
    }

    /// Adds an ORPHAN_ITEM for the inode, or removes it.
    pub(in crate::inode) fn set_listed(&mut self, listed: bool) {
        let known_below = std::mem::replace(&mut self.listed, listed) && !self.pending().created;
        // In the set that created the inode, adding and removing the item cancel out.
        self.pending().orphan = (listed || known_below).then_some(listed);
    }

    /// Returns the sets, newest first.
    pub(in crate::inode) fn sets(&self) -> impl Iterator<Item = &DelayedItems> {
        self.running.as_deref().into_iter().chain(self.merging.as_deref())
    }

    /// Returns the delayed change of the entry of a name.
    pub(in crate::inode) fn pending_entry(&self, hash: u32, name: &[u8]) -> Delayed<Arc<Entry>> {
        newest(self.sets().map(|set| set.entries.find(hash, name)))
    }

    /// Sets an extended attribute, or removes it.
    pub(in crate::inode) fn set_xattr(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.xattrs = KnownXattrs { version: self.xattrs.version + 1, are_any: None };
        self.pending().set_xattr(name, value);
    }

    /// Returns the version of the attributes if it is not known whether there are any, and the tree
    /// can tell: no change of them is delayed.
    pub(in crate::inode) fn xattrs_to_learn(&self) -> Option<u64> {
        let is_open = self.xattrs.are_any.is_none() && self.sets().all(|set| set.xattrs.is_empty());
        is_open.then_some(self.xattrs.version)
    }

    /// Records whether the tree has any, as read after `version` was returned. Only delayed changes
    /// could have reached the tree meanwhile.
    pub(in crate::inode) fn learn_xattrs(&mut self, version: u64, are_any: bool) {
        if self.xattrs.version == version {
            self.xattrs.are_any = Some(are_any);
        }
    }

    /// Returns the delayed change of an attribute.
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

    /// Returns the size that may be written to the tree.
    pub(in crate::inode) fn disk_size(&self) -> u64 {
        self.disk_size.unwrap_or(self.item.size)
    }

    /// Returns whether some pending extents of a file are being flushed; `None` if there are none.
    pub(in crate::inode) fn waiting_extents(&self) -> Option<bool> {
        let waits = |set: &Option<Arc<DelayedItems>>| {
            set.as_ref().is_some_and(|set| !set.extents.is_empty())
        };
        let is_merging = waits(&self.merging);
        (is_merging || waits(&self.running)).then_some(is_merging)
    }

    /// Sets the size, if it differs; the size that may be written to the tree does not grow.
    pub(in crate::inode) fn set_size(&mut self, size: u64) {
        if size != self.item.size {
            let known = self.disk_size();
            self.item.size = size;
            self.set_disk_size(known.min(size));
        }
    }

    /// Reduces the size. The size that may be written to the tree stays until the extents beyond
    /// the new end are removed.
    pub(in crate::inode) fn cut_size(&mut self, size: u64) {
        let known = self.disk_size();
        self.item.size = size;
        self.disk_size = (known != size).then_some(known);
    }

    /// Sets the size that may be written to the tree.
    pub(in crate::inode) fn set_disk_size(&mut self, size: u64) {
        let most = self.item.size.max(self.disk_size());
        assert!(size <= most, "the tree knows of no more than there is");
        self.extents_version += u64::from(size != self.disk_size());
        self.disk_size = (size != self.item.size).then_some(size);
    }

    /// Records a change of the content at this time; if `now` is `None`, the caller sets the times.
    pub(in crate::inode) fn touch(&mut self, now: Option<Timestamp>) {
        if let Some(now) = now {
            (self.item.mtime, self.item.ctime) = (now, now);
        }
        self.item.sequence = self.item.sequence.wrapping_add(1);
    }

    /// Freezes the running set to be flushed; returns it with the attributes of this moment.
    pub(in crate::inode) fn freeze(&mut self) -> Option<(Arc<DelayedItems>, InodeItem)> {
        let set = self.running.take()?;
        self.ref_len = None;
        assert!(self.merging.is_none(), "an inode never has more than two sets");
        self.merging = Some(Arc::clone(&set));
        Some((set, self.item_to_log()))
    }
}

/// Returns the first of these changes, newest first, that is one.
fn newest<'a, T: ?Sized + 'a>(
    mut said: impl Iterator<Item = Delayed<&'a Arc<T>>>,
) -> Delayed<Arc<T>> {
    match said.find(|said| !matches!(said, Delayed::Nothing)) {
        Some(Delayed::There(it)) => Delayed::There(Arc::clone(it)),
        Some(Delayed::Gone) => Delayed::Gone,
        Some(Delayed::Nothing) | None => Delayed::Nothing,
    }
}
