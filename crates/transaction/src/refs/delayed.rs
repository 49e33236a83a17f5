//! Changes of references that are not yet in the extent tree.
//!
//! 1. All changes of one extent are one [`Head`], and those of one backref are one number in it.
//!    Changes that cancel out leave nothing.
//! 2. The *known* references of an extent are those that the extent tree has once the taken heads
//!    are applied to it; with the head that is still here added, they are the current ones.
//! 3. The thread that takes a head applies it to the extent tree before any thread looks up the
//!    extent there.
//! 4. No call does I/O: all may be made under tree locks.
//! 5. For data, the backrefs that were dropped in this transaction and in the one before are
//!    remembered, also those that cancel out: an older superblock, or a log, may lead to them.
//! 6. Most heads are of blocks that this transaction allocated, in very great numbers: those take
//!    no more memory than their data.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use userbtrfs_btree::{Backref, BlockRefs, Extent, RefChange, ShortKeys};
use userbtrfs_format::{Logical, TreeId};
use userbtrfs_sync::{Class, Mutex};

use super::backrefs::BackrefChanges;

/// The changes of the references of one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its address and its kind.
    pub extent: Extent,
    /// Allocated by this transaction: it has no item in the extent tree yet.
    pub fresh: bool,
    /// The changes of its references, by backref.
    pub changes: BackrefChanges,
    /// From now on its children are referred to by its address.
    pub set_full_backref: bool,
    /// Some of the changes described another extent at the same address.
    pub conflicting: bool,
}

impl Head {
    fn new(extent: Extent) -> Self {
        Self {
            extent,
            fresh: false,
            changes: BackrefChanges::default(),
            set_full_backref: false,
            conflicting: false,
        }
    }

    /// Returns its address.
    pub fn logical(&self) -> Logical {
        logical_of(&self.extent)
    }

    /// Returns the sum of the changes of its references.
    pub fn net(&self) -> i64 {
        self.changes.net()
    }

    fn change(&mut self, backref: Backref, by: i64) {
        self.changes.add(backref, by);
    }

    fn is_idle(&self) -> bool {
        let touched = self.fresh || self.set_full_backref || self.conflicting;
        !touched && self.changes.is_empty()
    }

    /// Returns the references of an extent that had `base` before these changes.
    fn applied_to(&self, base: BlockRefs) -> BlockRefs {
        BlockRefs {
            refs: base.refs.saturating_add_signed(self.net()),
            full_backref: base.full_backref || self.set_full_backref,
        }
    }
}

/// A head as it is kept, by its address.
#[derive(Clone)]
enum Slot {
    /// A block that this transaction allocated, with one reference, by a tree.
    Block {
        tree: TreeId,
        level: u8,
    },
    /// A block that this transaction allocated, with no references any more.
    Left {
        level: u8,
    },
    Other(Box<Head>),
}

/// The approximate size of a head in memory that is a slot of its own, in a map that is half full.
const SLOT_BYTES: usize = 2 * size_of::<(Logical, Slot)>();
/// The approximate size of any other head, with one change.
const HEAD_BYTES: usize = 256;
/// The approximate size of each further change, in a list that is half full.
const CHANGE_BYTES: usize = 2 * size_of::<(Backref, i64)>();

impl Slot {
    fn of(head: Head) -> Self {
        let is_plain = head.fresh && !head.set_full_backref && !head.conflicting;
        match (head.extent, head.changes.as_slice()) {
            (Extent::Block { level, .. }, []) if is_plain => Self::Left { level },
            (Extent::Block { level, .. }, &[(Backref::Tree(tree), 1)]) if is_plain => {
                Self::Block { tree, level }
            }
            _ => Self::Other(Box::new(head)),
        }
    }

    fn into_head(self, logical: Logical) -> Head {
        let fresh = |level| Head { fresh: true, ..Head::new(Extent::Block { logical, level }) };
        match self {
            Self::Block { tree, level } => {
                let mut head = fresh(level);
                head.change(Backref::Tree(tree), 1);
                head
            }
            Self::Left { level } => fresh(level),
            Self::Other(head) => *head,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Block { .. } | Self::Left { .. } => SLOT_BYTES,
            Self::Other(_) => HEAD_BYTES + (self.references() - 1) * CHANGE_BYTES,
        }
    }

    /// Returns the number of references that change, at least 1.
    fn references(&self) -> usize {
        match self {
            Self::Block { .. } | Self::Left { .. } => 1,
            Self::Other(head) => head.changes.as_slice().len().max(1),
        }
    }
}

/// The address of an extent.
pub(super) fn logical_of(extent: &Extent) -> Logical {
    match extent {
        Extent::Block { logical, .. } | Extent::Data { logical, .. } => *logical,
    }
}

