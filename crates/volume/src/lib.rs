//! The volume: devices made into one logical address space with redundant copies.
//!
//! It finds the superblock, reads the chunk tree with a plain walker, and from then on answers
//! two questions: where is this logical range, and what stands there.
//!
//! Invariants:
//!
//! 1. A volume is open only if its features can all be read; what cannot be is refused by name.
//! 2. Chunks never overlap and every stripe lies on its device.
//! 3. A range is translated whole: what crosses the end of a chunk is an error, since no extent
//!    or tree block does.
//! 4. A tree block leaves [`Volume::read_block`] verified; each copy is tried in turn, and an
//!    error names every copy and its check.
//! 5. A volume opened from a superblock mirror is read-only, and [`Volume::notices`] says so.
//!
//! What it does not do: caching, searching, checksums of data.

#![forbid(unsafe_code)]

mod chunk_map;
mod error;
mod read;
mod superblocks;
mod walker;

use userbtrfs_device::Device;
use userbtrfs_format::{DeviceItem, Expectation, Geometry, Superblock, TreeId};
use userbtrfs_sync::{Arc, Class, RwLock};

pub use chunk_map::{ChunkMap, Mapping};
pub use error::{CopyError, OpenError, ReadError, SuperblockCopyError};
pub use read::{PendingReads, Range};
pub use superblocks::{Notice, read_copy as read_superblock_copy};
pub use userbtrfs_device::Buffer;
pub use walker::{BlockReader, Walk, walk};

/// A verified tree block.
pub type TreeBlock = userbtrfs_format::TreeBlock<NodeBytes>;

/// The bytes of a tree block, aligned for I/O; shared, and never changed while they are.
#[derive(Clone, Debug)]
pub struct NodeBytes(Arc<Buffer>);

impl NodeBytes {
    /// The buffer, as a device takes it.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.0
    }
}

impl From<Buffer> for NodeBytes {
    fn from(buffer: Buffer) -> Self {
        Self(Arc::new(buffer))
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
    superblock: Superblock,
    geometry: Geometry,
    chunks: RwLock<ChunkMap>,
    notices: Vec<Notice>,
}

impl Volume {
    /// Opens the filesystem on these devices, for reading.
    ///
    /// Reads the superblock and the whole chunk tree; writes nothing.
    pub fn open(devices: Vec<Arc<dyn Device>>) -> Result<Self, OpenError> {
        let device = only_device(devices)?;
        let (superblock, notices) = superblocks::choose(&*device)?;
        check_supported(&*device, &superblock)?;
        let geometry = Geometry::from(&superblock);
        let system = ChunkMap::of_superblock(&superblock, device.len())?;
        let chunks = RwLock::new(Class::ChunkMap, system);
        let volume = Self { device, superblock, geometry, chunks, notices };
        volume.read_chunk_tree()?;
        Ok(volume)
    }

    /// The superblock it was opened with.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// What all tree blocks share.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What the one who opens it must be told.
    pub fn notices(&self) -> &[Notice] {
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

    /// Where the chunk tree starts, and what is expected there.
    pub fn chunk_root(&self) -> (userbtrfs_format::Logical, Expectation) {
        let superblock = &self.superblock;
        let expected = Expectation {
            owner: TreeId::CHUNK,
            level: superblock.chunk_root_level,
            generation: superblock.chunk_root_generation,
            first_key: None,
            end: None,
        };
        (superblock.chunk_root, expected)
    }

    /// Replaces the system chunks of the superblock by the chunk tree, which lists them too.
    fn read_chunk_tree(&self) -> Result<(), OpenError> {
        let mut map = ChunkMap::default();
        let mut devices = Vec::new();
        let (logical, expected) = self.chunk_root();
        let bound = self.superblock.total_bytes / u64::from(self.superblock.nodesize);
        let mut walk = walk(self, logical, expected, bound);
        while let Some(leaf) = walk.next_leaf()? {
            for slot in 0..leaf.len() {
                let item = leaf.item(slot);
                let (device, len) = (&self.superblock.device, self.device.len());
                chunk_map::collect(&mut map, &mut devices, &item, device, len)?;
            }
        }
        self.check_device(&devices)?;
        *self.chunks.write() = map;
        Ok(())
    }

    fn check_device(&self, devices: &[DeviceItem]) -> Result<(), OpenError> {
        let id = self.superblock.device.id;
        match devices {
            [only] if only.id == id && only.uuid == self.superblock.device.uuid => Ok(()),
            [] => Err(OpenError::DeviceMissing { id }),
            [other] => Err(OpenError::DeviceMissing { id: other.id }),
            several => Err(OpenError::Devices { count: several.len() as u64 }),
        }
    }
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
