//! How to open a filesystem.

use std::path::Path;

use userbtrfs_device::{Device, Direct, FileDevice, FileOptions, IoUring, Overlay, Region};
use userbtrfs_format::{InodeFlags, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::TransactionOptions;

use super::Filesystem;
use crate::data::WriteOptions;
use crate::error::{Error, Result};
use crate::inode::InodesOptions;
use crate::log::ReplayOptions;

/// How to open a filesystem, in the manner of `std::fs::OpenOptions`.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(crate) memory: u64,
    pub(crate) root: RootSubvolume,
    pub(crate) write: bool,
    commit_seconds: u64,
    discard: bool,
    pending_log: PendingLog,
    tree_log: bool,
    /// What new files are without: NODATACOW, NODATASUM.
    without: InodeFlags,
    direct: Direct,
    io_uring: IoUring,
    region: Region,
    lock: bool,
}

/// What is done with a log that waits to be replayed: what was fsynced since the last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingLog {
    /// It is replayed. Where the filesystem is opened for reading, that is done in memory, and
    /// nothing is written; where it is one that cannot be written, the log stays as with `Leave`.
    #[default]
    Replay,
    /// As `Replay`, but what of the log is damaged is left out: [`Filesystem::replayed`] tells of
    /// it. Then nothing is removed because the rest of the log does not have it.
    Salvage,
    /// It is let go, and what is in it is lost. Where the filesystem is opened for reading, it
    /// stays.
    Discard,
    /// It stays as it is, and what is in it is not shown: for reading alone.
    Leave,
}

/// Where paths start.
#[derive(Clone, Debug)]
pub(crate) enum RootSubvolume {
    Default,
    Id(TreeId),
    Path(Vec<u8>),
}

/// The least bound of memory, in bytes.
const MEMORY_MIN: u64 = 4 << 20;

