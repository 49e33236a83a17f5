//! The trait that a filesystem implements to be served.

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

/// A filesystem as the kernel sees it: one method for each kind of request.
///
/// 1. Methods are called from many threads at once. Each answers by its `reply`, before it returns
///    or later; borrows from the request end when the method returns.
/// 2. A method that may wait for a disk or another thread does so in
///    [`may_sleep`](crate::may_sleep), or answers from another thread.
/// 3. A method that is not implemented answers ENOSYS. The kernel then does without many kinds of
///    requests, and never sends them again; the methods' docs say so where it matters.
/// 4. Each [`Entry`] that is sent adds a reference to its node (nlookup), which
///    [`forget`](Self::forget) drops. A node without references and names can be deleted.
#[expect(unused_variables, reason = "what is not written looks at nothing")]
pub trait Server: Send + Sync + 'static {
    /// Called when the mount begins, before any request.
    fn init(&self, agreement: &Negotiated, notifier: Notifier) {}

    /// Called when a block device is unmounted: umount(8) waits for the answer. The kernel does not
    /// send this for other mounts, nor for those that are stopped or aborted: these end with the
    /// session.
    fn destroy(&self, request: &Request, reply: Reply<()>) {
        reply.succeed(&());
    }

    /// Finds a name in a directory. If there is none: ENOENT, or [`Entry::absent`], which the
    /// kernel caches.
    fn lookup(&self, request: &Request, name: Name<'_>, reply: Reply<Entry>) {
        reply.fail(Errno::NOSYS);
    }

    /// Drops `lookups` references to a node.
    fn forget(&self, node: NodeId, lookups: u64) {}

    /// Reads attributes.
    fn getattr(&self, request: &Request, handle: Option<Handle>, reply: Reply<Stat>) {
        reply.fail(Errno::NOSYS);
    }

    /// Reads attributes and the time of birth. ENOSYS: the kernel only sends GETATTR.
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

    /// Makes a node that is not a directory.
    fn mknod(&self, request: &Request, mknod: &Mknod<'_>, reply: Reply<Entry>) {
        reply.fail(Errno::NOSYS);
    }

    /// Makes a directory.
    fn mkdir(&self, request: &Request, mkdir: &Mkdir<'_>, reply: Reply<Entry>) {
        reply.fail(Errno::NOSYS);
    }

    /// Removes a name of a node that is not a directory.
    fn unlink(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Removes an empty directory.
    fn rmdir(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Renames. ENOSYS to a rename with flags: later ones fail with EINVAL.
    fn rename(&self, request: &Request, rename: &Rename<'_>, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Adds a name to a node.
    fn link(&self, request: &Request, link: &Link<'_>, reply: Reply<Entry>) {
        reply.fail(Errno::NOSYS);
    }

    /// Opens a file. ENOSYS: every open succeeds, with a handle of zero and a cache that is kept,
    /// and neither OPEN nor RELEASE is sent again.
    fn open(&self, request: &Request, open: &Open, reply: Reply<Opened>) {
        reply.fail(Errno::NOSYS);
    }

    /// Makes and opens a file. ENOSYS: the kernel sends MKNOD and OPEN instead.
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

    /// Called when a descriptor of a file is closed. ENOSYS: it is never sent again.
    fn flush(&self, request: &Request, flush: &Flush, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Closes a handle. No program waits for the answer.
    fn release(&self, request: &Request, release: &Release, reply: Reply<()>) {
        reply.succeed(&());
    }

    /// Makes a file durable. ENOSYS: every fsync(2) succeeds, and FSYNC is never sent again.
    fn fsync(&self, request: &Request, fsync: &Fsync, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Opens a directory. ENOSYS: as for OPEN.
    fn opendir(&self, request: &Request, open: &Open, reply: Reply<Opened>) {
        reply.fail(Errno::NOSYS);
    }

    /// Lists a directory, beginning after the entry whose `next` is the offset.
    fn readdir(&self, request: &Request, read: &Read, reply: Reply<Names>) {
        reply.fail(Errno::NOSYS);
    }

    /// Lists a directory and looks its names up. Required of a server that agreed to
    /// DO_READDIRPLUS.
    fn readdirplus(&self, request: &Request, read: &Read, reply: Reply<Entries>) {
        reply.fail(Errno::NOSYS);
    }

    /// Closes a handle of a directory.
    fn releasedir(&self, request: &Request, release: &Release, reply: Reply<()>) {
        reply.succeed(&());
    }

    /// Makes a directory durable. ENOSYS: as for FSYNC.
    fn fsyncdir(&self, request: &Request, fsync: &Fsync, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Makes everything durable; only sent for mounts of block devices. ENOSYS: every sync(2)
    /// succeeds, and SYNCFS is never sent again.
    fn syncfs(&self, request: &Request, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Returns the space that is used and free.
    fn statfs(&self, request: &Request, reply: Reply<Statistics>) {
        reply.fail(Errno::NOSYS);
    }

    /// Sets an extended attribute. ENOSYS: there are none.
    fn setxattr(&self, request: &Request, setxattr: &Setxattr<'_>, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Reads an extended attribute; ENODATA if it does not exist. ENOSYS: there are none.
    fn getxattr(&self, request: &Request, getxattr: &Getxattr<'_>, reply: Reply<Value>) {
        reply.fail(Errno::NOSYS);
    }

    /// Lists the names of extended attributes, each followed by a NUL. ENOSYS: there are none.
    fn listxattr(&self, request: &Request, reply: Reply<Value>) {
        reply.fail(Errno::NOSYS);
    }

    /// Removes an extended attribute. ENOSYS: there are none.
    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Checks permission; only sent if the kernel does not check itself. ENOSYS: all is allowed.
    fn access(&self, request: &Request, mask: Access, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Finds a conflicting lock: answers with it, or with the requested lock of the kind none.
    fn getlk(&self, request: &Request, lock: &LockRequest, reply: Reply<Lock>) {
        reply.fail(Errno::NOSYS);
    }

    /// Takes or releases a lock. With `wait` it waits for the lock, and should watch for an
    /// interrupt.
    fn setlk(&self, request: &Request, lock: &LockRequest, wait: bool, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Finds a block of a file on its device.
    fn bmap(&self, request: &Request, block: u64, block_size: u32, reply: Reply<Block>) {
        reply.fail(Errno::NOSYS);
    }

    /// Handles ioctl(2). ENOSYS: programs get ENOTTY.
    fn ioctl(&self, request: &Request, ioctl: &Ioctl<'_>, reply: Reply<IoctlData>) {
        reply.fail(Errno::NOSYS);
    }

    /// Returns the readiness of a file. ENOSYS: files are always ready.
    fn poll(&self, request: &Request, poll: &Poll, reply: Reply<Events>) {
        reply.fail(Errno::NOSYS);
    }

    /// Allocates, punches or zeroes a range. ENOSYS: programs get EOPNOTSUPP.
    fn fallocate(&self, request: &Request, fallocate: &Fallocate, reply: Reply<()>) {
        reply.fail(Errno::NOSYS);
    }

    /// Finds data or a hole; ENXIO if there is none. ENOSYS: files have no holes.
    ///
    /// With [`WRITEBACK_CACHE`](crate::InitFlags::WRITEBACK_CACHE) the kernel does not write back
    /// before it sends this, so its dirty data could be taken for a hole. A server with holes has
    /// the file written back first, by [`Notifier::invalidate_inode`] in
    /// [`may_wait`](crate::may_wait).
    fn lseek(&self, request: &Request, lseek: &Lseek, reply: Reply<Position>) {
        reply.fail(Errno::NOSYS);
    }

    /// Copies between files. ENOSYS to the kind with 64 bits: the kernel sends the older kind;
    /// ENOSYS to that: it reads and writes.
    fn copy_file_range(&self, request: &Request, copy: &CopyFileRange, reply: Reply<Copied>) {
        reply.fail(Errno::NOSYS);
    }
}
