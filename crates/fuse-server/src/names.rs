//! Creates, renames and removes names.
//!
//! 1. The kernel locks a directory during each request that changes names in it, and references the
//!    inode whose name it removes. So an inode that is looked up here before its name is removed is
//!    the one that loses it.
//! 2. A new inode belongs to the caller. Its permissions and access lists come from the default
//!    list of the directory or, if there is none, from the umask. It has them from its creation on.

use userbtrfs_engine::api::{self, Dir, Inode, RenameMode};
use userbtrfs_fuse::{
    Create, Created, Entry, Errno, Link, Mkdir, Mknod, Name, NodeId, Opened, OpenedFlags, Rename,
    RenameFlags, Request, Symlink, Tmpfile,
};

use crate::context::Context;
use crate::errno;
use crate::lookup::LookupOps;

/// The file type of a directory in a mode.
const DIRECTORY: u32 = 0o040_000;

/// SYMLINK, MKNOD, MKDIR, CREATE, TMPFILE, LINK, UNLINK, RMDIR and RENAME.
pub(crate) struct NameOps<'a> {
    pub(crate) context: &'a Context,
}

/// The requested mode of a new inode.
struct NewMode {
    /// The kind and the permission bits.
    mode: u32,
    umask: u32,
}

impl NameOps<'_> {
    pub(crate) fn symlink(&self, request: &Request, symlink: &Symlink<'_>) -> Result<Entry, Errno> {
        let dir = self.dir_for_caller(request)?;
        let inode = dir.symlink(symlink.name.as_bytes(), symlink.target).map_err(errno)?;
        self.entry(&inode)
    }

    pub(crate) fn mknod(&self, request: &Request, mknod: &Mknod<'_>) -> Result<Entry, Errno> {
        let device = (mknod.device.major, mknod.device.minor);
        let wanted = NewMode { mode: mknod.mode, umask: mknod.umask };
        let make = |dir: &Dir, name: &[u8], mode| dir.make_node(name, mode, device);
        self.make(request, mknod.name, &wanted, make)
    }

    pub(crate) fn mkdir(&self, request: &Request, mkdir: &Mkdir<'_>) -> Result<Entry, Errno> {
        let wanted = NewMode { mode: DIRECTORY | mkdir.mode, umask: mkdir.umask };
        let make = |dir: &Dir, name: &[u8], mode| {
            dir.create_dir(name, mode).map(|made| made.inode().clone())
        };
        self.make(request, mkdir.name, &wanted, make)
    }

    pub(crate) fn create(&self, request: &Request, create: &Create<'_>) -> Result<Created, Errno> {
        let wanted = NewMode { mode: create.mode, umask: create.umask };
        self.make(request, create.name, &wanted, Dir::create).map(created)
    }

    /// Creates a file without a name, which is kept until the kernel forgets it.
    pub(crate) fn tmpfile(&self, request: &Request, tmpfile: &Tmpfile) -> Result<Created, Errno> {
        let dir = self.dir_for_caller(request)?;
        let inode = dir.with_umask(tmpfile.umask).create_unnamed(tmpfile.mode).map_err(errno)?;
        let entry = self.entry(&inode)?;
        drop(self.context.lookup_counts.keep(entry.node, inode));
        Ok(created(entry))
    }

    pub(crate) fn link(&self, parent: NodeId, link: &Link<'_>) -> Result<Entry, Errno> {
        let inode = self.context.inode(link.target);
        self.context.dir(parent)?.link(link.name.as_bytes(), &inode).map_err(errno)?;
        drop(self.context.lookup_counts.release(link.target));
        self.entry(&inode)
    }

    pub(crate) fn unlink(&self, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.remove(parent, name, Dir::remove_file)
    }

    pub(crate) fn rmdir(&self, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.remove(parent, name, Dir::remove_dir)
    }

    pub(crate) fn rename(&self, request: &Request, rename: &Rename<'_>) -> Result<(), Errno> {
        let mode = rename_mode(rename.flags)?;
        let from = self.dir_for_caller(request)?;
        let to = self.context.dir(rename.new_parent)?;
        // An error of the lookup is ignored: the rename below reports it.
        let replaced = to.lookup(rename.new_name.as_bytes()).ok();
        from.rename(rename.name.as_bytes(), &to, rename.new_name.as_bytes(), mode)
            .map_err(errno)?;
        if let Some(replaced) = replaced {
            self.keep_if_nameless(replaced);
        }
        Ok(())
    }
}

impl NameOps<'_> {
    /// Returns the directory of a request, in which new inodes belong to the caller.
    fn dir_for_caller(&self, request: &Request) -> Result<Dir, Errno> {
        let dir = self.context.dir(request.node)?;
        Ok(dir.for_owner(request.caller.uid, request.caller.gid))
    }

    fn entry(&self, inode: &Inode) -> Result<Entry, Errno> {
        LookupOps { context: self.context }.entry(inode)
    }

    /// Creates an inode that has a mode, by `make`.
    fn make(
        &self,
        request: &Request,
        name: Name<'_>,
        wanted: &NewMode,
        make: impl FnOnce(&Dir, &[u8], u32) -> api::Result<Inode>,
    ) -> Result<Entry, Errno> {
        let dir = self.dir_for_caller(request)?.with_umask(wanted.umask);
        let inode = make(&dir, name.as_bytes(), wanted.mode).map_err(errno)?;
        self.entry(&inode)
    }

    /// Removes a name by `remove`.
    fn remove(
        &self,
        parent: NodeId,
        name: Name<'_>,
        remove: impl FnOnce(&Dir, &[u8]) -> api::Result<()>,
    ) -> Result<(), Errno> {
        let dir = self.context.dir(parent)?;
        let removed = dir.lookup(name.as_bytes()).map_err(errno)?;
        remove(&dir, name.as_bytes()).map_err(errno)?;
        self.keep_if_nameless(removed);
        Ok(())
    }

    /// Keeps an inode that has lost its last name, since the kernel may go on using it.
    fn keep_if_nameless(&self, inode: Inode) {
        let is_nameless = inode.metadata().is_ok_and(|metadata| metadata.nlink == 0);
        if let Ok(node) = self.context.ids.node(inode.id())
            && is_nameless
        {
            drop(self.context.lookup_counts.keep(node, inode));
        }
    }
}

/// Returns the answer to a request that creates and opens a file; opening takes no state.
fn created(entry: Entry) -> Created {
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