/// Returns true if such an extent can have this backref.
fn fits(extent: &Extent, backref: &Backref) -> bool {
    let of_block = matches!(backref, Backref::Tree(_) | Backref::Parent(_));
    of_block == matches!(extent, Extent::Block { .. })
}

/// Changes of references that are not yet in the extent tree.
pub struct DelayedRefs {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    heads: BTreeMap<Logical, Slot>,
    /// The approximate size of the heads in memory.
    bytes: usize,
    /// The number of references that change, by all heads: many files can share one extent.
    references: usize,
    /// The references in the extent tree, once it has the heads that were taken; those of an extent
    /// that this transaction allocated are not here before its head is taken.
    known: HashMap<Logical, BlockRefs, ShortKeys>,
    /// The address from which the next head is searched.
    next: Logical,
    dropped: DroppedBackrefs,
    /// Those of the transaction before, which may not be durable yet.
    dropped_before: DroppedBackrefs,
}

/// The backref that was dropped of each extent of data; `None` if several were.
type DroppedBackrefs = HashMap<Logical, Option<Backref>, ShortKeys>;

impl Default for DelayedRefs {
    fn default() -> Self {
        Self { state: Mutex::new(Class::DelayedRefs, State::default()) }
    }
}

impl DelayedRefs {
    /// Adds the first reference of a block that was just allocated for `tree`.
    pub fn allocated(&self, logical: Logical, level: u8, tree: TreeId) {
        self.state.lock().allocate(Extent::Block { logical, level }, Backref::Tree(tree));
    }

    /// Adds the first reference of `len` bytes of data that were just allocated for `backref`.
    pub fn allocated_data(&self, logical: Logical, len: u64, backref: Backref) {
        self.state.lock().allocate(Extent::Data { logical, len }, backref);
    }

    /// Adds or drops a reference.
    pub fn change(&self, change: &RefChange) {
        assert!(fits(&change.extent, &change.backref), "blocks and data have users of their own");
        let by = if change.add { 1 } else { -1 };
        let mut state = self.state.lock();
        state.touch(change.extent, |head| head.change(change.backref, by));
        if let (false, Extent::Data { logical, .. }) = (change.add, change.extent) {
            let dropped = state.dropped.entry(logical).or_insert(Some(change.backref));
            *dropped = dropped.filter(|before| *before == change.backref);
        }
    }

    /// Returns true if a backref of data other than `backref` was dropped so lately that what is
    /// durable may still have it: in this transaction, or in the one before.
    pub fn was_shared(&self, logical: Logical, backref: Backref) -> bool {
        let state = self.state.lock();
        let dropped = [&state.dropped, &state.dropped_before];
        dropped.iter().filter_map(|it| it.get(&logical)).any(|it| *it != Some(backref))
    }

    /// Records that the children of a block are referred to by its address from now on.
    pub fn set_full_backref(&self, logical: Logical, level: u8) {
        let extent = Extent::Block { logical, level };
        self.state.lock().touch(extent, |head| head.set_full_backref = true);
    }

    /// Returns the current references of an extent; `None` if those in the extent tree must be
    /// loaded first. The references of an extent that this transaction allocated are always known.
    pub fn sharing(&self, logical: Logical) -> Option<BlockRefs> {
        self.state.lock().sharing(logical)
    }

    /// Drops a reference if there are others, in one step, and returns the references before that;
    /// `None` if those in the extent tree must be loaded first.
    pub fn drop_if_shared(&self, change: &RefChange) -> Option<BlockRefs> {
        assert!(fits(&change.extent, &change.backref), "blocks and data have users of their own");
        let mut state = self.state.lock();
        let before = state.sharing(logical_of(&change.extent))?;
        if before.refs > 1 {
            state.touch(change.extent, |head| head.change(change.backref, -1));
        }
        Some(before)
    }

    /// Records the references of an extent in the extent tree. Those that are known already are
    /// kept: they may count heads that were taken since.
    pub fn learn(&self, logical: Logical, found: BlockRefs) {
        self.state.lock().known.entry(logical).or_insert(found);
    }

    /// Drops a block that this transaction allocated, never wrote, and frees: it never gets into
    /// the extent tree, and its space can be reused at once. Returns false, and does nothing, if it
    /// is not such a block, or if the extent tree has it already, or another extent there.
    pub fn forget(&self, logical: Logical) -> bool {
        let mut state = self.state.lock();
        let is_sound = |slot: &Slot| match slot {
            Slot::Block { .. } | Slot::Left { .. } => true,
            Slot::Other(head) => head.fresh && !head.conflicting,
        };
        let is_here = state.heads.get(&logical).is_some_and(is_sound);
        if is_here {
            state.take(logical);
        }
        is_here
    }

    /// Returns the changes of an extent that are not in the extent tree yet.
    pub fn head(&self, logical: Logical) -> Option<Head> {
        self.state.lock().heads.get(&logical).cloned().map(|slot| slot.into_head(logical))
    }

