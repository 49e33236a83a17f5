//! Parsed requests.
//!
//! 1. Names and times are valid, offsets are at most 2^63 - 1; unknown flags, which later kernels
//!    may add, are kept.
//! 2. Bytes are not copied: they are borrowed from the receive buffer.

use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, XattrFlags};

use crate::opcode::Opcode;
use crate::values::{Caller, DeviceNumber, Handle, LockOwner, Name, NodeId, Timestamp};
use crate::wire;

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the request, unique in the mount.
    pub unique: u64,
    /// The kind.
    pub opcode: Opcode,
    /// The node that the request is about, or zero.
    pub node: NodeId,
    /// The caller.
    pub caller: Caller,
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Finds a name.
    Lookup(Name<'a>),
    /// Drops references to nodes.
    Forget(Forgotten<'a>),
    /// Reads attributes, by a handle if there is one.
    Getattr(Option<Handle>),
    /// Changes attributes.
    Setattr(Changes),
    /// Reads a symbolic link.
    Readlink,
    /// Makes a symbolic link.
    Symlink(Symlink<'a>),
    /// Makes a node that is not a directory.
    Mknod(Mknod<'a>),
    /// Makes a directory.
    Mkdir(Mkdir<'a>),
    /// Removes a name of a node that is not a directory.
    Unlink(Name<'a>),
    /// Removes an empty directory.
    Rmdir(Name<'a>),
    /// Renames.
    Rename(Rename<'a>),
    /// Adds a name to a node.
    Link(Link<'a>),
    /// Opens a file.
    Open(Open),
    /// Reads from a file.
    Read(Read),
    /// Writes to a file.
    Write(Write<'a>),
    /// Returns the space that is used and free.
    Statfs,
    /// Closes a handle.
    Release(Release),
    /// Makes a file durable.
    Fsync(Fsync),
    /// Sets an extended attribute.
    Setxattr(Setxattr<'a>),
    /// Reads an extended attribute.
    Getxattr(Getxattr<'a>),
    /// Lists the names of extended attributes.
    Listxattr {
        /// The size of the caller's buffer; zero asks for the length of the list.
        size: u32,
    },
    /// Removes the extended attribute of this name.
    Removexattr(&'a [u8]),
    /// A descriptor was closed.
    Flush(Flush),
    /// The first request.
    Init(InitOffer),
    /// Opens a directory.
    Opendir(Open),
    /// Lists a directory. The offset is `next` of the last entry of the previous listing.
    Readdir(Read),
    /// Lists a directory, each name with the answer of LOOKUP.
    Readdirplus(Read),
    /// Closes a handle of a directory.
    Releasedir(Release),
    /// Makes a directory durable.
    Fsyncdir(Fsync),
    /// Finds a conflicting lock.
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
    /// Interrupts another request: its caller no longer wants to wait for the answer.
    Interrupt {
        /// The number of the request.
        unique: u64,
    },
    /// Finds a block of a file on its device.
    Bmap {
        /// The block of the file.
        block: u64,
        /// The size of a block in bytes.
        block_size: u32,
    },
    /// The last request of a block device's mount.
    Destroy,
    /// Handles ioctl(2).
    Ioctl(Ioctl<'a>),
    /// Returns the readiness of a file.
    Poll(Poll),
    /// Allocates, punches or zeroes a range.
    Fallocate(Fallocate),
    /// Finds data or a hole.
    Lseek(Lseek),
    /// Copies between files.
    CopyFileRange(CopyFileRange),
    /// Makes everything durable.
    Syncfs,
    /// Reads attributes with the time of birth.
    Statx(Statx),
    /// A request of an unknown kind.
    Unknown(Opcode),
}

/// The nodes of a FORGET or BATCH_FORGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten<'a>(pub(crate) ForgottenNodes<'a>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForgottenNodes<'a> {
    One(NodeId, u64),
    /// An array of `wire::ForgetOne`.
    Many(&'a [u8]),
}

impl Forgotten<'_> {
    /// Calls `each` with every node and the number of references to drop.
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

/// SETATTR: attributes that are `None` are not changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The file type and the permission bits.
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
    /// The lock owner that changes the size, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// Clear set-user-id and, if the group may execute, set-group-id: see
    /// [`InitFlags::HANDLE_KILLPRIV_V2`](crate::InitFlags::HANDLE_KILLPRIV_V2).
    pub kill_suid_sgid: bool,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The time of the server's clock.
    Now,
    /// This one.
    At(Timestamp),
}

/// SYMLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symlink<'a> {
    /// The name of the link.
    pub name: Name<'a>,
    /// The target: not empty, no NUL.
    pub target: &'a [u8],
}

/// MKNOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mknod<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// The kind and the permission bits.
    pub mode: u32,
    /// Bits to clear from the mode, unless the parent has a default ACL. The kernel has cleared
    /// them already if [`InitFlags::DONT_MASK`](crate::InitFlags::DONT_MASK) was not agreed on.
    pub umask: u32,
    /// The device number, for a device.
    pub device: DeviceNumber,
}

/// MKDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mkdir<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// The permission bits; the file type may be missing.
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
    /// The flags of renameat2(2).
    pub flags: RenameFlags,
}

/// LINK; the request's node is the directory of the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// The node to link.
    pub target: NodeId,
    /// The name.
    pub name: Name<'a>,
}

/// OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The flags of open(2), without those that make a file.
    pub flags: OFlags,
    /// Clear set-user-id and set-group-id, as the file is truncated.
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

/// TMPFILE; the request's node is the directory given to open(2).
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
    /// The first byte; for a directory, `next` of the last entry that was read.
    pub offset: u64,
    /// The maximum size of the answer in bytes.
    pub size: u32,
    /// The lock owner that reads, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// The flags of the open file now.
    pub flags: OFlags,
}

/// WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The open file; an arbitrary handle of the node if `from_cache`.
    pub handle: Handle,
    /// The first byte.
    pub offset: u64,
    /// The data to write.
    pub data: &'a [u8],
    /// Writeback from the kernel's page cache, not on behalf of a caller.
    pub from_cache: bool,
    /// Clear set-user-id and set-group-id.
    pub kill_suid_sgid: bool,
    /// The lock owner that writes, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// The flags of the open file now.
    pub flags: OFlags,
}

/// RELEASE and RELEASEDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The handle to close.
    pub handle: Handle,
    /// The flags of the open file.
    pub flags: OFlags,
    /// The owner whose flock(2) locks are released, if the server implements flock(2).
    pub flock_owner: Option<LockOwner>,
}

/// FLUSH: sent at each close(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The open file.
    pub handle: Handle,
    /// The owner whose POSIX locks are released, if the server implements them.
    pub lock_owner: LockOwner,
}

/// FSYNC and FSYNCDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsync {
    /// The open file.
    pub handle: Handle,
    /// fdatasync(2): metadata that is not needed to read the contents need not be durable.
    pub data_only: bool,
}

/// SETXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setxattr<'a> {
    /// The name with its namespace: not empty, no NUL.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether the attribute must exist, or must not.
    pub flags: XattrFlags,
    /// The attribute is an ACL, and set-group-id must be cleared.
    pub kill_sgid: bool,
}

/// GETXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Getxattr<'a> {
    /// The name with its namespace: not empty, no NUL.
    pub name: &'a [u8],
    /// The size of the caller's buffer; zero asks for the length of the value.
    pub size: u32,
}

/// The kinds of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// No lock: releases one.
    None,
}

