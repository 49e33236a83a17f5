//! The errors of the engine, with their messages and errno.

mod path_call;

use thiserror::Error;
use userbtrfs_codec::checksum::Checksum;
use userbtrfs_codec::compress::DecompressError;
use userbtrfs_device::DeviceError;
use userbtrfs_format::{FileKind, ItemError, ItemKind, Key, Logical, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::Error as TransactionError;
use userbtrfs_volume::{OpenError, ReadError, WriteError};

pub use path_call::{PathCall, PathOperation};

/// The result of a call of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of a call by path.
pub type PathResult<T> = std::result::Result<T, PathError>;

/// An inode: its number and the subvolume it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId {
    /// The subvolume.
    pub subvolume: TreeId,
    /// The number.
    pub number: u64,
}

impl std::fmt::Display for InodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "inode {} of subvolume {}", self.number, self.subvolume.0)
    }
}

/// The reason why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A volume cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A tree block cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Data of a file cannot be read.
    #[error("{file}: at offset {offset}: {error}")]
    Data {
        /// The file.
        file: InodeId,
        /// The offset in the file, in bytes.
        offset: u64,
        /// The error there.
        error: DataError,
    },
    /// Written data of a file was lost before it reached the device.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
    /// A tree that must be there is not.
    #[error("tree {0} has no root")]
    NoTree(TreeId),
    /// A call by path failed.
    #[error(transparent)]
    Path(Box<PathError>),
    /// An error of the transactions or of their trees.
    #[error(transparent)]
    Transaction(TransactionError),
    /// The filesystem is not opened, since its pending log cannot be replayed; nothing was written.
    #[error(transparent)]
    Replay(Box<Error>),
    /// A tree log cannot be replayed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log, and perhaps the data of the same sync, could not be written.
    #[error("the log cannot be written: {0}")]
    LogUnwritten(Arc<TransactionError>),
    /// An offset in a file beyond 2^63 - 1.
    #[error("file too large")]
    FileTooLarge,
    /// A thread of the filesystem cannot be started.
    #[error("cannot start a thread: {0}")]
    NoThread(std::io::Error),
    /// No space is left on the device.
    #[error("no space left on the device")]
    NoSpace,
    /// An extended attribute that does not fit into an item, alone or together with those of the
    /// same hash.
    #[error("the attribute is too long for a tree block")]
    AttributeTooLong,
    /// An inode that a name refers to does not exist.
    #[error("{0} does not exist, though a name leads to it")]
    NoInode(InodeId),
    /// An inode lacks an item that it must have.
    #[error("{inode} has no {kind} item")]
    NoItem {
        /// The inode.
        inode: InodeId,
        /// The kind of item.
        kind: ItemKind,
    },
    /// A chunk has no block group.
    #[error("chunk {0} has no block group")]
    NoBlockGroup(Logical),
    /// A directory is its own ancestor.
    #[error("{0} contains itself")]
    DirectoryLoop(InodeId),
    /// A directory that does not list the name that refers to it as its own.
    #[error(
        "{child} does not know its name \"{}\" in {dir}",
        userbtrfs_format::Quoted(.name)
    )]
    Stray {
        /// The directory with the name.
        dir: InodeId,
        /// The name.
        name: Vec<u8>,
        /// The directory that it refers to.
        child: InodeId,
    },
    /// An invalid name: empty, `.`, `..`, or with `/` or NUL.
    #[error("impossible name \"{}\"", userbtrfs_format::Quoted(.0))]
    BadName(Vec<u8>),
    /// No inode has that name.
    #[error("no such file or directory")]
    NotFound,
    /// No subvolume has that path or id.
    #[error("no such subvolume")]
    NoSubvolume,
    /// The subvolume that was asked for cannot be the root of paths.
    #[error("subvolume {wanted}: {source}")]
    RootSubvolume {
        /// Its id, or its path in quotes.
        wanted: String,
        /// The reason.
        source: Box<Error>,
    },
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// The root directory cannot be removed or renamed.
    #[error("is the root directory")]
    IsRoot,
    /// A name of more than 255 bytes, or a target of a symbolic link that does not fit a tree
    /// block.
    #[error("file name too long")]
    NameTooLong,
    /// A directory that has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// An inode that has the most names allowed.
    #[error("too many links")]
    TooManyLinks,
    /// Too many names or attributes of the same hash.
    #[error("too many names of this hash")]
    Overflow,
    /// Two inodes that are in different subvolumes.
    #[error("in another subvolume")]
    CrossDevice,
    /// Two files that are in different filesystems.
    #[error("in another filesystem")]
    OtherFilesystem,
    /// A name of a subvolume, for an operation that cannot change it.
    #[error("is a subvolume")]
    IsSubvolume,
    /// A directory that would be moved into itself.
    #[error("a directory cannot be within itself")]
    IntoItself,
    /// An operation that no user may do.
    #[error("operation not permitted")]
    NotPermitted,
    /// The requested size exceeds the device.
    #[error("{size} bytes are beyond the end of the device at {device}")]
    BeyondDevice {
        /// The requested size of the filesystem.
        size: u64,
        /// The length of the device.
        device: u64,
    },
    /// The filesystem has no device of this id.
    #[error("no device {0}")]
    NoDevice(u64),
    /// A number that does not fit.
    #[error("result out of range")]
    OutOfRange,
    /// Another resize is running.
    #[error("another resize is in progress")]
    ResizeInProgress,
    /// An invalid request, in words.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// An unsupported feature, by name.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The filesystem, or the subvolume, may not be changed.
    #[error("read-only")]
    ReadOnly,
    /// An invalid name of an extended attribute: empty, too long, or with NUL.
    #[error("impossible attribute name \"{}\"", userbtrfs_format::Quoted(.0))]
    BadAttributeName(Vec<u8>),
    /// A component of the path is no directory.
    #[error("not a directory")]
    NotADirectory,
    /// A directory where a file is needed.
    #[error("is a directory")]
    IsADirectory,
    /// Not a regular file.
    #[error("not a regular file")]
    NotAFile,
    /// Not a symbolic link.
    #[error("not a symbolic link")]
    NotASymlink,
    /// Too many symbolic links in a path.
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// No data after the offset.
    #[error("no data or hole after this offset")]
    NoMoreData,
    /// No extended attribute of that name.
    #[error("no such attribute")]
    NoAttribute,
    /// Not enough memory for the content of a file.
    #[error("no memory for {bytes} bytes")]
    OutOfMemory {
        /// The size of the file.
        bytes: u64,
    },
    /// A memory bound that is too small.
    #[error("memory bound of {0} bytes is too small: at least 4 MiB are needed")]
    MemoryBound(u64),
    /// The default ACL of a directory is damaged, so that it cannot be inherited.
    #[error("the default ACL of {0} cannot be parsed")]
    BadDefaultAcl(InodeId),
}

