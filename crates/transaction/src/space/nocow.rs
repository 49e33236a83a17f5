//! Extents that are being overwritten in place.
//!
//! 1. A thread that overwrites data holds its extent from before it is sure that the extent is the
//!    file's until the device is done. The file may be deleted meanwhile, and that be durable: but
//!    a held extent stays pinned, commit by commit, until its guards are dropped. So a write never
//!    overwrites another file's data.

use std::collections::BTreeMap;

use userbtrfs_format::Logical;
use userbtrfs_sync::{Arc, Class, Mutex};

/// The extents that are held: the length of each, and the number of its holders.
type Extents = BTreeMap<Logical, (u64, usize)>;

/// The extents that are being overwritten in place.
pub(super) struct NocowWriters(Arc<Mutex<Extents>>);

/// Holds an extent until it is dropped.
#[derive(Clone, Debug)]
#[must_use = "the extent is held until this is dropped"]
pub struct NocowGuard {
    _inner: Arc<Inner>,
}

struct Inner {
    logical: Logical,
    all: Arc<Mutex<Extents>>,
}

impl NocowWriters {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Class::BlockGroup, Extents::new())))
    }

    /// Holds an extent. All guards of one extent hold all of it.
    pub(super) fn hold(&self, logical: Logical, len: u64) -> NocowGuard {
        let mut all = self.0.lock();
        let (held, holders) = all.entry(logical).or_insert((len, 0));
        assert_eq!(*held, len, "an extent has one length");
        *holders += 1;
        NocowGuard { _inner: Arc::new(Inner { logical, all: Arc::clone(&self.0) }) }
    }

    /// Takes out the ranges that touch an extent that is held.
    pub(super) fn split_off(&self, ranges: &mut Vec<(Logical, u64)>) -> Vec<(Logical, u64)> {
        let all = self.0.lock();
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
        let mut all = self.all.lock();
        let (_, holders) = all.get_mut(&self.logical).expect("it is held until now");
        *holders -= 1;
        if *holders == 0 {
            all.remove(&self.logical);
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.logical)
    }
}