/// A lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
    /// The kind of the lock.
    pub kind: LockKind,
    /// The process that holds the lock.
    pub pid: u32,
}

/// GETLK, SETLK and SETLKW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The open file.
    pub handle: Handle,
    /// The lock owner that makes the request.
    pub owner: LockOwner,
    /// The lock.
    pub lock: Lock,
    /// A flock(2) lock: on the whole file, held by the open file description.
    pub is_flock: bool,
}

/// IOCTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// The open file or directory.
    pub handle: Handle,
    /// Flags that describe the caller.
    pub flags: IoctlFlags,
    /// The command, which encodes direction and size.
    pub command: u32,
    /// The raw argument: usually an address of the caller's.
    pub argument: u64,
    /// The data that the argument points to, of the size that the command encodes.
    pub input: &'a [u8],
    /// The maximum size of the returned data in bytes.
    pub output_size: u32,
}

bitflags::bitflags! {
    /// Flags of an ioctl's caller.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IoctlFlags: u32 {
        /// A 32-bit program on a 64-bit kernel.
        const COMPAT = 1 << 0;
        /// Not restricted to the size that the command encodes; only for devices of CUSE.
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
    /// The number for [`Notifier::wake_poll`](crate::Notifier::wake_poll), if one is wanted.
    pub notify: Option<u64>,
    /// The requested events of poll(2).
    pub events: u32,
}

/// FALLOCATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallocate {
    /// The open file.
    pub handle: Handle,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes; the range ends at 2^63 - 1 or before.
    pub length: u64,
    /// The mode of fallocate(2).
    pub mode: FallocateFlags,
}

/// The target of LSEEK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next byte at the offset or after it that is data.
    Data,
    /// The next byte that is in a hole; the end of the file counts as one.
    Hole,
}

/// LSEEK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lseek {
    /// The open file.
    pub handle: Handle,
    /// The first byte to look at; the kernel forwards negative offsets.
    pub offset: i64,
    /// The target.
    pub whence: Whence,
}

/// COPY_FILE_RANGE and COPY_FILE_RANGE_64; the request's node is the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// The open file to copy from.
    pub handle: Handle,
    /// The first byte to copy.
    pub offset: u64,
    /// The file to copy to.
    pub target: NodeId,
    /// The open file to copy to.
    pub target_handle: Handle,
    /// The first byte to write.
    pub target_offset: u64,
    /// The maximum number of bytes; below 2^32 if the answer has 32 bits.
    pub length: u64,
    /// No flags are defined.
    pub flags: u64,
}

/// STATX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statx {
    /// The open file, if the request has one.
    pub handle: Option<Handle>,
    /// The flags of statx(2).
    pub flags: u32,
    /// The mask of statx(2).
    pub mask: u32,
}

/// INIT: the offer of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitOffer {
    /// The major version of the protocol.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The maximum readahead in bytes.
    pub max_readahead: u32,
    /// The abilities of the kernel.
    pub flags: crate::InitFlags,
}
