//! Extents that are being overwritten in place.
//!
//! 1. A thread that overwrites data holds its extent from before it is sure that the extent is the
//!    file's until the device is done. The file may be deleted meanwhile, and that be durable: but
//!    a held extent stays pinned, commit by commit, until its guards are dropped. So a write never
//!    overwrites another file's data.
//! 2. A snapshot shares the extents of a subvolume: while it is being made, no extent of the
//!    subvolume is held. The thread that makes it excludes new holders, and waits for the others.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use userbtrfs_format::{Logical, TreeId};
use userbtrfs_sync::{Arc, Class, Condvar, Mutex};

/// The extents that are held: the length of each, and the number of its holders.
type Extents = BTreeMap<Logical, (u64, usize)>;

/// The extents that are being overwritten in place.
pub(super) struct NocowWriters(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified when the last extent of a subvolume is no longer held.
    drained: Condvar,
}

#[derive(Default)]
struct State {
    extents: Extents,
    /// The number of guards by subvolume.
    by_root: HashMap<TreeId, usize>,
    /// The subvolumes that are excluded, and how often.
    excluded: HashMap<TreeId, usize>,
    /// The range whose extents are excluded: it is being relocated.
    excluded_range: Option<Range<u64>>,
}

impl State {
    fn is_excluded(&self, logical: Logical, len: u64) -> bool {
        let touches = |range: &Range<u64>| range.start < logical.0 + len && logical.0 < range.end;
        self.excluded_range.as_ref().is_some_and(touches)
    }
}

/// Holds an extent until it is dropped.
#[derive(Clone, Debug)]
#[must_use = "the extent is held until this is dropped"]
pub struct NocowGuard {
    _inner: Arc<Inner>,
}

struct Inner {
    root: TreeId,
    logical: Logical,
    all: Arc<Shared>,
}

/// Keeps the extents of a subvolume from being held until it is dropped.
#[must_use = "extents may be held once this is dropped"]
pub struct NocowExclusion {
    root: TreeId,
    all: Arc<Shared>,
}

/// Keeps the extents in a range from being held until it is dropped.
#[must_use = "extents may be held once this is dropped"]
pub(crate) struct RangeExclusion {
    all: Arc<Shared>,
}

impl NocowWriters {
    pub(super) fn new() -> Self {
        let state = Mutex::new(Class::BlockGroup, State::default());
        Self(Arc::new(Shared { state, drained: Condvar::new() }))
    }

    /// Holds an extent of a subvolume; `None` if the subvolume is excluded. All guards of one
    /// extent hold all of it.
    pub(super) fn hold(&self, root: TreeId, logical: Logical, len: u64) -> Option<NocowGuard> {
        let mut state = self.0.state.lock();
        if state.excluded.contains_key(&root) || state.is_excluded(logical, len) {
            return None;
        }
        let (held, holders) = state.extents.entry(logical).or_insert((len, 0));
        assert_eq!(*held, len, "an extent has one length");
        *holders += 1;
        *state.by_root.entry(root).or_default() += 1;
        Some(NocowGuard { _inner: Arc::new(Inner { root, logical, all: Arc::clone(&self.0) }) })
    }

    /// Excludes holders of extents of a subvolume, and waits until there are none.
    pub(super) fn exclude(&self, root: TreeId) -> NocowExclusion {
        let mut state = self.0.state.lock();
        *state.excluded.entry(root).or_default() += 1;
        let exclusion = NocowExclusion { root, all: Arc::clone(&self.0) };
        self.0.drained.wait_while(&mut state, |state| state.by_root.contains_key(&root));
        exclusion
    }

    /// Excludes holders of extents in a range, and waits until there are none. One range is
    /// excluded at a time.
    pub(super) fn exclude_range(&self, range: Range<u64>) -> RangeExclusion {
        let mut state = self.0.state.lock();
        assert!(state.excluded_range.is_none(), "one block group is relocated at a time");
        state.excluded_range = Some(range);
        let exclusion = RangeExclusion { all: Arc::clone(&self.0) };
        self.0.drained.wait_while(&mut state, |state| {
            state.extents.iter().any(|(at, (len, _))| state.is_excluded(*at, *len))
        });
        exclusion
    }

    /// Takes out the ranges that touch an extent that is held.
    pub(super) fn split_off(&self, ranges: &mut Vec<(Logical, u64)>) -> Vec<(Logical, u64)> {
        let all = &self.0.state.lock().extents;
        // Held extents are disjoint, so the last that begins before the end is the one to check.
        let is_held = |&mut (start, len): &mut (Logical, u64)| {
            let before = all.range(..Logical(start.0 + len)).next_back();
            before.is_some_and(|(at, (held, _))| at.0 + held > start.0)
        };
        if all.is_empty() { Vec::new() } else { ranges.extract_if(.., is_held).collect() }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        let (_, holders) = state.extents.get_mut(&self.logical).expect("it is held until now");
        *holders -= 1;
        if *holders == 0 {
            state.extents.remove(&self.logical);
            self.all.drained.notify_all();
        }
        let guards = state.by_root.get_mut(&self.root).expect("it is held until now");
        *guards -= 1;
        if *guards == 0 {
            state.by_root.remove(&self.root);
            self.all.drained.notify_all();
        }
    }
}

impl Drop for NocowExclusion {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        let count = state.excluded.get_mut(&self.root).expect("it is excluded until now");
        *count -= 1;
        if *count == 0 {
            state.excluded.remove(&self.root);
        }
    }
}

impl Drop for RangeExclusion {
    fn drop(&mut self) {
        self.all.state.lock().excluded_range = None;
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.logical)
    }
}
