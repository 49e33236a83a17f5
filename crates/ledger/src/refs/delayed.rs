//! Changes of references that are not yet in the extent tree.
//!
//! 1. All changes of one extent are one [`Head`], and those of one user one number in it. What
//!    cancels out leaves nothing.
//! 2. What is known of an extent is what the extent tree says once the heads taken are in it;
//!    with the head still here added, it is the truth of now.
//! 3. Who takes a head brings it into the extent tree before anyone learns of the extent.
//! 4. Memory only: all of it may be called under tree locks.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use userbtrfs_btree::{Extent, RefChange, Sharing, ShortKeys, User};
use userbtrfs_format::{Logical, TreeId};
use userbtrfs_sync::{Class, Mutex};

use super::users::UserChanges;

/// What changed at one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Where it is, and what.
    pub extent: Extent,
    /// Allocated by this transaction: it has no item in the extent tree yet.
    pub fresh: bool,
    /// By how much the references of each user change.
    pub changes: UserChanges,
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
            changes: UserChanges::default(),
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

    fn change(&mut self, user: User, by: i64) {
        self.changes.add(user, by);
    }

    fn is_idle(&self) -> bool {
        let touched = self.fresh || self.set_full_backref || self.contradicted;
        !touched && self.changes.is_empty()
    }

    /// What becomes of an extent of which `base` is known.
    fn applied_to(&self, base: Sharing) -> Sharing {
        Sharing {
            refs: base.refs.saturating_add_signed(self.net()),
            full_backref: base.full_backref || self.set_full_backref,
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
fn fits(extent: &Extent, user: &User) -> bool {
    let of_block = matches!(user, User::Tree(_) | User::Parent(_));
    of_block == matches!(extent, Extent::Block { .. })
}

/// Changes of references that are not yet in the extent tree.
pub struct DelayedRefs {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    heads: BTreeMap<Logical, Head>,
    /// What the extent tree says, once it has the heads that were taken.
    known: HashMap<Logical, Sharing, ShortKeys>,
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
        self.state.lock().allocate(Extent::Block { logical, level }, User::Tree(tree));
    }

    /// Space for data was just allocated, `len` bytes for `user`: its first reference.
    pub fn allocated_data(&self, logical: Logical, len: u64, user: User) {
        self.state.lock().allocate(Extent::Data { logical, len }, user);
    }

    /// A reference comes or goes.
    pub fn change(&self, change: &RefChange) {
        assert!(fits(&change.extent, &change.user), "blocks and data have users of their own");
        let by = if change.add { 1 } else { -1 };
        self.state.lock().touch(change.extent, |head| head.change(change.user, by));
    }

    /// From now on the children of a block are referred to by its address.
    pub fn set_full_backref(&self, logical: Logical, level: u8) {
        let extent = Extent::Block { logical, level };
        self.state.lock().touch(extent, |head| head.set_full_backref = true);
    }

    /// Who uses an extent now; nothing where what the extent tree says must be learnt first.
    /// Of an extent allocated by this transaction it is always known.
    pub fn sharing(&self, logical: Logical) -> Option<Sharing> {
        let state = self.state.lock();
        let known = *state.known.get(&logical)?;
        Some(state.heads.get(&logical).map_or(known, |head| head.applied_to(known)))
    }

    /// Takes down what the extent tree says of an extent. What is known already stands: it may
    /// count heads that were taken since.
    pub fn learn(&self, logical: Logical, found: Sharing) {
        self.state.lock().known.entry(logical).or_insert(found);
    }

    /// Forgets a block that this transaction allocated, never wrote, and frees: the extent tree
    /// never hears of it, and its space can be used again at once. Says no, and does nothing,
    /// where it is not so, or the extent tree knows of it already, or of another there.
    pub fn forget(&self, logical: Logical) -> bool {
        let mut state = self.state.lock();
        if !state.heads.get(&logical).is_some_and(|head| head.fresh && !head.contradicted) {
            return false;
        }
        state.heads.remove(&logical);
        state.known.remove(&logical);
        true
    }

    /// What changed at an extent and is not in the extent tree yet.
    pub fn head(&self, logical: Logical) -> Option<Head> {
        self.state.lock().heads.get(&logical).cloned()
    }

    /// Data that this transaction allocated and that nobody refers to any more: ranges.
    pub fn vanishing_data(&self) -> Vec<Range<u64>> {
        let state = self.state.lock();
        let vanishing = state.heads.values().filter(|head| head.fresh && head.changes.is_empty());
        let range = |head: &Head| match head.extent {
            Extent::Data { logical, len } => Some(logical.0..logical.0 + len),
            Extent::Block { .. } => None,
        };
        vanishing.filter_map(range).collect()
    }

    /// What the extents take, at most, that nobody refers to once the changes are in the extent
    /// tree: how many blocks, and how many bytes of data.
    pub fn freeable(&self) -> (u64, u64) {
        let state = self.state.lock();
        let dropped = |head: &&Head| if head.fresh { head.net() == 0 } else { head.net() < 0 };
        let add = |(blocks, bytes): (u64, u64), head: &Head| match head.extent {
            Extent::Block { .. } => (blocks + 1, bytes),
            Extent::Data { len, .. } => (blocks, bytes.saturating_add(len)),
        };
        state.heads.values().filter(dropped).fold((0, 0), add)
    }

    /// Takes the next head in the order of addresses, which begins anew after the last.
    pub fn take_next(&self) -> Option<Head> {
        self.state.lock().take_next()
    }

    /// How many heads there are.
    pub fn len(&self) -> usize {
        self.state.lock().heads.len()
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
    fn allocate(&mut self, extent: Extent, user: User) {
        assert!(fits(&extent, &user), "blocks and data have users of their own");
        let logical = logical_of(&extent);
        let mut head = Head { fresh: true, ..Head::new(extent) };
        head.change(user, 1);
        // Space is free only once its references are settled, unless it was called free wrongly.
        head.contradicted = self.heads.contains_key(&logical);
        self.heads.insert(logical, head);
        self.known.insert(logical, Sharing { refs: 0, full_backref: false });
    }

    fn touch(&mut self, extent: Extent, change: impl FnOnce(&mut Head)) {
        let logical = logical_of(&extent);
        let head = self.heads.entry(logical).or_insert_with(|| Head::new(extent));
        head.contradicted |= head.extent != extent;
        change(head);
        if head.is_idle() {
            self.heads.remove(&logical);
        }
    }

    fn take_next(&mut self) -> Option<Head> {
        let ahead = self.heads.range(self.next..).next();
        let (&logical, _) = ahead.or_else(|| self.heads.first_key_value())?;
        let head = self.heads.remove(&logical).expect("just found");
        self.next = Logical(logical.0.saturating_add(1));
        if let Some(known) = self.known.remove(&logical) {
            let after = head.applied_to(known);
            if after.refs > 0 {
                self.known.insert(logical, after);
            }
        }
        Some(head)
    }
}
