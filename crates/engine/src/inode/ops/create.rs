//! Creation of inodes.

use userbtrfs_format::{DirEntryKind, FileKind, InodeFlags, InodeItem, Timestamp};
use userbtrfs_sync::Arc;

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::dcache::DentryCache;
use crate::inode::dir::lookup::{check_new_name, find_name};
use crate::inode::flush::item_limits::check_room_for_entry;
use crate::inode::incore::extent_map::ExtentMap;
use crate::inode::incore::inode::{KnownXattrs, State};
use crate::inode::ops::inherit::{DefaultAcl, Inherited, inherited};
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::Operation;
use crate::inode::ops::targets::directory_to_change;
use crate::inode::ops::xattr::check_new_xattrs;
use crate::inode::pending::delayed_items::{DelayedItems, RefIndex};
use crate::inode::tree::ondisk;
use crate::inode::{Entry, EntryTarget, Inode, InodeRef, Inodes};

/// The kind of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewKind<'a> {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A device, a pipe or a socket; with the number of the device, or 0.
    Special(FileKind, u64),
}

/// The attributes of a new inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewInode<'a> {
    pub(crate) kind: NewKind<'a>,
    /// The requested permissions.
    pub(crate) mode: u32,
    pub(crate) default_acl: DefaultAcl,
    pub(crate) uid: u32,
    /// The group, unless the directory passes on its own.
    pub(crate) gid: u32,
    /// Extended attributes: names, each of them once, and values.
    pub(crate) xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

/// Items that change: inode, ref, entry by name and by place, the directory's inode, content.
pub(in crate::inode) const CREATE_ITEMS: u64 = 6;

const SET_GROUP_ID: u32 = 0o2000;
const PERMISSIONS: u32 = 0o7777;

/// The bytes of an inline extent before its data.
const INLINE_HEAD: usize = 21;

/// The exclusive limit of the target of a symbolic link, in bytes.
const TARGET_END: usize = 4096;

/// Creates an inode with this name in a directory.
#[cfg(test)]
pub(crate) fn create(
    namespace: &Namespace,
    dir: InodeId,
    name: &[u8],
    new: &NewInode<'_>,
) -> Result<InodeId> {
    create_inode(namespace, dir, name, new, 0).map(|inode| inode.id())
}

/// Creates an inode with this name in a directory, and opens it before another thread can find
/// and remove it.
pub(crate) fn create_opened(
    namespace: &Arc<Namespace>,
    dir: InodeId,
    name: &[u8],
    new: &NewInode<'_>,
) -> Result<InodeRef> {
    Ok(InodeRef::new(namespace, create_inode(namespace, dir, name, new, 1)?))
}

fn create_inode(
    namespace: &Namespace,
    dir: InodeId,
    name: &[u8],
    new: &NewInode<'_>,
    opens: u32,
) -> Result<Arc<Inode>> {
    check_new_name(name)?;
    let dir = directory_to_change(namespace, dir)?;
    let inherited = new.inherited_from(&namespace.inodes, &dir);
    let items = inherited.as_ref().map_or(0, Inherited::items);
    let reservation = namespace.inodes.reserve_for_name(new.items() + items)?;
    let _locked = dir.lock_entries();
    check_absent(&namespace.inodes, &dir, name)?;
    check_room_for_entry(&namespace.inodes, &dir, name)?;
    check_target(&namespace.inodes, new.kind)?;
    check_new_xattrs(&namespace.inodes, new.xattrs)?;
    // If the name exists, that is the error.
    let inherited = inherited?;
    let reservation = reservation.ok_or(Error::NoSpace)?;
    let id = take_number(namespace, &dir)?;
    let index = take_index(&namespace.inodes, &dir)?;
    let operation = Operation::begin(&namespace.inodes)?;
    let inode = make_inode(&operation, &dir, id, new, &inherited);
    inode.state().opens = opens;
    let entry = new_entry(&operation, index, name, &inode);
    operation.add_name(&inode, &dir, &entry, RefIndex::Ref);
    operation.add_entry(&dir, &entry);
    operation.hold(&dir, Some(reservation));
    Ok(inode)
}