/// About what an inode takes in memory.
const INODE_BYTES: usize = 1 << 10;

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// The defaults: for reading, 256 MiB of memory, the filesystem's default subvolume, the page
    /// cache for image files and direct I/O for block devices, io_uring where it is allowed.
    pub fn new() -> Self {
        Self {
            memory: 256 << 20,
            root: RootSubvolume::Default,
            write: false,
            commit_seconds: 30,
            discard: false,
            pending_log: PendingLog::Replay,
            tree_log: true,
            without: InodeFlags::empty(),
            direct: Direct::Auto,
            io_uring: IoUring::Auto,
            region: Region::Whole,
            lock: true,
        }
    }

    /// Whether it is opened for writing, too. Then it is locked: a second writer is refused
    /// while the first has it open.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// How many seconds may pass between a change and the commit that makes it durable, if
    /// nobody asks for one before; data may wait for as long before that. 0 for no limit: data
    /// is then written only where too much waits, or somebody asks. The default is 30.
    pub fn commit_seconds(&mut self, seconds: u64) -> &mut Self {
        self.commit_seconds = seconds;
        self
    }

    /// Whether data of files that are made from now on is written anew where it is overwritten,
    /// and not in place. The default is yes; what is overwritten in place has no checksums. A
    /// directory's flags are passed on all the same.
    pub fn data_cow(&mut self, cow: bool) -> &mut Self {
        self.without.set(InodeFlags::NODATACOW, !cow);
        self
    }

    /// Whether data of files that are made from now on has checksums, unless it is overwritten in
    /// place. The default is yes.
    pub fn data_checksums(&mut self, checksums: bool) -> &mut Self {
        self.without.set(InodeFlags::NODATASUM, !checksums);
        self
    }

    /// Whether the device is told of space that is free again: the image file then gets a hole
    /// there, so that its size follows what it holds. The default is no.
    pub fn discard(&mut self, discard: bool) -> &mut Self {
        self.discard = discard;
        self
    }

    /// What is done with a log that waits to be replayed. To replay one when opening for reading
    /// may take as much memory as [`OpenOptions::memory`] once more.
    pub fn pending_log(&mut self, what: PendingLog) -> &mut Self {
        self.pending_log = what;
        self
    }

    /// Whether what is synced is made durable by writing a log, where that can be. The default is
    /// yes; without it each sync of a file is a commit.
    pub fn tree_log(&mut self, log: bool) -> &mut Self {
        self.tree_log = log;
        self
    }

    /// The bound of memory for all caches together, in bytes; at least 4 MiB.
    ///
    /// For reading, half of it keeps tree nodes, three eighths keep contents of files. The rest is
    /// for reads on their way: a [`super::FileReader`] takes up to a sixteenth of the bound, but
    /// never more than 8 MiB. Beside the bound, each thread that reads keeps up to 2 MiB of buffers
    /// to use again.
    ///
    /// For writing, of sixteen parts three keep tree nodes, two those that changed, four contents
    /// of files, of which half may wait to be written, one inodes, one what waits to be merged,
    /// three the names among that which wait longer, and two the names that are known.
    pub fn memory(&mut self, bytes: u64) -> &mut Self {
        self.memory = bytes;
        self
    }

    /// Starts paths at the subvolume of this number.
    pub fn subvolume_id(&mut self, id: TreeId) -> &mut Self {
        self.root = RootSubvolume::Id(id);
        self
    }

    /// Starts paths at the subvolume of this path, counted from the top level.
    pub fn subvolume_path(&mut self, path: &[u8]) -> &mut Self {
        self.root = RootSubvolume::Path(path.to_vec());
        self
    }

    /// Whether the device is read and written past the page cache.
    pub fn direct(&mut self, direct: Direct) -> &mut Self {
        self.direct = direct;
        self
    }

    /// Whether io_uring is used.
    pub fn io_uring(&mut self, io_uring: IoUring) -> &mut Self {
        self.io_uring = io_uring;
        self
    }

    /// Sets which bytes of the image file or block device hold the filesystem: the default is all,
    /// others are those from an offset on, and a partition.
    pub fn region(&mut self, region: Region) -> &mut Self {
        self.region = region;
        self
    }

    /// Sets whether an image that is written is locked, which is the default. Without a lock the
    /// caller sees to it that nobody else has the image open: two writers destroy it.
    pub fn lock(&mut self, lock: bool) -> &mut Self {
        self.lock = lock;
        self
    }

    /// Opens the filesystem in an image file or on a block device.
    ///
    /// Fails where the device cannot be read, is no btrfs, is damaged where everything starts,
    /// or has features that are not supported; and for writing where someone else does, or where
    /// what is there may only be read. [`Error`] says which.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Filesystem> {
        let options = FileOptions {
            region: self.region,
            lock: self.lock,
            writable: self.write,
            direct: self.direct,
            io_uring: self.io_uring,
            ..FileOptions::default()
        };
        let device = FileDevice::open(path, options)?;
        self.open_devices(vec![Arc::new(device)])
    }

    /// Opens the filesystem on these devices. Only one is supported so far.
    pub fn open_devices(&self, devices: Vec<Arc<dyn Device>>) -> Result<Filesystem> {
        if self.memory < MEMORY_MIN {
            return Err(Error::MemoryBound(self.memory));
        }
        Filesystem::new(devices, self)
    }

    pub(crate) fn node_cache_bytes(&self) -> usize {
        to_usize(self.memory / 16 * if self.write { 3 } else { 8 })
    }

    pub(crate) fn transactions(&self) -> TransactionOptions {
        let (commit_seconds, discard) = (self.commit_seconds, self.discard);
        let dirty_max = to_usize(self.memory / 8);
        TransactionOptions {
            commit_seconds,
            dirty_max,
            discard,
            only_asked: false,
            log: self.tree_log,
        }
    }

    /// What is done with a log that is pending; nothing where it stays.
    pub(crate) fn pending(&self) -> Option<PendingLog> {
        match self.pending_log {
            PendingLog::Leave => None,
            PendingLog::Discard if !self.write => None,
            what => Some(what),
        }
    }

    /// How a log is replayed.
    pub(crate) fn replaying(&self) -> ReplayOptions {
        let writing = Self { write: true, ..self.clone() };
        let salvage = self.pending_log == PendingLog::Salvage;
        let transactions =
            TransactionOptions { commit_seconds: 0, only_asked: true, ..self.transactions() };
        let (node_cache_bytes, nodes) = (writing.node_cache_bytes(), self.nodes());
        ReplayOptions { node_cache_bytes, transactions, nodes, salvage }
    }

    /// A device that shows what `device` shows, and takes changes in memory.
    pub(crate) fn overlay(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(Overlay::new(device, to_usize(self.memory)))
    }

    /// What each file that is made gets, beside what its directory passes on.
    fn file_flags(&self) -> InodeFlags {
        match self.without.contains(InodeFlags::NODATACOW) {
            true => InodeFlags::NODATACOW | InodeFlags::NODATASUM,
            false => self.without,
        }
    }

    pub(crate) fn nodes(&self) -> InodesOptions {
        let share = to_usize(self.memory / 16);
        let late_bytes = to_usize(self.memory / 8);
        InodesOptions {
            inodes_max: share / INODE_BYTES,
            pending_max: share,
            late_bytes,
            file_flags: self.file_flags(),
        }
    }

    pub(crate) fn file_cache_bytes(&self) -> usize {
        to_usize(self.memory / 16 * if self.write { 4 } else { 6 })
    }

    pub(crate) fn writer(&self) -> WriteOptions {
        WriteOptions { unfinished_max: self.memory / 8, age_seconds: self.commit_seconds }
    }

    /// Bytes in one window of a reader, of which it holds two.
    pub(crate) fn window_bytes(&self) -> u64 {
        (self.memory / 32).clamp(128 << 10, 4 << 20)
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
