//! The volume: the logical address space of a filesystem on its device, with mirrored copies.
//!
//! It finds the superblock and reads the chunk tree with a plain walker; it then maps and reads
//! logical ranges. A volume opened for writing also writes ranges, adds and removes chunks, and
//! replaces the superblock.
//!
//! Invariants:
//!
//! 1. A volume can be opened only if all its features can be read; the error names those that
//!    cannot.
//! 2. Chunks never overlap and every stripe lies on its device.
//! 3. A range is translated as a whole: one that crosses the end of a chunk is an error, since no
//!    extent or tree block does.
//! 4. [`Volume::read_block`] returns verified tree blocks. It tries each copy in turn; its error
//!    lists every copy with the check that failed.
//! 5. A volume opened from a superblock mirror is read-only, and has a warning in
//!    [`Volume::notices`].
//! 6. A volume can be opened for writing only if all its features and states permit writing; the
//!    error names those that do not. A volume opened for reading never changes the device.
//! 7. A write goes to every copy of its range, and never to a copy of the superblock.
//! 8. A copy that a read finds bad is recorded. Only a caller that knows that the range still has
//!    the same owner and content rewrites it: see `repair`.
//! 9. After a failed flush or a failed write of the primary superblock, all later flushes and
//!    superblock writes fail: see `flush_tracker`.
//!
//! It has no caching, no tree search and no data checksums. The caller orders writes, flushes and
//! superblock writes; only the order of the superblock's copies is determined here.

#![forbid(unsafe_code)]

mod chunk_map;
mod data;
mod error;
mod flush_tracker;
mod read;
mod repair;
mod superblocks;
mod walker;
mod write;

use userbtrfs_device::Device;
use userbtrfs_format::{Chunk, DeviceItem, Expectation, Geometry, Logical, Superblock, TreeId};
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Arc, Class, RwLock};

use self::flush_tracker::FlushTracker;
use self::repair::BadMirrors;

pub use chunk_map::{ChunkMap, Mapping};
pub use data::PendingWrites;
pub use error::{MirrorError, OpenError, ReadError, SuperblockMirrorError, WriteError};
pub use read::{PendingReads, Range};
pub use repair::{BadMirror, MirrorStats};
pub use superblocks::{Warning, read_copy as read_superblock_copy};
pub use userbtrfs_device::{Buffer, Slice};
pub use walker::{BlockReader, Walk, walk};

/// A verified tree block.
pub type TreeBlock = userbtrfs_format::TreeBlock<NodeBytes>;

/// The bytes of a tree block, aligned for I/O. They are reference-counted and copied on write.
#[derive(Clone, Debug)]
pub struct NodeBytes(Arc<Buffer>);

impl NodeBytes {
    /// The buffer, as used for device I/O.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.0
    }
}

impl From<Buffer> for NodeBytes {
    fn from(buffer: Buffer) -> Self {
        Self(Arc::new(buffer))
    }
}

/// Copies the bytes first if they are shared: other owners do not see the change.
impl AsMut<[u8]> for NodeBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.0).is_none() {
            self.0 = Arc::new(Buffer::from(&self.0[..]));
        }
        Arc::get_mut(&mut self.0).expect("nobody else has it")
    }
}

impl From<Arc<Buffer>> for NodeBytes {
    fn from(buffer: Arc<Buffer>) -> Self {
        Self(buffer)
    }
}

impl AsRef<[u8]> for NodeBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// An open volume.
pub struct Volume {
    device: Arc<dyn Device>,
    superblock: RwLock<Arc<Superblock>>,
    geometry: Geometry,
    chunks: RwLock<ChunkMap>,
    notices: Vec<Warning>,
    writable: bool,
    /// All writes are refused.
    stopped: AtomicBool,
    barriers: FlushTracker,
    bad_copies: BadMirrors,
}

impl Volume {
    /// Opens the filesystem on these devices, for reading.
    ///
    /// Reads the superblock and the whole chunk tree; writes nothing.
    pub fn open(devices: Vec<Arc<dyn Device>>) -> Result<Self, OpenError> {
        Self::open_checked(devices, Purpose::Read)
    }

    /// Opens the filesystem on these devices, for writing; writes nothing yet.
    ///
    /// Fails if the device is open for reading only, if the filesystem has features or states that
    /// permit reading only, if the primary superblock is damaged, or if a log is pending.
    /// Conditions that are recorded in the trees (an interrupted balance) are checked by the code
    /// that reads the trees.
    pub fn open_for_writing(devices: Vec<Arc<dyn Device>>) -> Result<Self, OpenError> {
        Self::open_checked(devices, Purpose::Write)
    }

