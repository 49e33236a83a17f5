//! Trees on a device in memory that are changed as in transactions, and the items expected in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use userbtrfs_btree::{
    Backref, BlockRefs, BlockSource, EditError, Extent, ItemEdit, NoSpace, NodeStore, RefChange,
    Root, SourceError, Tree,
};
use userbtrfs_device::{Buffer, Device, MemoryDevice};
use userbtrfs_format::{BlockFlags, Header, ItemKind, Key, Logical, NewBlock, TreeId};
use userbtrfs_mkfs::{Options, Profile, make};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::random::Random;
use userbtrfs_volume::{NodeBytes, TreeBlock, Volume, walk};

use crate::plain;

/// The size of a device, large enough that its part for metadata holds all trees.
const LEN: usize = 1 << 30;

/// The id of the first tree, a subvolume.
const FIRST_ID: TreeId = TreeId(1000);

/// A kind that carries any content.
pub(super) const ANY: ItemKind = ItemKind(99);

/// Counts references as an extent tree does, and allocates from the largest chunk.
pub(super) struct Books {
    nodesize: u64,
    generation: AtomicU64,
    /// The number of blocks that can be allocated before there is no space.
    allocations_left: AtomicU64,
    pub(super) free: Mutex<BTreeSet<u64>>,
    /// Freed in this transaction, allocated again in the next.
    pinned: Mutex<Vec<u64>>,
    extents: Mutex<HashMap<Logical, Uses>>,
    /// Blocks whose references were looked up by `load_refs`.
    known: Mutex<BTreeSet<Logical>>,
}

#[derive(Default)]
struct Uses {
    backrefs: BTreeMap<Backref, i64>,
    full_backref: bool,
}

impl Books {
    fn new(volume: &Volume) -> Self {
        let nodesize = u64::from(volume.geometry().nodesize);
        let chunks = volume.chunks();
        let chunk = chunks.iter().max_by_key(|chunk| chunk.len).unwrap();
        let start = chunk.logical.0.next_multiple_of(nodesize);
        let addresses = (start..).step_by(usize::try_from(nodesize).unwrap());
        let end = chunk.end().0 - nodesize;
        Self {
            nodesize,
            generation: AtomicU64::new(volume.superblock().generation + 1),
            allocations_left: AtomicU64::new(u64::MAX),
            free: Mutex::new(addresses.take_while(|at| *at <= end).collect()),
            pinned: Mutex::default(),
            extents: Mutex::default(),
            known: Mutex::default(),
        }
    }

    fn count(&self, logical: Logical, backref: Backref, by: i64) {
        let mut extents = self.extents.lock().unwrap();
        let uses = extents.entry(logical).or_default();
        let count = uses.backrefs.entry(backref).or_default();
        *count += by;
        if *count == 0 {
            uses.backrefs.remove(&backref);
        }
    }

    /// Returns whether there are no references to the block.
    fn is_unused(&self, logical: Logical) -> bool {
        self.extents.lock().unwrap()[&logical].backrefs.is_empty()
    }
}

impl BlockSource for Books {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn allocate(&self, tree: TreeId, _level: u8, near: Logical) -> Result<Logical, NoSpace> {
        let mut free = self.free.lock().unwrap();
        let left = self.allocations_left.load(Ordering::Relaxed);
        self.allocations_left.store(left.checked_sub(1).ok_or(NoSpace)?, Ordering::Relaxed);
        let after = free.range(near.0..).next().copied();
        let at = after.or_else(|| free.first().copied()).ok_or(NoSpace)?;
        free.remove(&at);
        drop(free);
        let logical = Logical(at);
        let before = self.extents.lock().unwrap().insert(logical, Uses::default());
        assert!(before.is_none_or(|uses| uses.backrefs.is_empty()), "{logical} is still in use");
        self.count(logical, Backref::Tree(tree), 1);
        Ok(logical)
    }