/// An error of a call by path, with that path and the operation.
///
/// Its text is `path: operation: reason`, or `path: operation to path: reason`, and contains that
/// of its source. If the device of an image cannot be opened, it is that of the reason, which names
/// the device. It converts to [`Error::Path`], which keeps all of it.
#[derive(Debug, Error)]
#[error("{}{error}", prefix(.call, .error))]
pub struct PathError {
    /// The call.
    pub call: Box<PathCall>,
    /// The reason.
    #[source]
    pub error: Error,
}

/// Data of a file that could not be written: the file holds its old data there.
#[derive(Clone, Debug, Error)]
#[error("{file}: at offset {offset}: what was written is lost: {}", reason(why))]
pub struct Unwritten {
    /// The file.
    pub file: InodeId,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The reason.
    pub why: Arc<Error>,
}

/// The errors of file data.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// No mirror has the right checksum.
    #[error(
        "checksum of sector {logical} is {found}, expected {expected} (copies tried: {copies})"
    )]
    Checksum {
        /// The sector.
        logical: Logical,
        /// The checksum in the tree.
        expected: Checksum,
        /// The checksum of the first mirror.
        found: Checksum,
        /// The number of mirrors that were tried.
        copies: usize,
    },
    /// The checksum tree has none for data that must have one.
    #[error("sector {0} has no checksum")]
    NoChecksum(Logical),
    /// The device failed on every mirror.
    #[error(transparent)]
    Device(DeviceError),
    /// The extent is not in a chunk.
    #[error(transparent)]
    Range(ReadError),
    /// The device failed to write it.
    #[error(transparent)]
    Write(WriteError),
    /// Compressed data is damaged, although its checksum is right.
    #[error("extent at {logical}: {error}")]
    Decompress {
        /// The extent; 0 if it is inline.
        logical: Logical,
        /// The error.
        error: DecompressError,
    },
}

