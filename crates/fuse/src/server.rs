//! What a filesystem does to be served.

use rustix::fs::Access;
use rustix::io::Errno;

use crate::answer::{
    Block, Copied, Created, Entry, Events, ExtendedStat, Opened, Position, Stat, Statistics,
    Written,
};
use crate::listing::{Entries, Names};
use crate::negotiate::Negotiated;
use crate::notify::Notifier;
use crate::operation::{
    Changes, CopyFileRange, Create, Fallocate, Flush, Fsync, Getxattr, Ioctl, Link, Lock,
    LockRequest, Lseek, Mkdir, Mknod, Open, Poll, Read, Release, Rename, Request, Setxattr, Statx,
    Symlink, Tmpfile, Write,
};
use crate::reply::{Bytes, IoctlData, Reply, Value};
use crate::values::{Handle, Name, NodeId};

/// A filesystem, as the kernel asks for it: one method for each kind of request.
///
/// 1. Methods are called from many threads at once. Each answers by its `reply`, before it returns
///    or later; what borrows from the request is gone when the method returns.
/// 2. A method that may wait for a disk or for others does so in [`may_sleep`](crate::may_sleep),
///    or answers from another thread.
/// 3. What is not written answers ENOSYS. Of many kinds the kernel then makes do without and never
///    asks again; where that is worth knowing it is said here.
/// 4. Each [`Entry`] that is sent adds a reference to its node; [`forget`](Self::forget) takes
///    references off. A node without references, and without a name, can go.
#[expect(unused_variables, reason = "what is not written looks at nothing")]
pub trait Server: Send + Sync + 'static {
    /// The mount begins; nothing was asked yet.
    fn init(&self, agreement: &Negotiated, notifier: Notifier) {}

    /// The mount of a block device ends: umount(8) waits for the answer. Of other mounts, and of
    /// those that are stopped or aborted, the kernel does not say so; there the end of the session
    /// is the end.
    fn destroy(&self, request: &Request, reply: Reply<()>) {
        reply.succeed(&());
    }

    /// Finds a name in a directory. ENOENT, or [`Entry::absent`] for the kernel to keep it.
    fn lookup(&self, request: &Request, name: Name<'_>, reply: Reply<Entry>) {
        reply.fail(Errno::NOSYS);
    }

    /// Takes `lookups` references off a node.
    fn forget(&self, node: NodeId, lookups: u64) {}

    /// Reads attributes.
    fn getattr(&self, request: &Request, handle: Option<Handle>, reply: Reply<Stat>) {
        reply.fail(Errno::NOSYS);
    }

    /// Reads attributes and the time of birth. ENOSYS: only GETATTR is asked.
    fn statx(&self, request: &Request, statx: &Statx, reply: Reply<ExtendedStat>) {
        reply.fail(Errno::NOSYS);
    }

    /// Changes attributes.
    fn setattr(&self, request: &Request, changes: &Changes, reply: Reply<Stat>) {
        reply.fail(Errno::NOSYS);
    }

    /// Reads a symbolic link.
    fn readlink(&self, request: &Request, reply: Reply<Bytes>) {
        reply.fail(Errno::NOSYS);
    }

    /// Makes a symbolic link.
    fn symlink(&self, request: &Request, symlink: &Symlink<'_>, reply: Reply<Entry>) {
        reply.fail(Errno::NOSYS);
    }

    /// Makes a node that is no directory.
    fn mknod(&self, request: &Request, mknod: &Mknod<'_>, reply: Reply<Entry>) {
        reply.fail(Errno::NOSYS);
    }

    /// Makes a directory.
    fn mkdir(&self, request: &Request, mkdir: &Mkdir<'_>, reply: Reply<Entry>) {
        reply.fail(Errno::NOSYS);
    }

    /// Removes the name of what is no directory.
    fn unlink(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Removes an empty directory.
    fn rmdir(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Renames. ENOSYS to one with flags: EINVAL to those that follow.
    fn rename(&self, request: &Request, rename: &Rename<'_>, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Gives a node another name.
    fn link(&self, request: &Request, link: &Link<'_>, reply: Reply<Entry>) {
        reply.fail(Errno::NOSYS);
    }

    /// Opens a file. ENOSYS: every file is open, with a handle of zero and a cache that stays,
    /// and neither OPEN nor RELEASE comes again.
    fn open(&self, request: &Request, open: &Open, reply: Reply<Opened>) {
        reply.fail(Errno::NOSYS);
    }

    /// Makes and opens a file. ENOSYS: MKNOD and OPEN.
    fn create(&self, request: &Request, create: &Create<'_>, reply: Reply<Created>) {
        reply.fail(Errno::NOSYS);
    }

    /// Makes and opens a file without a name. ENOSYS: programs get EOPNOTSUPP.
    fn tmpfile(&self, request: &Request, tmpfile: &Tmpfile, reply: Reply<Created>) {
        reply.fail(Errno::NOSYS);
    }

    /// Reads from a file.
    fn read(&self, request: &Request, read: &Read, reply: Reply<Bytes>) {
        reply.fail(Errno::NOSYS);
    }

    /// Writes to a file.
    fn write(&self, request: &Request, write: &Write<'_>, reply: Reply<Written>) {
        reply.fail(Errno::NOSYS);
    }

    /// A descriptor of a file was closed. ENOSYS: it never comes again.
    fn flush(&self, request: &Request, flush: &Flush, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Ends a handle. Nobody waits for it.
    fn release(&self, request: &Request, release: &Release, reply: Reply<()>) {
        reply.succeed(&());
    }

    /// Makes a file durable. ENOSYS: every fsync(2) succeeds, and is never asked for again.
    fn fsync(&self, request: &Request, fsync: &Fsync, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Opens a directory. ENOSYS: as for OPEN.
    fn opendir(&self, request: &Request, open: &Open, reply: Reply<Opened>) {
        reply.fail(Errno::NOSYS);
    }

    /// Lists a directory, from after the entry whose `next` is the offset.
    fn readdir(&self, request: &Request, read: &Read, reply: Reply<Names>) {
        reply.fail(Errno::NOSYS);
    }

    /// Lists a directory and looks its names up. A server that agreed to DO_READDIRPLUS has it.
    fn readdirplus(&self, request: &Request, read: &Read, reply: Reply<Entries>) {
        reply.fail(Errno::NOSYS);
    }

    /// Ends a handle of a directory.
    fn releasedir(&self, request: &Request, release: &Release, reply: Reply<()>) {
        reply.succeed(&());
    }

    /// Makes a directory durable. ENOSYS: as for FSYNC.
    fn fsyncdir(&self, request: &Request, fsync: &Fsync, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Makes everything durable; comes for mounts of block devices only. ENOSYS: every sync(2)
    /// succeeds, and is never asked for again.
    fn syncfs(&self, request: &Request, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Counts space.
    fn statfs(&self, request: &Request, reply: Reply<Statistics>) {
        reply.fail(Errno::NOSYS);
    }

    /// Sets an extended attribute. ENOSYS: there are none.
    fn setxattr(&self, request: &Request, setxattr: &Setxattr<'_>, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Reads an extended attribute: ENODATA where there is none. ENOSYS: there are none.
    fn getxattr(&self, request: &Request, getxattr: &Getxattr<'_>, reply: Reply<Value>) {
        reply.fail(Errno::NOSYS);
    }

    /// Lists the names of extended attributes, each with a NUL behind it. ENOSYS: there are none.
    fn listxattr(&self, request: &Request, reply: Reply<Value>) {
        reply.fail(Errno::NOSYS);
    }

    /// Removes an extended attribute. ENOSYS: there are none.
    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Checks permission; comes only where the kernel does not check itself. ENOSYS: all is
    /// allowed.
    fn access(&self, request: &Request, mask: Access, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Looks for a lock in the way: answers it, or the same lock of the kind none.
    fn getlk(&self, request: &Request, lock: &LockRequest, reply: Reply<Lock>) {
        reply.fail(Errno::NOSYS);
    }

    /// Takes or releases a lock. With `wait` it waits for it, and should watch for an interrupt.
    fn setlk(&self, request: &Request, lock: &LockRequest, wait: bool, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Finds a block of a file on its device.
    fn bmap(&self, request: &Request, block: u64, block_size: u32, reply: Reply<Block>) {
        reply.fail(Errno::NOSYS);
    }

    /// Device control. ENOSYS: programs get ENOTTY.
    fn ioctl(&self, request: &Request, ioctl: &Ioctl<'_>, reply: Reply<IoctlData>) {
        reply.fail(Errno::NOSYS);
    }

    /// Readiness. ENOSYS: files are always ready.
    fn poll(&self, request: &Request, poll: &Poll, reply: Reply<Events>) {
        reply.fail(Errno::NOSYS);
    }

    /// Allocates, punches, zeroes. ENOSYS: programs get EOPNOTSUPP.
    fn fallocate(&self, request: &Request, fallocate: &Fallocate, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Finds data or a hole: ENXIO where there is none. ENOSYS: files are one piece of data.
    ///
    /// With [`WRITEBACK_CACHE`](crate::InitFlags::WRITEBACK_CACHE) the kernel asks without having
    /// written back, and what it still keeps would pass for a hole. Who knows of holes has it
    /// written back before, by [`Notifier::invalidate_inode`] in
    /// [`may_sleep`](crate::may_sleep).
    fn lseek(&self, request: &Request, lseek: &Lseek, reply: Reply<Position>) {
        reply.fail(Errno::NOSYS);
    }

    /// Copies between files. ENOSYS to the kind with 64 bits: the older kind; to that: the kernel
    /// reads and writes.
    fn copy_file_range(&self, request: &Request, copy: &CopyFileRange, reply: Reply<Copied>) {
        reply.fail(Errno::NOSYS);
    }
}