    /// Like [`Volume::open_for_writing`], but a log may be pending. The caller replays it, and
    /// allocates nothing before it knows the extents that the log refers to.
    pub fn open_for_replay(devices: Vec<Arc<dyn Device>>) -> Result<Self, OpenError> {
        Self::open_checked(devices, Purpose::Replay)
    }

    /// Like [`Volume::open_for_replay`], but if the primary superblock is damaged, a log that it
    /// still shows is that of the volume: one that follows the commit of the best mirror, and whose
    /// root can be read.
    pub fn open_for_salvage(devices: Vec<Arc<dyn Device>>) -> Result<Self, OpenError> {
        Self::open_checked(devices, Purpose::Salvage)
    }

    fn open_checked(devices: Vec<Arc<dyn Device>>, purpose: Purpose) -> Result<Self, OpenError> {
        let device = only_device(devices)?;
        let (superblock, notices) = superblocks::choose(&*device)?;
        check_supported(&*device, &superblock)?;
        let writable = purpose != Purpose::Read;
        if writable {
            check_writable(&*device, &superblock, &notices, purpose)?;
        }
        let geometry = Geometry::from(&superblock);
        let system = ChunkMap::of_superblock(&superblock, device.len())?;
        let chunks = RwLock::new(Class::ChunkMap, system);
        let superblock = RwLock::new(Class::ChunkMap, Arc::new(superblock));
        let stopped = AtomicBool::new(false);
        let volume = Self {
            device,
            superblock,
            geometry,
            chunks,
            notices,
            writable,
            stopped,
            barriers: FlushTracker::new(),
            bad_copies: BadMirrors::new(),
        };
        let listed = volume.read_chunk_tree()?;
        if writable {
            volume.use_listed_device(listed)?;
        }
        match volume.notices.first() {
            Some(Warning::Mirror { primary, used, .. }) if purpose == Purpose::Salvage => {
                let refusal =
                    OpenError::UnwritableFromMirror { primary: primary.clone(), used: *used };
                volume.find_hidden_log().then_some(volume).ok_or(refusal)
            }
            _ => Ok(volume),
        }
    }

    /// Takes the log that a damaged primary superblock shows. Returns whether there is one.
    fn find_hidden_log(&self) -> bool {
        let mut superblock = (*self.superblock()).clone();
        let found = superblocks::log_of_damaged_primary(&**self.device(), &superblock);
        let Some((root, level)) = found else { return false };
        let generation = superblock.generation.saturating_add(1);
        let owner = TreeId::TREE_LOG;
        let expected = Expectation { owner, level, generation, first_key: None, end: None };
        if self.read_block(root, &expected).is_err() {
            return false;
        }
        (superblock.log_root, superblock.log_root_level) = (Some(root), level);
        self.set_superblock(superblock);
        true
    }

    /// The current superblock: the last one written, or the one the volume was opened with.
    pub fn superblock(&self) -> Arc<Superblock> {
        Arc::clone(&self.superblock.read())
    }

    fn set_superblock(&self, superblock: Superblock) {
        *self.superblock.write() = Arc::new(superblock);
    }

