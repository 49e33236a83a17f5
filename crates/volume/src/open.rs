//! Opening a volume: its superblock, its features, its device and its chunks.

use userbtrfs_device::Device;
use userbtrfs_format::{DeviceItem, Expectation, Geometry, Superblock, TreeId};
use userbtrfs_sync::atomic::{AtomicBool, AtomicU64};
use userbtrfs_sync::{Arc, Class, RwLock};

use crate::bad_mirrors::BadMirrors;
use crate::chunk_map::{self, ChunkMap};
use crate::error::OpenError;
use crate::flush_tracker::FlushTracker;
use crate::superblocks;
use crate::volume::Volume;
use crate::walker::walk;
use crate::warning::Warning;

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
        let (superblock, warnings) = superblocks::choose(&*device)?;
        check_supported(&*device, &superblock)?;
        let writable = purpose != Purpose::Read;
        if writable {
            check_writable(&*device, &superblock, &warnings, purpose)?;
        }
        let geometry = Geometry::from(&superblock);
        let system = ChunkMap::of_superblock(&superblock, device.len())?;
        let chunks = RwLock::new(Class::ChunkMap, system);
        let superblock = RwLock::new(Class::ChunkMap, Arc::new(superblock));
        let new_label = RwLock::new(Class::ChunkMap, None);
        let new_device_size = RwLock::new(Class::ChunkMap, None);
        let stopped = AtomicBool::new(false);
        let volume = Self {
            new_label,
            new_device_size,
            device,
            superblock,
            added_incompat: AtomicU64::new(0),
            geometry,
            chunks,
            warnings,
            writable,
            stopped,
            barriers: FlushTracker::new(),
            bad_copies: BadMirrors::new(),
        };
        let listed = volume.read_chunk_tree()?;
        if writable {
            volume.use_listed_device(listed)?;
        }
        match volume.warnings.first() {
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
        let found = superblocks::log_of_damaged_primary(&*self.device, &superblock);
        let Some((root, level)) = found else { return false };
        let generation = superblock.generation.saturating_add(1);
        let owner = TreeId::TREE_LOG;
        let expected = Expectation { owner, level, generation, first_key: None, end: None };
        if self.read_block(root, &expected).is_err() {
            return false;
        }
        superblock.log_root = Some(root);
        superblock.log_root_level = level;
        self.set_superblock(superblock);
        true
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
                let device = &superblock.device;
                let len = self.device.len();
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
        let id = listed.id;
        let bytes = listed.total_bytes;
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
    let need = superblock.device.total_bytes;
    let have = device.len();
    if have < need { Err(OpenError::Truncated { need, have }) } else { Ok(()) }
}

fn check_writable(
    device: &dyn Device,
    superblock: &Superblock,
    warnings: &[Warning],
    purpose: Purpose,
) -> Result<(), OpenError> {
    if device.is_read_only() {
        return Err(OpenError::DeviceReadOnly { device: device.name().into() });
    }
    match warnings.first() {
        // Only a log that is found in it makes a difference.
        Some(Warning::Mirror { .. }) if purpose == Purpose::Salvage => {}
        Some(Warning::Mirror { primary, used, .. }) => {
            let primary = primary.clone();
            let used = *used;
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
