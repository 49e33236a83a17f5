//! Where nodes come from: the cache, or the volume by way of it.

use userbtrfs_device::Buffer;
use userbtrfs_format::{BlockError, Expectation, Logical};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Arc, BlockLabel, Nesting, OwnedReadGuard, TreeLock};
use userbtrfs_volume::{CopyError, ReadError, TreeBlock, Volume};

use crate::cache::Cache;
use crate::{Node, NodeRef};

/// The nodes of a volume. A handle on it can read, and nothing else.
pub struct NodeStore {
    volume: Arc<Volume>,
    cache: Cache<Logical, Node>,
    nodesize: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// How often nodes were found in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Found.
    pub hits: u64,
    /// Read from the device.
    pub misses: u64,
}

impl NodeStore {
    /// The nodes of `volume`, of which about `cache_bytes` are kept.
    pub fn new(volume: Arc<Volume>, cache_bytes: usize) -> Self {
        let nodesize = volume.geometry().nodesize as usize;
        let cache = Cache::new(cache_bytes);
        Self { volume, cache, nodesize, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// The volume below.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// How the cache fared so far.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }

    /// The node at `logical` if it is in the cache. The caller may hold tree locks.
    pub(crate) fn cached(&self, logical: Logical) -> Option<Arc<Node>> {
        let node = self.cache.get(logical)?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(node)
    }

    /// Whether the node at `logical` is in the cache.
    pub(crate) fn has(&self, logical: Logical) -> bool {
        self.cache.contains(logical)
    }

    /// Reads the node at `logical` into the cache. The caller holds no tree lock.
    pub(crate) fn load(
        &self,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<Arc<Node>, ReadError> {
        let block = self.volume.read_block(logical, expected)?;
        Ok(self.adopt(logical, block))
    }

    /// Takes a node into the cache whose first copy was read ahead.
    pub(crate) fn accept(
        &self,
        logical: Logical,
        expected: &Expectation,
        read: Result<Buffer, ReadError>,
    ) -> Result<Arc<Node>, ReadError> {
        let block = self.volume.accept_block(logical, expected, read)?;
        Ok(self.adopt(logical, block))
    }

    fn adopt(&self, logical: Logical, block: TreeBlock) -> Arc<Node> {
        self.misses.fetch_add(1, Ordering::Relaxed);
        let label = BlockLabel { owner: block.header().owner.0, level: block.header().level };
        let node = Arc::new(TreeLock::new(label, NodeRef::new(block)));
        self.cache.insert(logical, node, self.nodesize)
    }

    /// Locks a node for reading, if it is what the parent, whose lock is held, leads to.
    pub(crate) fn lock_child(
        &self,
        node: &Arc<Node>,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<OwnedReadGuard<NodeRef>, ReadError> {
        self.check_level(node, logical, expected)?;
        let guard = TreeLock::read_owned(node, Nesting::Child);
        guard.check_expected(expected).map_err(|error| self.error(logical, expected, error))?;
        Ok(guard)
    }

    /// The order of locks rests on levels: they are checked before the lock is taken.
    fn check_level(
        &self,
        node: &Node,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<(), ReadError> {
        let (found, expected_level) = (node.label().level, expected.level);
        if found == expected_level {
            return Ok(());
        }
        let error = BlockError::Level { expected: expected_level, found };
        Err(self.error(logical, expected, error))
    }

    fn error(&self, logical: Logical, expected: &Expectation, error: BlockError) -> ReadError {
        let len = u64::from(self.volume.geometry().nodesize);
        match self.volume.map(logical, len) {
            Err(unmapped) => unmapped,
            Ok(mapping) => {
                let physical = mapping.copies().next().expect("there is a first copy");
                let copies = vec![(physical, CopyError::Block(error))];
                ReadError::Block { logical, tree: expected.owner, copies }
            }
        }
    }
}