    /// Returns true if the volume was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Makes all later writes, flushes and discards fail. Requests in flight may still complete.
    pub fn stop_writing(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// The properties that all tree blocks share.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The warnings to report after opening the volume.
    pub fn notices(&self) -> &[Warning] {
        &self.notices
    }

    /// The device's name, for messages.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The root block of the chunk tree, and the expectation of it.
    pub fn chunk_root(&self) -> (Logical, Expectation) {
        let superblock = self.superblock();
        let expected = Expectation {
            owner: TreeId::CHUNK,
            level: superblock.chunk_root_level,
            generation: superblock.chunk_root_generation,
            first_key: None,
            end: None,
        };
        (superblock.chunk_root, expected)
    }

    /// Adds a chunk to the map. Fails, as when the volume is opened, if its profile is not
    /// supported, if it does not lie on the device or if it overlaps another chunk.
    pub fn add_chunk(&self, chunk: Chunk) -> Result<(), OpenError> {
        let superblock = self.superblock();
        self.chunks.write().insert(chunk, &superblock.device, self.device.len())
    }

    /// Removes the chunk that starts at `logical` from the map; returns `None` if there is none.
    pub fn remove_chunk(&self, logical: Logical) -> Option<Chunk> {
        self.chunks.write().remove(logical)
    }

    /// Replaces the chunk map built from the superblock by that of the chunk tree, which includes
    /// the system chunks. Returns the device item in the tree.
    fn read_chunk_tree(&self) -> Result<DeviceItem, OpenError> {
        let mut map = ChunkMap::default();
        let mut devices = Vec::new();
        let (logical, expected) = self.chunk_root();
        let superblock = self.superblock();
        let bound = superblock.total_bytes / u64::from(superblock.nodesize);
        let mut walk = walk(self, logical, expected, bound);
        while let Some(leaf) = walk.next_leaf()? {
            for slot in 0..leaf.len() {
                let item = leaf.item(slot);
                let (device, len) = (&superblock.device, self.device.len());
                chunk_map::collect(&mut map, &mut devices, &item, device, len)?;
            }
        }
        let listed = self.only_listed(devices)?;
        *self.chunks.write() = map;
        Ok(listed)
    }

    fn only_listed(&self, devices: Vec<DeviceItem>) -> Result<DeviceItem, OpenError> {
        let DeviceItem { id, uuid, .. } = self.superblock().device;
        let count = devices.len() as u64;
        let mut devices = devices.into_iter();
        match (devices.next(), devices.next()) {
            (Some(only), None) if only.id == id && only.uuid == uuid => Ok(only),
            (Some(other), None) => Err(OpenError::DeviceMissing { id: other.id }),
            (None, _) => Err(OpenError::DeviceMissing { id }),
            (Some(_), Some(_)) => Err(OpenError::Devices { count }),
        }
    }

    /// Uses the size of the device in the chunk tree, as Linux does, after checking it.
    fn use_listed_device(&self, listed: DeviceItem) -> Result<(), OpenError> {
        let mut superblock = (*self.superblock()).clone();
        let (id, bytes) = (listed.id, listed.total_bytes);
        if bytes > self.device.len() {
            let have = self.device.len();
            return Err(OpenError::UnwritableDeviceSize { id, listed: bytes, have });
        }
        if bytes > superblock.total_bytes {
            let total = superblock.total_bytes;
            return Err(OpenError::UnwritableTotal { total, device: bytes });
        }
        superblock.device = listed;
        self.set_superblock(superblock);
        Ok(())
    }
}

/// The access for which a volume is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    Write,
    /// Writing, even if a log is pending.
    Replay,
    /// Writing, if a damaged primary superblock shows a log.
    Salvage,
}

fn only_device(devices: Vec<Arc<dyn Device>>) -> Result<Arc<dyn Device>, OpenError> {
    let count = devices.len() as u64;
    let mut devices = devices.into_iter();
    match (devices.next(), devices.next()) {
        (Some(device), None) => Ok(device),
        _ => Err(OpenError::Devices { count }),
    }
}

fn check_supported(device: &dyn Device, superblock: &Superblock) -> Result<(), OpenError> {
    let features = superblock.unreadable_features();
    if !features.is_empty() {
        return Err(OpenError::Features(features));
    }
    if superblock.num_devices != 1 {
        return Err(OpenError::Devices { count: superblock.num_devices });
    }
    let (need, have) = (superblock.device.total_bytes, device.len());
    match have < need {
        true => Err(OpenError::Truncated { need, have }),
        false => Ok(()),
    }
}

fn check_writable(
    device: &dyn Device,
    superblock: &Superblock,
    notices: &[Warning],
    purpose: Purpose,
) -> Result<(), OpenError> {
    if device.is_read_only() {
        return Err(OpenError::DeviceReadOnly { device: device.name().into() });
    }
    match notices.first() {
        // Only a log that is found in it makes a difference.
        Some(Warning::Mirror { .. }) if purpose == Purpose::Salvage => {}
        Some(Warning::Mirror { primary, used, .. }) => {
            let (primary, used) = (primary.clone(), *used);
            return Err(OpenError::UnwritableFromMirror { primary, used });
        }
        Some(&Warning::PendingLog { generation }) if purpose == Purpose::Write => {
            return Err(OpenError::UnwritableBeforeReplay { generation });
        }
        Some(Warning::PendingLog { .. }) | None => {}
    }
    let features = superblock.unwritable_features();
    if !features.is_empty() {
        return Err(OpenError::Unwritable(features));
    }
    match superblock.unwritable_field() {
        Some((field, value)) => Err(OpenError::UnwritableField { field, value }),
        None => Ok(()),
    }
}
