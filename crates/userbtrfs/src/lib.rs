//! btrfs in user space: reads and writes btrfs filesystems without the driver of the kernel and
//! without privilege.
//!
//! A [`Filesystem`] is opened on an image file, on a block device, or on any other
//! [`Device`](device::Device), and has the calls of [`std::fs`]: it creates, reads, writes, renames
//! and removes files, directories and symbolic links, with attributes, extended attributes and
//! holes. Images are those of Linux: what Linux wrote can be opened, also after a crash, and Linux
//! mounts what this library wrote.
//!
//! | module | contents |
//! |---|---|
//! | [`fs`] | an open filesystem, its files and directories |
//! | [`admin`] | subvolumes, space, pending logs, shutdown, counters |
//! | [`error`] | the errors and their causes |
//! | [`raw`] | keys, addresses and other types of the on-disk format |
//! | [`copy`] | copies of whole trees into an image, out of it, and within it |
//! | [`mkfs`] | new filesystems |
//! | [`mount`] | mounts by FUSE |
//! | [`device`] | files, block devices and memory, and the trait for other devices |
//! | [`dump`] | dumps of on-disk structures |
//!
//! The crate itself also exports each item of `fs`, `admin`, `error` and `raw`. The modules `mkfs`,
//! `mount` and `dump` are features; `mkfs` is on by default. So are `sha256` and `blake2b`, without
//! which a filesystem with these checksums is refused, and `partitions`, without which no partition
//! table is read. The command is the crate `userbtrfs-cli`.
//!
//! # Examples
//!
//! Make a filesystem, here in memory, and a file in it that is durable:
//!
//! ```
//! use std::sync::Arc;
//!
//! use userbtrfs::OpenOptions;
//! use userbtrfs::device::MemoryDevice;
//! use userbtrfs::mkfs;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Arc::new(MemoryDevice::new(128 << 20));
//! mkfs::make(&*device, &mkfs::Options::default())?;
//!
//! let filesystem = OpenOptions::new().write(true).open_devices(vec![device.clone()])?;
//! let dir = filesystem.create_dir("/srv", 0o755)?;
//! let file = dir.create(b"index.html", 0o644)?.open()?;
//! file.write_all_at(b"hello\n", 0)?;
//! file.sync_all()?; // as fsync(2): the file and its name are durable
//!
//! // As in a crash: all that is not durable is dropped.
//! drop((dir, file));
//! filesystem.abandon();
//!
//! let filesystem = OpenOptions::new().write(true).open_devices(vec![device])?;
//! assert_eq!(filesystem.read("/srv/index.html")?, b"hello\n");
//! filesystem.close()?; // returns an error if a change is not durable
//! # Ok(())
//! # }
//! ```
//!
//! Read a tree:
//!
//! ```no_run
//! use userbtrfs::{FileKind, Filesystem, Quoted};
//!
//! # fn main() -> Result<(), userbtrfs::Error> {
//! let filesystem = Filesystem::open("disk.img")?; // read-only
//! for entry in filesystem.walk("/")? {
//!     let entry = entry?;
//!     let size = entry.inode.metadata()?.size;
//!     println!("{size:>10} {}", Quoted(&entry.path)); // names are bytes
//!     if entry.kind == FileKind::Regular {
//!         let content = entry.inode.open()?.read_all()?; // verified by checksum
//!         assert_eq!(content.len() as u64, size);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The folder `examples` has whole programs: `create_and_fsync`, `backup`, `snapshot_backup`,
//! `custom_device`, `image_in_file`, `list_and_read` and `parallel_checksum`.
//!
//! # Durability
//!
//! A change is visible to every call as soon as its own call returns, and durable later: when
//! [`Filesystem::commit`] or [`Filesystem::close`] returns, or after
//! [`OpenOptions::commit_seconds`]. A commit is atomic: after a crash each change before it is
//! there, and what is there after it is whole. [`File::sync_all`] makes one file durable, with its
//! name if that is new, by a tree log, as Linux does; it commits the filesystem only if the log
//! cannot express the change. The log is replayed when the filesystem is opened next, by this
//! library or by Linux. If a write fails for good, [`Error::Unwritten`] names the file whose data
//! is lost; if a commit fails, every later change fails, and the last durable state stays on disk.
//!
//! # Closing
//!
//! Clones of a [`Filesystem`], inodes, files, directories, iterators and mounts are handles of one
//! open filesystem. [`Filesystem::close`] makes the changes of all of them durable and ends one of
//! them, as close(2) does for descriptors of dup(2). The image is closed and unlocked with the last
//! handle; until then the others can be used, also for changes. A drop of the last handle commits
//! too, but only [`Filesystem::close`] and [`File::close`] return the error.
//! [`Filesystem::shutdown`] ends the changes of all handles: each later change fails.
//!
//! # Concurrency
//!
//! [`Filesystem`], [`Inode`], [`Dir`] and [`File`] are [`Send`] and [`Sync`]: every call takes
//! `&self` and may be made from any thread, also on one file at the same time. Calls are
//! synchronous, and return when they are done; no async runtime is needed. A read returns the
//! result of each write that returned before. Fsyncs of several threads share one log write. While
//! an image is open for writing, it is locked: this library refuses to open it for writing again,
//! in any process.
//!
//! # Errors
//!
//! A call by path, and a walk, return a [`PathError`]: the path, the operation, and an [`Error`] as
//! the reason. A call on a handle, which has no path, returns an [`Error`] alone. The message of an
//! error about damage names the block, the inode or the item. The operator `?` converts a
//! [`PathError`] to an [`Error`] that keeps the path, [`Error::Path`]: there [`Error::reason`]
//! returns the variant to match.
//!
//! ```
//! # use std::sync::Arc;
//! # use userbtrfs::{Error, Filesystem, OpenOptions, PathError};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = Arc::new(userbtrfs::device::MemoryDevice::new(128 << 20));
//! # userbtrfs::mkfs::make(&*device, &userbtrfs::mkfs::Options::default())?;
//! # let filesystem = OpenOptions::new().write(true).open_devices(vec![device])?;
//! let settings = match filesystem.read("/etc/settings") {
//!     Err(PathError { error: Error::NotFound, .. }) => Vec::new(),
//!     found => found?,
//! };
//! let error = filesystem.create_dir("/srv/www", 0o755).unwrap_err();
//! assert_eq!(error.to_string(), "/srv/www: create directory: no such file or directory");
//! # assert!(settings.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! [`Error::errno`] returns the number that the system call on Linux would fail with, and an
//! [`std::io::Error`] can be made from both types.
//!
//! | error | errno |
//! |---|---|
//! | [`Error::NotPermitted`] | EPERM |
//! | [`Error::NotFound`], [`Error::NoSubvolume`], [`Error::BadName`] | ENOENT |
//! | [`Error::NoMoreData`] | ENXIO |
//! | [`Error::NoThread`] | EAGAIN |
//! | [`Error::OutOfMemory`] | ENOMEM |
//! | [`Error::IsRoot`], [`Error::ResizeInProgress`] | EBUSY |
//! | [`Error::Exists`] | EEXIST |
//! | [`Error::CrossDevice`] | EXDEV |
//! | [`Error::NotADirectory`] | ENOTDIR |
//! | [`Error::IsADirectory`] | EISDIR |
//! | [`Error::NotAFile`], [`Error::NotASymlink`], [`Error::IntoItself`] | EINVAL |
//! | [`Error::MemoryBound`], [`Error::Invalid`] | EINVAL |
//! | [`Error::FileTooLarge`], [`Error::BeyondDevice`] | EFBIG |
//! | [`Error::NoSpace`], [`Error::AttributeTooLong`] | ENOSPC |
//! | [`Error::ReadOnly`] | EROFS |
//! | [`Error::TooManyLinks`] | EMLINK |
//! | [`Error::BadAttributeName`], [`Error::OutOfRange`] | ERANGE |
//! | [`Error::NameTooLong`] | ENAMETOOLONG |
//! | [`Error::NotEmpty`] | ENOTEMPTY |
//! | [`Error::SymlinkLoop`] | ELOOP |
//! | [`Error::NoAttribute`] | ENODATA |
//! | [`Error::Overflow`] | EOVERFLOW |
//! | [`Error::Unsupported`], [`Error::Open`] if a feature is not supported | EOPNOTSUPP |
//! | [`Error::Device`] if the image cannot be opened | that of open(2) |
//! | [`Error::Device`] if the image is no regular file or block device | EINVAL |
//! | [`Error::Device`] if the image is in use | EBUSY |
//! | [`Error::Device`] if the image is write-protected | EROFS |
//! | [`Error::Path`], [`Error::RootSubvolume`] | that of the cause |
//! | [`Error::Unwritten`], [`Error::Replay`] | that of the cause |
//! | all others: damage, failures of the device | EIO |

