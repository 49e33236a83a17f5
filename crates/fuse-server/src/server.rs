//! Dispatches each request to the operation that answers it.
//!
//! 1. A method that may wait for the device does so in `may_sleep`, while another thread receives
//!    requests. That is every method that reads an inode, which may have been evicted; it costs two
//!    short locks a request. Attributes in memory, which are requested most, are sent without it;
//!    the cached contents of a file are sent after it.
//! 2. OPEN, OPENDIR, FLUSH and their releases are not implemented: the kernel works without them.
//!    Neither are ACCESS and locks, which the kernel handles.

use userbtrfs_engine::api::{self, Error, Filesystem};
use userbtrfs_fuse::{
    Bytes, Changes, Copied, CopyFileRange, Create, Created, Entries, Entry, ExtendedStat,
    Fallocate, Fsync, Getxattr, Handle, Ioctl, IoctlData, Link, Lseek, Mkdir, Mknod, Name, Names,
    Negotiated, NodeId, Notifier, Position, Read, Rename, Reply, Request, Server, Setxattr, Stat,
    Statistics, Statx, Symlink, Tmpfile, Value, Write, Written, may_sleep, may_wait,
};
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::attributes::AttributeOps;
use crate::contents::FileOps;
use crate::context::{Context, Settings};
use crate::errno;
use crate::ioctls::IoctlOps;
use crate::listing::ListingOps;
use crate::lookup::LookupOps;
use crate::names::NameOps;
use crate::statfs::statfs;
use crate::sync::SyncOps;
use crate::xattrs::XattrOps;

/// The server of a mounted filesystem.
pub(crate) struct FuseServer {
    pub(crate) context: Context,
    /// The error that kept the end of the mount from making everything durable.
    failed: Mutex<Option<Error>>,
}

impl FuseServer {
    pub(crate) fn new(filesystem: Filesystem, settings: Settings) -> Self {
        let context = Context::new(filesystem, settings);
        Self { context, failed: Mutex::new(Class::FuseSession, None) }
    }

    /// Makes everything durable at the end of the mount; see [`SyncOps::finish`].
    pub(crate) fn finish(&self) {
        if let Err(error) = self.syncs().finish() {
            // The first of several errors is kept: the others may follow from it.
            self.failed.lock().get_or_insert(error);
        }
    }

    /// Returns the error that `finish` recorded, and clears it.
    pub(crate) fn take_failure(&self) -> api::Result<()> {
        self.failed.lock().take().map_or(Ok(()), Err)
    }

    /// Leaves the group of mounts; returns whether no mount is left in it.
    pub(crate) fn leave_group(&self) -> bool {
        self.syncs().leave_group()
    }

    fn attributes(&self) -> AttributeOps<'_> {
        AttributeOps { context: &self.context }
    }

    fn files(&self) -> FileOps<'_> {
        FileOps { context: &self.context }
    }

    fn ioctls(&self) -> IoctlOps<'_> {
        IoctlOps { context: &self.context }
    }

    fn listings(&self) -> ListingOps<'_> {
        ListingOps { context: &self.context }
    }

    fn lookups(&self) -> LookupOps<'_> {
        LookupOps { context: &self.context }
    }

    fn names(&self) -> NameOps<'_> {
        NameOps { context: &self.context }
    }

    fn syncs(&self) -> SyncOps<'_> {
        SyncOps { context: &self.context }
    }

    fn xattrs(&self) -> XattrOps<'_> {
        XattrOps { context: &self.context }
    }
}

impl Server for FuseServer {
    fn init(&self, agreement: &Negotiated, notifier: Notifier) {
        self.context.init(agreement, notifier);
    }

    fn destroy(&self, _: &Request, reply: Reply<()>) {
        may_sleep(|| self.finish());
        reply.succeed(&());
    }

    fn lookup(&self, request: &Request, name: Name<'_>, reply: Reply<Entry>) {
        reply.send(may_sleep(|| self.lookups().lookup(request.node, name)));
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.lookups().forget(node, lookups);
    }

    fn getattr(&self, request: &Request, handle: Option<Handle>, reply: Reply<Stat>) {
        reply.send(self.attributes().getattr(request, handle.is_some()));
    }

    fn statx(&self, request: &Request, _: &Statx, reply: Reply<ExtendedStat>) {
        reply.send(may_sleep(|| self.attributes().statx(request.node)));
    }

    fn setattr(&self, request: &Request, changes: &Changes, reply: Reply<Stat>) {
        reply.send(may_sleep(|| self.attributes().setattr(request, changes)));
    }

    fn readlink(&self, request: &Request, reply: Reply<Bytes>) {
        let target = may_sleep(|| self.context.inode(request.node).read_link());
        reply.send(target.as_deref().map_err(errno));
    }