/// Creates an open file without a name, which may be linked later (O_TMPFILE). It is deleted if
/// it is closed without a name.
pub(crate) fn create_unnamed(
    namespace: &Arc<Namespace>,
    dir: InodeId,
    new: &NewInode<'_>,
) -> Result<InodeRef> {
    let dir = directory_to_change(namespace, dir)?;
    check_new_xattrs(&namespace.inodes, new.xattrs)?;
    let inherited = new.inherited_from(&namespace.inodes, &dir)?;
    let reservation = namespace.inodes.reserve(new.items() + inherited.items())?;
    let id = take_number(namespace, &dir)?;
    let operation = Operation::begin(&namespace.inodes)?;
    let inode = make_inode(&operation, &dir, id, new, &inherited);
    operation.change(&inode, |state| {
        (state.linkable, state.opens) = (true, 1);
        state.set_listed(true);
    });
    operation.hold(&inode, Some(reservation));
    Ok(InodeRef::new(namespace, inode))
}

/// Checks that a directory, whose entries are locked, is not deleted and does not have a name.
pub(in crate::inode) fn check_absent(inodes: &Inodes, dir: &Inode, name: &[u8]) -> Result<()> {
    check_alive(dir)?;
    match find_name(inodes, dir, name)? {
        None => Ok(()),
        Some(_) => Err(Error::Exists),
    }
}

