//! Changes of an inode: its attributes, extended attributes and content.

use userbtrfs_format::{InodeFlags, Timestamp};

use super::Inode;
use crate::error::Result;
use crate::inode::{Membership, PutXattr, SetAttributes, XattrKind};

/// Attributes to be set; what is nothing stays as it is.
///
/// A new owner or group takes the set-id bits from what is no directory, unless the mode is set,
/// too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, 12 bits; a symbolic link has none to be set.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size of a file in bytes.
    pub size: Option<u64>,
    /// When it was last read.
    pub accessed: Option<Timestamp>,
    /// When its content last changed.
    pub modified: Option<Timestamp>,
    /// When its attributes last changed; now, where this is nothing.
    pub changed: Option<Timestamp>,
    /// When it was created.
    pub created: Option<Timestamp>,
}

/// Whether an extended attribute that is set may or must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// It may.
    Either,
    /// It may not: [`Error::Exists`](super::Error::Exists).
    Create,
    /// It must: [`Error::NoAttribute`](super::Error::NoAttribute).
    Replace,
}

impl Inode {
    /// Sets attributes: the size first, and then the others, all at once.
    pub fn set_attributes(&self, attributes: &Attributes) -> Result<()> {
        self.set(attributes, None)
    }

    /// The same with an extended attribute, at once with what is no size: it is set, or removed
    /// where it has no value. To remove one that is not there is no error.
    pub fn set_attributes_with(
        &self,
        attributes: &Attributes,
        xattr: (&[u8], Option<&[u8]>),
    ) -> Result<()> {
        self.set(attributes, Some(xattr))
    }

    fn set(&self, attributes: &Attributes, xattr: Option<PutXattr<'_>>) -> Result<()> {
        let &Attributes { mode, uid, gid, size, accessed, modified, changed, created } = attributes;
        if let Some(size) = size {
            self.nodes().file_to_change(self.id(), false)?;
            let file = self.open()?;
            // To set the size that it has says nothing of times, as truncate(2) has it.
            if size != file.len() {
                file.set_len(size)?;
            }
        }
        let (atime, mtime, ctime, otime) = (accessed, modified, changed, created);
        let others = Attributes { size: None, ..*attributes };
        if size.is_some() && xattr.is_none() && others == Attributes::default() {
            return Ok(());
        }
        let set = SetAttributes { mode, uid, gid, atime, mtime, ctime, otime };
        self.nodes().set_attributes(self.id(), &set, xattr)
    }

    /// Sets the times of access and modification, as touch(1) does with the time of now. An
    /// append-only inode allows that, an immutable one does not.
    ///
    /// # Errors
    /// [`Error::NotPermitted`](super::Error::NotPermitted) if the inode is immutable.
    pub fn touch(&self, accessed: Timestamp, modified: Timestamp) -> Result<()> {
        self.nodes().touch(self.id(), accessed, modified)
    }

    /// Takes the set-id bits from what is no directory, as part of a change that its flags allow;
    /// says whether there were any. Where the group may not execute, set-group-id stays if the
    /// writer is a member of the group, as in Linux.
    pub fn drop_set_id(&self, writer: Membership) -> Result<bool> {
        self.nodes().drop_set_id(self.id(), writer)
    }

    /// Sets the flags that can be set, as `chattr` does. With COMPRESS `btrfs.compression` becomes
    /// `zlib`, and without it goes, as in Linux.
    pub fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        self.set_some_flags(InodeFlags::all(), flags)
    }

    /// The same of these flags alone: all others stay. Where neither COMPRESS nor NOCOMPRESS is
    /// among them, so does `btrfs.compression`.
    pub fn set_some_flags(&self, which: InodeFlags, flags: InodeFlags) -> Result<()> {
        self.nodes().set_flags(self.id(), which, flags)
    }

    /// Sets an extended attribute of this full name: `user.`, `trusted.`, `security.` or `btrfs.`
    /// and more, or one of the two access lists of `system.`.
    ///
    /// [`Error::Unsupported`](super::Error::Unsupported) for another namespace, and
    /// [`Error::Invalid`](super::Error::Invalid) for a name that is a namespace alone, or an access
    /// list that cannot be parsed.
    ///
    /// `btrfs.compression`, the one property that there is, takes `zlib`, `lzo` or `zstd`, each
    /// with a level or without, and `no` or `none`; an empty value removes it. The flags change
    /// with it, and a directory passes it on. It says how Linux compresses what it writes from
    /// then on; nothing is compressed here. [`Error::Invalid`](super::Error::Invalid) for other
    /// values, and for other names in `btrfs.`; of what is no file and no directory it is passed
    /// over.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let kind = match mode {
            XattrMode::Either => XattrKind::Any,
            XattrMode::Create => XattrKind::Create,
            XattrMode::Replace => XattrKind::Replace,
        };
        self.nodes().set_xattr(self.id(), name, value, kind)
    }

    /// Removes an extended attribute; [`Error::NoAttribute`](super::Error::NoAttribute) where
    /// there is none.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.nodes().remove_xattr(self.id(), name)
    }

    /// Replaces all the content of a file.
    pub fn write_content(&self, content: &[u8]) -> Result<()> {
        let file = self.open()?;
        file.set_len(0)?;
        file.write_all_at(content, 0)
    }
}