/// An item of a tree log that cannot be replayed.
#[derive(Clone, Debug, Error)]
#[error("the log{}{} cannot be replayed: {why}", of(.subvolume.as_ref()), at(.key.as_ref()))]
pub struct LogError {
    /// The subvolume; `None` for the tree of log roots itself.
    pub subvolume: Option<TreeId>,
    /// The item.
    pub key: Option<Key>,
    /// The reason.
    pub why: LogDamage,
}

/// Returns the reason of a lost write without the file and the offset, which the message has
/// already.
fn reason(why: &Error) -> String {
    match why {
        Error::Data { error, .. } => error.to_string(),
        other => other.to_string(),
    }
}

fn of(subvolume: Option<&TreeId>) -> String {
    subvolume.map_or_else(String::new, |id| format!(" of subvolume {}", id.0))
}

fn at(key: Option<&Key>) -> String {
    key.map_or_else(String::new, |key| format!(" at item {key}"))
}

/// The errors of an item of a tree log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogDamage {
    /// An item in the tree of log roots that is not a log.
    #[error("it is not the log of a subvolume")]
    NotALog,
    /// The item cannot be parsed.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// An invalid name.
    #[error("impossible name \"{}\"", userbtrfs_format::Quoted(.0))]
    Name(Vec<u8>),
    /// An inode that is neither in the log nor in the subvolume.
    #[error("there is no inode {0}")]
    NoInode(u64),
    /// The inode exists, and is of another type.
    #[error("inode {inode} is a {found:?}, not a {logged:?}")]
    Kind {
        /// The inode.
        inode: u64,
        /// The type in the log.
        logged: FileKind,
        /// The type in the subvolume.
        found: FileKind,
    },
    /// Entries or names in an inode that is no directory.
    #[error("inode {0} is no directory")]
    NotADirectory(u64),
    /// Extents of an inode that has no content.
    #[error("inode {0} has no contents")]
    NoContents(u64),
    /// More inline data than a sector.
    #[error("{0} bytes of inline data")]
    Inline(usize),
    /// The name of a subvolume would be removed, which no log does.
    #[error("\"{}\" in directory {dir} is a subvolume", userbtrfs_format::Quoted(.name))]
    Subvolume {
        /// The directory.
        dir: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// A directory would have several names.
    #[error("directory {inode} would have {names} names")]
    DirectoryNames {
        /// The directory.
        inode: u64,
        /// The number of names.
        names: usize,
    },
    /// The checksums of an extent cannot be read.
    #[error("the checksums of the extent at {0} cannot be read")]
    Checksums(Logical),
    /// An extent overlaps space that is otherwise in use.
    #[error("the extent of {len} bytes at {logical} lies over others")]
    ExtentInUse {
        /// The start of the extent.
        logical: Logical,
        /// Its length in bytes.
        len: u64,
    },
}

