//! The one property that Linux knows: `btrfs.compression`.
//!
//! 1. It is an extended attribute with flags beside it, which say the same; both change at once.
//! 2. Files and directories have it, but not with what is overwritten in place. Of others it is
//!    passed over, as in Linux.
//! 3. A directory passes on how it is compressed, without the level.
//! 4. It tells Linux what to do with what it will write. Nothing is compressed here; so the
//!    incompat bits of the kinds, which Linux sets with the property, are left to who needs them.

use userbtrfs_format::{FileKind, InodeFlags, InodeItem};

use crate::error::{Error, InodeId, Result};
use crate::inode::ops::setattr::ATTRIBUTE_ITEMS;
use crate::inode::{Inode, Inodes, XattrKind, check_mutable};

/// What the names of properties begin with.
pub(in crate::inode) const PROPERTIES: &[u8] = b"btrfs.";

/// The name of the property.
pub(in crate::inode) const COMPRESSION: &[u8] = b"btrfs.compression";

/// How something is compressed of which the flag alone says that it is.
const BY_FLAG: &[u8] = b"zlib";

/// What its values begin with; a level may follow.
const KINDS: &[&[u8]] = &[b"zlib", b"lzo", b"zstd"];
const NEVER: &[&[u8]] = &[b"no", b"none"];

/// Both flags of compression.
pub(crate) const FLAGS: InodeFlags = InodeFlags::COMPRESS.union(InodeFlags::NOCOMPRESS);

/// What takes a property from an inode.
const IN_PLACE: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);

/// How something is compressed by a value of the property.
fn kind_of(value: &[u8]) -> Option<&'static [u8]> {
    KINDS.iter().find(|kind| value.starts_with(kind)).copied()
}

/// The flags that go with a value.
fn flags_of(value: &[u8]) -> Result<InodeFlags> {
    match value {
        value if NEVER.contains(&value) => Ok(InodeFlags::NOCOMPRESS),
        value if kind_of(value).is_some() => Ok(InodeFlags::COMPRESS),
        _ => Err(Error::Invalid("a way to compress that is not known")),
    }
}

impl Inodes {
    /// Sets a property; without a value, or with an empty one, it is removed.
    pub(in crate::inode) fn set_property(
        &self,
        id: InodeId,
        name: &[u8],
        value: Option<&[u8]>,
        kind: XattrKind,
    ) -> Result<()> {
        if name != COMPRESSION {
            return Err(Error::Invalid("a property that is not known"));
        }
        let inode = self.inode_to_change(id)?;
        check_mutable(&inode)?;
        let value = value.filter(|value| !value.is_empty());
        let flags = value.map_or(Ok(InodeFlags::empty()), flags_of)?;
        if !has_properties(inode.kind()) {
            return Ok(());
        }
        let items = 2 * ATTRIBUTE_ITEMS;
        let reservation = match value {
            Some(_) => self.reserve(items)?,
            None => self.reserve_for_removal(items)?,
        };
        let _locked = inode.lock_operation();
        if value.is_some() && inode.item().flags.intersects(IN_PLACE) {
            return Err(Error::Invalid("to be compressed and overwritten in place"));
        }
        // To remove nothing is new enough.
        let kind = if value.is_none() && kind == XattrKind::Create { XattrKind::Any } else { kind };
        kind.check(self.find_xattr(&inode, name)?.0.is_some())?;
        let put = self.xattr_to_put(&inode, (name, value))?;
        let operation = self.begin()?;
        operation.change_living(&inode, |state| {
            if let Some((name, value)) = put {
                operation.put_xattr(&inode, state, name, value);
            }
            state.item.flags = (state.item.flags - FLAGS) | flags;
            state.item.ctime = operation.now;
        })?;
        operation.hold(&inode, Some(reservation));
        Ok(())
    }

    /// What a directory says of how that is compressed which is made in it. No lock is held.
    pub(in crate::inode) fn passed_on(&self, dir: &Inode) -> Result<InheritedProps> {
        let look = || InheritedProps::by_flags(dir.kind_and_flags().1);
        let flags_alone = look();
        // Most have no flag, and nothing is looked up.
        if flags_alone.flags != InodeFlags::COMPRESS {
            return Ok(flags_alone);
        }
        // Both are of one moment.
        let _locked = dir.lock_operation();
        let value = self.find_xattr(dir, COMPRESSION)?.0;
        Ok(InheritedProps { kind: value.as_deref().and_then(kind_of), ..look() })
    }
}

/// How something new is to be compressed.
#[derive(Clone, Copy)]
pub(in crate::inode) struct InheritedProps {
    flags: InodeFlags,
    kind: Option<&'static [u8]>,
}

impl InheritedProps {
    /// What the flags of a directory say by themselves.
    pub(in crate::inode) fn by_flags(parent: InodeFlags) -> Self {
        let flags = match parent.contains(InodeFlags::NOCOMPRESS) {
            true => InodeFlags::NOCOMPRESS,
            false => parent & InodeFlags::COMPRESS,
        };
        Self { flags, kind: None }
    }

    /// Items that it adds, at most.
    pub(in crate::inode) fn items(self) -> u64 {
        u64::from(self.kind.is_some())
    }

    /// Gives a new inode the flags, and the property, if it can have one.
    pub(in crate::inode) fn give(
        self,
        item: &mut InodeItem,
    ) -> Option<(&'static [u8], &'static [u8])> {
        item.flags |= self.flags;
        let has_one = has_properties(item.kind) && !item.flags.intersects(IN_PLACE);
        self.kind.filter(|_| has_one).map(|kind| (COMPRESSION, kind))
    }
}

/// The property of an inode that has these flags by themselves; nothing where there is none.
pub(in crate::inode) fn by_flags(item: &InodeItem, flags: InodeFlags) -> Option<&'static [u8]> {
    (has_properties(item.kind) && flags.contains(InodeFlags::COMPRESS)).then_some(BY_FLAG)
}

/// The flags of an inode after its log set an attribute: Linux heeds a property when it loads an
/// inode, and so also where the log says no more of the inode than that it exists.
pub(in crate::inode) fn replayed(
    item: &InodeItem,
    name: &[u8],
    value: Option<&[u8]>,
) -> InodeFlags {
    match value.filter(|_| name == COMPRESSION && has_properties(item.kind)).map(flags_of) {
        Some(Ok(flags)) => (item.flags - FLAGS) | flags,
        _ => item.flags,
    }
}

fn has_properties(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_flags() {
        for value in ["zlib", "zlib:9", "lzo", "zstd", "zstd:15", "zlibx"] {
            assert_eq!(flags_of(value.as_bytes()).unwrap(), InodeFlags::COMPRESS, "{value}");
        }
        for value in ["no", "none"] {
            assert_eq!(flags_of(value.as_bytes()).unwrap(), InodeFlags::NOCOMPRESS, "{value}");
        }
        for value in ["", "n", "nope", "none ", "ZSTD", "zst", " zstd"] {
            assert!(flags_of(value.as_bytes()).is_err(), "{value}");
        }
        assert_eq!(kind_of(b"zstd:15"), Some(&b"zstd"[..]));
    }

    #[test]
    fn never_to_be_compressed_comes_before_the_other_flag() {
        let flags = |parent| InheritedProps::by_flags(parent).flags;
        assert_eq!(flags(FLAGS), InodeFlags::NOCOMPRESS);
        assert_eq!(flags(InodeFlags::COMPRESS | InodeFlags::NOATIME), InodeFlags::COMPRESS);
        assert_eq!(flags(InodeFlags::NOATIME), InodeFlags::empty());
    }
}