    fn free(&self, tree: TreeId, block: &Header) {
        let logical = block.logical;
        self.count(logical, Backref::Tree(tree), -1);
        let own = block.generation == self.generation();
        if own && !block.flags.contains(BlockFlags::WRITTEN) {
            assert!(self.is_unused(logical), "{logical} was never written, yet is shared");
            self.free.lock().unwrap().insert(logical.0);
        } else if self.is_unused(logical) {
            self.pinned.lock().unwrap().push(logical.0);
        }
    }

    fn sharing(&self, block: Logical) -> Option<BlockRefs> {
        self.known.lock().unwrap().contains(&block).then(|| {
            let extents = self.extents.lock().unwrap();
            let uses = &extents[&block];
            let refs = uses.backrefs.values().sum::<i64>();
            BlockRefs { refs: u64::try_from(refs).unwrap(), full_backref: uses.full_backref }
        })
    }

    fn load_refs(&self, block: Logical, _level: u8) -> Result<(), SourceError> {
        self.known.lock().unwrap().insert(block);
        Ok(())
    }

    fn reference(&self, change: RefChange) {
        let Extent::Block { logical, .. } = change.extent else { panic!("no data here") };
        self.count(logical, change.backref, if change.add { 1 } else { -1 });
    }

    fn drop_if_shared(&self, change: RefChange) -> Option<BlockRefs> {
        let Extent::Block { logical, .. } = change.extent else { panic!("no data here") };
        let before = self.sharing(logical)?;
        if before.refs > 1 {
            self.reference(change);
        }
        Some(before)
    }

    fn set_full_backref(&self, block: Logical, _level: u8) {
        self.extents.lock().unwrap().get_mut(&block).unwrap().full_backref = true;
    }

    fn root_changed(&self, _tree: &Tree) {}
}

/// Trees on a device in memory, and the items expected in each.
pub(super) struct Grove {
    device: Arc<MemoryDevice>,
    pub(super) volume: Arc<Volume>,
    pub(super) store: NodeStore,
    pub(super) books: Books,
    pub(super) trees: Vec<(Tree, BTreeMap<Key, Vec<u8>>)>,
}

impl Grove {
    /// Creates one on an empty filesystem; both the node size and the cache size are in bytes.
    pub(super) fn new(nodesize: u32, cache_bytes: usize) -> Self {
        Self::with_tree(FIRST_ID, nodesize, cache_bytes)
    }

    /// Creates one whose first tree has this id.
    pub(super) fn with_tree(id: TreeId, nodesize: u32, cache_bytes: usize) -> Self {
        let device = Arc::new(MemoryDevice::new(LEN));
        make(&*device, &Options { nodesize, metadata: Profile::Single, ..Options::default() })
            .unwrap();
        let volume = Arc::new(Volume::open(vec![device.clone()]).unwrap());
        let store = NodeStore::new(Arc::clone(&volume), cache_bytes);
        let books = Books::new(&volume);
        let mut grove = Self { device, volume, store, books, trees: Vec::new() };
        grove.plant(id);
        grove
    }

    pub(super) fn geometry(&self) -> &userbtrfs_format::Geometry {
        self.volume.geometry()
    }

    pub(super) fn bytes(&self) -> NodeBytes {
        NodeBytes::from(Buffer::zeroed(usize::try_from(self.books.nodesize).unwrap()))
    }

    pub(super) fn new_id(&self) -> TreeId {
        TreeId(FIRST_ID.0 + self.trees.len() as u64)
    }

    /// Adds a tree with one item.
    fn plant(&mut self, owner: TreeId) {
        let key = Key::new(1 << 40, ANY, 0);
        let logical = self.books.allocate(owner, 0, Logical(0)).unwrap();
        let generation = self.books.generation();
        let new = NewBlock { logical, owner, level: 0, generation };
        let mut root = TreeBlock::empty(self.bytes(), &new, self.geometry(), uuid::Uuid::nil());
        root.insert_item(0, key, b"first");
        self.write(root);
        let tree = self.store.tree(owner, Root { logical, level: 0, generation });
        self.trees.push((tree, BTreeMap::from([(key, b"first".to_vec())])));
        self.commit();
    }

    pub(super) fn write(&self, mut block: TreeBlock) {
        block.seal(self.geometry()).unwrap();
        self.write_bytes(block.header().logical, block.as_bytes().buffer());
    }