fn check_target(inodes: &Inodes, kind: NewKind<'_>) -> Result<()> {
    let NewKind::Symlink(target) = kind else { return Ok(()) };
    let max = (inodes.item_max() - INLINE_HEAD).min(TARGET_END - 1);
    match target.len() {
        0 => Err(Error::NotFound),
        len if len > max => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

pub(in crate::inode) fn take_number(namespace: &Namespace, dir: &Inode) -> Result<InodeId> {
    let subvolume = dir.id().subvolume;
    namespace.inodes.deleted.check(subvolume)?;
    let number =
        namespace.subvolumes.get(&namespace.inodes.tree_roots, subvolume)?.take_number()?;
    Ok(InodeId { subvolume, number })
}

/// Takes the index for a new entry of a directory, whose entries are locked.
pub(in crate::inode) fn take_index(inodes: &Inodes, dir: &Inode) -> Result<u64> {
    let index = next_index(inodes, dir)?;
    let next = index.checked_add(1).ok_or(Error::NoSpace)?;
    dir.state().next_index = Some(next);
    Ok(index)
}

/// Returns the index for the next entry of a directory, whose entries are locked. It must be
/// known before an entry is removed: otherwise the tree would yield the index of a removed last
/// entry again.
pub(in crate::inode) fn next_index(inodes: &Inodes, dir: &Inode) -> Result<u64> {
    let known = dir.state().next_index;
    let index = match known {
        Some(index) => index,
        None => ondisk::next_index(&inodes.tree_roots, dir.tree(), dir.number())?,
    };
    dir.state().next_index = Some(index);
    Ok(index)
}

/// Checks that a directory, whose entries are locked, is not deleted.
pub(in crate::inode) fn check_alive(dir: &Inode) -> Result<()> {
    match dir.state().item.nlink {
        0 => Err(Error::NotFound),
        _ => Ok(()),
    }
}

/// Creates an inode without a name, with what it inherits from its directory.
pub(in crate::inode) fn make_inode(
    operation: &Operation<'_>,
    dir: &Inode,
    id: InodeId,
    new: &NewInode<'_>,
    inherited: &Inherited,
) -> Arc<Inode> {
    let new = &NewInode { mode: inherited.mode, ..*new };
    let mut item = new.item(&dir.item(), operation.generation(), operation.now);
    if item.kind == FileKind::Regular {
        item.flags |= operation.file_flags();
    }
    let property = inherited.props.give(&mut item);
    let mut pending = DelayedItems::of_new();
    if let NewKind::Symlink(target) = new.kind {
        pending.put_extent(ExtentMap::inline(target.into()));
    }
    let mut has_xattrs = false;
    for (name, value) in property.into_iter().chain(inherited.xattrs()).chain(new.xattrs_given()) {
        pending.set_xattr(name, Some(value));
        has_xattrs = true;
    }
    let is_dir = new.kind == NewKind::Directory;
    let budget = operation.budget();
    let dentry_cache = is_dir.then(|| DentryCache::of_new(budget));
    let bytes = pending.bytes;
    let state = State {
        running: Some(Arc::new(pending)),
        next_index: is_dir.then_some(ondisk::FIRST_INDEX),
        xattrs: if has_xattrs { KnownXattrs::default() } else { KnownXattrs::NONE },
        ..State::new(item, dentry_cache)
    };
    operation.enter_new(id, Arc::clone(dir.tree()), state, bytes)
}

/// Returns the entry for a new name of an inode.
pub(in crate::inode) fn new_entry(
    operation: &Operation<'_>,
    index: u64,
    name: &[u8],
    inode: &Inode,
) -> Arc<Entry> {
    let kind = DirEntryKind::from(inode.kind());
    let target = EntryTarget::Inode(inode.number());
    Arc::new(Entry { index, name: name.into(), kind, target, transid: operation.generation() })
}

impl NewKind<'_> {
    fn of_file(self) -> FileKind {
        match self {
            Self::File => FileKind::Regular,
            Self::Directory => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::Special(kind, _) => kind,
        }
    }
}

impl NewInode<'_> {
    /// Returns what it inherits from its directory.
    pub(in crate::inode) fn inherited_from(
        &self,
        inodes: &Inodes,
        dir: &Inode,
    ) -> Result<Inherited> {
        let kind = self.kind.of_file();
        inherited(inodes, dir, kind, self.mode, self.default_acl, self.xattrs)
    }

    /// Returns the number of items that change, at most, except those that are inherited.
    fn items(&self) -> u64 {
        CREATE_ITEMS + self.xattrs.len() as u64
    }

    /// Returns the names and values of its extended attributes.
    pub(in crate::inode) fn xattrs_given(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.xattrs.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    /// Returns the attributes, some of which are inherited from the directory.
    pub(in crate::inode) fn item(
        &self,
        parent: &InodeItem,
        generation: u64,
        now: Timestamp,
    ) -> InodeItem {
        let mut item = self.item_alone(generation, now);
        if parent.mode & SET_GROUP_ID != 0 {
            item.gid = parent.gid;
            if item.kind == FileKind::Directory {
                item.mode |= SET_GROUP_ID;
            }
        }
        item.flags = inherited_flags(parent.flags, item.kind);
        item
    }

    /// Returns the attributes of an inode that inherits nothing.
    pub(in crate::inode) fn item_alone(&self, generation: u64, now: Timestamp) -> InodeItem {
        let kind = self.kind.of_file();
        let (rdev, size) = match self.kind {
            NewKind::File | NewKind::Directory => (0, 0),
            NewKind::Symlink(target) => (0, target.len() as u64),
            NewKind::Special(_, rdev) => (rdev, 0),
        };
        InodeItem {
            generation,
            transid: generation,
            size,
            nbytes: size,
            block_group: 0,
            nlink: 0,
            uid: self.uid,
            gid: self.gid,
            mode: kind.to_mode() | self.mode & PERMISSIONS,
            kind,
            rdev,
            flags: InodeFlags::empty(),
            sequence: 0,
            atime: now,
            ctime: now,
            mtime: now,
            otime: now,
        }
    }
}

/// Returns the flags that an inode inherits from its directory, except those of compression:
/// whether data is copied on write.
fn inherited_flags(parent: InodeFlags, kind: FileKind) -> InodeFlags {
    match (parent.contains(InodeFlags::NODATACOW), kind) {
        (false, _) => InodeFlags::empty(),
        (true, FileKind::Regular) => InodeFlags::NODATACOW | InodeFlags::NODATASUM,
        (true, _) => InodeFlags::NODATACOW,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::testing::item;

    fn new(kind: NewKind<'_>) -> NewInode<'_> {
        let default_acl = DefaultAcl::Inherited { umask: 0 };
        NewInode { kind, mode: 0o640, default_acl, uid: 1, gid: 2, xattrs: &[] }
    }

    #[test]
    fn set_group_id_directory_passes_on_group_and_bit() {
        let mut parent = item(FileKind::Directory);
        let file = new(NewKind::File).item(&parent, 7, Timestamp::default());
        assert_eq!((file.mode, file.uid, file.gid), (0o100_640, 1, 2));
        (parent.mode, parent.gid) = (parent.mode | SET_GROUP_ID, 9);
        let file = new(NewKind::File).item(&parent, 7, Timestamp::default());
        assert_eq!((file.mode, file.gid), (0o100_640, 9));
        let dir = new(NewKind::Directory).item(&parent, 7, Timestamp::default());
        assert_eq!((dir.mode, dir.gid), (0o042_640, 9));
    }

    #[test]
    fn nodatacow_flags_are_inherited() {
        let all = InodeFlags::NODATACOW | InodeFlags::COMPRESS | InodeFlags::NOATIME;
        let in_place = InodeFlags::NODATACOW;
        assert_eq!(inherited_flags(all, FileKind::Directory), in_place);
        assert_eq!(inherited_flags(all, FileKind::Regular), in_place | InodeFlags::NODATASUM);
        assert_eq!(inherited_flags(all - in_place, FileKind::Regular), InodeFlags::empty());
    }
}
