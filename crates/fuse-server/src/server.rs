//! Dispatches each request to the method that answers it.
//!
//! 1. A method that may wait for the device does so in `may_sleep`, while another thread receives
//!    requests. That is every method that reads an inode, which may have been evicted; it costs two
//!    short locks a request. Attributes in memory, which are requested most, are sent without it;
//!    the cached contents of a file are sent after it.
//! 2. OPEN, OPENDIR, FLUSH and their releases are not implemented: the kernel works without them.
//!    Neither are ACCESS and locks, which the kernel handles.

use std::path::PathBuf;

use userbtrfs_engine::api::{self, Dir, Error, Filesystem, Inode, InodeId};
use userbtrfs_fuse::{
    Bytes, Caller, Changes, Copied, CopyFileRange, Create, Created, Entries, Entry, Errno,
    ExtendedStat, Fallocate, Fsync, Getxattr, Handle, InitFlags, Invalidation, Ioctl, IoctlData,
    Link, Lseek, Mkdir, Mknod, Name, Names, Negotiated, NodeId, Notifier, Position, Read, Rename,
    Reply, Request, Server, Setxattr, Stat, Statistics, Statx, Symlink, Tmpfile, Value, Write,
    Written, may_sleep, may_wait,
};
use userbtrfs_sync::{Class, Mutex, OnceLock};

use crate::errno;
use crate::group::Member;
use crate::listing::ListingEnds;
use crate::lookup_counts::LookupCounts;
use crate::names::{NewAttributes, created};
use crate::node_ids::NodeIds;
use crate::recent_writes::RecentWrites;
use crate::rights;
use crate::shutdown;
use crate::unreported_errors::UnreportedErrors;

/// The file type of a directory in a mode.
const DIRECTORY: u32 = 0o040_000;
/// The unit in which space is counted, in bytes.
const BLOCK: u32 = 4096;
/// The longest name, in bytes.
const NAME_MAX: u32 = 255;

/// A mounted filesystem, with the state that serving it needs.
pub(crate) struct FuseServer {
    pub(crate) filesystem: Filesystem,
    /// The path of the device or the image, as shown to programs.
    pub(crate) device: PathBuf,
    /// Among the mounts of the filesystem.
    pub(crate) member: Member,
    /// Whether it was opened for writing.
    pub(crate) is_writable: bool,
    pub(crate) ids: NodeIds,
    pub(crate) lookup_counts: LookupCounts,
    pub(crate) recent_writes: RecentWrites,
    pub(crate) ends: ListingEnds,
    pub(crate) refused: UnreportedErrors,
    /// The error that kept the end of the mount from making everything durable.
    failed: Mutex<Option<Error>>,
    notifier: OnceLock<Notifier>,
    /// Whether the kernel checks the rights of a caller that sets the flags of an inode.
    checks_flags: OnceLock<bool>,
}

impl FuseServer {
    pub(crate) fn new(filesystem: Filesystem, device: PathBuf, member: Member) -> Self {
        Self {
            device,
            member,
            is_writable: filesystem.is_writable(),
            ids: NodeIds::new(filesystem.root().inode().id()),
            filesystem,
            lookup_counts: LookupCounts::default(),
            recent_writes: RecentWrites::default(),
            ends: ListingEnds::default(),
            refused: UnreportedErrors::default(),
            failed: Mutex::new(Class::FuseSession, None),
            notifier: OnceLock::new(),
            checks_flags: OnceLock::new(),
        }
    }

    /// Returns the inode of a node.
    pub(crate) fn inode(&self, node: NodeId) -> Inode {
        self.filesystem.inode(self.ids.inode(node))
    }

    /// Returns the sender of invalidations to the kernel.
    pub(crate) fn notifier(&self) -> &Notifier {
        self.notifier.get().expect("set before the first request")
    }

    /// Returns whether the kernel checks which flags of an inode a caller may set.
    pub(crate) fn kernel_checks_flags(&self) -> bool {
        self.checks_flags.get().is_some_and(|checks| *checks)
    }

    /// Makes the kernel write back all data that it caches, and waits for that. A thread that
    /// serves requests must call it in `may_wait`.
    pub(crate) fn collect(&self) {
        if !self.is_writable {
            return;
        }
        let all = Invalidation::Contents { offset: 0, length: None };
        for node in self.lookup_counts.nodes() {
            // A failed write is reported to its writer.
            let _ = self.notifier().invalidate_inode(node, all);
        }
    }