    pub(super) fn write_bytes(&self, logical: Logical, bytes: &Arc<Buffer>) {
        let mapping = self.volume.map(logical, self.books.nodesize).unwrap();
        for physical in mapping.copies() {
            self.device.write(physical.0, Arc::clone(bytes), false).unwrap();
        }
    }

    /// Writes all dirty nodes, and starts the next transaction.
    pub(super) fn commit(&self) {
        let nodes = self.store.dirty_nodes();
        for sealed in self.store.seal(&nodes) {
            let (logical, bytes) = sealed.unwrap();
            self.write_bytes(logical, &bytes);
        }
        self.store.written(nodes);
        self.books.generation.fetch_add(1, Ordering::Relaxed);
        let mut free = self.books.free.lock().unwrap();
        for at in self.books.pinned.lock().unwrap().drain(..) {
            free.insert(at);
            self.books.known.lock().unwrap().remove(&Logical(at));
        }
    }

    /// Makes a snapshot of a tree, in a transaction of its own.
    pub(super) fn snapshot(&mut self, number: usize) {
        self.commit();
        let (source, items) = &self.trees[number];
        let source_id = source.id();
        let items = items.clone();
        let old = source.root();
        let expected = userbtrfs_format::Expectation {
            owner: source_id,
            level: old.level,
            generation: old.generation,
            first_key: None,
            end: None,
        };
        let block = self.volume.read_block(old.logical, &expected).unwrap();
        let owner = self.new_id();
        let logical = self.books.allocate(owner, old.level, old.logical).unwrap();
        let generation = self.books.generation();
        let new = NewBlock { logical, owner, level: old.level, generation };
        let copy = block.copy_to(self.bytes(), &new);
        for slot in (0..copy.len()).filter(|_| !copy.is_leaf()) {
            self.books.count(copy.child(slot).logical, Backref::Tree(owner), 1);
        }
        let level = old.level;
        self.write(copy);
        let tree = self.store.tree(owner, Root { logical, level, generation });
        tree.set_last_snapshot(generation);
        self.trees[number].0.set_last_snapshot(generation);
        self.trees.push((tree, items));
        self.commit();
    }

    /// Makes a snapshot of a tree in the running transaction, in which both may change further.
    pub(super) fn snapshot_now(&mut self, number: usize) {
        let (source, items) = &self.trees[number];
        let copy = source.snapshot(self.new_id(), &self.store, &self.books).unwrap();
        let items = items.clone();
        self.trees.push((copy, items));
    }

    /// Asserts that every tree on disk holds its expected items, and every reference is counted.
    pub(super) fn check(&self) {
        self.commit();
        let mut expected: HashMap<Logical, BTreeMap<Backref, i64>> = HashMap::new();
        let mut seen = BTreeSet::new();
        for (tree, items) in &self.trees {
            let found = plain(&self.volume, tree.id(), tree.root());
            assert!(found.iter().map(|(key, data)| (key, data)).eq(items.iter()), "{}", tree.id());
            let root = tree.root();
            *expected
                .entry(root.logical)
                .or_default()
                .entry(Backref::Tree(tree.id()))
                .or_default() += 1;
            self.count_below(root, tree.id(), &mut seen, &mut expected);
        }
        let extents = self.books.extents.lock().unwrap();
        let used: HashMap<_, _> = extents
            .iter()
            .filter(|(_, uses)| !uses.backrefs.is_empty())
            .map(|(at, uses)| (*at, uses.backrefs.clone()))
            .collect();
        assert_eq!(used, expected);
    }

