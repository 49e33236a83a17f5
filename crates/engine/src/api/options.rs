//! The options for opening a filesystem.

use std::path::Path;

use userbtrfs_codec::Compression;
use userbtrfs_device::{Device, Direct, FileDevice, FileOptions, IoUring, Overlay, Region};
use userbtrfs_format::{InodeFlags, TreeId};
use userbtrfs_sync::Arc;
#[cfg(feature = "experiments")]
use userbtrfs_transaction::Experiment;
use userbtrfs_transaction::{TransactionOptions, TreeRoots};
use userbtrfs_volume::Volume;

use super::Filesystem;
use crate::compression::Compress;
use crate::data::WriteOptions;
use crate::error::{Error, PathError, PathOperation, PathResult, Result};
use crate::inode::InodesOptions;
use crate::log::{ReplayOptions, ReplayProgress};

/// The options for opening a filesystem, in the manner of `std::fs::OpenOptions`.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct OpenOptions {
    pub(crate) memory: u64,
    pub(crate) root: RootSubvolume,
    pub(crate) write: bool,
    commit_seconds: u64,
    discard: bool,
    pending_log: PendingLog,
    replay_progress: Option<Arc<ReplayProgress>>,
    tree_log: bool,
    /// The flags of new files that turn features off: NODATACOW, NODATASUM.
    without: InodeFlags,
    compress: Option<Compress>,
    direct: Direct,
    io_uring: IoUring,
    region: Region,
    lock: bool,
    #[cfg(feature = "experiments")]
    experiment: Option<Experiment>,
}

/// The treatment of a pending log, which has the fsyncs since the last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingLog {
    /// Replay it. If the filesystem is opened read-only, that is done in memory, and nothing is
    /// written; if it cannot be written at all, the log stays as with `Leave`.
    #[default]
    Replay,
    /// Like `Replay`, but skip damaged items: [`Filesystem::replayed`] lists them. Then nothing is
    /// removed for being absent from the rest of the log, and a file whose logged contents are
    /// damaged keeps those of the last commit; a new one is empty.
    ///
    /// If the primary superblock is damaged and still shows a log that follows the commit of its
    /// mirrors, that log is replayed, and the superblock is written again.
    Salvage,
    /// Like `Salvage`, but files whose logged contents are damaged get what there is of them, with
    /// zeros, or what the last commit has, in the missing ranges.
    SalvagePartial,
    /// Discard it, and lose its changes. If the filesystem is opened read-only, it stays.
    Discard,
    /// Leave it as it is, and do not show its changes: only if opened read-only.
    Leave,
}

/// The subvolume at which paths start.
#[derive(Clone, Debug)]
pub(crate) enum RootSubvolume {
    Default,
    Id(TreeId),
    Path(Vec<u8>),
}

/// The least memory bound, in bytes.
const MEMORY_MIN: u64 = 4 << 20;

/// About the memory of an inode.
const INODE_BYTES: usize = 1 << 10;

/// The shares of the memory bound, in sixteenths.
struct Shares {
    nodes: u64,
    changed_nodes: u64,
    file_data: u64,
    delayed_items: u64,
    deferred_names: u64,
    names: u64,
    inodes: u64,
    reads: u64,
}

impl Shares {
    const READING: Self = Self {
        nodes: 7,
        changed_nodes: 0,
        file_data: 5,
        delayed_items: 0,
        deferred_names: 0,
        names: 2,
        inodes: 1,
        reads: 1,
    };
    const WRITING: Self = Self {
        nodes: 3,
        changed_nodes: 2,
        file_data: 4,
        delayed_items: 1,
        deferred_names: 2,
        names: 2,
        inodes: 1,
        reads: 1,
    };

    const fn sum(&self) -> u64 {
        let changes = self.changed_nodes + self.delayed_items + self.deferred_names;
        self.nodes + self.file_data + self.names + self.inodes + self.reads + changes
    }
}