/// Returns the call at the start of a message, unless the error itself names the image.
fn prefix(call: &PathCall, error: &Error) -> String {
    match error {
        Error::Device(_) if call.operation == PathOperation::OpenImage => String::new(),
        _ => format!("{call}: "),
    }
}

impl Error {
    /// Returns the error without the path and the operation of [`Error::Path`].
    pub fn reason(&self) -> &Self {
        match self {
            Self::Path(error) => error.error.reason(),
            _ => self,
        }
    }

    /// Returns the errno that a system call would return, with the numbers of Linux. Every error of
    /// a device is EIO, also if the disk below an image file is full: ENOSPC always refers to the
    /// filesystem. Only an image that cannot be opened has the errno of open(2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Path(error) => error.errno(),
            Self::Device(error) => error.errno(),
            Self::Unwritten(Unwritten { why, .. }) => why.errno(),
            Self::RootSubvolume { source, .. } | Self::Replay(source) => source.errno(),
            Self::NotPermitted => 1,
            Self::NotFound | Self::NoSubvolume | Self::BadName(_) => 2,
            Self::NoMoreData => 6,
            Self::NoThread(_) => 11,
            Self::OutOfMemory { .. } => 12,
            Self::IsRoot
            | Self::ResizeInProgress
            | Self::Transaction(
                TransactionError::NotRelocated(_) | TransactionError::TreeBeingDropped,
            ) => 16,
            Self::Exists => 17,
            Self::CrossDevice | Self::OtherFilesystem => 18,
            Self::NoDevice(_) => 19,
            Self::NotADirectory => 20,
            Self::IsADirectory => 21,
            Self::NotAFile
            | Self::NotASymlink
            | Self::MemoryBound(_)
            | Self::IntoItself
            | Self::Invalid(_) => 22,
            Self::FileTooLarge | Self::BeyondDevice { .. } => 27,
            Self::NoSpace | Self::AttributeTooLong => 28,
            Self::ReadOnly | Self::Transaction(TransactionError::ReadOnly(_)) => 30,
            Self::TooManyLinks => 31,
            Self::BadAttributeName(_) | Self::OutOfRange => 34,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::SymlinkLoop => 40,
            Self::NoAttribute => 61,
            Self::Overflow => 75,
            Self::Unsupported(_)
            | Self::IsSubvolume
            | Self::Open(OpenError::Features(_) | OpenError::Devices { .. }) => 95,
            _ => 5,
        }
    }
}

impl PathError {
    /// Returns the conversion of an error during an operation on a path.
    pub(crate) fn at(operation: PathOperation, path: &[u8]) -> impl Fn(Error) -> Self {
        move |error| Self {
            call: Box::new(PathCall { operation, path: path.into(), to: None }),
            error,
        }
    }

    /// Returns the conversion of an error during an operation on two paths.
    pub(crate) fn between(
        operation: PathOperation,
        path: &[u8],
        to: &[u8],
    ) -> impl Fn(Error) -> Self {
        move |error| {
            let call = PathCall { operation, path: path.into(), to: Some(to.into()) };
            Self { call: Box::new(call), error }
        }
    }

    /// Returns the errno that a system call would return: see [`Error::errno`].
    pub fn errno(&self) -> i32 {
        self.error.errno()
    }
}

impl From<PathError> for Error {
    fn from(error: PathError) -> Self {
        Self::Path(Box::new(error))
    }
}

impl From<TransactionError> for Error {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Read(error) => Self::Read(error),
            TransactionError::NoTree(id) => Self::NoTree(id),
            TransactionError::NoSpace => Self::NoSpace,
            TransactionError::DeletedSubvolume(_) => Self::NotFound,
            TransactionError::SubvolumeNotEmpty(_) => Self::NotEmpty,
            TransactionError::DefaultSubvolume(_) => Self::NotPermitted,
            TransactionError::NoThread(error) => Self::NoThread(error),
            other => Self::Transaction(other),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

impl From<PathError> for std::io::Error {
    fn from(error: PathError) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}