#![cfg_attr(
    not(feature = "mkfs"),
    doc = "",
    doc = "[`mkfs`]: https://docs.rs/userbtrfs/latest/userbtrfs/mkfs/index.html"
)]
#![cfg_attr(
    not(feature = "mount"),
    doc = "",
    doc = "[`mount`]: https://docs.rs/userbtrfs/latest/userbtrfs/mount/index.html"
)]
#![cfg_attr(
    not(feature = "dump"),
    doc = "",
    doc = "[`dump`]: https://docs.rs/userbtrfs/latest/userbtrfs/dump/index.html"
)]
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

pub mod copy;
#[cfg(feature = "dump")]
pub mod dump;

pub use userbtrfs_device as device;
#[cfg(feature = "mount")]
pub use userbtrfs_fuse_server as mount;
#[cfg(feature = "mkfs")]
pub use userbtrfs_mkfs as mkfs;

#[doc(no_inline)]
pub use fs::{Dir, Error, File, Filesystem, Inode, Metadata, OpenOptions, PathError, Result};

#[doc(hidden)]
pub use copy::counted::Counted;
#[doc(hidden)]
pub use {admin::*, error::*, fs::*, raw::*};

/// An open filesystem, its files and directories, in the manner of [`std::fs`].
///
/// Paths are bytes, absolute, and start at the subvolume that [`OpenOptions`] names.
pub mod fs {
    pub use userbtrfs_engine::api::{
        Allocate, Attributes, Buffer, Chunk, Compress, Compression, CompressionMethod, Deduped,
        Defragment, Dir, DirEntries, DirEntry, Direct, EMPTY_DIR, Error, Extent, ExtentKind, File,
        FileKind, FileOpenOptions, FileReader, FileType, FileWriter, Filesystem, ImagePath, Inode,
        InodeFlags, InodeId, IoUring, Membership, Metadata, MethodError, OpenOptions, PathCall,
        PathError, PathOperation, PathResult, Recompress, Region, RenameMode, Result, Slice,
        Timestamp, Walk, WalkEntry, XattrMode, join_path, now,
    };
    pub use userbtrfs_format::Quoted;
}

