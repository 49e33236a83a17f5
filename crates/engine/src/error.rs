//! What can go wrong, in words and as errno.

use thiserror::Error;
use userbtrfs_codec::checksum::Checksum;
use userbtrfs_codec::compress::DecompressError;
use userbtrfs_device::DeviceError;
use userbtrfs_format::{FileKind, ItemError, ItemKind, Key, Logical, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::Error as LedgerError;
use userbtrfs_volume::{OpenError, ReadError, WriteError};

/// The result of a call of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

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

/// Why a call failed.
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
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong there.
        error: DataError,
    },
    /// Data of a file that was taken could not be written.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
    /// A tree that must be there is not.
    #[error("tree {0} has no root")]
    NoTree(TreeId),
    /// The books do not allow it.
    #[error(transparent)]
    Ledger(LedgerError),
    /// A tree log cannot be replayed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log could not be written, nor perhaps what was written just before it.
    #[error("the log cannot be written: {0}")]
    LogUnwritten(Arc<LedgerError>),
    /// A place in a file beyond 2^63 - 1.
    #[error("file too large")]
    FileTooLarge,
    /// A thread of the filesystem cannot be started.
    #[error("cannot start a thread: {0}")]
    NoThread(std::io::Error),
    /// No space is left on the device.
    #[error("no space left on the device")]
    NoSpace,
    /// An extended attribute that does not fit into an item, alone or beside those that hash alike.
    #[error("the attribute is too long for a tree block")]
    AttributeTooLong,
    /// An inode that a name leads to is not there.
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
    /// A directory that does not know the name that leads to it as its own.
    #[error(
        "{child} does not know its name \"{}\" in {dir}",
        userbtrfs_format::Quoted(.name)
    )]
    Stray {
        /// Where the name is.
        dir: InodeId,
        /// The name.
        name: Vec<u8>,
        /// The directory it leads to.
        child: InodeId,
    },
    /// A name that cannot be: empty, `.`, `..`, or with `/` or NUL.
    #[error("impossible name \"{}\"", userbtrfs_format::Quoted(.0))]
    BadName(Vec<u8>),
    /// Nothing has that name.
    #[error("no such file or directory")]
    NotFound,
    /// No subvolume has that path or number.
    #[error("no such subvolume")]
    NoSubvolume,
    /// Paths cannot start at the subvolume that was asked for.
    #[error("subvolume {wanted}: {source}")]
    RootSubvolume {
        /// Its number, or its path in quotes.
        wanted: String,
        /// Why not.
        source: Box<Error>,
    },
    /// Something has that name already.
    #[error("file exists")]
    Exists,
    /// The root directory has no name that it could lose.
    #[error("is the root directory")]
    IsRoot,
    /// A name of more than 255 bytes, or a target of a symbolic link that fits no tree block.
    #[error("file name too long")]
    NameTooLong,
    /// A directory that has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// An inode that has as many names as it may.
    #[error("too many links")]
    TooManyLinks,
    /// Too many names or attributes that hash alike.
    #[error("too many names of this hash")]
    Overflow,
    /// Two places that are in different subvolumes.
    #[error("in another subvolume")]
    CrossDevice,
    /// A directory that would come to be within itself.
    #[error("a directory cannot be within itself")]
    IntoItself,
    /// What nobody may do.
    #[error("operation not permitted")]
    NotPermitted,
    /// What cannot be, in words.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// What is not supported, by name.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The filesystem, or the subvolume, may not be changed.
    #[error("read-only")]
    ReadOnly,
    /// A name of an extended attribute that cannot be: empty, too long, or with NUL.
    #[error("impossible attribute name \"{}\"", userbtrfs_format::Quoted(.0))]
    BadAttributeName(Vec<u8>),
    /// Something on the way is no directory.
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
    /// Too many symbolic links on the way.
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// No data after the offset.
    #[error("no data or hole after this offset")]
    NoMoreData,
    /// No extended attribute of that name.
    #[error("no such attribute")]
    NoAttribute,
    /// Less memory than the content of a file takes.
    #[error("no memory for {bytes} bytes")]
    OutOfMemory {
        /// The size of the file.
        bytes: u64,
    },
    /// A limit of memory too small to work with.
    #[error("memory bound of {0} bytes is too small: at least 4 MiB are needed")]
    MemoryBound(u64),
}

/// Data of a file that could not be written: what is there is what was there before.
#[derive(Clone, Debug, Error)]
#[error("{file}: at offset {offset}: what was written is lost: {}", reason(why))]
pub struct Unwritten {
    /// The file.
    pub file: InodeId,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Why not.
    pub why: Arc<Error>,
}