    /// Releases the inodes without a name and makes everything durable, so that nothing is left to
    /// be written or discarded. Called when there are no more requests. If it is the last mount,
    /// openers of the image wait for the end from now on.
    pub(crate) fn settle(&self) {
        let is_last = self.member.is_last();
        if is_last {
            self.filesystem.closing();
        }
        drop(self.lookup_counts.clear());
        // After a shutdown the error is expected: its caller chose what is durable.
        let is_wanted = self.filesystem.is_shut_down();
        // Another mount may have inodes open that have no name.
        let done = if is_last { self.filesystem.finish() } else { self.filesystem.commit() };
        if let Err(error) = done
            && !is_wanted
        {
            // The first of several errors tells most.
            self.failed.lock().get_or_insert(error);
        }
    }

    /// Returns the error that `settle` recorded, and clears it.
    pub(crate) fn take_failure(&self) -> api::Result<()> {
        self.failed.lock().take().map_or(Ok(()), Err)
    }

    fn sync(&self, node: NodeId) -> Result<(), Errno> {
        may_sleep(|| self.inode(node).sync_all()).map_err(errno)
    }

    /// Returns the unreported write error of a file if the caller is writing to it.
    fn refusal(&self, caller: &Caller, file: InodeId) -> Option<Errno> {
        let is_writer = rights::is_writing(caller, self.ids.shown(file).ok()?);
        if is_writer { self.refused.take(file) } else { None }
    }

    fn statistics(&self) -> Result<Statistics, Errno> {
        let left = self.filesystem.space_left().map_err(errno)?;
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        Ok(Statistics {
            blocks: blocks(left.total),
            blocks_free: blocks(left.free),
            blocks_available: blocks(left.available),
            files: 0,
            files_free: 0,
            block_size: BLOCK,
            name_max: NAME_MAX,
            fragment_size: BLOCK,
        })
    }
}

impl Server for FuseServer {
    fn init(&self, agreement: &Negotiated, notifier: Notifier) {
        assert!(self.notifier.set(notifier).is_ok(), "a mount begins once");
        // SETXATTR_EXT and the check both came with Linux 5.13.
        let checks_flags = agreement.offered.contains(InitFlags::SETXATTR_EXT);
        assert!(self.checks_flags.set(checks_flags).is_ok(), "a mount begins once");
    }

    fn destroy(&self, _: &Request, reply: Reply<()>) {
        may_sleep(|| self.settle());
        reply.succeed(&());
    }

    fn lookup(&self, request: &Request, name: Name<'_>, reply: Reply<Entry>) {
        reply.send(may_sleep(|| self.find(request.node, name)));
    }

    fn forget(&self, node: NodeId, lookup_counts: u64) {
        if let Some(gone) = self.lookup_counts.remove(node, lookup_counts) {
            may_sleep(|| drop(gone));
        }
        let file = self.ids.inode(node);
        if self.refused.may_have(file) && !self.lookup_counts.has(node) {
            self.refused.forget(file);
        }
    }

    fn getattr(&self, request: &Request, handle: Option<Handle>, reply: Reply<Stat>) {
        let id = self.ids.inode(request.node);
        if handle.is_some()
            && self.refused.may_have(id)
            && let Some(reason) = may_sleep(|| self.refusal(&request.caller, id))
        {
            return reply.fail(reason);
        }
        let at_once = self.filesystem.metadata_at_once(id);
        reply.send(match at_once {
            Some(metadata) => self.stat_of(&metadata),
            None => may_sleep(|| self.stat(&self.inode(request.node))),
        });
    }

    fn statx(&self, request: &Request, _: &Statx, reply: Reply<ExtendedStat>) {
        reply.send(may_sleep(|| self.extended_stat(&self.inode(request.node))));
    }

    fn setattr(&self, request: &Request, changes: &Changes, reply: Reply<Stat>) {
        reply.send(may_sleep(|| self.change((request.node, &request.caller), changes)));
    }

    fn readlink(&self, request: &Request, reply: Reply<Bytes>) {
        let target = may_sleep(|| self.inode(request.node).read_link());
        reply.send(target.as_deref().map_err(errno));
    }

    fn symlink(&self, request: &Request, symlink: &Symlink<'_>, reply: Reply<Entry>) {
        let at = (request.node, &request.caller);
        reply.send(may_sleep(|| self.make_symlink(at, symlink.name, symlink.target)));
    }

    fn mknod(&self, request: &Request, mknod: &Mknod<'_>, reply: Reply<Entry>) {
        reply.send(may_sleep(|| self.make_node((request.node, &request.caller), mknod)));
    }

