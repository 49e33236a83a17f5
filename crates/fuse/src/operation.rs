//! What a request asks for, after its bytes were judged.
//!
//! 1. Names are names, times are times, offsets are at most 2^63 - 1; flags that the kernel may
//!    add later are kept as they came.
//! 2. Bytes stay where they were received: what is borrowed lives as long as the buffer.

use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, XattrFlags};

use crate::opcode::Opcode;
use crate::values::{Caller, DeviceNumber, Handle, LockOwner, Name, NodeId, Timestamp};
use crate::wire;

/// What is known of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number: no other request of the mount has it.
    pub unique: u64,
    /// Its kind.
    pub opcode: Opcode,
    /// The node it is about; zero where it is about none.
    pub node: NodeId,
    /// For whom.
    pub caller: Caller,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Finds a name.
    Lookup(Name<'a>),
    /// Takes references off nodes.
    Forget(Forgotten<'a>),
    /// Reads attributes, by a handle if there is one.
    Getattr(Option<Handle>),
    /// Changes attributes.
    Setattr(Changes),
    /// Reads a symbolic link.
    Readlink,
    /// Makes a symbolic link.
    Symlink(Symlink<'a>),
    /// Makes a node that is no directory.
    Mknod(Mknod<'a>),
    /// Makes a directory.
    Mkdir(Mkdir<'a>),
    /// Removes the name of what is no directory.
    Unlink(Name<'a>),
    /// Removes an empty directory.
    Rmdir(Name<'a>),
    /// Renames.
    Rename(Rename<'a>),
    /// Gives a node another name.
    Link(Link<'a>),
    /// Opens a file.
    Open(Open),
    /// Reads from a file.
    Read(Read),
    /// Writes to a file.
    Write(Write<'a>),
    /// Counts space.
    Statfs,
    /// Ends a handle.
    Release(Release),
    /// Makes a file durable.
    Fsync(Fsync),
    /// Sets an extended attribute.
    Setxattr(Setxattr<'a>),
    /// Reads an extended attribute.
    Getxattr(Getxattr<'a>),
    /// Lists the names of extended attributes.
    Listxattr {
        /// Bytes that the caller has room for; zero asks how many are needed.
        size: u32,
    },
    /// Removes an extended attribute, of this name.
    Removexattr(&'a [u8]),
    /// A descriptor was closed.
    Flush(Flush),
    /// The first request.
    Init(InitOffer),
    /// Opens a directory.
    Opendir(Open),
    /// Lists a directory. The offset is where the last listing ended.
    Readdir(Read),
    /// Lists a directory with what LOOKUP would say of each name.
    Readdirplus(Read),
    /// Ends a handle of a directory.
    Releasedir(Release),
    /// Makes a directory durable.
    Fsyncdir(Fsync),
    /// Looks for a lock in the way.
    Getlk(LockRequest),
    /// Takes or releases a lock.
    Setlk(LockRequest),
    /// Takes a lock, waiting for it.
    Setlkw(LockRequest),
    /// Checks permission.
    Access(Access),
    /// Makes and opens a file.
    Create(Create<'a>),
    /// Makes and opens a file without a name.
    Tmpfile(Tmpfile),
    /// Somebody no longer wants to wait for the answer to this request.
    Interrupt {
        /// The number of the request.
        unique: u64,
    },
    /// Finds a block of a file on its device.
    Bmap {
        /// The block of the file.
        block: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// The last request of a block device's mount.
    Destroy,
    /// Device control.
    Ioctl(Ioctl<'a>),
    /// Readiness.
    Poll(Poll),
    /// Allocates, punches, zeroes.
    Fallocate(Fallocate),
    /// Finds data or a hole.
    Lseek(Lseek),
    /// Copies between files.
    CopyFileRange(CopyFileRange),
    /// Makes everything durable.
    Syncfs,
    /// Reads attributes with the time of birth.
    Statx(Statx),
    /// What is not known here.
    Unknown(Opcode),
}

/// The nodes of a FORGET or BATCH_FORGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten<'a>(pub(crate) ForgottenNodes<'a>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForgottenNodes<'a> {
    One(NodeId, u64),
    /// Whole `wire::ForgetOne`s.
    Many(&'a [u8]),
}

impl Forgotten<'_> {
    /// Calls `each` with every node and how many references go.
    pub fn for_each(self, mut each: impl FnMut(NodeId, u64)) {
        match self.0 {
            ForgottenNodes::One(node, lookups) => each(node, lookups),
            ForgottenNodes::Many(nodes) => {
                let (nodes, _) = nodes.as_chunks::<{ size_of::<wire::ForgetOne>() }>();
                for node in nodes {
                    let node: wire::ForgetOne = zerocopy::transmute!(*node);
                    each(NodeId(node.nodeid), node.nlookup);
                }
            }
        }
    }
}

/// SETATTR: what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permission bits, with the bits of the kind.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The length in bytes, at most 2^63 - 1.
    pub size: Option<u64>,
    /// The time of access.
    pub atime: Option<NewTime>,
    /// The time of change of contents.
    pub mtime: Option<NewTime>,
    /// The time of change of attributes; sent only with a writeback cache.
    pub ctime: Option<Timestamp>,
    /// The handle through which the change is made.
    pub handle: Option<Handle>,
    /// Who changes the size, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// Set-user-id and, if the group may execute, set-group-id are to be taken away: see
    /// [`InitFlags::HANDLE_KILLPRIV_V2`](crate::InitFlags::HANDLE_KILLPRIV_V2).
    pub kill_suid_sgid: bool,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// That of the server's clock.
    Now,
    /// This one.
    At(Timestamp),
}

/// SYMLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symlink<'a> {
    /// The name of the link.
    pub name: Name<'a>,
    /// Where it leads: not empty, no NUL.
    pub target: &'a [u8],
}

/// MKNOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mknod<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// The kind and the permission bits.
    pub mode: u32,
    /// Bits of the mode that are not to be set, unless a default access list says otherwise. They
    /// are taken off already where [`InitFlags::DONT_MASK`](crate::InitFlags::DONT_MASK) was not
    /// agreed on.
    pub umask: u32,
    /// Which device, if it is one.
    pub device: DeviceNumber,
}

/// MKDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mkdir<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// The permission bits; the kind need not be there.
    pub mode: u32,
    /// As in [`Mknod`].
    pub umask: u32,
}

/// RENAME and RENAME2; the request's node is the directory of the old name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename<'a> {
    /// The old name.
    pub name: Name<'a>,
    /// The directory of the new name.
    pub new_parent: NodeId,
    /// The new name.
    pub new_name: Name<'a>,
    /// What becomes of a file that has the new name, and of the old name.
    pub flags: RenameFlags,
}

/// LINK; the request's node is the directory of the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// What gets the name.
    pub target: NodeId,
    /// The name.
    pub name: Name<'a>,
}

/// OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The flags of open(2), without those that make a file.
    pub flags: OFlags,
    /// Set-user-id and set-group-id end, as the file is truncated.
    pub kill_suid_sgid: bool,
}

/// CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// The flags of open(2).
    pub flags: OFlags,
    /// The kind and the permission bits.
    pub mode: u32,
    /// As in [`Mknod`].
    pub umask: u32,
    /// As in [`Open`].
    pub kill_suid_sgid: bool,
}

/// TMPFILE; the request's node is the directory that it would belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tmpfile {
    /// The flags of open(2).
    pub flags: OFlags,
    /// The kind and the permission bits.
    pub mode: u32,
    /// As in [`Mknod`].
    pub umask: u32,
}

/// READ, READDIR, READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The open file.
    pub handle: Handle,
    /// The first byte; of a directory, what the last entry that was read gave as its next.
    pub offset: u64,
    /// The most bytes to answer with.
    pub size: u32,
    /// Who reads, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// The flags of the open file now.
    pub flags: OFlags,
}

/// WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The open file; any handle of it where `from_cache` says so.
    pub handle: Handle,
    /// The first byte.
    pub offset: u64,
    /// What to write.
    pub data: &'a [u8],
    /// Written back from the kernel's page cache, by nobody in particular.
    pub from_cache: bool,
    /// Set-user-id and set-group-id end.
    pub kill_suid_sgid: bool,
    /// Who writes, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// The flags of the open file now.
    pub flags: OFlags,
}

/// RELEASE and RELEASEDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The handle that ends.
    pub handle: Handle,
    /// The flags of the open file.
    pub flags: OFlags,
    /// Whose flock(2) locks end with it, if those are the server's to keep.
    pub flock_owner: Option<LockOwner>,
}

/// FLUSH: sent at each close(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The open file.
    pub handle: Handle,
    /// Whose POSIX locks end, if those are the server's to keep.
    pub lock_owner: LockOwner,
}

/// FSYNC and FSYNCDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsync {
    /// The open file.
    pub handle: Handle,
    /// fdatasync(2): what is not needed to read the contents may wait.
    pub data_only: bool,
}

/// SETXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setxattr<'a> {
    /// The name with its namespace: not empty, no NUL.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether it must be there, or must not.
    pub flags: XattrFlags,
    /// It is an access list, and set-group-id must end.
    pub kill_sgid: bool,
}

/// GETXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Getxattr<'a> {
    /// The name with its namespace: not empty, no NUL.
    pub name: &'a [u8],
    /// Bytes that the caller has room for; zero asks how many are needed.
    pub size: u32,
}

/// The kinds of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: releases.
    None,
}

/// A lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
    /// What is locked.
    pub kind: LockKind,
    /// The process that has the lock.
    pub pid: u32,
}

/// GETLK, SETLK and SETLKW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The open file.
    pub handle: Handle,
    /// Who asks.
    pub owner: LockOwner,
    /// The lock.
    pub lock: Lock,
    /// A lock of flock(2): on the whole file, held by the open file.
    pub is_flock: bool,
}

/// IOCTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// The open file or directory.
    pub handle: Handle,
    /// Who asks and how.
    pub flags: IoctlFlags,
    /// The command, with direction and size in it.
    pub command: u32,
    /// The argument as it stood: mostly an address of the caller's.
    pub argument: u64,
    /// What the caller gave, as long as the command says.
    pub input: &'a [u8],
    /// The most bytes that go back.
    pub output_size: u32,
}