/// The state of a filesystem as a whole: subvolumes, space, pending logs, shutdown and counters.
pub mod admin {
    pub use userbtrfs_engine::api::{
        CacheStats, CommitTrigger, Commits, DirtyStats, Discards, ExtentSharing, FileUse,
        FullCommitReason, ImageLength, IncompleteFile, LogStats, MirrorStats, NewSize, PendingLog,
        RelocationStats, ReplayProgress, Replayed, SharedRange, Shutdown, SkippedItem, SpaceUse,
        StatFs, Stats, SubvolumeInfo, SyncOutcome, SyncRecord, SyncStats, TreeId, Usage, Warning,
    };
}

/// The [`Error`] of a call, and the causes that it may have.
pub mod error {
    pub use userbtrfs_codec::compress::DecompressError;
    pub use userbtrfs_engine::api::{
        DataError, Error, LogDamage, LogError, PathCall, PathError, PathOperation, PathResult,
        Result, Unwritten,
    };
    pub use userbtrfs_format::{BlockError, ChunkError, ItemError, SuperblockError};
    pub use userbtrfs_volume::{MirrorError, OpenError, ReadError, SuperblockMirrorError};
}

/// Types of the on-disk format, as errors, dumps and extents show them, and the names of those that
/// a filesystem returns for a look at the disk itself.
pub mod raw {
    pub use userbtrfs_engine::api::{ItemKind, Key};
    pub use userbtrfs_format::{BlockGroupFlags, Logical, Physical, Profile, Superblock};

