//! Checks whether a data extent has only one backref.

use userbtrfs_btree::{Backref, Extent};
use userbtrfs_format::{ExtentItem, TreeId};

use super::delayed::{Head, logical_of};
use super::inline;
use super::run::find;
use crate::damage::Damage;
use crate::editor::TreeItems;
use crate::error::Result;
use crate::roots::TreeRoots;

/// Returns true if `backref`, of a file, is the only one of an extent, according to its item and to
/// `head`, the later changes. If that is uncertain, returns false: references of `backref` are
/// keyed, or the extent is from before the last snapshot of the file's tree (`last_snapshot`),
/// which may share the leaf that refers to it.
pub fn is_exclusive(
    tree_roots: &TreeRoots,
    extent: &Extent,
    backref: Backref,
    head: Option<&Head>,
    last_snapshot: u64,
) -> Result<bool> {
    let nodesize = tree_roots.store().volume().geometry().nodesize;
    let found = find(&TreeItems::new(tree_roots, TreeId::EXTENT)?, extent, nodesize)?;
    let fresh = head.is_some_and(|head| head.fresh);
    match found {
        None if !fresh => Err(Damage::NoExtent(logical_of(extent)).into()),
        found => {
            let item = found.map(|found| found.item);
            Ok(is_alone(item.as_ref(), head, backref, last_snapshot))
        }
    }
}

pub(super) fn is_alone(
    item: Option<&ExtentItem>,
    head: Option<&Head>,
    backref: Backref,
    last_snapshot: u64,
) -> bool {
    let is_old = item.is_some_and(|item| item.generation <= last_snapshot);
    let of_user = item.and_then(|item| inline::find(item, backref)).map_or(0, |(_, count)| count);
    let all = item.map_or(0, |item| item.refs);
    let change = head.and_then(|head| head.changes.get(&backref)).copied().unwrap_or(0);
    let of_user = i64::from(of_user).saturating_add(change);
    let all = all.cast_signed().saturating_add(head.map_or(0, Head::net));
    !is_old && all > 0 && all == of_user
}