bitflags::bitflags! {
    /// What is known of an ioctl's caller.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IoctlFlags: u32 {
        /// A 32-bit program on a 64-bit kernel.
        const COMPAT = 1 << 0;
        /// Not restricted to what the command says; only devices of CUSE get this.
        const UNRESTRICTED = 1 << 1;
        /// The caller has 32-bit words.
        const WORDS_32 = 1 << 3;
        /// On a directory.
        const DIRECTORY = 1 << 4;
        /// A program of the x32 interface.
        const COMPAT_X32 = 1 << 5;
        const _ = !0;
    }
}

/// POLL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The open file.
    pub handle: Handle,
    /// What to notify with, if a notification is wanted.
    pub notify: Option<u64>,
    /// The events of poll(2) that are asked for.
    pub events: u32,
}

/// FALLOCATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallocate {
    /// The open file.
    pub handle: Handle,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; they end at 2^63 - 1 or before.
    pub length: u64,
    /// What to do with the range.
    pub mode: FallocateFlags,
}

/// What LSEEK looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next byte at the offset or after it that is data.
    Data,
    /// The next that is in a hole; the end of the file counts as one.
    Hole,
}

/// LSEEK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lseek {
    /// The open file.
    pub handle: Handle,
    /// Where to begin; the kernel passes negative ones on.
    pub offset: i64,
    /// What to look for.
    pub whence: Whence,
}

/// COPY_FILE_RANGE and COPY_FILE_RANGE_64; the request's node is the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// The open file to copy from.
    pub handle: Handle,
    /// The first byte there.
    pub offset: u64,
    /// The file to copy to.
    pub target: NodeId,
    /// The open file to copy to.
    pub target_handle: Handle,
    /// The first byte there.
    pub target_offset: u64,
    /// How many bytes at most; below 2^32 where the answer has 32 bits.
    pub length: u64,
    /// None are known.
    pub flags: u64,
}

/// STATX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statx {
    /// The open file, if it is asked for by one.
    pub handle: Option<Handle>,
    /// The flags of statx(2).
    pub flags: u32,
    /// The mask of statx(2).
    pub mask: u32,
}

/// INIT: what the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitOffer {
    /// The major version of its protocol.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The most bytes it would read ahead.
    pub max_readahead: u32,
    /// What it can do.
    pub flags: crate::InitFlags,
}
