//! The one property that Linux knows: `btrfs.compression`.
//!
//! 1. It is an extended attribute and inode flags that mean the same; both change at once.
//! 2. Files and directories have it, but not those that are overwritten in place. On other inodes
//!    it is ignored, as in Linux.
//! 3. A directory passes on its kind of compression, without the level.
//! 4. It tells writeback how to write data. The incompat bit of a kind, which Linux sets with the
//!    property, is set when data is compressed that way.
//! 5. The kind alone counts: as in Linux, the level of a value is not used.

use userbtrfs_codec::Compression;
use userbtrfs_format::{FileKind, InodeFlags, InodeItem};

use crate::error::{Error, InodeId, Result};
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::{ATTRIBUTE_ITEMS, Operation};
use crate::inode::ops::targets::{check_mutable, inode_to_change};
use crate::inode::ops::xattr::{change_xattr, find_xattr, xattr_to_put};
use crate::inode::{Inode, Inodes, XattrKind};

/// The name of the property.
pub(in crate::inode) const COMPRESSION: &[u8] = b"btrfs.compression";

const NEVER: &[&[u8]] = &[b"no", b"none"];

/// Both flags of compression.
pub(crate) const FLAGS: InodeFlags = InodeFlags::COMPRESS.union(InodeFlags::NOCOMPRESS);

/// Flags of an inode that has no properties.
const IN_PLACE: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);

/// Returns the kind of compression of a value; a level may follow the kind.
fn kind_of(value: &[u8]) -> Option<Compression> {
    Compression::ALL.into_iter().find(|kind| value.starts_with(kind.name().as_bytes()))
}

/// Returns the kind of compression that an inode has by its property, if any.
pub(crate) fn compression(inodes: &Inodes, inode: &Inode) -> Result<Option<Compression>> {
    Ok(find_xattr(inodes, inode, COMPRESSION)?.0.as_deref().and_then(kind_of))
}

/// Returns the flags of a value.
fn flags_of(value: &[u8]) -> Result<InodeFlags> {
    match value {
        value if NEVER.contains(&value) => Ok(InodeFlags::NOCOMPRESS),
        value if kind_of(value).is_some() => Ok(InodeFlags::COMPRESS),
        _ => Err(Error::Invalid("a way to compress that is not known")),
    }
}

/// Sets a property; without a value, or with an empty one, it is removed.
pub(in crate::inode) fn set_property(
    namespace: &Namespace,
    id: InodeId,
    name: &[u8],
    value: Option<&[u8]>,
    kind: XattrKind,
) -> Result<()> {
    if name != COMPRESSION {
        return Err(Error::Invalid("a property that is not known"));
    }
    let inode = inode_to_change(namespace, id)?;
    check_mutable(&inode)?;
    let value = value.filter(|value| !value.is_empty());
    let flags = value.map_or(Ok(InodeFlags::empty()), flags_of)?;
    if !has_properties(inode.kind()) {
        return Ok(());
    }
    let items = 2 * ATTRIBUTE_ITEMS;
    let reservation = match value {
        Some(_) => namespace.inodes.reserve(items)?,
        None => namespace.inodes.reserve_for_removal(items)?,
    };
    let _locked = inode.lock_operation();
    if value.is_some() && inode.item().flags.intersects(IN_PLACE) {
        return Err(Error::Invalid("to be compressed and overwritten in place"));
    }
    // Removing nothing is allowed with `Create`.
    let kind = if value.is_none() && kind == XattrKind::Create { XattrKind::Any } else { kind };
    kind.check(find_xattr(&namespace.inodes, &inode, name)?.0.is_some())?;
    let put = xattr_to_put(&namespace.inodes, &inode, (name, value))?;
    let operation = Operation::begin(&namespace.inodes)?;
    operation.change_living(&inode, |state| {
        if let Some((name, value)) = put {
            change_xattr(&operation, &inode, state, name, value);
        }
        state.item.flags = (state.item.flags - FLAGS) | flags;
        state.item.ctime = operation.now;
    })?;
    operation.hold(&inode, Some(reservation));
    Ok(())
}

/// Returns the compression that new inodes inherit from a directory. The caller holds no lock.
pub(in crate::inode) fn inherited_props(inodes: &Inodes, dir: &Inode) -> Result<InheritedProps> {
    let look = || InheritedProps::by_flags(dir.kind_and_flags().1);
    let flags_alone = look();
    // Most directories have no flag: skip the lookup.
    if flags_alone.flags != InodeFlags::COMPRESS {
        return Ok(flags_alone);
    }
    // Read both under the lock, so that they agree.
    let _locked = dir.lock_operation();
    let kind = compression(inodes, dir)?;
    Ok(InheritedProps { kind, ..look() })
}

/// The compression of a new inode.
#[derive(Clone, Copy)]
pub(in crate::inode) struct InheritedProps {
    flags: InodeFlags,
    kind: Option<Compression>,
}

impl InheritedProps {
    /// Returns what the flags of a directory imply without the property.
    pub(in crate::inode) fn by_flags(parent: InodeFlags) -> Self {
        let flags = if parent.contains(InodeFlags::NOCOMPRESS) {
            InodeFlags::NOCOMPRESS
        } else {
            parent & InodeFlags::COMPRESS
        };
        Self { flags, kind: None }
    }

    /// Returns the number of items that it adds, at most.
    pub(in crate::inode) fn items(self) -> u64 {
        u64::from(self.kind.is_some())
    }

    /// Sets the flags of a new inode; returns the property if it can have one.
    pub(in crate::inode) fn give(
        self,
        item: &mut InodeItem,
    ) -> Option<(&'static [u8], &'static [u8])> {
        item.flags |= self.flags;
        let has_one = has_properties(item.kind) && !item.flags.intersects(IN_PLACE);
        self.kind.filter(|_| has_one).map(|kind| (COMPRESSION, kind.name().as_bytes()))
    }
}

/// Returns the property that these flags imply, if any: `usual` is the kind of compression of the
/// filesystem.
pub(in crate::inode) fn by_flags(
    item: &InodeItem,
    flags: InodeFlags,
    usual: Compression,
) -> Option<&'static [u8]> {
    let has_one = has_properties(item.kind) && flags.contains(InodeFlags::COMPRESS);
    has_one.then_some(usual.name().as_bytes())
}

/// Returns the flags of an inode after replay set an attribute: Linux applies a property when it
/// loads an inode, and so also if only the existence of the inode was logged.
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
    fn property_value_determines_flags() {
        for value in ["zlib", "zlib:9", "lzo", "zstd", "zstd:15", "zlibx"] {
            assert_eq!(flags_of(value.as_bytes()).unwrap(), InodeFlags::COMPRESS, "{value}");
        }
        for value in ["no", "none"] {
            assert_eq!(flags_of(value.as_bytes()).unwrap(), InodeFlags::NOCOMPRESS, "{value}");
        }
        for value in ["", "n", "nope", "none ", "ZSTD", "zst", " zstd"] {
            assert!(flags_of(value.as_bytes()).is_err(), "{value}");
        }
        assert_eq!(kind_of(b"zstd:15"), Some(Compression::Zstd));
    }

    #[test]
    fn nocompress_flag_overrides_compress() {
        let flags = |parent| InheritedProps::by_flags(parent).flags;
        assert_eq!(flags(FLAGS), InodeFlags::NOCOMPRESS);
        assert_eq!(flags(InodeFlags::COMPRESS | InodeFlags::NOATIME), InodeFlags::COMPRESS);
        assert_eq!(flags(InodeFlags::NOATIME), InodeFlags::empty());
    }
}
