//! Looks up, creates, renames and removes names.
//!
//! 1. The kernel locks a directory during each request that changes names in it, and references the
//!    inode whose name it removes. So an inode that is looked up here before its name is removed is
//!    the one that loses it.
//! 2. The reference of an entry is counted before the entry is sent: the kernel may forget it at
//!    once.
//! 3. A new inode belongs to the caller. Its permissions and access lists come from the default
//!    list of the directory or, if there is none, from the umask. It has them from its creation on.

use userbtrfs_engine::api::{self, Dir, Error, FileKind, Inode, InodeId, Metadata, RenameMode};
use userbtrfs_fuse::{
    Caller, Created, Entry, Errno, FOREVER, Link, Mknod, Name, NodeId, Opened, OpenedFlags, Rename,
    RenameFlags, Tmpfile,
};

use crate::errno;
use crate::server::FuseServer;
use userbtrfs_engine::acl::{self, Acl};

/// The mode and the access lists of a new inode.
struct InheritedAcl {
    mode: u32,
    lists: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The requested mode of a new inode.
pub(crate) struct NewAttributes {
    /// The kind and the permission bits.
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl FuseServer {
    pub(crate) fn dir(&self, node: NodeId) -> Result<Dir, Errno> {
        self.inode(node).open_dir().map_err(errno)
    }

    /// Returns the entry of an inode, and counts a reference of the kernel to it.
    pub(crate) fn refer(&self, inode: &Inode) -> Result<Entry, Errno> {
        let metadata = inode.metadata().map_err(errno)?;
        self.refer_as(&metadata, self.ids.node(metadata.id)?)
    }

    /// Like `refer`, for a name that may be the place of a subvolume; `said` returns the inode that
    /// the directory entry names.
    pub(crate) fn refer_to(
        &self,
        metadata: &Metadata,
        said: impl FnOnce() -> api::Result<InodeId>,
    ) -> Result<Entry, Errno> {
        let node = if metadata.is_empty_place() {
            self.ids.place(metadata.id, said().map_err(errno)?.subvolume)?
        } else {
            self.ids.node(metadata.id)?
        };
        self.refer_as(metadata, node)
    }

    fn refer_as(&self, metadata: &Metadata, node: NodeId) -> Result<Entry, Errno> {
        let entry = self.entry(metadata, node)?;
        self.lookup_counts.add(node);
        Ok(entry)
    }

    /// Finds a name.
    pub(crate) fn find(&self, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        match name.as_bytes() {
            b"." => return self.find_again(parent),
            b".." => return self.find_parent(parent),
            _ => {}
        }
        let dir = self.dir(parent)?;
        match dir.lookup(name.as_bytes()) {
            Ok(inode) => {
                let metadata = inode.metadata().map_err(errno)?;
                self.refer_to(&metadata, || dir.target(name.as_bytes()))
            }
            Err(Error::NotFound) => Ok(Entry::absent(FOREVER)),
            Err(error) => Err(errno(error)),
        }
    }

    /// Finds a node that the kernel has forgotten, for a file handle. The kernel compares the
    /// generation, since another inode may have the number.
    fn find_again(&self, node: NodeId) -> Result<Entry, Errno> {
        match self.inode(node).metadata() {
            Ok(metadata) if metadata.nlink == 0 => Err(Errno::STALE),
            Ok(metadata) => self.refer_as(&metadata, node),
            Err(Error::NoInode(_)) => Err(Errno::STALE),
            Err(error) => Err(errno(error)),
        }
    }

    /// Finds the directory of a directory, for a file handle. Nothing is above the root.
    fn find_parent(&self, node: NodeId) -> Result<Entry, Errno> {
        let dir = self.dir(node)?;
        if node == NodeId::ROOT {
            return self.refer(dir.inode());
        }
        let id = dir.inode().id();
        let parent = dir.parent().map_err(errno)?.ok_or(Errno::STALE)?;
        if parent != id {
            return self.refer(&self.filesystem.inode(parent));
        }
        // The root of a subvolume.
        let info = self.filesystem.subvolume(id.subvolume).map_err(errno)?;
        let (Some(subvolume), Some(number)) = (info.parent, info.dir) else {
            return Err(Errno::STALE);
        };
        self.refer(&self.filesystem.inode(InodeId { subvolume, number }))
    }

    /// Creates an inode that has a mode, by `make`.
    pub(crate) fn make(
        &self,
        (parent, caller): (NodeId, &Caller),
        name: Name<'_>,
        wanted: &NewAttributes,
        make: impl FnOnce(&Dir, &[u8], u32) -> api::Result<Inode>,
    ) -> Result<Entry, Errno> {
        let dir = self.dir(parent)?.for_owner(caller.uid, caller.gid);
        let InheritedAcl { mode, lists } = InheritedAcl::of(&dir, wanted)?;
        let inode = make(&dir.giving(lists), name.as_bytes(), mode).map_err(errno)?;
        self.refer(&inode)
    }

    pub(crate) fn make_node(
        &self,
        at: (NodeId, &Caller),
        mknod: &Mknod<'_>,
    ) -> Result<Entry, Errno> {
        let device = (mknod.device.major, mknod.device.minor);
        let wanted = NewAttributes { mode: mknod.mode, umask: mknod.umask };
        self.make(at, mknod.name, &wanted, |dir, name, mode| dir.make_node(name, mode, device))
    }

    pub(crate) fn make_symlink(
        &self,
        (parent, caller): (NodeId, &Caller),
        name: Name<'_>,
        target: &[u8],
    ) -> Result<Entry, Errno> {
        let dir = self.dir(parent)?.for_owner(caller.uid, caller.gid);
        let inode = dir.symlink(name.as_bytes(), target).map_err(errno)?;
        self.refer(&inode)
    }

    /// Creates a file without a name, which is kept until the kernel forgets it.
    pub(crate) fn make_unnamed(
        &self,
        (parent, caller): (NodeId, &Caller),
        tmpfile: &Tmpfile,
    ) -> Result<Created, Errno> {
        let dir = self.dir(parent)?.for_owner(caller.uid, caller.gid);
        let wanted = NewAttributes { mode: tmpfile.mode, umask: tmpfile.umask };
        let InheritedAcl { mode, lists } = InheritedAcl::of(&dir, &wanted)?;
        let inode = dir.giving(lists).create_unnamed(mode).map_err(errno)?;
        let entry = self.refer(&inode)?;
        drop(self.lookup_counts.keep(entry.node, inode));
        Ok(created(entry))
    }

    pub(crate) fn give_name(&self, parent: NodeId, link: &Link<'_>) -> Result<Entry, Errno> {
        let inode = self.inode(link.target);
        self.dir(parent)?.link(link.name.as_bytes(), &inode).map_err(errno)?;
        drop(self.lookup_counts.release(link.target));
        self.refer(&inode)
    }

    /// Removes a name by `remove`.
    pub(crate) fn remove(
        &self,
        parent: NodeId,
        name: Name<'_>,
        remove: impl FnOnce(&Dir, &[u8]) -> api::Result<()>,
    ) -> Result<(), Errno> {
        let dir = self.dir(parent)?;
        let removed = dir.lookup(name.as_bytes()).map_err(errno)?;
        remove(&dir, name.as_bytes()).map_err(errno)?;
        self.keep_if_nameless(removed);
        Ok(())
    }

    pub(crate) fn move_name(
        &self,
        (parent, caller): (NodeId, &Caller),
        rename: &Rename<'_>,
    ) -> Result<(), Errno> {
        let mode = rename_mode(rename.flags)?;
        let from = self.dir(parent)?.for_owner(caller.uid, caller.gid);
        let to = self.dir(rename.new_parent)?;
        // An error of the lookup is ignored: the rename below reports it.
        let replaced = to.lookup(rename.new_name.as_bytes()).ok();
        from.rename(rename.name.as_bytes(), &to, rename.new_name.as_bytes(), mode)
            .map_err(errno)?;
        if let Some(replaced) = replaced {
            self.keep_if_nameless(replaced);
        }
        Ok(())
    }

    /// Keeps an inode that has lost its last name, since the kernel may go on using it.
    fn keep_if_nameless(&self, inode: Inode) {
        let is_nameless = inode.metadata().is_ok_and(|metadata| metadata.nlink == 0);
        if let Ok(node) = self.ids.node(inode.id())
            && is_nameless
        {
            drop(self.lookup_counts.keep(node, inode));
        }
    }
}

/// Returns the answer to a request that creates and opens a file; opening takes no state.
pub(crate) fn created(entry: Entry) -> Created {
    let opened = Opened { flags: OpenedFlags::KEEP_CACHE, ..Opened::default() };
    Created { entry, opened }
}

fn rename_mode(flags: RenameFlags) -> Result<RenameMode, Errno> {
    const BOTH: RenameFlags = RenameFlags::WHITEOUT.union(RenameFlags::NOREPLACE);
    match flags {
        flags if flags.is_empty() => Ok(RenameMode::Replace),
        RenameFlags::NOREPLACE => Ok(RenameMode::NoReplace),
        RenameFlags::EXCHANGE => Ok(RenameMode::Exchange),
        RenameFlags::WHITEOUT => Ok(RenameMode::Whiteout),
        BOTH => Ok(RenameMode::WhiteoutNoReplace),
        _ => Err(Errno::INVAL),
    }
}

impl InheritedAcl {
    /// Returns the mode and the access lists of a new inode in `dir`.
    fn of(dir: &Dir, wanted: &NewAttributes) -> Result<Self, Errno> {
        let default = match dir.inode().xattr(acl::DEFAULT) {
            Err(Error::NoAttribute) => {
                return Ok(Self { mode: wanted.mode & !wanted.umask, lists: Vec::new() });
            }
            found => found.map_err(errno)?,
        };
        let access = Acl::parse(&default).ok_or(Errno::IO)?.inherited(wanted.mode);
        let mode = acl::mode_with(wanted.mode, &access);
        let mut lists = Vec::new();
        if !access.is_plain() {
            lists.push((acl::ACCESS.to_vec(), access.to_bytes()));
        }
        if FileKind::from_mode(wanted.mode) == Some(FileKind::Directory) {
            lists.push((acl::DEFAULT.to_vec(), default));
        }
        Ok(Self { mode, lists })
    }
}
