//! Changes of references that are not yet in the extent tree.
//!
//! 1. All changes of one extent are one [`Head`], and those of one user one number in it. What
//!    cancels out leaves nothing.
//! 2. What is known of an extent is what the extent tree says once the heads taken are in it;
//!    with the head still here added, it is the truth of now.
//! 3. Who takes a head brings it into the extent tree before anyone learns of the extent.
//! 4. Memory only: all of it may be called under tree locks.
//! 5. Most heads are of blocks that this transaction allocated, in very great numbers: those take
//!    no more memory than what they say.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use userbtrfs_btree::{Backref, BlockRefs, Extent, RefChange, ShortKeys};
use userbtrfs_format::{Logical, TreeId};
use userbtrfs_sync::{Class, Mutex};

use super::backrefs::BackrefChanges;

/// What changed at one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Where it is, and what.
    pub extent: Extent,
    /// Allocated by this transaction: it has no item in the extent tree yet.
    pub fresh: bool,
    /// By how much the references of each user change.
    pub changes: BackrefChanges,
    /// From now on its children are referred to by its address.
    pub set_full_backref: bool,
    /// Some of the changes took it for another extent at the same address.
    pub contradicted: bool,
}

impl Head {
    fn new(extent: Extent) -> Self {
        Self {
            extent,
            fresh: false,
            changes: BackrefChanges::default(),
            set_full_backref: false,
            contradicted: false,
        }
    }

    /// Its address.
    pub fn logical(&self) -> Logical {
        logical_of(&self.extent)
    }

    /// By how much its references change in all.
    pub fn net(&self) -> i64 {
        self.changes.net()
    }

    fn change(&mut self, backref: Backref, by: i64) {
        self.changes.add(backref, by);
    }

    fn is_idle(&self) -> bool {
        let touched = self.fresh || self.set_full_backref || self.contradicted;
        !touched && self.changes.is_empty()
    }

    /// What becomes of an extent of which `base` is known.
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
    /// A block that this transaction allocated, which a tree alone refers to.
    Block {
        tree: TreeId,
        level: u8,
    },
    /// One that it allocated, and nobody refers to any more.
    Left {
        level: u8,
    },
    Other(Box<Head>),
}

/// About what a head takes in memory as a slot of its own, in a map that is half full.
const SLOT_BYTES: usize = 2 * size_of::<(Logical, Slot)>();
/// About what another one takes.
const HEAD_BYTES: usize = 256;

impl Slot {
    fn of(head: Head) -> Self {
        let is_plain = head.fresh && !head.set_full_backref && !head.contradicted;
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
            Self::Other(_) => HEAD_BYTES,
        }
    }
}

/// The address of an extent.
pub(super) fn logical_of(extent: &Extent) -> Logical {
    match extent {
        Extent::Block { logical, .. } | Extent::Data { logical, .. } => *logical,
    }
}

/// Whether this user can refer to such an extent.
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
    /// About what the heads take in memory.
    bytes: usize,
    /// What the extent tree says, once it has the heads that were taken; of what was allocated by
    /// this transaction it says nothing before.
    known: HashMap<Logical, BlockRefs, ShortKeys>,
    /// Where the next head is looked for.
    next: Logical,
}

impl Default for DelayedRefs {
    fn default() -> Self {
        Self { state: Mutex::new(Class::DelayedRefs, State::default()) }
    }
}

impl DelayedRefs {
    /// A block was just allocated for `tree`: its first reference.
    pub fn allocated(&self, logical: Logical, level: u8, tree: TreeId) {
        self.state.lock().allocate(Extent::Block { logical, level }, Backref::Tree(tree));
    }

    /// Space for data was just allocated, `len` bytes for `backref`: its first reference.
    pub fn allocated_data(&self, logical: Logical, len: u64, backref: Backref) {
        self.state.lock().allocate(Extent::Data { logical, len }, backref);
    }

    /// A reference comes or goes.
    pub fn change(&self, change: &RefChange) {
        assert!(fits(&change.extent, &change.backref), "blocks and data have users of their own");
        let by = if change.add { 1 } else { -1 };
        self.state.lock().touch(change.extent, |head| head.change(change.backref, by));
    }

