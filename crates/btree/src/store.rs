//! The node store: finds nodes in the cache, or reads them from the volume into it.

use userbtrfs_device::Buffer;
use userbtrfs_format::{BlockError, Expectation, Geometry, Logical, NewBlock, TreeId};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Arc, BlockLabel, Nesting, OwnedReadGuard, OwnedWriteGuard, TreeLock};
use userbtrfs_volume::{MirrorError, NodeBytes, ReadError, TreeBlock, Volume};

use crate::cache::Cache;
use crate::dirty::DirtyNodes;
use crate::source::{BlockSource, NoSpace};
use crate::tree::{Root, Tree};
use crate::{Node, NodeRef};

/// The nodes of a volume. It reads the volume, and never writes to it.
pub struct NodeStore {
    volume: Arc<Volume>,
    cache: Cache<Logical, Node>,
    dirty: DirtyNodes,
    nodesize: usize,
    hits: AtomicU64,
    misses: AtomicU64,
    #[cfg(feature = "experiments")]
    has_hand_made_locks: bool,
}

/// Nodes that are to be written.
pub struct DirtyList {
    nodes: Vec<(Logical, Arc<Node>)>,
    /// Whether their transaction is still running: nodes that it freed meanwhile are skipped.
    /// Nodes of a transaction that ended are written whatever the next one does.
    runs: bool,
}

/// The error for a block to be written that no reader would accept; it is not written.
#[derive(Debug, thiserror::Error)]
#[error("tree block {logical} was made wrong: {error}")]
pub struct SealError {
    /// The address of the block.
    pub logical: Logical,
    /// The fault in the block.
    pub error: BlockError,
}

/// Counters of the node cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Nodes found in the cache.
    pub hits: u64,
    /// Nodes read from the device.
    pub misses: u64,
}

impl NodeStore {
    /// Creates a store of the nodes of `volume` that caches about `cache_bytes` of them.
    pub fn new(volume: Arc<Volume>, cache_bytes: usize) -> Self {
        let nodesize = volume.geometry().nodesize as usize;
        let cache = Cache::new(cache_bytes);
        let dirty = DirtyNodes::new();
        let hits = AtomicU64::new(0);
        let misses = AtomicU64::new(0);
        Self {
            volume,
            cache,
            dirty,
            nodesize,
            hits,
            misses,
            #[cfg(feature = "experiments")]
            has_hand_made_locks: false,
        }
    }

    /// Makes all tree locks wait as before S4 of docs/seeds.md.
    #[cfg(feature = "experiments")]
    #[must_use]
    pub fn with_hand_made_locks(self) -> Self {
        Self { has_hand_made_locks: true, ..self }
    }

    /// Returns the handle of an existing tree, whose blocks are in this store.
    pub fn tree(&self, id: TreeId, root: Root) -> Tree {
        Tree::of_anchor(id, self.new_lock(Tree::anchor_label(id), root))
    }

    /// Creates the lock of a block, or of the root of a tree.
    fn new_lock<T>(&self, label: BlockLabel, value: T) -> TreeLock<T> {
        #[cfg(feature = "experiments")]
        if self.has_hand_made_locks {
            return TreeLock::hand_made(label, value);
        }
        TreeLock::new(label, value)
    }

    /// Returns the volume that nodes are read from.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Returns the counters of the cache.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }

    /// Returns the node at `logical` if it is in memory. The caller may hold tree locks.
    pub(crate) fn cached(&self, logical: Logical) -> Option<Arc<Node>> {
        let node = self.dirty.get(logical).or_else(|| self.cache.get(logical))?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(node)
    }

    /// Returns the size of a node in bytes.
    pub(crate) fn nodesize(&self) -> usize {
        self.nodesize
    }

    /// Returns whether the node at `logical` is in memory.
    pub(crate) fn has(&self, logical: Logical) -> bool {
        self.dirty.get(logical).is_some() || self.cache.contains(logical)
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

    /// Returns the block at `logical`, from memory or from disk, if it is the expected one. The
    /// caller holds no tree lock, and no tree changes meanwhile.
    pub(crate) fn read(
        &self,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<NodeRef, ReadError> {
        if let Some(node) = self.cached(logical) {
            let block = NodeRef::clone(&node.read(Nesting::Root));
            match block.check_expected(expected) {
                Ok(()) => return Ok(block),
                Err(error) if self.dirty.get(logical).is_some() => {
                    return Err(self.error(logical, expected, error));
                }
                // What is on disk may be the expected one.
                Err(_) => self.forget(logical),
            }
        }
        let node = self.load(logical, expected)?;
        let block = NodeRef::clone(&node.read(Nesting::Root));
        Ok(block)
    }

    /// Adds a node to the cache whose first mirror was read ahead.
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
        self.cache.insert(logical, self.node_of(block), self.nodesize)
    }

    /// Allocates a block of a tree and fills it by `build`. It is locked, with the nesting
    /// `token`, before any thread can find it: `seal` waits until it is filled.
    pub(crate) fn make(
        &self,
        source: &dyn BlockSource,
        owner: TreeId,
        level: u8,
        near: Logical,
        token: Nesting,
        build: impl FnOnce(NodeBytes, &NewBlock) -> TreeBlock,
    ) -> Result<OwnedWriteGuard<NodeRef>, NoSpace> {
        let logical = source.allocate(owner, level, near)?;
        let new = NewBlock { logical, owner, level, generation: source.generation() };
        // Sealing the block clears the bytes that no item uses.
        let bytes = NodeBytes::from(Buffer::unspecified(self.nodesize));
        let node = self.node_of(build(bytes, &new));
        let guard = TreeLock::write_owned(&node, token);
        self.cache.remove(logical);
        self.dirty.insert(logical, node);
        Ok(guard)
    }

    /// Drops a node that is no longer part of any tree.
    pub fn discard(&self, logical: Logical) {
        self.dirty.remove(logical);
        self.cache.remove(logical);
    }

    /// Drops a node from the cache; the next search for it reads it again.
    pub(crate) fn forget(&self, logical: Logical) {
        self.cache.remove(logical);
    }

    /// Returns the number of bytes of the dirty nodes.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty.len() * self.nodesize
    }

