//! Where nodes come from: the cache, or the volume by way of it.

use userbtrfs_device::Buffer;
use userbtrfs_format::{BlockError, Expectation, Geometry, Logical, NewBlock, TreeId};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Arc, BlockLabel, Nesting, OwnedReadGuard, OwnedWriteGuard, TreeLock};
use userbtrfs_volume::{MirrorError, NodeBytes, ReadError, TreeBlock, Volume};

use crate::cache::Cache;
use crate::dirty::DirtyNodes;
use crate::source::{BlockSource, NoSpace};
use crate::{Node, NodeRef};

/// The nodes of a volume. A handle on it can read, and nothing else.
pub struct NodeStore {
    volume: Arc<Volume>,
    cache: Cache<Logical, Node>,
    dirty: DirtyNodes,
    nodesize: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Nodes that are to be written.
pub struct DirtyList {
    nodes: Vec<(Logical, Arc<Node>)>,
    /// Their transaction still runs: it may take them out of their trees, and then nobody wants
    /// them. Those of one that ended are wanted whatever the next one does.
    runs: bool,
}

/// A block of ours that no reader would accept: it is not written.
#[derive(Debug, thiserror::Error)]
#[error("tree block {logical} was made wrong: {error}")]
pub struct SealError {
    /// Where it is.
    pub logical: Logical,
    /// What is wrong.
    pub error: BlockError,
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
        let (cache, dirty) = (Cache::new(cache_bytes), DirtyNodes::new());
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { volume, cache, dirty, nodesize, hits, misses }
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
        let node = self.dirty.get(logical).or_else(|| self.cache.get(logical))?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(node)
    }

    /// Whether the node at `logical` is in the cache.
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
        self.cache.insert(logical, node_of(block), self.nodesize)
    }

    /// Makes a block of a tree by `build`. It is locked, for which `token` says why, before anyone
    /// can find it: who seals it finds it filled.
    pub(crate) fn make(
        &self,
        source: &dyn BlockSource,
        (owner, level, near): (TreeId, u8, Logical),
        token: Nesting,
        build: impl FnOnce(NodeBytes, &NewBlock) -> TreeBlock,
    ) -> Result<OwnedWriteGuard<NodeRef>, NoSpace> {
        let logical = source.allocate(owner, level, near)?;
        let new = NewBlock { logical, owner, level, generation: source.generation() };
        // Whoever seals the block clears what nothing takes.
        let bytes = NodeBytes::from(Buffer::unspecified(self.nodesize));
        let node = node_of(build(bytes, &new));
        let guard = TreeLock::write_owned(&node, token);
        self.cache.remove(logical);
        self.dirty.insert(logical, node);
        Ok(guard)
    }

    /// Forgets a node that is no longer part of any tree.
    pub fn discard(&self, logical: Logical) {
        self.dirty.remove(logical);
        self.cache.remove(logical);
    }

    /// Forgets what was read of a node; it is read anew if it is wanted again.
    pub(crate) fn forget(&self, logical: Logical) {
        self.cache.remove(logical);
    }

    /// Bytes of nodes that are not written.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty.len() * self.nodesize
    }

    /// All nodes that are not written, by address. No tree changes meanwhile.
    pub fn dirty_nodes(&self) -> DirtyList {
        DirtyList { nodes: self.dirty.all(), runs: false }
    }

    /// At most so many bytes of leaves that the running transaction made and that are not written,
    /// those first that were made first.
    pub fn oldest_leaves(&self, bytes: usize) -> DirtyList {
        DirtyList { nodes: self.dirty.take_oldest(bytes / self.nodesize), runs: true }
    }

    /// Bytes of the nodes of a list.
    pub fn bytes_of(&self, nodes: &DirtyList) -> usize {
        nodes.nodes.len() * self.nodesize
    }

    /// Those of the nodes at these addresses that are not written, in the order of the addresses.
    /// Their trees do not change before they are sealed.
    pub fn dirty_at(&self, addresses: impl IntoIterator<Item = Logical>) -> DirtyList {
        let node = |at| self.dirty.get(at).map(|node| (at, node));
        DirtyList { nodes: addresses.into_iter().filter_map(node).collect(), runs: false }
    }

    /// Makes one node after the other ready to be written, and gives the bytes of those that are
    /// wanted, by address. From then on they are copied before they are changed, also by the
    /// transaction that made them.
    pub fn seal(
        &self,
        nodes: &DirtyList,
    ) -> impl Iterator<Item = Result<(Logical, Arc<Buffer>), SealError>> {
        let geometry = self.geometry();
        let seal = move |(logical, node): &(Logical, Arc<Node>)| {
            let mut guard = node.write(Nesting::Root);
            // Who takes a node out of its tree holds its lock.
            let there = || self.dirty.get(*logical).is_some_and(|there| Arc::ptr_eq(&there, node));
            if nodes.runs && !there() {
                return None;
            }
            let block = Arc::make_mut(&mut guard);
            let sealed =
                block.seal(geometry).map_err(|error| SealError { logical: *logical, error });
            Some(sealed.map(|()| (*logical, Arc::clone(block.as_bytes().buffer()))))
        };
        nodes.nodes.iter().filter_map(seal)
    }

    /// These nodes are on disk now.
    pub fn written(&self, nodes: DirtyList) {
        for (logical, listed) in nodes.nodes {
            // One that left its tree before it was written left its place to another.
            if self.dirty.remove_this(logical, &listed) {
                self.cache.insert(logical, listed, self.nodesize);
            }
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.volume.geometry()
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

    /// Locks a node for writing, if it is what the parent, whose lock is held, leads to.
    pub(crate) fn lock_child_alone(
        &self,
        node: &Arc<Node>,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<OwnedWriteGuard<NodeRef>, ReadError> {
        self.check_level(node, logical, expected)?;
        let guard = TreeLock::write_owned(node, Nesting::Child);
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
                let copies = vec![(physical, MirrorError::Block(error))];
                ReadError::Block { logical, tree: expected.owner, copies }
            }
        }
    }
}

fn node_of(block: TreeBlock) -> Arc<Node> {
    let label = BlockLabel { owner: block.header().owner.0, level: block.header().level };
    Arc::new(TreeLock::new(label, NodeRef::new(block)))
}
