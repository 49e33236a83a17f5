//! Extended attributes.

use std::collections::BTreeMap;

use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::NAME_LEN_MAX;
use userbtrfs_sync::Arc;

use crate::acl::{self, Acl};
use crate::error::{Error, InodeId, Result};
use crate::inode::flush::item_limits::{ENTRY_HEAD, check_room_for_xattr};
use crate::inode::incore::inode::State;
use crate::inode::ops::operation::Operation;
use crate::inode::pending::delayed_items::Delayed;
use crate::inode::tree::ondisk;
use crate::inode::{EMPTY_DIR, Inode, Inodes};

/// Whether an attribute may or must exist when it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XattrKind {
    /// It may exist.
    Any,
    /// It must not exist (XATTR_CREATE).
    Create,
    /// It must exist (XATTR_REPLACE).
    Replace,
}

impl XattrKind {
    /// Checks that an attribute may be set, given whether it exists.
    pub(in crate::inode) fn check(self, is_there: bool) -> Result<()> {
        match (self, is_there) {
            (Self::Create, true) => Err(Error::Exists),
            (Self::Replace, false) => Err(Error::NoAttribute),
            _ => Ok(()),
        }
    }
}

/// The prefix of the names of properties.
pub(in crate::inode) const PROPERTIES: &[u8] = b"btrfs.";

/// An attribute to set, or to remove if it has no value.
pub(crate) type PutXattr<'a> = (&'a [u8], Option<&'a [u8]>);

/// Returns the value of an attribute, if it exists.
pub(crate) fn get_xattr(inodes: &Inodes, id: InodeId, name: &[u8]) -> Result<Option<Vec<u8>>> {
    match id.number {
        EMPTY_DIR => Ok(None),
        _ => Ok(find_xattr(inodes, &*inodes.inode(id)?, name)?.0),
    }
}

/// Returns the value of an attribute, and an upper limit of the length of other attributes in
/// its item.
pub(in crate::inode) fn find_xattr(
    inodes: &Inodes,
    inode: &Inode,
    name: &[u8],
) -> Result<(Option<Vec<u8>>, usize)> {
    // Read the delayed items first: they are dropped only after they are in the tree.
    let (pending, waiting) = {
        let state = inode.living()?;
        if state.xattrs.are_none() {
            return Ok((None, 0));
        }
        (state.pending_xattr(name), waiting_beside(&state, name))
    };
    let (value, len) = ondisk::xattr(&inodes.tree_roots, inode.tree(), inode.number(), name)?;
    if len == 0 {
        learn_xattrs(inodes, inode)?;
    }
    let own = value.as_ref().map_or(0, |value| ENTRY_HEAD + name.len() + value.len());
    let value = match pending {
        Delayed::There(value) => Some(value.to_vec()),
        Delayed::Gone => None,
        Delayed::Nothing => value,
    };
    Ok((value, len - own + waiting))
}

/// Finds out whether an inode has attributes: most have none, and are asked for their access
/// control lists again and again.
fn learn_xattrs(inodes: &Inodes, inode: &Inode) -> Result<()> {
    let version = inode.state().xattrs_to_learn();
    if let Some(version) = version {
        let are_any = ondisk::has_xattrs(&inodes.tree_roots, inode.tree(), inode.number())?;
        inode.state().learn_xattrs(version, are_any);
    }
    Ok(())
}

/// Returns all attributes: names and values.
pub(crate) fn list_xattrs(inodes: &Inodes, id: InodeId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    if id.number == EMPTY_DIR {
        return Ok(Vec::new());
    }
    let inode = inodes.inode(id)?;
    let mut changes: BTreeMap<Vec<u8>, Option<Arc<[u8]>>> = BTreeMap::new();
    let is_all = {
        let state = inode.living()?;
        if state.xattrs.are_none() {
            return Ok(Vec::new());
        }
        let sets = state.sets().flat_map(|set| set.xattrs.values());
        for change in sets.flat_map(|alike| alike.iter()) {
            changes.entry(change.name.to_vec()).or_insert_with(|| change.value.clone());
        }
        state.sets().any(|set| set.created)
    };
    let mut xattrs = if is_all {
        Vec::new()
    } else {
        ondisk::xattrs(&inodes.tree_roots, inode.tree(), id.number)?
    };
    xattrs.retain(|(name, _)| !changes.contains_key(name));
    let set = changes.into_iter().filter_map(|(name, value)| Some((name, value?.to_vec())));
    xattrs.extend(set);
    Ok(xattrs)
}

