//! What kernel and server agree on when a mount begins.

use bitflags::bitflags;

bitflags! {
    /// Abilities: the kernel offers them with INIT, the server takes those that it wants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Several reads of one file may be under way at once.
        const ASYNC_READ = 1 << 0;
        /// POSIX locks are the server's to keep; the kernel keeps them itself otherwise.
        const POSIX_LOCKS = 1 << 1;
        /// OPEN with O_TRUNC truncates; a SETATTR comes before it otherwise. Not to be had
        /// together with [`NO_OPEN_SUPPORT`](Self::NO_OPEN_SUPPORT): see `negotiate`.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP may ask for `.` and `..`, also of nodes that the kernel has forgotten: with it
        /// a filesystem can be exported.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask, as it must where access lists may be inherited.
        const DONT_MASK = 1 << 6;
        /// The device can be spliced to.
        const SPLICE_WRITE = 1 << 7;
        /// Pages may be moved by splicing.
        const SPLICE_MOVE = 1 << 8;
        /// The device can be spliced from.
        const SPLICE_READ = 1 << 9;
        /// flock(2) is the server's to keep; the kernel keeps it itself otherwise.
        const FLOCK_LOCKS = 1 << 10;
        /// IOCTL may come for directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached data is dropped when size or times are seen to have changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS in place of READDIR.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS only where looking up seems to follow.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O may be under way without its caller waiting.
        const ASYNC_DIO = 1 << 15;
        /// Writes stay in the page cache; size and times of a file are the kernel's.
        const WRITEBACK_CACHE = 1 << 16;
        /// OPEN may be answered ENOSYS: then it succeeds, and never comes again.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// LOOKUP and READDIR of one directory may be under way at once.
        const PARALLEL_DIROPS = 1 << 18;
        /// The older form of [`HANDLE_KILLPRIV_V2`](Self::HANDLE_KILLPRIV_V2).
        const HANDLE_KILLPRIV = 1 << 19;
        /// Access lists are the server's to keep, and the kernel checks by them.
        const POSIX_ACL = 1 << 20;
        /// Reading the device of an aborted mount fails with ECONNABORTED, not ENODEV.
        const ABORT_ERROR = 1 << 21;
        /// The server says how many pages a message may have.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// OPENDIR may be answered ENOSYS: then it succeeds, and never comes again.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached data is dropped only when the server says so.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// Alignment of mappings, which exist only between machines.
        const MAP_ALIGNMENT = 1 << 26;
        /// A directory may be the root of another filesystem.
        const SUBMOUNTS = 1 << 27;
        /// The server takes set-user-id, set-group-id and capabilities away: on chown always, on
        /// write and truncation where the request says so. Saves a question before each write.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR says whether set-group-id is to end.
        const SETXATTR_EXT = 1 << 29;
        /// There are more than 32 flags.
        const INIT_EXT = 1 << 30;
        /// Security contexts come with what makes nodes.
        const SECURITY_CTX = 1 << 32;
        /// Nodes may be mapped directly.
        const HAS_INODE_DAX = 1 << 33;
        /// What makes nodes tells of the parent's group: [`Caller`](crate::Caller).
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Names can be made to expire without being thrown away.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// A file with direct I/O may be mapped shared.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Reads and writes can be passed to another file.
        const PASSTHROUGH = 1 << 37;
        /// There is no way to a node by its number.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// Requests that were not answered can be had again.
        const HAS_RESEND = 1 << 39;
        /// Mounts with mapped users are allowed.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests may go by io_uring.
        const OVER_IO_URING = 1 << 41;
        /// Requests may time out.
        const REQUEST_TIMEOUT = 1 << 42;
        const _ = !0;
    }
}

bitflags! {
    /// What the kernel may do with a file that was opened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenedFlags: u32 {
        /// Nothing is cached.
        const DIRECT_IO = 1 << 0;
        /// What is cached stays.
        const KEEP_CACHE = 1 << 1;
        /// There are no positions.
        const NONSEEKABLE = 1 << 2;
        /// The listing of the directory is cached.
        const CACHE_DIR = 1 << 3;
        /// Reads and writes have no position.
        const STREAM = 1 << 4;
        /// FLUSH need not be sent.
        const NOFLUSH = 1 << 5;
        /// Direct writes of one file may be under way at once.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}
