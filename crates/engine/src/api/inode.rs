//! Handles on inodes, their attributes, and directories.

use std::fmt;

use userbtrfs_format::{DirEntryKind, FileKind, InodeFlags, InodeItem, Timestamp};
use userbtrfs_sync::Arc;

use super::filesystem::Inner;
use super::path::{read_link, step};
use super::{File, Filesystem};
use crate::error::{Error, InodeId, Result};
use crate::inode;
use crate::inode::dir;
use crate::inode::ops;
use crate::inode::{
    DefaultAcl, DirPosition, EMPTY_DIR, Entry, EntryTarget, InodeRef, Inodes, Link, Namespace,
    ROOT_DIR,
};

/// The type of an inode or of a directory entry.
pub type FileType = FileKind;

/// A handle on an inode of any kind.
///
/// If the filesystem is writable, the handle holds the inode: it is not deleted while a handle or
/// an open file exists, even after its last name is removed.
#[derive(Clone)]
pub struct Inode {
    /// Dropped before the filesystem, which it needs for that.
    held: Option<Arc<InodeRef>>,
    fs: Filesystem,
    id: InodeId,
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inode").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The inode.
    pub id: InodeId,
    /// The type.
    pub kind: FileKind,
    /// File type and permissions.
    pub mode: u32,
    /// The number of names.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The major and minor number of a device file.
    pub device: (u32, u32),
    /// The size in bytes.
    pub size: u64,
    /// The bytes of its extents, before compression.
    pub allocated: u64,
    /// The bytes of its data in memory that are dirty or in flight.
    pub unfinished: u64,
    /// The flags.
    pub flags: InodeFlags,
    /// The generation in which it was created.
    pub generation: u64,
    /// The generation in which it was last changed.
    pub transid: u64,
    /// A counter of changes.
    pub sequence: u64,
    /// The time of the last read.
    pub accessed: Timestamp,
    /// The time of the last change of the content.
    pub modified: Timestamp,
    /// The time of the last change of the attributes.
    pub changed: Timestamp,
    /// The time of creation.
    pub created: Timestamp,
}

impl Metadata {
    pub(crate) fn of(inode: &inode::Inode) -> Self {
        // Read before the item: data that is not unfinished any more is then among the item's
        // extents.
        let unfinished = inode.unfinished();
        Self::new(inode.id(), unfinished, &inode.item())
    }

    /// See [`Filesystem::metadata_at_once`].
    pub(crate) fn at_once(inode: &inode::Inode) -> Option<Self> {
        inode.at_once().map(|(unfinished, item)| Self::new(inode.id(), unfinished, &item))
    }

    fn new(id: InodeId, unfinished: u64, item: &InodeItem) -> Self {
        Self {
            id,
            kind: item.kind,
            mode: item.mode,
            nlink: item.nlink,
            uid: item.uid,
            gid: item.gid,
            device: item.device(),
            size: item.size,
            allocated: item.nbytes,
            unfinished,
            flags: item.flags,
            generation: item.generation,
            transid: item.transid,
            sequence: item.sequence,
            accessed: item.atime,
            modified: item.mtime,
            changed: item.ctime,
            created: item.otime,
        }
    }

    /// Returns the attributes of the directory in place of a subvolume of which only the name was
    /// snapshotted.
    pub(crate) fn empty_dir(id: InodeId) -> Self {
        let never = Timestamp::default();
        Self {
            id,
            kind: FileKind::Directory,
            mode: 0o040_755,
            nlink: 1,
            uid: 0,
            gid: 0,
            device: (0, 0),
            size: 0,
            allocated: 0,
            unfinished: 0,
            flags: InodeFlags::empty(),
            generation: 0,
            transid: 0,
            sequence: 0,
            accessed: never,
            modified: never,
            changed: never,
            created: never,
        }
    }

    /// Returns true for a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns true for the directory in place of a subvolume of which only the name was
    /// snapshotted: an empty directory that cannot be changed. All of these in a subvolume are one
    /// inode.
    pub fn is_empty_place(&self) -> bool {
        self.id.number == EMPTY_DIR
    }

    /// Returns true for a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Returns true for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }
}