    /// Returns the ranges of data that this transaction allocated and that have no references any
    /// more.
    pub fn unreferenced_new_data(&self) -> Vec<Range<u64>> {
        let state = self.state.lock();
        let range = |slot: &Slot| match slot {
            Slot::Other(head) if head.fresh && head.changes.is_empty() => match head.extent {
                Extent::Data { logical, len } => Some(logical.0..logical.0 + len),
                Extent::Block { .. } => None,
            },
            _ => None,
        };
        state.heads.values().filter_map(range).collect()
    }

    /// Returns an upper bound of what is freed once the changes are in the extent tree: the number
    /// of blocks, and the bytes of data.
    pub fn freeable(&self) -> (u64, u64) {
        let state = self.state.lock();
        let dropped = |head: &Head| if head.fresh { head.net() == 0 } else { head.net() < 0 };
        let add = |(blocks, bytes): (u64, u64), slot: &Slot| match slot {
            Slot::Block { .. } => (blocks, bytes),
            Slot::Left { .. } => (blocks + 1, bytes),
            Slot::Other(head) if !dropped(head) => (blocks, bytes),
            Slot::Other(head) => match head.extent {
                Extent::Block { .. } => (blocks + 1, bytes),
                Extent::Data { len, .. } => (blocks, bytes.saturating_add(len)),
            },
        };
        state.heads.values().fold((0, 0), add)
    }

    /// Takes the next head in the order of addresses, which starts again after the last.
    pub fn take_next(&self) -> Option<Head> {
        self.state.lock().take_next()
    }

    /// Returns the number of heads.
    pub fn len(&self) -> usize {
        self.state.lock().heads.len()
    }

    /// Returns the number of references that change, at least one for each head.
    pub fn references(&self) -> usize {
        self.state.lock().references
    }

    /// Returns their approximate size in memory.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Returns true if there is nothing to apply to the extent tree.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins the next transaction: known references are dropped, so that they do not accumulate.
    pub fn end_transaction(&self) {
        let mut state = self.state.lock();
        assert!(state.heads.is_empty(), "the extent tree has all changes of the transaction");
        state.known.clear();
        state.dropped_before = std::mem::take(&mut state.dropped);
    }
}

impl State {
    fn sharing(&self, logical: Logical) -> Option<BlockRefs> {
        let head = self.heads.get(&logical).cloned().map(|slot| slot.into_head(logical));
        let known = self.base(logical, head.as_ref())?;
        Some(head.map_or(known, |head| head.applied_to(known)))
    }

    fn allocate(&mut self, extent: Extent, backref: Backref) {
        assert!(fits(&extent, &backref), "blocks and data have users of their own");
        let logical = logical_of(&extent);
        let mut head = Head { fresh: true, ..Head::new(extent) };
        head.change(backref, 1);
        // Space is free only once its references are applied, unless the free space tree is wrong.
        head.conflicting = self.take(logical).is_some();
        self.known.remove(&logical);
        self.put(head);
    }

    fn touch(&mut self, extent: Extent, change: impl FnOnce(&mut Head)) {
        let mut head = self.take(logical_of(&extent)).unwrap_or_else(|| Head::new(extent));
        head.conflicting |= head.extent != extent;
        change(&mut head);
        if !head.is_idle() {
            self.put(head);
        }
    }

    fn put(&mut self, head: Head) {
        let logical = head.logical();
        let slot = Slot::of(head);
        self.bytes += slot.bytes();
        self.references += slot.references();
        let before = self.heads.insert(logical, slot);
        assert!(before.is_none(), "it was taken before it was changed");
    }

    fn take(&mut self, logical: Logical) -> Option<Head> {
        let slot = self.heads.remove(&logical)?;
        self.bytes -= slot.bytes();
        self.references -= slot.references();
        Some(slot.into_head(logical))
    }

    /// Returns the references in the extent tree of an extent with this head, if they are known.
    fn base(&self, logical: Logical, head: Option<&Head>) -> Option<BlockRefs> {
        match head {
            Some(head) if head.fresh => Some(BlockRefs { refs: 0, full_backref: false }),
            _ => self.known.get(&logical).copied(),
        }
    }

    fn take_next(&mut self) -> Option<Head> {
        let ahead = self.heads.range(self.next..).next();
        let (&logical, _) = ahead.or_else(|| self.heads.first_key_value())?;
        let head = self.take(logical).expect("just found");
        self.next = Logical(logical.0.saturating_add(1));
        let known = self.base(logical, Some(&head));
        self.known.remove(&logical);
        if let Some(known) = known {
            let after = head.applied_to(known);
            if after.refs > 0 {
                self.known.insert(logical, after);
            }
        }
        Some(head)
    }
}