    fn symlink(&self, request: &Request, symlink: &Symlink<'_>, reply: Reply<Entry>) {
        reply.send(may_sleep(|| self.names().symlink(request, symlink)));
    }

    fn mknod(&self, request: &Request, mknod: &Mknod<'_>, reply: Reply<Entry>) {
        reply.send(may_sleep(|| self.names().mknod(request, mknod)));
    }

    fn mkdir(&self, request: &Request, mkdir: &Mkdir<'_>, reply: Reply<Entry>) {
        reply.send(may_sleep(|| self.names().mkdir(request, mkdir)));
    }

    fn create(&self, request: &Request, create: &Create<'_>, reply: Reply<Created>) {
        reply.send(may_sleep(|| self.names().create(request, create)));
    }

    fn tmpfile(&self, request: &Request, tmpfile: &Tmpfile, reply: Reply<Created>) {
        reply.send(may_sleep(|| self.names().tmpfile(request, tmpfile)));
    }

    fn link(&self, request: &Request, link: &Link<'_>, reply: Reply<Entry>) {
        reply.send(may_sleep(|| self.names().link(request.node, link)));
    }

    fn unlink(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.send(may_sleep(|| self.names().unlink(request.node, name)));
    }

    fn rmdir(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.send(may_sleep(|| self.names().rmdir(request.node, name)));
    }

    fn rename(&self, request: &Request, rename: &Rename<'_>, reply: Reply<()>) {
        reply.send(may_sleep(|| self.names().rename(request, rename)));
    }

    fn read(&self, request: &Request, read: &Read, reply: Reply<Bytes>) {
        self.files().read(request.node, read, reply);
    }

    fn write(&self, request: &Request, write: &Write<'_>, reply: Reply<Written>) {
        self.files().write(request, write, reply);
    }

    fn fsync(&self, request: &Request, _: &Fsync, reply: Reply<()>) {
        reply.send(may_sleep(|| self.syncs().fsync(request.node)));
    }

    fn fsyncdir(&self, request: &Request, _: &Fsync, reply: Reply<()>) {
        reply.send(may_sleep(|| self.syncs().fsync(request.node)));
    }

    fn syncfs(&self, _: &Request, reply: Reply<()>) {
        reply.send(may_sleep(|| self.syncs().syncfs()));
    }

    fn readdir(&self, request: &Request, read: &Read, reply: Reply<Names>) {
        self.listings().readdir(request.node, read, reply);
    }

    fn readdirplus(&self, request: &Request, read: &Read, reply: Reply<Entries>) {
        self.listings().readdirplus(request.node, read, reply);
    }

    fn statfs(&self, _: &Request, reply: Reply<Statistics>) {
        reply.send(may_sleep(|| statfs(&self.context.filesystem)));
    }

    fn setxattr(&self, request: &Request, setxattr: &Setxattr<'_>, reply: Reply<()>) {
        reply.send(may_sleep(|| self.xattrs().setxattr(request.node, setxattr)));
    }

    fn getxattr(&self, request: &Request, getxattr: &Getxattr<'_>, reply: Reply<Value>) {
        let value = may_sleep(|| self.xattrs().getxattr(request.node, getxattr.name));
        reply.send(value.as_deref().map_err(|error| *error));
    }

    fn listxattr(&self, request: &Request, reply: Reply<Value>) {
        let names = may_sleep(|| self.xattrs().listxattr(request.node));
        reply.send(names.as_deref().map_err(|error| *error));
    }

    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        reply.send(may_sleep(|| self.xattrs().removexattr(request, name)));
    }

    fn ioctl(&self, request: &Request, ioctl: &Ioctl<'_>, reply: Reply<IoctlData>) {
        let limit = usize::try_from(reply.size()).expect("a size in memory");
        let is_interrupted = Arc::new(AtomicBool::new(false));
        if IoctlOps::may_take_long(ioctl) {
            let flag = Arc::clone(&is_interrupted);
            reply.on_interrupt(move || flag.store(true, Ordering::Relaxed));
        }
        let done = may_wait(|| self.ioctls().ioctl(request, ioctl, &is_interrupted));
        let fitting = done.as_ref().map(|answer| {
            let bytes = &answer.bytes[..answer.bytes.len().min(limit)];
            (answer.result, bytes)
        });
        reply.send(fitting.map_err(|error| *error));
    }

    fn fallocate(&self, request: &Request, fallocate: &Fallocate, reply: Reply<()>) {
        reply.send(may_wait(|| self.files().fallocate(request.node, fallocate)));
    }

    fn lseek(&self, request: &Request, lseek: &Lseek, reply: Reply<Position>) {
        reply.send(may_wait(|| self.files().lseek(request.node, lseek)));
    }

    fn copy_file_range(&self, request: &Request, copy: &CopyFileRange, reply: Reply<Copied>) {
        reply.send(may_sleep(|| self.files().copy_file_range(request, copy)));
    }
}