    /// Returns all dirty nodes, in the order of their addresses. No tree changes meanwhile.
    pub fn dirty_nodes(&self) -> DirtyList {
        DirtyList { nodes: self.dirty.all(), runs: false }
    }

    /// Returns at most `bytes` bytes of dirty leaves of the running transaction: those that were
    /// made first.
    pub fn oldest_leaves(&self, bytes: usize) -> DirtyList {
        DirtyList { nodes: self.dirty.take_oldest(bytes / self.nodesize), runs: true }
    }

    /// Returns the number of bytes of the nodes of a list.
    pub fn bytes_of(&self, nodes: &DirtyList) -> usize {
        nodes.nodes.len() * self.nodesize
    }

    /// Returns the dirty nodes among those at `addresses`, in the order of `addresses`. Their
    /// trees do not change before they are sealed.
    pub fn dirty_at(&self, addresses: impl IntoIterator<Item = Logical>) -> DirtyList {
        let node = |at| self.dirty.get(at).map(|node| (at, node));
        DirtyList { nodes: addresses.into_iter().filter_map(node).collect(), runs: false }
    }

    /// Prepares one node after the other for being written, and returns the address and the bytes
    /// of each that is to be written. A sealed node is copied before it is changed, also by the
    /// transaction that made it.
    pub fn seal(
        &self,
        nodes: &DirtyList,
    ) -> impl Iterator<Item = Result<(Logical, Arc<Buffer>), SealError>> {
        let geometry = self.geometry();
        let seal = move |(logical, node): &(Logical, Arc<Node>)| {
            let mut guard = node.write(Nesting::Root);
            // A thread that frees a node holds its lock.
            let there = || self.dirty.get(*logical).is_some_and(|there| Arc::ptr_eq(&there, node));
            if nodes.runs && !there() {
                return None;
            }
            let block = Arc::make_mut(&mut guard);
            let own = block.header().logical;
            assert_eq!(own, *logical, "a node is written to its own address");
            let sealed =
                block.seal(geometry).map_err(|error| SealError { logical: *logical, error });
            Some(sealed.map(|()| (*logical, Arc::clone(block.as_bytes().buffer()))))
        };
        nodes.nodes.iter().filter_map(seal)
    }

    /// Marks these nodes as clean: they are on disk now.
    pub fn written(&self, nodes: DirtyList) {
        for (logical, listed) in nodes.nodes {
            // The node may have been freed and its address reused: remove it only if it is still
            // this node.
            if self.dirty.remove_this(logical, &listed) {
                self.cache.insert(logical, listed, self.nodesize);
            }
        }
    }

    fn node_of(&self, block: TreeBlock) -> Arc<Node> {
        let label = BlockLabel { owner: block.header().owner.0, level: block.header().level };
        Arc::new(self.new_lock(label, NodeRef::new(block)))
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.volume.geometry()
    }

    /// Locks a node for reading, if it is the one that the parent expects. The caller holds the
    /// lock of the parent.
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

    /// Locks a node for writing, if it is the one that the parent expects. The caller holds the
    /// lock of the parent.
    pub(crate) fn lock_child_alone(
        &self,
        node: &Arc<Node>,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<OwnedWriteGuard<NodeRef>, ReadError> {
        self.lock_alone(node, logical, expected, Nesting::Child)
    }

    /// Locks a node for writing with the nesting `token`, if it is the expected one.
    pub(crate) fn lock_alone(
        &self,
        node: &Arc<Node>,
        logical: Logical,
        expected: &Expectation,
        token: Nesting,
    ) -> Result<OwnedWriteGuard<NodeRef>, ReadError> {
        self.check_level(node, logical, expected)?;
        let guard = TreeLock::write_owned(node, token);
        guard.check_expected(expected).map_err(|error| self.error(logical, expected, error))?;
        Ok(guard)
    }

    /// Checks the level of a node. The lock order is by level: it is checked before locking.
    fn check_level(
        &self,
        node: &Node,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<(), ReadError> {
        let found = node.label().level;
        let expected_level = expected.level;
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
                let copies = vec![(physical, MirrorError::Block(error))];
                ReadError::Block { logical, tree: expected.owner, copies }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_device::{Device, MemoryDevice};
    use userbtrfs_mkfs::{Options, make};

    use super::*;

    #[test]
    #[should_panic(expected = "a node is written to its own address")]
    fn node_listed_at_another_address_panics() {
        let device = Arc::new(MemoryDevice::new(256 << 20));
        make(&*device, &Options::default()).unwrap();
        let volume = Arc::new(Volume::open(vec![device as Arc<dyn Device>]).unwrap());
        let (root, expected) = volume.chunk_root();
        let block = volume.read_block(root, &expected).unwrap();
        let store = NodeStore::new(volume, 1 << 20);
        let other = root.checked_add(u64::from(store.geometry().nodesize)).unwrap();
        store.dirty.insert(other, store.node_of(block));
        let _sealed = store.seal(&store.dirty_nodes()).count();
    }
}