const _: () = assert!(Shares::READING.sum() == 16 && Shares::WRITING.sum() == 16);

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Returns the defaults: read-only, 256 MiB of memory, the filesystem's default subvolume, the
    /// page cache for image files and direct I/O for block devices, io_uring if it is allowed.
    pub fn new() -> Self {
        Self {
            memory: 256 << 20,
            root: RootSubvolume::Default,
            write: false,
            commit_seconds: 30,
            discard: false,
            pending_log: PendingLog::Replay,
            replay_progress: None,
            tree_log: true,
            without: InodeFlags::empty(),
            compress: None,
            direct: Direct::Auto,
            io_uring: IoUring::Auto,
            region: Region::Whole,
            lock: true,
            #[cfg(feature = "experiments")]
            experiment: None,
        }
    }

    /// Sets whether it is opened for writing, too. Then it is locked: a second writer is refused
    /// while the first has it open.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Sets the most seconds between a change and the commit that makes it durable, if none is
    /// requested before; data may stay dirty as long before that. 0 for no limit: data is then
    /// written only under memory pressure, or on request. The default is 30.
    pub fn commit_seconds(&mut self, seconds: u64) -> &mut Self {
        self.commit_seconds = seconds;
        self
    }

    /// Sets whether overwritten data of new files is copied on write, rather than overwritten in
    /// place. The default is yes; data overwritten in place has no checksums. Flags of a directory
    /// are inherited regardless.
    pub fn data_cow(&mut self, cow: bool) -> &mut Self {
        self.without.set(InodeFlags::NODATACOW, !cow);
        self
    }

    /// Sets whether data of new files has checksums, unless it is overwritten in place. The default
    /// is yes.
    pub fn data_checksums(&mut self, checksums: bool) -> &mut Self {
        self.without.set(InodeFlags::NODATASUM, !checksums);
        self
    }

    /// Sets how data is compressed when it is written. The default is not at all, except for files
    /// with the flag COMPRESS or the property `btrfs.compression`, which decides for its file.
    ///
    /// Data is stored compressed if that saves a sector or more. Data of files that are overwritten
    /// in place, have no checksums or have preallocated extents is not compressed, and neither is
    /// data of direct writes. Without [`Compress::force`], a file whose data does not become
    /// smaller gets the flag NOCOMPRESS, and is not compressed any more.
    pub fn compress(&mut self, compress: Option<Compress>) -> &mut Self {
        self.compress = compress;
        self
    }

    /// Sets whether freed space is discarded on the device: an image file then gets a hole there,
    /// so that its size follows its content. The default is no.
    pub fn discard(&mut self, discard: bool) -> &mut Self {
        self.discard = discard;
        self
    }

    /// Sets what to do with a pending log. Replaying one read-only may take as much memory as
    /// [`OpenOptions::memory`] once more.
    pub fn pending_log(&mut self, what: PendingLog) -> &mut Self {
        self.pending_log = what;
        self
    }

    /// Sets where the progress of replaying a pending log is counted, for another thread to read.
    pub fn replay_progress(&mut self, progress: Arc<ReplayProgress>) -> &mut Self {
        self.replay_progress = Some(progress);
        self
    }

    /// Sets whether a sync writes a tree log, if possible. The default is yes; without it each sync
    /// of a file is a commit.
    pub fn tree_log(&mut self, log: bool) -> &mut Self {
        self.tree_log = log;
        self
    }

    /// Makes the filesystem behave as before one of the seeds, if it is opened for writing; see
    /// docs/seeds.md.
    #[cfg(feature = "experiments")]
    pub fn experiment(&mut self, experiment: Experiment) -> &mut Self {
        self.experiment = Some(experiment);
        self
    }

    /// Sets the memory bound of all caches together, in bytes; at least 4 MiB.
    ///
    /// If opened read-only, of sixteen parts seven cache tree nodes, five file data, two names, and
    /// one inodes.
    ///
    /// If opened for writing, of sixteen parts three cache tree nodes, two hold changed ones, four
    /// cache file data, of which half may be dirty, one holds delayed items, two the names of
    /// deferred directory items, two cache names, and one inodes.
    ///
    /// The last part is for reads in flight: a [`super::FileReader`] takes up to a sixteenth of the
    /// bound, but never more than 8 MiB. In addition, each thread that reads keeps up to 2 MiB of
    /// buffers for reuse.
    pub fn memory(&mut self, bytes: u64) -> &mut Self {
        self.memory = bytes;
        self
    }

    /// Starts paths at the subvolume of this id.
    pub fn subvolume_id(&mut self, id: TreeId) -> &mut Self {
        self.root = RootSubvolume::Id(id);
        self
    }

    /// Starts paths at the subvolume of this path, relative to the top level.
    pub fn subvolume_path(&mut self, path: &[u8]) -> &mut Self {
        self.root = RootSubvolume::Path(path.to_vec());
        self
    }

    /// Sets whether device I/O bypasses the page cache of the kernel.
    pub fn direct(&mut self, direct: Direct) -> &mut Self {
        self.direct = direct;
        self
    }

    /// Sets whether io_uring is used.
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
    /// Fails if the device cannot be read, is not btrfs, is damaged in the superblock or the root
    /// trees, or has unsupported features; for writing, also if another process writes it, or if it
    /// may only be read. [`PathError::error`] tells which.
    pub fn open(&self, path: impl AsRef<Path>) -> PathResult<Filesystem> {
        let path = path.as_ref();
        let bytes = path.as_os_str().as_encoded_bytes();
        self.open_image(path).map_err(PathError::at(PathOperation::OpenImage, bytes))
    }

    fn open_image(&self, path: &Path) -> Result<Filesystem> {
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

    /// Returns the trees of a volume, with the locks and the cache that the options ask for.
    pub(crate) fn tree_roots(&self, volume: Arc<Volume>) -> TreeRoots {
        #[cfg(feature = "experiments")]
        if self.write && self.experiment == Some(Experiment::S4) {
            return TreeRoots::with_hand_made_locks(volume, self.node_cache_bytes());
        }
        TreeRoots::new(volume, self.node_cache_bytes())
    }

    pub(crate) fn node_cache_bytes(&self) -> usize {
        self.share(|shares| shares.nodes)
    }

    fn share(&self, of: impl Fn(&Shares) -> u64) -> usize {
        let shares = if self.write { &Shares::WRITING } else { &Shares::READING };
        saturating_usize(self.memory / 16 * of(shares))
    }

    pub(crate) fn transactions(&self) -> TransactionOptions {
        TransactionOptions {
            commit_seconds: self.commit_seconds,
            dirty_max: self.share(|shares| shares.changed_nodes),
            discard: self.discard,
            only_asked: false,
            log: self.tree_log,
            #[cfg(feature = "experiments")]
            experiment: self.experiment,
        }
    }

    /// Returns what to do with a pending log; `None` if it stays.
    pub(crate) fn pending(&self) -> Option<PendingLog> {
        match self.pending_log {
            PendingLog::Leave => None,
            PendingLog::Discard if !self.write => None,
            what => Some(what),
        }
    }

    /// Returns the options for replaying a log.
    pub(crate) fn replaying(&self) -> ReplayOptions {
        let writing = Self { write: true, ..self.clone() };
        let partial = self.pending_log == PendingLog::SalvagePartial;
        let salvage = partial || self.pending_log == PendingLog::Salvage;
        let transactions =
            TransactionOptions { commit_seconds: 0, only_asked: true, ..writing.transactions() };
        let node_cache_bytes = writing.node_cache_bytes();
        let nodes = writing.nodes();
        let progress = self.replay_progress.clone();
        let progress = progress.unwrap_or_else(|| Arc::new(ReplayProgress::default()));
        ReplayOptions { node_cache_bytes, transactions, nodes, salvage, partial, progress }
    }

    /// Returns a device with the content of `device`, which keeps changes in memory.
    pub(crate) fn overlay(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(Overlay::new(device, saturating_usize(self.memory)))
    }

    /// Returns the flags of new files, in addition to those inherited from the directory.
    fn file_flags(&self) -> InodeFlags {
        if self.without.contains(InodeFlags::NODATACOW) {
            InodeFlags::NODATACOW | InodeFlags::NODATASUM
        } else {
            self.without
        }
    }

    pub(crate) fn nodes(&self) -> InodesOptions {
        InodesOptions {
            inodes_max: self.share(|shares| shares.inodes) / INODE_BYTES,
            pending_max: self.share(|shares| shares.delayed_items),
            names_max: self.share(|shares| shares.names),
            late_bytes: self.share(|shares| shares.deferred_names),
            file_flags: self.file_flags(),
            compression: self.compress.map_or(Compression::Zlib, |it| it.method.algorithm),
        }
    }

    pub(crate) fn file_cache_bytes(&self) -> usize {
        self.share(|shares| shares.file_data)
    }

    pub(crate) fn writer(&self) -> WriteOptions {
        WriteOptions {
            unfinished_max: self.memory / 8,
            age_seconds: self.commit_seconds,
            compress: self.compress,
        }
    }

    /// Returns the bytes in one window of a reader, which has two.
    pub(crate) fn window_bytes(&self) -> u64 {
        (self.memory / 32).clamp(128 << 10, 4 << 20)
    }
}

fn saturating_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
