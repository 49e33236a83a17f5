//! Handles on inodes, their attributes, and directories.

use userbtrfs_format::{DirEntryKind, FileKind, InodeFlags, InodeItem, Timestamp};
use userbtrfs_sync::Arc;

use super::filesystem::Inner;
use super::path::{read_link, step};
use super::{File, Filesystem};
use crate::error::{Error, InodeId, Result};
use crate::inode;
use crate::inode::{DirPosition, EMPTY_DIR, Entry, EntryTarget, InodeRef, Inodes, Link, ROOT_DIR};

/// What an inode or an entry of a directory is.
pub type FileType = FileKind;

/// A handle on an inode of any kind.
///
/// Where the filesystem is open for writing, it holds the inode: that stays, though its last name
/// goes, while a handle or an open file lives.
#[derive(Clone)]
pub struct Inode {
    /// Before the filesystem, which it needs while it is dropped.
    held: Option<Arc<InodeRef>>,
    fs: Filesystem,
    id: InodeId,
}

/// The attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The inode.
    pub id: InodeId,
    /// What it is.
    pub kind: FileKind,
    /// File type and permissions.
    pub mode: u32,
    /// How many names it has.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Major and minor number of the device that it stands for.
    pub device: (u32, u32),
    /// Its size in bytes.
    pub size: u64,
    /// Bytes that its extents hold, before compression.
    pub allocated: u64,
    /// Bytes of its content that wait in memory to be written, or are on their way.
    pub unfinished: u64,
    /// Its flags.
    pub flags: InodeFlags,
    /// The transaction that created it.
    pub generation: u64,
    /// The transaction that last changed it.
    pub transid: u64,
    /// Counts changes.
    pub sequence: u64,
    /// When it was last read.
    pub accessed: Timestamp,
    /// When its content last changed.
    pub modified: Timestamp,
    /// When its attributes last changed.
    pub changed: Timestamp,
    /// When it was created.
    pub created: Timestamp,
}

impl Metadata {
    pub(crate) fn of(inode: &inode::Inode) -> Self {
        // Before what the extents hold: where nothing is unfinished any more, that is among it.
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

    /// What stands in the place of a subvolume of which only the name was snapshotted.
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

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether it is the place of a subvolume of which only the name was snapshotted: an empty
    /// directory that nobody can change. All such places in a subvolume are one inode.
    pub fn is_empty_place(&self) -> bool {
        self.id.number == EMPTY_DIR
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }
}

impl Inode {
    pub(crate) fn new(fs: Filesystem, id: InodeId) -> Self {
        let held = fs.inner.hold(id);
        Self { held, fs, id }
    }

    /// The handle on what a name leads to. Where that was deleted before it was held, or a
    /// directory on the way to it, its name went before, and is looked for again; one that still
    /// leads there is damaged.
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

    /// Which inode it is.
    pub fn id(&self) -> InodeId {
        self.id
    }

    /// The filesystem it is in.
    pub fn filesystem(&self) -> &Filesystem {
        &self.fs
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.fs.inner
    }

    pub(crate) fn nodes(&self) -> &Arc<Inodes> {
        &self.fs.inner.nodes
    }

    /// Its attributes.
    pub fn metadata(&self) -> Result<Metadata> {
        match &self.held {
            Some(opened) => Ok(Metadata::of(opened.inode())),
            None => self.inner().metadata(self.id),
        }
    }

    /// All its extended attributes: names and values. ACLs are among them, as
    /// `system.posix_acl_access` and `system.posix_acl_default`.
    pub fn xattrs(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.nodes().xattrs(self.id)
    }

    /// The value of an extended attribute; [`Error::NoAttribute`] where there is none.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.nodes().xattr(self.id, name)?.ok_or(Error::NoAttribute)
    }

    /// All its names: the directory of each, in the same subvolume, and the name there. The
    /// root directory of a subvolume has one in itself: `..`.
    pub fn names(&self) -> Result<Vec<(Inode, Vec<u8>)>> {
        let names = self.nodes().names(self.id)?;
        let handle = |name: Link| {
            let id = InodeId { subvolume: self.id.subvolume, number: name.dir };
            (Self::new(self.fs.clone(), id), name.name)
        };
        Ok(names.into_iter().map(handle).collect())
    }

    /// The target of a symbolic link.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        read_link(self.nodes(), self.id)
    }

    /// Opens a regular file.
    pub fn open(&self) -> Result<File> {
        File::open(self)
    }

    /// Makes it durable: its attributes, its names, and what it holds, as [`File::sync_all`] and
    /// [`Dir::sync_all`] say.
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
    /// User and group of what is made in it.
    pub(super) owner: (u32, u32),
    /// Extended attributes of what is made in it.
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// User and group of what is made where nobody is named.
const ROOT_USER: (u32, u32) = (0, 0);

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    dir: InodeId,
    entry: Arc<Entry>,
}

impl Dir {
    pub(crate) fn new(inode: Inode) -> Self {
        Self { inode, owner: ROOT_USER, xattrs: Vec::new() }
    }

    /// The directory, as the place where what is made from now on belongs to this user, and to this
    /// group unless the directory passes its own on.
    #[must_use]
    pub fn for_owner(self, uid: u32, gid: u32) -> Self {
        Self { owner: (uid, gid), ..self }
    }

    /// The directory, as the place where what is made from now on has these extended attributes,
    /// names and values, as soon as it is there: nothing, no crash either, shows it without them.
    /// No name is there twice.
    #[must_use]
    pub fn giving(self, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        Self { xattrs, ..self }
    }

