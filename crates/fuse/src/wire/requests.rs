//! Requests of the kernel.

use super::layouts;

layouts! {
    /// Precedes every request. `extensions` counts units of eight bytes at the end.
    InHeader[40] {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        extensions: u16, padding: u16,
    }
    /// Precedes each extension; `size` includes it and the padding to eight bytes.
    ExtensionHeader[8] { size: u32, kind: u32 }
    /// INIT; with INIT_EXT the higher 32 flags follow, and eleven reserved words.
    InitIn[16] { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// FORGET.
    ForgetIn[8] { nlookup: u64 }
    /// One of the nodes of BATCH_FORGET.
    ForgetOne[16] { nodeid: u64, nlookup: u64 }
    /// BATCH_FORGET; `count` nodes follow.
    BatchForgetIn[8] { count: u32, dummy: u32 }
    /// GETATTR.
    GetattrIn[16] { flags: u32, dummy: u32, fh: u64 }
    /// STATX.
    StatxIn[24] { flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// SETATTR.
    SetattrIn[88] {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// MKNOD; a name follows.
    MknodIn[16] { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// MKDIR; a name follows.
    MkdirIn[8] { mode: u32, umask: u32 }
    /// RENAME; the old and the new name follow.
    RenameIn[8] { newdir: u64 }
    /// RENAME2; the old and the new name follow.
    Rename2In[16] { newdir: u64, flags: u32, padding: u32 }
    /// LINK; a name follows.
    LinkIn[8] { oldnodeid: u64 }
    /// OPEN and OPENDIR.
    OpenIn[8] { flags: u32, open_flags: u32 }
    /// CREATE; a name follows. TMPFILE; a slash follows in place of it.
    CreateIn[16] { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// RELEASE and RELEASEDIR.
    ReleaseIn[24] { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// FLUSH.
    FlushIn[24] { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// READ, READDIR and READDIRPLUS.
    ReadIn[40] {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// WRITE; `size` bytes follow.
    WriteIn[40] {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    /// FSYNC and FSYNCDIR.
    FsyncIn[16] { fh: u64, fsync_flags: u32, padding: u32 }
    /// SETXATTR without SETXATTR_EXT; a name and `size` bytes follow.
    SetxattrInOld[8] { size: u32, flags: u32 }
    /// SETXATTR with SETXATTR_EXT; a name and `size` bytes follow.
    SetxattrIn[16] { old: SetxattrInOld, setxattr_flags: u32, padding: u32 }
    /// GETXATTR, which a name follows, and LISTXATTR.
    GetxattrIn[8] { size: u32, padding: u32 }
    /// A lock, requested or reported. `end` is inclusive.
    FileLock[24] { start: u64, end: u64, kind: u32, pid: u32 }
    /// GETLK, SETLK and SETLKW.
    LkIn[48] { fh: u64, owner: u64, lock: FileLock, flags: u32, padding: u32 }
    /// ACCESS.
    AccessIn[8] { mask: u32, padding: u32 }
    /// INTERRUPT.
    InterruptIn[8] { unique: u64 }
    /// BMAP.
    BmapIn[16] { block: u64, blocksize: u32, padding: u32 }
    /// IOCTL; `in_size` bytes follow.
    IoctlIn[32] { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    /// POLL.
    PollIn[24] { fh: u64, kh: u64, flags: u32, events: u32 }
    /// FALLOCATE.
    FallocateIn[32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// LSEEK.
    LseekIn[24] { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    CopyFileRangeIn[56] {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    /// SYNCFS.
    SyncfsIn[8] { padding: u64 }
}

/// The extension that names a group of the caller: that of the parent directory.
pub(crate) const EXTENSION_GROUPS: u32 = 32;
/// GETATTR and STATX: `fh` is a handle.
pub(crate) const GETATTR_HANDLE: u32 = 1 << 0;
/// OPEN and CREATE: the truncation clears set-user-id and set-group-id.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// READ and WRITE: `lock_owner` is set.
pub(crate) const LOCK_OWNER: u32 = 1 << 1;
/// WRITE: from the page cache; the handle is a guess.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// WRITE: clear set-user-id and set-group-id.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// FSYNC: only the contents, as fdatasync(2).
pub(crate) const FSYNC_DATA: u32 = 1 << 0;
/// SETXATTR: an ACL that clears set-group-id.
pub(crate) const SETXATTR_KILL_SGID: u32 = 1 << 0;
/// GETLK, SETLK, SETLKW: a flock(2) lock.
pub(crate) const LOCK_FLOCK: u32 = 1 << 0;
/// RELEASE: release the flock(2) locks of `lock_owner`.
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// POLL: a notification is wanted.
pub(crate) const POLL_NOTIFY: u32 = 1 << 0;
/// LSEEK: the next data.
pub(crate) const SEEK_DATA: u32 = 3;
/// LSEEK: the next hole.
pub(crate) const SEEK_HOLE: u32 = 4;
/// Kinds of locks.
pub(crate) const LOCK_READ: u32 = 0;
pub(crate) const LOCK_WRITE: u32 = 1;
pub(crate) const LOCK_NONE: u32 = 2;

bitflags::bitflags! {
    /// The attributes that SETATTR sets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct SetattrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const HANDLE = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const LOCK_OWNER = 1 << 9;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}