    /// The volume of a filesystem, as [`Filesystem::volume`](super::Filesystem::volume) returns it.
    ///
    /// Only the name is stable: the methods are those that the engine needs.
    pub type Volume = userbtrfs_volume::Volume;
}

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// Returns an error of each variant of which the table shows a fixed errno.
    fn errors() -> Vec<Error> {
        vec![
            Error::NotPermitted,
            Error::NotFound,
            Error::NoSubvolume,
            Error::BadName(Vec::new()),
            Error::NoMoreData,
            Error::NoThread(std::io::Error::other("")),
            Error::OutOfMemory { bytes: 0 },
            Error::IsRoot,
            Error::ResizeInProgress,
            Error::Exists,
            Error::CrossDevice,
            Error::NotADirectory,
            Error::IsADirectory,
            Error::NotAFile,
            Error::NotASymlink,
            Error::IntoItself,
            Error::MemoryBound(0),
            Error::Invalid(""),
            Error::FileTooLarge,
            Error::BeyondDevice { size: 1, device: 0 },
            Error::NoSpace,
            Error::AttributeTooLong,
            Error::ReadOnly,
            Error::TooManyLinks,
            Error::BadAttributeName(Vec::new()),
            Error::OutOfRange,
            Error::NameTooLong,
            Error::NotEmpty,
            Error::SymlinkLoop,
            Error::NoAttribute,
            Error::Overflow,
            Error::Unsupported(""),
        ]
    }

    fn number(name: &str) -> Errno {
        match name {
            "EPERM" => Errno::PERM,
            "ENOENT" => Errno::NOENT,
            "ENXIO" => Errno::NXIO,
            "EAGAIN" => Errno::AGAIN,
            "ENOMEM" => Errno::NOMEM,
            "EBUSY" => Errno::BUSY,
            "EEXIST" => Errno::EXIST,
            "EXDEV" => Errno::XDEV,
            "ENOTDIR" => Errno::NOTDIR,
            "EISDIR" => Errno::ISDIR,
            "EINVAL" => Errno::INVAL,
            "EFBIG" => Errno::FBIG,
            "ENOSPC" => Errno::NOSPC,
            "EROFS" => Errno::ROFS,
            "EMLINK" => Errno::MLINK,
            "ERANGE" => Errno::RANGE,
            "ENAMETOOLONG" => Errno::NAMETOOLONG,
            "ENOTEMPTY" => Errno::NOTEMPTY,
            "ELOOP" => Errno::LOOP,
            "ENODATA" => Errno::NODATA,
            "EOVERFLOW" => Errno::OVERFLOW,
            "EOPNOTSUPP" => Errno::OPNOTSUPP,
            other => panic!("unknown errno {other}"),
        }
    }

    #[test]
    fn table_of_errors_shows_their_errno() {
        let rows = include_str!("lib.rs").lines().filter_map(|line| {
            let (errors, errno) = line.strip_prefix("//! | [`Error::")?.rsplit_once(" | ")?;
            Some((errors, errno.strip_suffix(" |")?))
        });
        let rows: Vec<_> = rows.filter(|(_, errno)| errno.starts_with('E')).collect();
        for error in errors() {
            let shown = format!("{error:?}");
            let name = shown.split(['(', ' ']).next().unwrap_or_default();
            let is_named =
                |errors: &str| format!("[`Error::{errors}").contains(&format!("[`Error::{name}`]"));
            let found: Vec<_> = rows.iter().filter(|(errors, _)| is_named(errors)).collect();
            assert_eq!(found.len(), 1, "{name}");
            assert_eq!(number(found[0].1).raw_os_error(), error.errno(), "{name}");
        }
    }

    #[test]
    fn types_that_a_filesystem_returns_can_be_named() {
        let _: fn(&Filesystem) -> std::sync::Arc<raw::Superblock> = Filesystem::superblock;
        let _: fn(&Filesystem) -> &std::sync::Arc<raw::Volume> = Filesystem::volume;
    }

    #[test]
    fn handles_may_be_used_from_any_thread() {
        fn check<T: Send + Sync>() {}
        check::<Filesystem>();
        check::<Inode>();
        check::<Dir>();
        check::<File>();
    }
}