    /// Makes the directory durable: its attributes, and its entries as they are now, with what new
    /// ones lead to; of files, not the content.
    pub fn sync_all(&self) -> Result<()> {
        self.inode.sync_all()
    }

    /// The handle on its inode.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// What `name` leads to. Symbolic links are not followed.
    pub fn lookup(&self, name: &[u8]) -> Result<Inode> {
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
            return Err(Error::BadName(name.to_vec()));
        }
        let find = || step(self.inode.nodes(), self.inode.id, name).map(|(id, _)| id);
        Inode::found(&self.inode.fs, find)
    }

    /// What the entry of this name says that it leads to, as [`DirEntry::target`].
    pub fn target(&self, name: &[u8]) -> Result<InodeId> {
        let dir = self.inode.id;
        let found = self.inode.nodes().lookup(dir, name)?.ok_or(Error::NotFound)?;
        Ok(said(dir, found.target))
    }

    /// The handle on what an entry of this directory leads to.
    pub fn follow(&self, entry: &DirEntry) -> Result<Inode> {
        Ok(Inode::new(self.inode.fs.clone(), self.resolve(entry)?))
    }

    /// The attributes of what an entry of this directory leads to.
    pub fn metadata_of(&self, entry: &DirEntry) -> Result<Metadata> {
        self.inode.inner().metadata(self.resolve(entry)?)
    }

    fn resolve(&self, entry: &DirEntry) -> Result<InodeId> {
        let DirEntry { dir, entry } = entry;
        entry.target.resolve(self.inode.nodes().tree_roots(), *dir, &entry.name)
    }

    /// The directory that an entry of this directory leads to.
    ///
    /// The directory must know the entry as its own name: a directory has one. So whoever goes
    /// down this way comes to each directory once, however damaged the filesystem, and the way
    /// ends. [`Error::Stray`] where it does not.
    pub fn enter(&self, entry: &DirEntry) -> Result<Dir> {
        let inode = self.follow(entry)?;
        let child = inode.open_dir()?;
        self.inode.nodes().check_way_down(entry.dir, &entry.entry, inode.id)?;
        Ok(child)
    }

    /// Its entries in the order of their making, without `.` and `..`: those that are there when
    /// the first is asked for. Who makes others meanwhile, or gives them other names, comes to an
    /// end all the same.
    pub fn entries(&self) -> DirEntries {
        self.entries_from(0)
    }

    /// Its entries from a position on; [`DirEntry::position`] names the one after an entry.
    /// Positions stay good while entries come and go.
    pub fn entries_from(&self, position: u64) -> DirEntries {
        let empty = self.inode.id.number == EMPTY_DIR;
        DirEntries {
            inode: self.inode.clone(),
            next: (!empty).then_some(position),
            end: None,
            listed: Vec::new().into_iter(),
        }
    }

    /// About `max` entries from a position on, and the position after them; nothing where none
    /// follow. There may be none although some follow.
    pub fn list(&self, position: u64, max: usize) -> Result<(Vec<DirEntry>, Option<u64>)> {
        let dir = self.inode.id;
        let (entries, next) = self.inode.nodes().list_some_of(dir, position, max)?;
        Ok((entries.into_iter().map(|entry| DirEntry { dir, entry }).collect(), next))
    }

    /// The directory that it is in; of the root directory of a subvolume, itself. Nothing where its
    /// names are damaged.
    pub fn parent(&self) -> Result<Option<InodeId>> {
        self.inode.nodes().parent(self.inode.id)
    }

    /// The position behind all its entries: those that are made from now on stand there.
    pub fn end(&self) -> Result<u64> {
        self.inode.nodes().end_of(self.inode.id)
    }
}

impl DirEntry {
    /// The name; any bytes but none, though `/` and NUL only on a damaged filesystem.
    pub fn name(&self) -> &[u8] {
        &self.entry.name
    }

    /// What it leads to, where the entry says so. A subvolume is a directory.
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

    /// What it says that it leads to: of a subvolume, the root directory. Whether that is so shows
    /// [`Dir::follow`].
    pub fn target(&self) -> InodeId {
        said(self.dir, self.entry.target)
    }

    /// The position after it, for [`Dir::entries_from`].
    pub fn position(&self) -> u64 {
        self.entry.index.saturating_add(1)
    }
}

/// What an entry of `dir` says that it leads to.
fn said(dir: InodeId, target: EntryTarget) -> InodeId {
    match target {
        EntryTarget::Inode(number) => InodeId { number, ..dir },
        EntryTarget::Subvolume(subvolume) => InodeId { subvolume, number: ROOT_DIR },
    }
}

/// Entries of a directory, in the order of their making. Where some cannot be read, it is an error,
/// after which those come that can.
pub struct DirEntries {
    inode: Inode,
    next: Option<DirPosition>,
    /// Behind the last that was there at first, where that is more than was listed at once.
    end: Option<DirPosition>,
    listed: std::vec::IntoIter<Arc<Entry>>,
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
                    self.next = self.inode.nodes().behind_damage(self.inode.id, from);
                    return Some(Err(error));
                }
            }
        }
    }
}

impl DirEntries {
    fn more(&mut self, from: DirPosition) -> Result<(Vec<Arc<Entry>>, Option<DirPosition>)> {
        let (nodes, id) = (self.inode.nodes(), self.inode.id);
        let (mut listed, next) = nodes.list(id, from)?;
        if next.is_some() && self.end.is_none() {
            // Where it is damaged, nobody makes another one.
            self.end = Some(nodes.end_of(id).unwrap_or(DirPosition::MAX));
        }
        let end = self.end.unwrap_or(DirPosition::MAX);
        listed.retain(|entry| entry.index < end);
        Ok((listed, next.filter(|next| *next < end)))
    }
}