    /// Counts the references of the blocks from `root` down, each block once.
    fn count_below(
        &self,
        root: Root,
        tree: TreeId,
        seen: &mut BTreeSet<Logical>,
        expected: &mut HashMap<Logical, BTreeMap<Backref, i64>>,
    ) {
        let mut todo = vec![root];
        while let Some(Root { logical, level, generation }) = todo.pop() {
            if level == 0 || !seen.insert(logical) {
                continue;
            }
            let expectation = userbtrfs_format::Expectation {
                owner: tree,
                level,
                generation,
                first_key: None,
                end: None,
            };
            let block = self.volume.read_block(logical, &expectation).unwrap();
            let full = self.books.extents.lock().unwrap()[&logical].full_backref;
            let backref =
                if full { Backref::Parent(logical) } else { Backref::Tree(block.header().owner) };
            for child in (0..block.len()).map(|slot| block.child(slot)) {
                *expected.entry(child.logical).or_default().entry(backref).or_default() += 1;
                let logical = child.logical;
                let generation = child.generation;
                todo.push(Root { logical, level: level - 1, generation });
            }
        }
    }

    /// Returns the number of leaves of a tree, and the number of bytes used in them.
    pub(super) fn fill_of(&self, number: usize) -> (usize, usize) {
        let tree = &self.trees[number].0;
        let root = tree.root();
        let expected = userbtrfs_format::Expectation {
            owner: tree.id(),
            level: root.level,
            generation: root.generation,
            first_key: None,
            end: None,
        };
        let mut walk = walk(&*self.volume, root.logical, expected, u64::MAX);
        let mut leaves = 0;
        let mut used = 0;
        while let Some(leaf) = walk.next_leaf().unwrap() {
            leaves += 1;
            used += leaf.used_space();
        }
        (leaves, used)
    }

    /// Makes a batch of random changes to one tree.
    pub(super) fn change(&mut self, number: usize, random: &mut Random, keys: u64, len_max: u64) {
        let batch = usize::try_from(1 + random.length(7)).unwrap();
        let start = random.below(keys);
        let mut edits = BTreeMap::new();
        for step in 0..batch as u64 {
            let number = if random.one_in(2) { start + step } else { random.below(keys) };
            let key = Key::new(number, ANY, 0);
            let len = usize::try_from(random.below(len_max)).unwrap();
            let edit = match random.below(5) {
                0 | 1 => ItemEdit::Remove(key),
                _ => ItemEdit::Put(key, vec![u8::try_from(step % 251).unwrap(); len]),
            };
            edits.insert(key, edit);
        }
        // A tree is never empty.
        edits.remove(&Key::new(1 << 40, ANY, 0));
        self.apply(number, edits.into_values().collect());
    }

    /// Makes changes of one tree, and of its expected items.
    pub(super) fn apply(&mut self, number: usize, mut edits: Vec<ItemEdit>) {
        let (tree, items) = &mut self.trees[number];
        tree.apply(&self.store, &self.books, &mut edits).unwrap();
        expect(items, edits);
    }

    /// Makes a change of one tree while only some blocks are free. It may fail for want of space:
    /// then all items are as before.
    pub(super) fn apply_without_space(&mut self, number: usize, edit: ItemEdit, blocks: u64) {
        let (tree, items) = &mut self.trees[number];
        let mut edits = [edit];
        self.books.allocations_left.store(blocks, Ordering::Relaxed);
        let done = tree.apply(&self.store, &self.books, &mut edits);
        self.books.allocations_left.store(u64::MAX, Ordering::Relaxed);
        match done {
            Ok(()) => expect(items, edits),
            Err(EditError::NoSpace(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the keys of the leaf of one tree that has, or would have, the item of `key`.
    pub(super) fn keys_around(&self, number: usize, key: &Key) -> Vec<Key> {
        let leaf = self.trees[number].0.search(&self.store, key).unwrap().leaf;
        (0..leaf.len()).map(|slot| leaf.key(slot)).collect()
    }
}

/// Makes changes of the expected items.
fn expect(items: &mut BTreeMap<Key, Vec<u8>>, edits: impl IntoIterator<Item = ItemEdit>) {
    for edit in edits {
        match edit {
            ItemEdit::Put(key, data) => items.insert(key, data),
            ItemEdit::Remove(key) => items.remove(&key),
        };
    }
}

/// Returns whether the full counts are asked for.
pub(super) fn torture() -> bool {
    std::env::var_os("USERBTRFS_TORTURE").is_some_and(|value| value == "1")
}