    fn mkdir(&self, request: &Request, mkdir: &Mkdir<'_>, reply: Reply<Entry>) {
        let wanted = NewAttributes { mode: DIRECTORY | mkdir.mode, umask: mkdir.umask };
        let at = (request.node, &request.caller);
        let make = |dir: &Dir, name: &[u8], mode| {
            dir.create_dir(name, mode).map(|made| made.inode().clone())
        };
        reply.send(may_sleep(|| self.make(at, mkdir.name, &wanted, make)));
    }

    fn create(&self, request: &Request, create: &Create<'_>, reply: Reply<Created>) {
        let wanted = NewAttributes { mode: create.mode, umask: create.umask };
        let at = (request.node, &request.caller);
        reply.send(may_sleep(|| self.make(at, create.name, &wanted, Dir::create).map(created)));
    }

    fn tmpfile(&self, request: &Request, tmpfile: &Tmpfile, reply: Reply<Created>) {
        reply.send(may_sleep(|| self.make_unnamed((request.node, &request.caller), tmpfile)));
    }

    fn link(&self, request: &Request, link: &Link<'_>, reply: Reply<Entry>) {
        reply.send(may_sleep(|| self.give_name(request.node, link)));
    }

    fn unlink(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.send(may_sleep(|| self.remove(request.node, name, Dir::remove_file)));
    }

    fn rmdir(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.send(may_sleep(|| self.remove(request.node, name, Dir::remove_dir)));
    }

    fn rename(&self, request: &Request, rename: &Rename<'_>, reply: Reply<()>) {
        reply.send(may_sleep(|| self.move_name((request.node, &request.caller), rename)));
    }

    fn read(&self, request: &Request, read: &Read, reply: Reply<Bytes>) {
        self.read_file(request.node, read, reply);
    }

    fn write(&self, request: &Request, write: &Write<'_>, reply: Reply<Written>) {
        self.write_file((request.node, &request.caller), write, reply);
    }

    fn fsync(&self, request: &Request, _: &Fsync, reply: Reply<()>) {
        reply.send(self.sync(request.node));
    }

    fn fsyncdir(&self, request: &Request, _: &Fsync, reply: Reply<()>) {
        reply.send(self.sync(request.node));
    }

    fn syncfs(&self, _: &Request, reply: Reply<()>) {
        reply.send(may_sleep(|| self.filesystem.commit()).map_err(errno));
    }

    fn readdir(&self, request: &Request, read: &Read, reply: Reply<Names>) {
        self.list_names(request.node, read, reply);
    }

    fn readdirplus(&self, request: &Request, read: &Read, reply: Reply<Entries>) {
        self.list_entries(request.node, read, reply);
    }

    fn statfs(&self, _: &Request, reply: Reply<Statistics>) {
        reply.send(may_sleep(|| self.statistics()));
    }

    fn setxattr(&self, request: &Request, setxattr: &Setxattr<'_>, reply: Reply<()>) {
        reply.send(may_sleep(|| self.set_xattr(request.node, setxattr)));
    }

    fn getxattr(&self, request: &Request, getxattr: &Getxattr<'_>, reply: Reply<Value>) {
        let value = may_sleep(|| self.xattr(request.node, getxattr.name));
        reply.send(value.as_deref().map_err(|error| *error));
    }

    fn listxattr(&self, request: &Request, reply: Reply<Value>) {
        let names = may_sleep(|| self.xattr_names(request.node));
        reply.send(names.as_deref().map_err(|error| *error));
    }

    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        reply.send(may_sleep(|| self.remove_xattr((request.node, &request.caller), name)));
    }

    fn ioctl(&self, request: &Request, ioctl: &Ioctl<'_>, reply: Reply<IoctlData>) {
        let limit = usize::try_from(reply.size()).expect("a size in memory");
        let done = may_wait(|| match ioctl.command {
            shutdown::COMMAND => self.shut_down(&request.caller, ioctl.argument),
            _ => self.control(request, ioctl),
        });
        let fitting = done.as_ref().map(|bytes| (0, &bytes[..bytes.len().min(limit)]));
        reply.send(fitting.map_err(|error| *error));
    }

    fn fallocate(&self, request: &Request, fallocate: &Fallocate, reply: Reply<()>) {
        reply.send(may_wait(|| self.allocate(request.node, fallocate)));
    }

    fn lseek(&self, request: &Request, lseek: &Lseek, reply: Reply<Position>) {
        reply.send(may_wait(|| self.seek(request.node, lseek)));
    }

    fn copy_file_range(&self, request: &Request, copy: &CopyFileRange, reply: Reply<Copied>) {
        reply.send(may_sleep(|| self.copy((request.node, &request.caller), copy)));
    }
}
