//! An inode in memory.
//!
//! 1. What is here is the truth; the tree is what is left of it when it is not in memory.
//! 2. Reads look into the running set, the frozen one, then the tree, in this order: an entry
//!    leaves a set only after it is in the tree; or, by its name, in `late`, which comes between.
//! 3. The entries of a directory change under its lock `entries`, what is asked about an inode
//!    before it is changed stays so under its lock `operation`; all else is short, under the
//!    state's own, where nothing is awaited.

use userbtrfs_btree::Tree;
use userbtrfs_format::{DirEntryKind, FileKind, InodeItem};
use userbtrfs_sync::order::Identity;
use userbtrfs_sync::{Arc, Class, Mutex, MutexGuard, OnceLock};

use super::dentries::{Dentries, Ration};
use super::late::LateNames;
use super::pending::{Content, Frozen, Pending, Said};
use super::{Entry, EntryTarget, Forest, stored};
use crate::error::{Error, InodeId, Result};

/// An inode in memory.
pub(crate) struct Inode {
    id: InodeId,
    tree: Arc<Tree>,
    entries: Mutex<()>,
    operation: Mutex<()>,
    /// Filled by whoever needs it first; never before the inode stands in the table, so that
    /// what is read from the tree cannot be older than what another one changed.
    state: OnceLock<Mutex<State>>,
}

/// What there is of an inode in memory.
pub(super) struct State {
    pub(super) item: InodeItem,
    pub(super) running: Option<Box<Pending>>,
    pub(super) merging: Option<Arc<Frozen>>,
    pub(super) late: Option<Arc<LateNames>>,
    pub(super) dentries: Dentries,
    /// The place for the next entry of a directory, once it was needed.
    pub(super) next_index: Option<u64>,
    /// How many keep it though it may have no name.
    pub(super) opens: u32,
    /// It is listed among the inodes without a name, or will be.
    pub(super) listed: bool,
    /// It never had a name, and so may still get one.
    pub(super) linkable: bool,
    /// It is deleted, or that is under way.
    pub(super) dead: bool,
}

impl Inode {
    /// An inode whose state is not known.
    pub(super) fn unknown(id: InodeId, tree: Arc<Tree>) -> Self {
        let lock =
            |class| Mutex::with_identity(Identity::of_inode(class, id.subvolume.0, id.number), ());
        let (entries, operation) = (lock(Class::ParentDirectory), lock(Class::ChildInode));
        Self { id, tree, entries, operation, state: OnceLock::new() }
    }

    /// An inode that is being made.
    pub(super) fn new(id: InodeId, tree: Arc<Tree>, state: State) -> Self {
        let inode = Self::unknown(id, tree);
        inode.set_state(state);
        inode
    }

    /// Makes sure that the state is known.
    pub(super) fn load(&self, forest: &Forest, ration: &Arc<Ration>) -> Result<()> {
        if self.state.get().is_none() {
            let item = stored::inode_item(forest, &self.tree, self.id.number)?;
            self.set_state(State::new(item, Dentries::unknown(ration)));
        }
        match self.state().dead {
            false => Ok(()),
            true => Err(Error::NoInode(self.id)),
        }
    }

    fn set_state(&self, state: State) {
        let id = self.id;
        let identity = Identity::of_inode(Class::InodeState, id.subvolume.0, id.number);
        self.state.get_or_init(|| Mutex::with_identity(identity, state));
    }

    /// Which it is.
    pub(crate) fn id(&self) -> InodeId {
        self.id
    }

    pub(super) fn number(&self) -> u64 {
        self.id.number
    }

    /// The tree of its subvolume.
    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(super) fn lock_entries(&self) -> MutexGuard<'_, ()> {
        self.entries.lock()
    }

    pub(super) fn lock_operation(&self) -> MutexGuard<'_, ()> {
        self.operation.lock()
    }

    /// The state, of an inode that the table gave out. No I/O while it is locked.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.get().expect("loaded before it is given out").lock()
    }

    /// The state if it is there and nobody holds it.
    pub(super) fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        self.state.get()?.try_lock()
    }

    /// The attributes.
    pub(crate) fn item(&self) -> InodeItem {
        self.state().item.clone()
    }

    /// What it is.
    pub(crate) fn kind(&self) -> FileKind {
        self.state().item.kind
    }

    /// The attributes; and the content, where what the tree has is not it.
    pub(crate) fn snapshot(&self) -> (InodeItem, Option<Content>) {
        let state = self.state();
        (state.item.clone(), state.content().cloned())
    }

    /// The content, where what the tree has is not it.
    pub(super) fn pending_content(&self) -> Option<Content> {
        self.state().content().cloned()
    }
}

impl State {
    pub(super) fn new(item: InodeItem, dentries: Dentries) -> Self {
        Self {
            item,
            running: None,
            merging: None,
            late: None,
            dentries,
            next_index: None,
            opens: 0,
            listed: false,
            linkable: false,
            dead: false,
        }
    }

    /// The set that is added to; there is one while something is changed.
    pub(super) fn pending(&mut self) -> &mut Pending {
        self.running.as_mut().expect("made when the change began")
    }

    /// Lists the inode among those without a name, or takes it off that list.
    pub(super) fn set_listed(&mut self, listed: bool) {
        let known_below = std::mem::replace(&mut self.listed, listed) && !self.pending().created;
        // What came and went in the set that made the inode leaves nothing.
        self.pending().orphan = (listed || known_below).then_some(listed);
    }

    /// The sets, newest first.
    pub(super) fn sets(&self) -> impl Iterator<Item = &Pending> {
        let merging = self.merging.as_ref().map(|frozen| &*frozen.changes);
        self.running.as_deref().into_iter().chain(merging)
    }

    /// What waits of the entry of a name.
    pub(super) fn pending_entry(&self, hash: u32, name: &[u8]) -> Said<Arc<Entry>> {
        newest(self.sets().map(|set| set.entries.find(hash, name)))
    }

    /// What waits of a name, and is not in a set any more.
    pub(super) fn late_name(&self, hash: u32, name: &[u8]) -> Said<(EntryTarget, DirEntryKind)> {
        self.late.as_ref().map_or(Said::Nothing, |late| late.find(hash, name))
    }

    /// What waits of an attribute.
    pub(super) fn pending_xattr(&self, name: &[u8]) -> Said<Arc<[u8]>> {
        newest(self.sets().map(|set| set.xattr(name)))
    }

    fn content(&self) -> Option<&Content> {
        self.sets().find_map(|set| set.content.as_ref())
    }

    /// Takes the running set away to be merged.
    pub(super) fn freeze(&mut self) -> Option<Arc<Frozen>> {
        let changes = self.running.take()?;
        assert!(self.merging.is_none(), "an inode never has more than two sets");
        let frozen = Arc::new(Frozen { item: self.item.clone(), changes });
        self.merging = Some(Arc::clone(&frozen));
        Some(frozen)
    }
}

/// What the newest set says that says anything.
fn newest<'a, T: ?Sized + 'a>(mut said: impl Iterator<Item = Said<&'a Arc<T>>>) -> Said<Arc<T>> {
    match said.find(|said| !matches!(said, Said::Nothing)) {
        Some(Said::There(it)) => Said::There(Arc::clone(it)),
        Some(Said::Gone) => Said::Gone,
        Some(Said::Nothing) | None => Said::Nothing,
    }
}