impl Inode {
    pub(crate) fn new(fs: Filesystem, id: InodeId) -> Self {
        let held = fs.inner.hold(id);
        Self { held, fs, id }
    }

    /// Returns a handle on the inode that a name leads to. If the inode, or a directory on the
    /// path, was deleted before it was held, its name was removed before that: the lookup is
    /// repeated. If the name still leads there, it is damaged.
    pub(crate) fn found(fs: &Filesystem, find: impl Fn() -> Result<InodeId>) -> Result<Self> {
        let mut before = None;
        loop {
            let found = find().map(|id| Self::new(fs.clone(), id));
            let gone = match &found {
                Ok(inode) if inode.held.is_none() => inode.id,
                Err(Error::NoInode(id)) => *id,
                _ => return found,
            };
            if !fs.inner.may_lose(gone) || before.replace(gone) == Some(gone) {
                return found;
            }
        }
    }

    pub(crate) fn of_opened(fs: Filesystem, opened: InodeRef) -> Self {
        let id = opened.inode().id();
        Self { held: Some(Arc::new(opened)), fs, id }
    }

    /// Returns which inode it is.
    pub fn id(&self) -> InodeId {
        self.id
    }

    /// Returns the filesystem of the inode.
    pub fn filesystem(&self) -> &Filesystem {
        &self.fs
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.fs.inner
    }

    pub(crate) fn nodes(&self) -> &Arc<Inodes> {
        &self.fs.inner.nodes
    }

    pub(crate) fn namespace(&self) -> &Arc<Namespace> {
        &self.fs.inner.namespace
    }

    /// Returns the attributes.
    pub fn metadata(&self) -> Result<Metadata> {
        match &self.held {
            Some(opened) => Ok(Metadata::of(opened.inode())),
            None => self.inner().metadata(self.id),
        }
    }

    /// Returns all extended attributes: names and values. They include ACLs, as
    /// `system.posix_acl_access` and `system.posix_acl_default`.
    pub fn xattrs(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        ops::list_xattrs(self.nodes(), self.id)
    }

    /// Returns the value of an extended attribute; [`Error::NoAttribute`] if there is none.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        ops::get_xattr(self.nodes(), self.id, name)?.ok_or(Error::NoAttribute)
    }

    /// Returns all names: the directory of each, in the same subvolume, and the name there. The
    /// root directory of a subvolume has one in itself: `..`.
    pub fn names(&self) -> Result<Vec<(Inode, Vec<u8>)>> {
        let names = dir::names(self.nodes(), self.id)?;
        let handle = |name: Link| {
            let id = InodeId { subvolume: self.id.subvolume, number: name.dir };
            (Self::new(self.fs.clone(), id), name.name)
        };
        Ok(names.into_iter().map(handle).collect())
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        read_link(self.nodes(), self.id)
    }

    /// Opens a regular file.
    pub fn open(&self) -> Result<File> {
        File::open(self)
    }

    /// Makes the inode durable: its attributes, its names, and its content, as described at
    /// [`File::sync_all`] and [`Dir::sync_all`].
    pub fn sync_all(&self) -> Result<()> {
        let Some(log) = &self.inner().log else { return Ok(()) };
        if self.id.number == EMPTY_DIR {
            return Ok(());
        }
        match self.metadata()?.kind {
            FileKind::Regular => self.open()?.sync_all(),
            _ => log.sync(&self.nodes().inode(self.id)?),
        }
    }

    /// Opens a directory.
    pub fn open_dir(&self) -> Result<Dir> {
        match self.metadata()?.kind {
            FileKind::Directory => Ok(Dir::new(self.clone())),
            _ => Err(Error::NotADirectory),
        }
    }
}

/// A directory.
#[derive(Clone)]
pub struct Dir {
    inode: Inode,
    /// The user and group of new inodes in it.
    pub(super) owner: (u32, u32),
    /// The extended attributes of new inodes in it.
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether new inodes in it inherit its default ACL.
    pub(super) default_acl: DefaultAcl,
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir").field("inode", &self.inode).finish_non_exhaustive()
    }
}

/// The user and group of new inodes if none are given.
const ROOT_USER: (u32, u32) = (0, 0);

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    dir: InodeId,
    entry: Arc<Entry>,
}