    /// From now on the children of a block are referred to by its address.
    pub fn set_full_backref(&self, logical: Logical, level: u8) {
        let extent = Extent::Block { logical, level };
        self.state.lock().touch(extent, |head| head.set_full_backref = true);
    }

    /// Who uses an extent now; nothing where what the extent tree says must be learnt first.
    /// Of an extent allocated by this transaction it is always known.
    pub fn sharing(&self, logical: Logical) -> Option<BlockRefs> {
        let state = self.state.lock();
        let head = state.heads.get(&logical).cloned().map(|slot| slot.into_head(logical));
        let known = state.base(logical, head.as_ref())?;
        Some(head.map_or(known, |head| head.applied_to(known)))
    }

    /// Takes down what the extent tree says of an extent. What is known already stands: it may
    /// count heads that were taken since.
    pub fn learn(&self, logical: Logical, found: BlockRefs) {
        self.state.lock().known.entry(logical).or_insert(found);
    }

    /// Forgets a block that this transaction allocated, never wrote, and frees: the extent tree
    /// never hears of it, and its space can be used again at once. Says no, and does nothing,
    /// where it is not so, or the extent tree knows of it already, or of another there.
    pub fn forget(&self, logical: Logical) -> bool {
        let mut state = self.state.lock();
        let is_sound = |slot: &Slot| match slot {
            Slot::Block { .. } | Slot::Left { .. } => true,
            Slot::Other(head) => head.fresh && !head.contradicted,
        };
        let is_here = state.heads.get(&logical).is_some_and(is_sound);
        if is_here {
            state.take(logical);
        }
        is_here
    }

    /// What changed at an extent and is not in the extent tree yet.
    pub fn head(&self, logical: Logical) -> Option<Head> {
        self.state.lock().heads.get(&logical).cloned().map(|slot| slot.into_head(logical))
    }

    /// Data that this transaction allocated and that nobody refers to any more: ranges.
    pub fn vanishing_data(&self) -> Vec<Range<u64>> {
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

    /// What the extents take, at most, that nobody refers to once the changes are in the extent
    /// tree: how many blocks, and how many bytes of data.
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

    /// Takes the next head in the order of addresses, which begins anew after the last.
    pub fn take_next(&self) -> Option<Head> {
        self.state.lock().take_next()
    }

    /// How many heads there are.
    pub fn len(&self) -> usize {
        self.state.lock().heads.len()
    }

    /// About what they take in memory.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Whether there is nothing to bring into the extent tree.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins the next transaction: what was learnt is forgotten, so that it does not pile up.
    pub fn turn_over(&self) {
        let mut state = self.state.lock();
        assert!(state.heads.is_empty(), "the extent tree has all changes of the transaction");
        state.known.clear();
    }
}

impl State {
    fn allocate(&mut self, extent: Extent, backref: Backref) {
        assert!(fits(&extent, &backref), "blocks and data have users of their own");
        let logical = logical_of(&extent);
        let mut head = Head { fresh: true, ..Head::new(extent) };
        head.change(backref, 1);
        // Space is free only once its references are settled, unless it was called free wrongly.
        head.contradicted = self.take(logical).is_some();
        self.known.remove(&logical);
        self.put(head);
    }

    fn touch(&mut self, extent: Extent, change: impl FnOnce(&mut Head)) {
        let mut head = self.take(logical_of(&extent)).unwrap_or_else(|| Head::new(extent));
        head.contradicted |= head.extent != extent;
        change(&mut head);
        if !head.is_idle() {
            self.put(head);
        }
    }

    fn put(&mut self, head: Head) {
        let (logical, slot) = (head.logical(), Slot::of(head));
        self.bytes += slot.bytes();
        let before = self.heads.insert(logical, slot);
        assert!(before.is_none(), "it was taken before it was changed");
    }

    fn take(&mut self, logical: Logical) -> Option<Head> {
        let slot = self.heads.remove(&logical)?;
        self.bytes -= slot.bytes();
        Some(slot.into_head(logical))
    }

    /// What the extent tree says of an extent with this head, where that is known.
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
