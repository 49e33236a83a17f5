//! Flags of INIT and OPEN.

use bitflags::bitflags;

bitflags! {
    /// The flags of INIT: the kernel offers abilities, and the server accepts those that it wants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Several reads of one file may be in flight.
        const ASYNC_READ = 1 << 0;
        /// The server implements POSIX locks; otherwise the kernel does.
        const POSIX_LOCKS = 1 << 1;
        /// OPEN with O_TRUNC truncates; otherwise a SETATTR is sent before it. Excluded by
        /// [`NO_OPEN_SUPPORT`](Self::NO_OPEN_SUPPORT): see `negotiate`.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP may look up `.` and `..`, also in nodes that the kernel has forgotten: this
        /// allows export by NFS.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask, which default ACLs require.
        const DONT_MASK = 1 << 6;
        /// The device can be spliced to.
        const SPLICE_WRITE = 1 << 7;
        /// Pages may be moved by splicing.
        const SPLICE_MOVE = 1 << 8;
        /// The device can be spliced from.
        const SPLICE_READ = 1 << 9;
        /// The server implements flock(2); otherwise the kernel does.
        const FLOCK_LOCKS = 1 << 10;
        /// IOCTL may be sent for directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached data is dropped when a changed size or mtime is seen.
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS in place of READDIR.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS only if lookups are likely to follow.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O may be asynchronous.
        const ASYNC_DIO = 1 << 15;
        /// Writes are cached in the page cache; the kernel maintains size and times of a file.
        const WRITEBACK_CACHE = 1 << 16;
        /// OPEN may be answered ENOSYS: then it succeeds, and is never sent again.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Several LOOKUP and READDIR of one directory may be in flight.
        const PARALLEL_DIROPS = 1 << 18;
        /// The older form of [`HANDLE_KILLPRIV_V2`](Self::HANDLE_KILLPRIV_V2).
        const HANDLE_KILLPRIV = 1 << 19;
        /// The server stores POSIX ACLs, and the kernel enforces them.
        const POSIX_ACL = 1 << 20;
        /// Reading the device of an aborted mount fails with ECONNABORTED, not ENODEV.
        const ABORT_ERROR = 1 << 21;
        /// The server sets the maximum number of pages of a message.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// OPENDIR may be answered ENOSYS: then it succeeds, and is never sent again.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached data is dropped only when the server invalidates it.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The alignment of DAX mappings, which only virtiofs has.
        const MAP_ALIGNMENT = 1 << 26;
        /// A directory may be the root of another filesystem.
        const SUBMOUNTS = 1 << 27;
        /// The server removes set-user-id, set-group-id and capabilities: on chown always, on
        /// write and truncation if the request has the flag. Saves a GETXATTR before each write.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has flags, one of which clears set-group-id.
        const SETXATTR_EXT = 1 << 29;
        /// There are more than 32 flags.
        const INIT_EXT = 1 << 30;
        /// Requests that make nodes carry a security context.
        const SECURITY_CTX = 1 << 32;
        /// DAX can be enabled for each node.
        const HAS_INODE_DAX = 1 << 33;
        /// Requests that make nodes carry the parent's group: [`Caller`](crate::Caller).
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Cached names can be expired without being dropped.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// A file with direct I/O may be mapped shared.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Reads and writes can be passed through to another file.
        const PASSTHROUGH = 1 << 37;
        /// The filesystem cannot be exported by NFS.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// Unanswered requests can be sent again.
        const HAS_RESEND = 1 << 39;
        /// Idmapped mounts are allowed.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests may be transferred by io_uring.
        const OVER_IO_URING = 1 << 41;
        /// Requests may time out.
        const REQUEST_TIMEOUT = 1 << 42;
        const _ = !0;
    }
}

bitflags! {
    /// The flags of an answer to OPEN.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenedFlags: u32 {
        /// The page cache is bypassed.
        const DIRECT_IO = 1 << 0;
        /// Cached data is kept.
        const KEEP_CACHE = 1 << 1;
        /// The file is not seekable.
        const NONSEEKABLE = 1 << 2;
        /// The listing of the directory is cached.
        const CACHE_DIR = 1 << 3;
        /// Reads and writes have no position.
        const STREAM = 1 << 4;
        /// FLUSH need not be sent.
        const NOFLUSH = 1 << 5;
        /// Several direct writes of one file may be in flight.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}
