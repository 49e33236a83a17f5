//! Checks that new entries fit into their items.
//!
//! 1. The counted length is at least the length that the item will have: delayed entries are
//!    counted before the tree is read, so that entries that are flushed in between are counted
//!    twice, and none is missed.
//! 2. No other thread adds to the same item meanwhile: the directory's entries, or the inode, are
//!    locked.

use userbtrfs_codec::hash::{extref_hash, name_hash};
use userbtrfs_format::{IncompatFlags, NAME_LEN_MAX};

use crate::error::{Error, Result};
use crate::inode::dir::dcache::HashCollisions;
use crate::inode::pending::delayed_items::RefIndex;
use crate::inode::tree::ondisk;
use crate::inode::{Inode, Inodes};

/// Bytes of an entry of a DIR_ITEM or XATTR_ITEM before its name.
pub(in crate::inode) const ENTRY_HEAD: usize = 30;
/// Bytes of an entry of an INODE_REF before its name.
const REF_HEAD: usize = 10;
/// Bytes of an entry of an INODE_EXTREF before its name.
const EXTREF_HEAD: usize = 18;

/// Checks the length of an item with several entries.
fn check_shared(inodes: &Inodes, len: usize) -> Result<()> {
    if len <= inodes.item_max() { Ok(()) } else { Err(Error::Overflow) }
}

/// Checks that a directory has room for an entry of this name. Returns [`Error::Overflow`] if
/// too many names have its hash.
pub(in crate::inode) fn check_room_for_entry(
    inodes: &Inodes,
    dir: &Inode,
    name: &[u8],
) -> Result<()> {
    let hash = name_hash(name);
    let alike = dir.state().dentry_cache().alike(hash);
    let fit = |count: usize| (count + 1) * (ENTRY_HEAD + NAME_LEN_MAX) <= inodes.item_max();
    let there = match alike {
        HashCollisions::Exactly { count, len } => count * ENTRY_HEAD + len,
        HashCollisions::AtMost(count) if fit(count) => return Ok(()),
        HashCollisions::AtMost(_) | HashCollisions::Unknown => {
            let pending = pending_len(dir, hash);
            ondisk::lookup(&inodes.tree_roots, dir.tree(), dir.number(), name)?.1 + pending
        }
    };
    check_shared(inodes, there + ENTRY_HEAD + name.len())
}

/// Checks that an attribute fits into its item beside `others` bytes of other attributes.
/// Returns [`Error::AttributeTooLong`] if it does not.
pub(in crate::inode) fn check_room_for_xattr(
    inodes: &Inodes,
    name: &[u8],
    value: &[u8],
    others: usize,
) -> Result<()> {
    let own = ENTRY_HEAD + name.len() + value.len();
    match others {
        0 if own <= inodes.item_max() => Ok(()),
        0 => Err(Error::AttributeTooLong),
        others => check_shared(inodes, others + own).map_err(|_| Error::AttributeTooLong),
    }
}

/// Returns the item that will store one more name of an inode in `dir`.
pub(in crate::inode) fn place_of_ref(
    inodes: &Inodes,
    inode: &Inode,
    dir: u64,
    name: &[u8],
) -> Result<RefIndex> {
    let (pending, known): (usize, _) = {
        let state = inode.state();
        let added = state.sets().flat_map(|set| set.refs_added(dir));
        let in_ref = added.filter(|(_, place)| *place == RefIndex::Ref);
        let pending = in_ref.map(|(entry, _)| REF_HEAD + entry.name.len()).sum();
        (pending, state.known_ref_len(dir))
    };
    let stored = match known {
        Some(known) => known,
        None => ondisk::ref_len(&inodes.tree_roots, inode.tree(), inode.number(), dir)?,
    };
    if check_shared(inodes, pending + stored + REF_HEAD + name.len()).is_ok() {
        return Ok(RefIndex::Ref);
    }
    let superblock = inodes.tree_roots.store().volume().superblock();
    if !superblock.incompat.contains(IncompatFlags::EXTENDED_IREF) {
        return Err(Error::TooManyLinks);
    }
    check_room_in_extref(inodes, inode, dir, name)?;
    Ok(RefIndex::Extref)
}

fn check_room_in_extref(inodes: &Inodes, inode: &Inode, dir: u64, name: &[u8]) -> Result<()> {
    let hash = extref_hash(dir, name);
    let pending: usize = {
        let state = inode.state();
        let refs = state.sets().flat_map(|set| set.refs.iter());
        let alike = refs.filter(|change| {
            change.place == Some(RefIndex::Extref)
                && extref_hash(change.dir, &change.entry.name) == hash
        });
        alike.map(|change| EXTREF_HEAD + change.entry.name.len()).sum()
    };
    let stored = ondisk::extref_len(&inodes.tree_roots, inode.tree(), inode.number(), hash)?;
    check_shared(inodes, pending + stored + EXTREF_HEAD + name.len())
}

fn entry_len(name: &[u8]) -> usize {
    ENTRY_HEAD + name.len()
}

/// Returns the total length of the delayed entries of a directory whose names have this hash.
fn pending_len(dir: &Inode, hash: u32) -> usize {
    let added: usize = {
        let state = dir.state();
        let added = state.sets().flat_map(|set| set.entries.added(hash));
        added.map(|entry| entry_len(&entry.name)).sum()
    };
    let late: usize = {
        let late = dir.late();
        late.iter().flat_map(|late| late.added(hash)).map(entry_len).sum()
    };
    added + late
}