impl Dir {
    pub(crate) fn new(inode: Inode) -> Self {
        let default_acl = DefaultAcl::Inherited { umask: 0 };
        Self { inode, owner: ROOT_USER, xattrs: Vec::new(), default_acl }
    }

    /// Returns the directory with this owner for new inodes, and with this group unless the
    /// directory passes its own on.
    #[must_use]
    pub fn for_owner(self, uid: u32, gid: u32) -> Self {
        Self { owner: (uid, gid), ..self }
    }

    /// Returns the directory with these extended attributes, names and values, for new inodes. They
    /// are set together with the creation: an inode is never visible without them, not even after a
    /// crash. Each name may occur only once.
    #[must_use]
    pub fn giving(self, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        Self { xattrs, ..self }
    }

    /// Returns the directory with a umask for new inodes: as on Linux, it has no effect if the
    /// directory has a default ACL.
    #[must_use]
    pub fn with_umask(self, umask: u32) -> Self {
        Self { default_acl: DefaultAcl::Inherited { umask }, ..self }
    }

    /// Returns the directory as one without a default ACL: new inodes do not inherit it, and have
    /// exactly the mode that is requested. For copies that keep the permissions of their source.
    #[must_use]
    pub fn ignoring_default_acl(self) -> Self {
        Self { default_acl: DefaultAcl::Ignored, ..self }
    }

    /// Makes the directory durable: its attributes, and its present entries, with the inodes of new
    /// ones; not the content of files.
    pub fn sync_all(&self) -> Result<()> {
        self.inode.sync_all()
    }

    /// Returns the handle on its inode.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Looks up `name`. Symbolic links are not followed.
    pub fn lookup(&self, name: &[u8]) -> Result<Inode> {
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
            return Err(Error::BadName(name.to_vec()));
        }
        let find = || step(self.inode.nodes(), self.inode.id, name).map(|(id, _)| id);
        Inode::found(&self.inode.fs, find)
    }

    /// Returns the inode that the entry of this name refers to, like [`DirEntry::target`].
    pub fn target(&self, name: &[u8]) -> Result<InodeId> {
        let dir = self.inode.id;
        let found = dir::lookup(self.inode.nodes(), dir, name)?.ok_or(Error::NotFound)?;
        Ok(said(dir, found.target))
    }

    /// Returns the handle on the inode of an entry of this directory.
    pub fn follow(&self, entry: &DirEntry) -> Result<Inode> {
        Ok(Inode::new(self.inode.fs.clone(), self.resolve(entry)?))
    }

    /// Returns the attributes of the inode of an entry of this directory.
    pub fn metadata_of(&self, entry: &DirEntry) -> Result<Metadata> {
        self.inode.inner().metadata(self.resolve(entry)?)
    }

    fn resolve(&self, entry: &DirEntry) -> Result<InodeId> {
        let DirEntry { dir, entry } = entry;
        entry.target.resolve(self.inode.nodes().tree_roots(), *dir, &entry.name)
    }

    /// Opens the directory of an entry of this directory.
    ///
    /// That directory must list the entry as its own name, of which a directory has only one. So a
    /// walk visits each directory once, however damaged the filesystem, and ends. Returns
    /// [`Error::Stray`] if it does not.
    pub fn enter(&self, entry: &DirEntry) -> Result<Dir> {
        let inode = self.follow(entry)?;
        let child = inode.open_dir()?;
        dir::check_way_down(self.inode.nodes(), entry.dir, &entry.entry, inode.id)?;
        Ok(child)
    }

    /// Returns the entries in order of creation, without `.` and `..`: those that exist when the
    /// first is requested. So the iteration ends even if the caller adds or renames entries
    /// meanwhile.
    pub fn entries(&self) -> DirEntries {
        self.entries_from(0)
    }

    /// Returns the entries from a position on; [`DirEntry::position`] is the one after an entry.
    /// Positions stay valid while entries are added and removed.
    pub fn entries_from(&self, position: u64) -> DirEntries {
        let empty = self.inode.id.number == EMPTY_DIR;
        DirEntries {
            inode: self.inode.clone(),
            next: (!empty).then_some(position),
            end: None,
            listed: Vec::new().into_iter(),
        }
    }

    /// Returns about `max` entries from a position on, and the position after them, which is `None`
    /// if none follow. The list may be empty although some follow.
    pub fn list(&self, position: u64, max: usize) -> Result<(Vec<DirEntry>, Option<u64>)> {
        let dir = self.inode.id;
        let (entries, next) = dir::list_some_of(self.inode.nodes(), dir, position, max)?;
        Ok((entries.into_iter().map(|entry| DirEntry { dir, entry }).collect(), next))
    }

    /// Returns the directory that contains it; for the root directory of a subvolume, itself.
    /// `None` if its names are damaged.
    pub fn parent(&self) -> Result<Option<InodeId>> {
        dir::parent(self.inode.nodes(), self.inode.id)
    }

    /// Returns the position behind all entries, where new ones are added.
    pub fn end(&self) -> Result<u64> {
        dir::end_of(self.inode.nodes(), self.inode.id)
    }
}

