//! How to open a filesystem.

use std::path::Path;

use userbtrfs_device::{Device, Direct, FileDevice, FileOptions, IoUring};
use userbtrfs_format::TreeId;
use userbtrfs_sync::Arc;

use super::Filesystem;
use crate::error::{Error, Result};

/// How to open a filesystem, in the manner of `std::fs::OpenOptions`. All calls only read.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(crate) memory: u64,
    pub(crate) root: RootSubvolume,
    direct: Direct,
    io_uring: IoUring,
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

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// The defaults: 256 MiB of memory, the filesystem's default subvolume, the page cache for
    /// image files and direct I/O for block devices, io_uring where it is allowed.
    pub fn new() -> Self {
        Self {
            memory: 256 << 20,
            root: RootSubvolume::Default,
            direct: Direct::Auto,
            io_uring: IoUring::Auto,
        }
    }

    /// The bound of memory for all caches together, in bytes; at least 4 MiB.
    ///
    /// Half of it keeps tree nodes, three eighths keep contents of files. The rest is for reads
    /// on their way: a [`super::FileReader`] takes up to a sixteenth of the bound, but never
    /// more than 8 MiB. Beside the bound, each thread that reads keeps up to 2 MiB of buffers to
    /// use again.
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

    /// Whether the device is read past the page cache.
    pub fn direct(&mut self, direct: Direct) -> &mut Self {
        self.direct = direct;
        self
    }

    /// Whether io_uring is used.
    pub fn io_uring(&mut self, io_uring: IoUring) -> &mut Self {
        self.io_uring = io_uring;
        self
    }

    /// Opens the filesystem in an image file or on a block device, for reading.
    ///
    /// Fails where the device cannot be read, is no btrfs, is damaged where everything starts,
    /// or has features that are not supported; [`Error`] says which.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Filesystem> {
        let options =
            FileOptions { direct: self.direct, io_uring: self.io_uring, ..FileOptions::default() };
        let device = FileDevice::open(path, options)?;
        self.open_devices(vec![Arc::new(device)])
    }

    /// Opens the filesystem on these devices, for reading. Only one is supported so far.
    pub fn open_devices(&self, devices: Vec<Arc<dyn Device>>) -> Result<Filesystem> {
        if self.memory < MEMORY_MIN {
            return Err(Error::MemoryBound(self.memory));
        }
        Filesystem::new(devices, self)
    }

    pub(crate) fn node_cache_bytes(&self) -> usize {
        to_usize(self.memory / 2)
    }

    pub(crate) fn file_cache_bytes(&self) -> usize {
        to_usize(self.memory / 8 * 3)
    }

    /// Bytes in one window of a reader, of which it holds two.
    pub(crate) fn window_bytes(&self) -> u64 {
        (self.memory / 32).clamp(128 << 10, 4 << 20)
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