/// Checks the attributes of a new inode. A property is not allowed: it sets flags, so it is
/// inherited from the directory or set later.
pub(in crate::inode) fn check_new_xattrs(
    inodes: &Inodes,
    xattrs: &[(Vec<u8>, Vec<u8>)],
) -> Result<()> {
    let mut lens: BTreeMap<u32, usize> = BTreeMap::new();
    for (name, value) in xattrs {
        check_name(name)?;
        check_value(name, value)?;
        if name.starts_with(PROPERTIES) {
            return Err(Error::Invalid("a property of what is not made yet"));
        }
        *lens.entry(name_hash(name)).or_default() += ENTRY_HEAD + name.len() + value.len();
    }
    if lens.into_values().all(|len| len <= inodes.item_max()) {
        Ok(())
    } else {
        Err(Error::AttributeTooLong)
    }
}

/// Returns the change to make for an attribute of an inode whose operation lock is held, if
/// any.
pub(in crate::inode) fn xattr_to_put<'a>(
    inodes: &Inodes,
    inode: &Inode,
    (name, value): PutXattr<'a>,
) -> Result<Option<PutXattr<'a>>> {
    check_name(name)?;
    let (found, others) = find_xattr(inodes, inode, name)?;
    let Some(value) = value else { return Ok(found.map(|_| (name, None))) };
    check_value(name, value)?;
    check_length(inodes, name, value)?;
    check_room_for_xattr(inodes, name, value, others)?;
    Ok(Some((name, Some(value))))
}

pub(in crate::inode) fn check_length(inodes: &Inodes, name: &[u8], value: &[u8]) -> Result<()> {
    if ENTRY_HEAD + name.len() + value.len() <= inodes.item_max() {
        Ok(())
    } else {
        Err(Error::AttributeTooLong)
    }
}

pub(in crate::inode) fn put_one(
    inodes: &Inodes,
    inode: &Arc<Inode>,
    name: &[u8],
    value: Option<&[u8]>,
    reservation: userbtrfs_transaction::Reservation,
) -> Result<()> {
    let operation = Operation::begin(inodes)?;
    operation.change_living(inode, |state| {
        change_xattr(&operation, inode, state, name, value);
        state.item.ctime = operation.now;
    })?;
    operation.hold(inode, Some(reservation));
    Ok(())
}

/// Returns the length of the delayed attributes in the item of a name, except its own.
fn waiting_beside(state: &State, name: &[u8]) -> usize {
    let hash = name_hash(name);
    let alike = state.sets().filter_map(|set| set.xattrs.get(&hash));
    let others = alike.flat_map(|alike| alike.iter()).filter(|other| *other.name != *name);
    let there = others.filter_map(|other| Some((&other.name, other.value.as_ref()?)));
    there.map(|(name, value)| ENTRY_HEAD + name.len() + value.len()).sum()
}

/// Sets or removes an attribute of an inode that is being changed. The log tracker notes it
/// while the state is locked, so that a thread that sees the change finds it noted.
pub(in crate::inode) fn change_xattr(
    operation: &Operation<'_>,
    inode: &Inode,
    state: &mut State,
    name: &[u8],
    value: Option<&[u8]>,
) {
    state.set_xattr(name, value);
    operation.log_tracker().xattrs_changed(operation.generation(), inode.id());
}

pub(in crate::inode) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_LEN_MAX || name.contains(&0) {
        return Err(Error::BadAttributeName(name.to_vec()));
    }
    if acl::is_list(name) {
        return Ok(());
    }
    match NAMESPACES.iter().find_map(|space| name.strip_prefix(*space)) {
        Some([]) => Err(Error::Invalid("an attribute name that ends with its namespace")),
        Some(_) => Ok(()),
        None => Err(Error::Unsupported("an attribute outside the namespaces")),
    }
}

/// Checks that Linux would accept a value: it denies everyone but root access to a file whose
/// access control list it cannot parse.
pub(in crate::inode) fn check_value(name: &[u8], value: &[u8]) -> Result<()> {
    if acl::is_list(name) && Acl::parse(value).is_none() {
        Err(Error::Invalid("an access list that cannot be parsed"))
    } else {
        Ok(())
    }
}

/// The namespaces of extended attributes; in `system.` only access control lists are supported.
const NAMESPACES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"btrfs."];
