//! The state of an open volume.

use userbtrfs_device::{CrashPoint, Device, crash_point};
use userbtrfs_format::{Chunk, Expectation, Geometry, Logical, Superblock, TreeId};
use userbtrfs_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userbtrfs_sync::{Arc, RwLock};

use crate::bad_mirrors::BadMirrors;
use crate::chunk_map::ChunkMap;
use crate::error::OpenError;
use crate::flush_tracker::FlushTracker;
use crate::warning::Warning;

/// An open volume.
pub struct Volume {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: RwLock<Arc<Superblock>>,
    /// The label of the superblock of the next commit, if it was set.
    pub(crate) new_label: RwLock<Option<Vec<u8>>>,
    /// The size of the device in the superblock of the next commit, if it was set.
    pub(crate) new_device_size: RwLock<Option<u64>>,
    /// The bits of incompat features that the superblock of the next commit has in addition.
    pub(crate) added_incompat: AtomicU64,
    pub(crate) geometry: Geometry,
    pub(crate) chunks: RwLock<ChunkMap>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) writable: bool,
    /// All writes are refused.
    pub(crate) stopped: AtomicBool,
    pub(crate) barriers: FlushTracker,
    pub(crate) bad_copies: BadMirrors,
}

impl Volume {
    /// The current superblock: the last one written, or the one the volume was opened with.
    pub fn superblock(&self) -> Arc<Superblock> {
        Arc::clone(&self.superblock.read())
    }

    pub(crate) fn set_superblock(&self, superblock: Superblock) {
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

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// The properties that all tree blocks share.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The warnings to report after opening the volume.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The device's name, for messages.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Reports that the thread reached a crash point. Does nothing except in tests.
    #[inline]
    pub fn crash_point(&self, point: CrashPoint) {
        crash_point(&*self.device, point);
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
}
