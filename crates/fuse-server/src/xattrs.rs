//! Extended attributes.
//!
//! 1. Names are those of Linux's namespaces; the kernel checks which of them a caller may access.
//! 2. Setting an access list changes the permissions, in the same operation. The list is stored
//!    only if the permissions do not express all of it.

use userbtrfs_engine::acl::{self, Acl};
use userbtrfs_engine::api::{self, Error, FileKind, Inode, XattrMode};
use userbtrfs_fuse::{Errno, NodeId, Request, Setxattr, XattrFlags};

use crate::context::Context;
use crate::errno;
use crate::rights;

/// The prefixes of the names that may be set, besides the access lists. Which names with the last
/// one exist is known to the engine.
const NAMESPACES: &[&[u8]] = &[b"user.", b"trusted.", b"security.", b"btrfs."];

const PERMISSIONS: u32 = 0o7777;
const SET_GROUP_ID: u32 = 0o2000;

/// SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR.
pub(crate) struct XattrOps<'a> {
    pub(crate) context: &'a Context,
}

impl XattrOps<'_> {
    /// Returns the value of an attribute.
    pub(crate) fn getxattr(&self, node: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        check_name(name)?;
        self.context.inode(node).xattr(name).map_err(errno)
    }

    /// Returns the names of all attributes, each followed by a NUL.
    pub(crate) fn listxattr(&self, node: NodeId) -> Result<Vec<u8>, Errno> {
        let xattrs = self.context.inode(node).xattrs().map_err(errno)?;
        Ok(xattrs.into_iter().flat_map(|(name, _)| [name, vec![0]].concat()).collect())
    }

    /// Sets an attribute.
    pub(crate) fn setxattr(&self, node: NodeId, set: &Setxattr<'_>) -> Result<(), Errno> {
        check_name(set.name)?;
        let inode = self.context.inode(node);
        match set.name {
            acl::ACCESS => set_access_list(&inode, set),
            acl::DEFAULT => set_default_list(&inode, set),
            name => inode.set_xattr(name, set.value, mode(set.flags)?).map_err(errno),
        }
    }

    /// Removes an attribute. The removal of an access list that does not exist is no error.
    ///
    /// The kernel removes the capability of a file before it sends the change that clears it. So
    /// that a refused chown(2) does not remove it, this fails for a caller that may neither change
    /// the owner nor write the file.
    pub(crate) fn removexattr(&self, request: &Request, name: &[u8]) -> Result<(), Errno> {
        check_name(name)?;
        let inode = self.context.inode(request.node);
        if name == CAPABILITY {
            let metadata = inode.metadata().map_err(errno)?;
            if metadata.mode & OTHERS_WRITE == 0 && !rights::owns(&request.caller, metadata.uid) {
                return Err(Errno::PERM);
            }
        }
        match inode.remove_xattr(name) {
            Err(Error::NoAttribute) if acl::is_list(name) => Ok(()),
            done => done.map_err(errno),
        }
    }
}

/// The capabilities of a file.
const CAPABILITY: &[u8] = b"security.capability";
/// The permissions by which a caller that is not the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// Checks that a name is in a namespace, and is longer than its prefix.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    let rest = NAMESPACES.iter().find_map(|space| name.strip_prefix(*space));
    match rest {
        _ if acl::is_list(name) => Ok(()),
        Some([]) => Err(Errno::INVAL),
        Some(_) => Ok(()),
        None => Err(Errno::OPNOTSUPP),
    }
}

fn mode(flags: XattrFlags) -> Result<XattrMode, Errno> {
    match (flags.contains(XattrFlags::CREATE), flags.contains(XattrFlags::REPLACE)) {
        (false, false) => Ok(XattrMode::Either),
        (true, false) => Ok(XattrMode::Create),
        (false, true) => Ok(XattrMode::Replace),
        (true, true) => Err(Errno::INVAL),
    }
}

fn set_access_list(inode: &Inode, set: &Setxattr<'_>) -> Result<(), Errno> {
    let acl = Acl::parse(set.value).ok_or(Errno::INVAL)?;
    let before = inode.metadata().map_err(errno)?.mode;
    let kept = if set.kill_sgid { before & !SET_GROUP_ID } else { before };
    let after = acl::mode_with(kept, &acl);
    let list = (!acl.is_plain()).then_some(set.value);
    let mode = (after != before).then_some(after & PERMISSIONS);
    let attributes = api::Attributes { mode, ..api::Attributes::default() };
    inode.set_attributes_with(&attributes, (acl::ACCESS, list)).map_err(errno)
}

fn set_default_list(inode: &Inode, set: &Setxattr<'_>) -> Result<(), Errno> {
    Acl::parse(set.value).ok_or(Errno::INVAL)?;
    match inode.metadata().map_err(errno)?.kind {
        FileKind::Directory => {
            inode.set_xattr(acl::DEFAULT, set.value, XattrMode::Either).map_err(errno)
        }
        _ => Err(Errno::ACCESS),
    }
}
