//! The references of an extent after a change: its item and its keyed references.
//!
//! 1. A backref is searched in the item, then among the keyed references; a new one is stored in
//!    the item only while there are no keyed references and there is space.
//! 2. A keyed data reference has the first free offset from its hash on. Others before it may have
//!    been removed since: a search does not stop at a gap.

use std::ops::ControlFlow;

use userbtrfs_btree::Backref;
use userbtrfs_format::{ExtentItem, ItemKind, Key, KeyedRef, Logical};

use super::inline;
use crate::damage::Damage;
use crate::editor::{Changes, Items};
use crate::error::Result;
use crate::units::VERIFIED;

/// The distance from its hash at which a reference that was not found is considered new.
const REACH: u64 = 64;

/// The references of an extent after a change.
pub(super) struct ExtentRefs<'a, I> {
    pub(super) items: &'a I,
    pub(super) logical: Logical,
    /// The extent's own item.
    pub(super) item: ExtentItem,
    /// True if there are, or were, keyed references.
    pub(super) keyed: bool,
    /// Changes of the keyed references.
    pub(super) changes: Changes,
    pub(super) nodesize: u32,
}

/// The keyed references of one backref.
struct KeyedRefs {
    /// The items of the backref, and the counts in them.
    found: Vec<(Key, u32)>,
    /// The key for a new one.
    free: Key,
}

impl<I: Items> ExtentRefs<'_, I> {
    /// Drops `by` references of a backref.
    pub(super) fn drop_refs(&mut self, backref: Backref, by: u64) -> Result<()> {
        let missing = Damage::NoReference { logical: self.logical, backref };
        if let Some((index, count)) = inline::find(&self.item, backref) {
            match u64::from(count).checked_sub(by).ok_or(missing)? {
                0 => drop(self.item.inline.remove(index)),
                left => {
                    self.item.inline[index] = inline::reference(backref, narrow(left, missing)?);
                }
            }
            return Ok(());
        }
        let mut rest = by;
        let found = if self.keyed { self.keyed_refs(backref, Some(by))?.found } else { Vec::new() };
        for (key, count) in found {
            let part = rest.min(u64::from(count));
            rest -= part;
            match u64::from(count) - part {
                0 => self.changes.remove(key),
                left => self.put_keyed(key, backref, narrow(left, missing)?),
            }
        }
        if rest > 0 { Err(missing.into()) } else { Ok(()) }
    }

    /// Adds `by` references of a backref.
    pub(super) fn add_refs(&mut self, backref: Backref, by: u64) -> Result<()> {
        let excess = Damage::TooManyReferences { logical: self.logical, backref };
        let new = sum(backref, 0, by, excess)?;
        if let Some((index, count)) = inline::find(&self.item, backref) {
            self.item.inline[index] = inline::reference(backref, sum(backref, count, by, excess)?);
            return Ok(());
        }
        let room = inline::has_room(&self.item, &inline::reference(backref, new), self.nodesize);
        if !self.keyed && room {
            inline::insert(&mut self.item, backref, new);
            return Ok(());
        }
        let keyed = self.keyed_refs(backref, None)?;
        self.keyed = true;
        match keyed.found.first() {
            Some(&(key, count)) => self.put_keyed(key, backref, sum(backref, count, by, excess)?),
            None => self.put_keyed(keyed.free, backref, new),
        }
        Ok(())
    }

    /// Returns true if there is a keyed reference that is not being removed.
    pub(super) fn has_keyed_refs(&self) -> Result<bool> {
        let first = Key::new(self.logical.0, ItemKind::EXTENT_OWNER_REF, 0);
        let mut left = false;
        self.items.visit(&first, &mut |key, _| {
            left = is_keyed_ref(key, self.logical) && !self.changes.has(&key);
            let goes_on = key < first || (is_keyed_ref(key, self.logical) && !left);
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(left)
    }

    fn put_keyed(&mut self, key: Key, backref: Backref, count: u32) {
        let keyed = match backref {
            Backref::Tree(_) | Backref::Parent(_) => KeyedRef::Block,
            Backref::File { .. } => KeyedRef::ExtentData(inline::reference(backref, count)),
            Backref::SharedLeaf(_) => KeyedRef::SharedData(count),
        };
        self.changes.put(key, keyed.encode());
    }

    /// Searches the keyed references of a backref: `wanted` references, or the first item.
    fn keyed_refs(&self, backref: Backref, wanted: Option<u64>) -> Result<KeyedRefs> {
        let reference = inline::reference(backref, 1);
        let home = Key::new(self.logical.0, reference.kind(), reference.sequence());
        if home.kind == ItemKind::EXTENT_DATA_REF {
            return self.probe(backref, home, wanted);
        }
        let count = self.items.get(&home, |data| count_of(home.kind, data))?;
        Ok(KeyedRefs { found: count.map(|count| (home, count)).into_iter().collect(), free: home })
    }

    fn probe(&self, backref: Backref, home: Key, wanted: Option<u64>) -> Result<KeyedRefs> {
        let mut found = Vec::new();
        let mut total = 0;
        let mut free = home;
        let skip_changed = |free: &mut Key| {
            while self.changes.has(free) {
                free.offset += 1;
            }
        };
        self.items.visit(&home, &mut |key, data| {
            if key < home {
                return ControlFlow::Continue(());
            }
            skip_changed(&mut free);
            let too_far = wanted.is_none() && key.offset > free.offset + REACH;
            if key.objectid != home.objectid || key.kind != home.kind || too_far {
                return ControlFlow::Break(());
            }
            if key == free {
                free.offset += 1;
            }
            let count = count_of(key.kind, data);
            if parse(key.kind, data) == KeyedRef::ExtentData(inline::reference(backref, count)) {
                found.push((key, count));
                total += u64::from(count);
            }
            let enough = !found.is_empty() && wanted.is_none_or(|wanted| total >= wanted);
            if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        skip_changed(&mut free);
        Ok(KeyedRefs { found, free })
    }
}

/// Returns true if an item is a keyed reference of the extent.
pub(super) fn is_keyed_ref(key: Key, logical: Logical) -> bool {
    let kinds = ItemKind::EXTENT_OWNER_REF..=ItemKind::SHARED_DATA_REF;
    key.objectid == logical.0 && kinds.contains(&key.kind)
}

fn parse(kind: ItemKind, data: &[u8]) -> KeyedRef {
    KeyedRef::parse(kind, data).expect(VERIFIED)
}

fn count_of(kind: ItemKind, data: &[u8]) -> u32 {
    match parse(kind, data) {
        KeyedRef::Block => 1,
        KeyedRef::SharedData(count) => count,
        KeyedRef::ExtentData(inline) => u32::try_from(inline.count()).expect("as stored"),
    }
}

/// Adds to a count. A tree or a block refers to a block at most once.
fn sum(backref: Backref, count: u32, by: u64, excess: Damage) -> Result<u32, Damage> {
    let sum = narrow(u64::from(count).saturating_add(by), excess)?;
    let once = matches!(backref, Backref::Tree(_) | Backref::Parent(_));
    if once && sum > 1 { Err(excess) } else { Ok(sum) }
}

fn narrow(count: u64, damage: Damage) -> Result<u32, Damage> {
    u32::try_from(count).map_err(|_| damage)
}
