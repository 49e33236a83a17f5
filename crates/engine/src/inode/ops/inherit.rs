//! The attributes that a new inode inherits from its directory beside its flags: the compression
//! property and the access lists (Linux: posix_acl_create).
//!
//! 1. If the directory has a default list, the umask has no effect: the access list is the default
//!    list, limited to the requested mode, and the permissions are those of the access list.
//! 2. A directory inherits the default list itself, too. A symbolic link inherits no list.
//! 3. A list that the creator gives takes the place of the inherited one.

use userbtrfs_format::FileKind;

use crate::acl::{self, Acl};
use crate::error::{Error, Result};
use crate::inode::ops::property::{InheritedProps, inherited_props};
use crate::inode::ops::xattr::find_xattr;
use crate::inode::{Inode, Inodes};

/// The treatment of the default list of a directory by the creation of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultAcl {
    /// It is inherited. If there is none, the umask applies to the requested mode.
    Inherited { umask: u32 },
    /// It is ignored, and the requested mode is that of the inode.
    Ignored,
}

/// The attributes that a new inode inherits.
pub(in crate::inode) struct Inherited {
    pub(in crate::inode) props: InheritedProps,
    /// The mode, without the kind.
    pub(in crate::inode) mode: u32,
    /// Extended attributes that hold access lists.
    pub(in crate::inode) lists: Vec<(&'static [u8], Vec<u8>)>,
}

impl Inherited {
    /// Returns what an inode has that inherits no list.
    pub(in crate::inode) fn without_lists(props: InheritedProps, mode: u32) -> Self {
        Self { props, mode, lists: Vec::new() }
    }

    /// Returns the names and values of the extended attributes that it adds to an inode.
    pub(in crate::inode) fn xattrs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lists.iter().map(|(name, value)| (*name, &value[..]))
    }

    /// Returns the number of items that it adds, at most.
    pub(in crate::inode) fn items(&self) -> u64 {
        self.props.items() + self.lists.len() as u64
    }
}

/// Returns the attributes that a new inode of this kind, with this requested mode and these given
/// extended attributes, inherits from a directory. The caller holds no lock.
pub(in crate::inode) fn inherited(
    inodes: &Inodes,
    dir: &Inode,
    kind: FileKind,
    mode: u32,
    default_acl: DefaultAcl,
    given: &[(Vec<u8>, Vec<u8>)],
) -> Result<Inherited> {
    let props = inherited_props(inodes, dir)?;
    let umask = match default_acl {
        DefaultAcl::Inherited { umask } if kind != FileKind::Symlink => umask,
        _ => return Ok(Inherited::without_lists(props, mode)),
    };
    let Some(default) = find_xattr(inodes, dir, acl::DEFAULT)?.0 else {
        return Ok(Inherited::without_lists(props, mode & !umask));
    };
    let access = Acl::parse(&default).ok_or(Error::BadDefaultAcl(dir.id()))?;
    let access = access.inherited(mode);
    let mode = acl::mode_with(mode, &access);
    let is_given = |list: &[u8]| given.iter().any(|(name, _)| name == list);
    let mut lists = Vec::new();
    if !access.is_plain() && !is_given(acl::ACCESS) {
        lists.push((acl::ACCESS, access.to_bytes()));
    }
    if kind == FileKind::Directory && !is_given(acl::DEFAULT) {
        lists.push((acl::DEFAULT, default));
    }
    Ok(Inherited { props, mode, lists })
}