/// What is wrong with data of a file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// No copy has the right checksum.
    #[error(
        "checksum of sector {logical} is {found}, expected {expected} (copies tried: {copies})"
    )]
    Checksum {
        /// The sector.
        logical: Logical,
        /// What the checksum tree says.
        expected: Checksum,
        /// What the first copy gives.
        found: Checksum,
        /// How many copies were tried.
        copies: usize,
    },
    /// The checksum tree has none for data that must have one.
    #[error("sector {0} has no checksum")]
    NoChecksum(Logical),
    /// The device failed on every copy.
    #[error(transparent)]
    Device(DeviceError),
    /// The extent lies in no chunk.
    #[error(transparent)]
    Range(ReadError),
    /// The device failed to write it.
    #[error(transparent)]
    Write(WriteError),
    /// Compressed data is damaged, though its checksum is right.
    #[error("extent at {logical}: {error}")]
    Decompress {
        /// The extent; 0 where it is inline.
        logical: Logical,
        /// What is wrong.
        error: DecompressError,
    },
}

/// An item of a tree log that cannot be replayed.
#[derive(Clone, Debug, Error)]
#[error("the log{}{} cannot be replayed: {why}", of(.subvolume.as_ref()), at(.key.as_ref()))]
pub struct LogError {
    /// The subvolume; nothing where it is the list of logs itself.
    pub subvolume: Option<TreeId>,
    /// The item.
    pub key: Option<Key>,
    /// Why not.
    pub why: LogDamage,
}

/// Why data of a file is lost, where the file and the place in it are told already.
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

/// What is wrong with an item of a tree log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogDamage {
    /// The list of logs has something else.
    #[error("it is not the log of a subvolume")]
    NotALog,
    /// It cannot be read.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// A name that cannot be.
    #[error("impossible name \"{}\"", userbtrfs_format::Quoted(.0))]
    Name(Vec<u8>),
    /// An inode that is neither in the log nor in the subvolume.
    #[error("there is no inode {0}")]
    NoInode(u64),
    /// The inode is there, and is something else.
    #[error("inode {inode} is a {found:?}, not a {logged:?}")]
    Kind {
        /// The inode.
        inode: u64,
        /// What the log says it is.
        logged: FileKind,
        /// What it is.
        found: FileKind,
    },
    /// Entries or names in something that is no directory.
    #[error("inode {0} is no directory")]
    NotADirectory(u64),
    /// Extents of something that has no contents.
    #[error("inode {0} has no contents")]
    NoContents(u64),
    /// More inline data than a sector.
    #[error("{0} bytes of inline data")]
    Inline(usize),
    /// The name of a subvolume would go, which no log makes go.
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
        /// How many.
        names: usize,
    },
    /// The checksums of an extent cannot be read.
    #[error("the checksums of the extent at {0} cannot be read")]
    Checksums(Logical),
    /// An extent lies in space that is in use otherwise.
    #[error("the extent of {len} bytes at {logical} lies over others")]
    ExtentInUse {
        /// Where it starts.
        logical: Logical,
        /// Its length in bytes.
        len: u64,
    },
}

impl Error {
    /// The errno that a system call would give, as Linux numbers it. Whatever a device says is
    /// EIO, also that the disk below an image file is full: ENOSPC is of the filesystem alone.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Unwritten(Unwritten { why, .. }) => why.errno(),
            Self::RootSubvolume { source, .. } => source.errno(),
            Self::NotPermitted => 1,
            Self::NotFound | Self::NoSubvolume | Self::BadName(_) => 2,
            Self::NoMoreData => 6,
            Self::NoThread(_) => 11,
            Self::OutOfMemory { .. } => 12,
            Self::IsRoot | Self::Device(DeviceError::InUse { .. } | DeviceError::Locked { .. }) => {
                16
            }
            Self::Exists => 17,
            Self::CrossDevice => 18,
            Self::NotADirectory => 20,
            Self::IsADirectory => 21,
            Self::NotAFile
            | Self::NotASymlink
            | Self::MemoryBound(_)
            | Self::IntoItself
            | Self::Invalid(_) => 22,
            Self::FileTooLarge => 27,
            Self::NoSpace | Self::AttributeTooLong => 28,
            Self::Device(DeviceError::WriteProtected { .. })
            | Self::ReadOnly
            | Self::Ledger(userbtrfs_transaction::Error::ReadOnly(_)) => 30,
            Self::TooManyLinks => 31,
            Self::BadAttributeName(_) => 34,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::SymlinkLoop => 40,
            Self::NoAttribute => 61,
            Self::Overflow => 75,
            Self::Unsupported(_)
            | Self::Open(OpenError::Features(_) | OpenError::Devices { .. }) => 95,
            _ => 5,
        }
    }
}

impl From<LedgerError> for Error {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Read(error) => Self::Read(error),
            LedgerError::NoTree(id) => Self::NoTree(id),
            LedgerError::NoSpace => Self::NoSpace,
            LedgerError::NoThread(error) => Self::NoThread(error),
            other => Self::Ledger(other),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}
