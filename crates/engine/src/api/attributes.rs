//! Changes of an inode: its attributes, extended attributes and content.

use userbtrfs_format::{InodeFlags, Timestamp};

use super::Inode;
use crate::error::Result;
use crate::inode::ops;
use crate::inode::{Membership, PutXattr, SetAttributes, XattrKind};

/// Attributes to be set; those that are `None` stay as they are.
///
/// A new owner or group clears the set-id bits, except of a directory, or if the mode is set, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, 12 bits; those of a symbolic link cannot be set.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size of a file in bytes.
    pub size: Option<u64>,
    /// The time of the last read.
    pub accessed: Option<Timestamp>,
    /// The time of the last change of the content.
    pub modified: Option<Timestamp>,
    /// The time of the last change of the attributes; `None` for now.
    pub changed: Option<Timestamp>,
    /// The time of creation.
    pub created: Option<Timestamp>,
}

/// Whether an extended attribute that is set may or must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// It may or may not exist.
    Either,
    /// It must not exist: [`Error::Exists`](super::Error::Exists).
    Create,
    /// It must exist: [`Error::NoAttribute`](super::Error::NoAttribute).
    Replace,
}

impl Inode {
    /// Sets attributes: the size first, then all others in one change.
    pub fn set_attributes(&self, attributes: &Attributes) -> Result<()> {
        self.set(attributes, None)
    }

    /// Like [`Inode::set_attributes`], and sets an extended attribute in the same change as all but
    /// the size. Without a value it is removed; removing one that does not exist is no error.
    pub fn set_attributes_with(
        &self,
        attributes: &Attributes,
        xattr: (&[u8], Option<&[u8]>),
    ) -> Result<()> {
        self.set(attributes, Some(xattr))
    }

    fn set(&self, attributes: &Attributes, xattr: Option<PutXattr<'_>>) -> Result<()> {
        let &Attributes {
            mode,
            uid,
            gid,
            size,
            accessed: atime,
            modified: mtime,
            changed: ctime,
            created: otime,
        } = attributes;
        if let Some(size) = size {
            ops::file_to_change(self.namespace(), self.id(), false)?;
            let file = self.open()?;
            // Setting the size that the file has changes no times, as with truncate(2).
            if size != file.len() {
                file.set_len(size)?;
            }
        }
        let others = Attributes { size: None, ..*attributes };
        if size.is_some() && xattr.is_none() && others == Attributes::default() {
            return Ok(());
        }
        let set = SetAttributes { mode, uid, gid, atime, mtime, ctime, otime };
        ops::set_attributes(self.namespace(), self.id(), &set, xattr)
    }

    /// Sets the times of access and modification, as touch(1) does with the current time. Allowed
    /// for an append-only inode, but not for an immutable one.
    ///
    /// # Errors
    /// [`Error::NotPermitted`](super::Error::NotPermitted) if the inode is immutable.
    pub fn touch(&self, accessed: Timestamp, modified: Timestamp) -> Result<()> {
        ops::touch(self.namespace(), self.id(), accessed, modified)
    }

    /// Clears the set-id bits, except of a directory, as part of a change that the inode's flags
    /// allow; returns whether there were any. If the group may not execute, set-group-id stays if
    /// the writer is a member of the group, as in Linux.
    pub fn drop_set_id(&self, writer: Membership) -> Result<bool> {
        ops::drop_set_id(self.namespace(), self.id(), writer)
    }

    /// Sets the flags that can be set, like `chattr`. COMPRESS sets `btrfs.compression` to `zlib`;
    /// clearing it removes the property, as in Linux.
    pub fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        self.set_some_flags(InodeFlags::all(), flags)
    }

    /// Like [`Inode::set_flags`], but only for the flags in `which`. If neither COMPRESS nor
    /// NOCOMPRESS is among them, `btrfs.compression` stays.
    pub fn set_some_flags(&self, which: InodeFlags, flags: InodeFlags) -> Result<()> {
        ops::set_flags(self.namespace(), self.id(), which, flags)
    }

    /// Sets an extended attribute of this full name: in the namespace `user.`, `trusted.`,
    /// `security.` or `btrfs.`, or one of the two access lists of `system.`.
    ///
    /// Returns [`Error::Unsupported`](super::Error::Unsupported) for another namespace, and
    /// [`Error::Invalid`](super::Error::Invalid) for a name that is only a namespace, or an access
    /// list that cannot be parsed.
    ///
    /// `btrfs.compression`, the only property, takes `zlib`, `lzo` or `zstd`, each with or without
    /// a level, and `no` or `none`; an empty value removes it. The flags change with it, and new
    /// inodes inherit it from a directory. It determines how later writes are compressed. Returns
    /// [`Error::Invalid`](super::Error::Invalid) for other values, and for other names in `btrfs.`;
    /// it is ignored for inodes other than files and directories.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let kind = match mode {
            XattrMode::Either => XattrKind::Any,
            XattrMode::Create => XattrKind::Create,
            XattrMode::Replace => XattrKind::Replace,
        };
        ops::set_xattr(self.namespace(), self.id(), name, value, kind)
    }

    /// Removes an extended attribute; returns [`Error::NoAttribute`](super::Error::NoAttribute) if
    /// there is none.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        ops::remove_xattr(self.namespace(), self.id(), name)
    }

    /// Replaces all the content of a file.
    pub fn write_content(&self, content: &[u8]) -> Result<()> {
        let file = self.open()?;
        file.set_len(0)?;
        file.write_all_at(content, 0)
    }
}