impl DirEntry {
    /// Returns the name: any bytes but none, though `/` and NUL only on a damaged filesystem.
    pub fn name(&self) -> &[u8] {
        &self.entry.name
    }

    /// Returns the type of the inode, if the entry has it. A subvolume is a directory.
    pub fn kind(&self) -> Option<FileType> {
        Some(match self.entry.kind {
            DirEntryKind::Regular => FileKind::Regular,
            DirEntryKind::Directory => FileKind::Directory,
            DirEntryKind::Symlink => FileKind::Symlink,
            DirEntryKind::CharDevice => FileKind::CharDevice,
            DirEntryKind::BlockDevice => FileKind::BlockDevice,
            DirEntryKind::Fifo => FileKind::Fifo,
            DirEntryKind::Socket => FileKind::Socket,
            DirEntryKind::Xattr => return None,
        })
    }

    /// Returns the inode that the entry refers to: for a subvolume, its root directory.
    /// [`Dir::follow`] verifies it.
    pub fn target(&self) -> InodeId {
        said(self.dir, self.entry.target)
    }

    /// Returns the position after it, for [`Dir::entries_from`].
    pub fn position(&self) -> u64 {
        self.entry.index.saturating_add(1)
    }
}

/// Returns the inode that an entry of `dir` refers to.
fn said(dir: InodeId, target: EntryTarget) -> InodeId {
    match target {
        EntryTarget::Inode(number) => InodeId { number, ..dir },
        EntryTarget::Subvolume(subvolume) => InodeId { subvolume, number: ROOT_DIR },
    }
}

/// The entries of a directory, in order of creation. Returns an error for entries that cannot be
/// read, and continues with those after them.
pub struct DirEntries {
    inode: Inode,
    next: Option<DirPosition>,
    /// The position behind the last entry that existed at first, if not all were listed at once.
    end: Option<DirPosition>,
    listed: std::vec::IntoIter<Arc<Entry>>,
}

impl fmt::Debug for DirEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirEntries").field("dir", &self.inode).finish_non_exhaustive()
    }
}

impl Iterator for DirEntries {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if let Some(entry) = self.listed.next() {
                return Some(Ok(DirEntry { dir: self.inode.id, entry }));
            }
            let from = self.next.take()?;
            match self.more(from) {
                Ok((listed, next)) => (self.listed, self.next) = (listed.into_iter(), next),
                Err(error) => {
                    self.next = dir::behind_damage(self.inode.nodes(), self.inode.id, from);
                    return Some(Err(error));
                }
            }
        }
    }
}

impl DirEntries {
    fn more(&mut self, from: DirPosition) -> Result<(Vec<Arc<Entry>>, Option<DirPosition>)> {
        let nodes = self.inode.nodes();
        let id = self.inode.id;
        let (mut listed, next) = dir::list(nodes, id, from)?;
        if next.is_some() && self.end.is_none() {
            // If the end cannot be read, no entries can be added.
            self.end = Some(dir::end_of(nodes, id).unwrap_or(DirPosition::MAX));
        }
        let end = self.end.unwrap_or(DirPosition::MAX);
        listed.retain(|entry| entry.index < end);
        Ok((listed, next.filter(|next| *next < end)))
    }
}
