//! Changes of trees, compared with maps of the expected items and with a count of references.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use userbtrfs_btree::{
    Backref, BlockRefs, BlockSource, Change, DirtyList, Edit, EditError, Extent, ItemEdit, NoSpace,
    NodeStore, RefChange, Root, SourceError, Tree,
};
use userbtrfs_device::{Buffer, Device, MemoryDevice};
use userbtrfs_format::{
    BlockFlags, ChildPointer, Header, ItemKind, Key, Logical, MAX_LEVEL, NewBlock, TreeId,
};
use userbtrfs_mkfs::{Options, Profile, make};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::random::{Random, seed};
use userbtrfs_volume::{NodeBytes, TreeBlock, Volume, walk};

use crate::plain;

/// All valid node sizes, in bytes.
const NODE_SIZES: [u32; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The size of a device, large enough that its part for metadata holds all trees.
const LEN: usize = 1 << 30;

/// A kind that carries any content.
const ANY: ItemKind = ItemKind(99);

/// Counts references as an extent tree does, and allocates from the largest chunk.
struct Books {
    nodesize: u64,
    generation: AtomicU64,
    free: Mutex<BTreeSet<u64>>,
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
struct Grove {
    device: Arc<MemoryDevice>,
    volume: Arc<Volume>,
    store: NodeStore,
    books: Books,
    trees: Vec<(Tree, BTreeMap<Key, Vec<u8>>)>,
}

impl Grove {
    /// Creates one on an empty filesystem; both the node size and the cache size are in bytes.
    fn new(nodesize: u32, cache_bytes: usize) -> Self {
        let device = Arc::new(MemoryDevice::new(LEN));
        make(&*device, &Options { nodesize, metadata: Profile::Single, ..Options::default() })
            .unwrap();
        let volume = Arc::new(Volume::open(vec![device.clone()]).unwrap());
        let store = NodeStore::new(Arc::clone(&volume), cache_bytes);
        let books = Books::new(&volume);
        let mut grove = Self { device, volume, store, books, trees: Vec::new() };
        grove.plant();
        grove
    }

    fn geometry(&self) -> &userbtrfs_format::Geometry {
        self.volume.geometry()
    }

    fn bytes(&self) -> NodeBytes {
        NodeBytes::from(Buffer::zeroed(usize::try_from(self.books.nodesize).unwrap()))
    }

    fn new_id(&self) -> TreeId {
        TreeId(1000 + self.trees.len() as u64)
    }

    /// Adds a tree with one item.
    fn plant(&mut self) {
        let owner = self.new_id();
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

    fn write(&self, mut block: TreeBlock) {
        block.seal(self.geometry()).unwrap();
        self.write_bytes(block.header().logical, block.as_bytes().buffer());
    }

    fn write_bytes(&self, logical: Logical, bytes: &Arc<Buffer>) {
        let mapping = self.volume.map(logical, self.books.nodesize).unwrap();
        for physical in mapping.copies() {
            self.device.write(physical.0, Arc::clone(bytes), false).unwrap();
        }
    }

    /// Writes all dirty nodes, and starts the next transaction.
    fn commit(&self) {
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
    fn snapshot(&mut self, number: usize) {
        self.commit();
        let (source, items) = &self.trees[number];
        let source_id = source.id();
        let items = items.clone();
        let old = source.root();
        let _ = source_id;
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
    fn snapshot_now(&mut self, number: usize) {
        let (source, items) = &self.trees[number];
        let copy = source.snapshot(self.new_id(), &self.store, &self.books).unwrap();
        let items = items.clone();
        self.trees.push((copy, items));
    }

    /// Asserts that every tree on disk holds its expected items, and every reference is counted.
    fn check(&self) {
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
    fn fill_of(&self, number: usize) -> (usize, usize) {
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
    fn change(&mut self, number: usize, random: &mut Random, keys: u64, len_max: u64) {
        let (tree, items) = &mut self.trees[number];
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
        let mut list: Vec<_> = edits.values().cloned().collect();
        tree.apply(&self.store, &self.books, &mut list).unwrap();
        for edit in list {
            match edit {
                ItemEdit::Put(key, data) => items.insert(key, data),
                ItemEdit::Remove(key) => items.remove(&key),
            };
        }
    }
}

fn torture() -> bool {
    std::env::var_os("USERBTRFS_TORTURE").is_some_and(|value| value == "1")
}

#[test]
fn trees_hold_what_maps_hold() {
    let seed = seed();
    let rounds = if torture() { 40_000 } else { 400 };
    for (nodesize, len_max) in NODE_SIZES.into_iter().zip([300, 700, 1500, 2500, 4000]) {
        let mut grove = Grove::new(nodesize, 64 << 10);
        let mut random = Random::new(seed ^ u64::from(nodesize));
        for round in 0..rounds {
            // The tree alternately grows and shrinks.
            let keys = if round / 100 % 2 == 0 { 5000 } else { 300 };
            grove.change(0, &mut random, keys, len_max);
            if random.one_in(20) {
                grove.commit();
            }
            if random.one_in(100) {
                grove.check();
            }
        }
        grove.check();
    }
}

#[test]
fn trees_that_share_blocks_do_not_see_each_other() {
    let seed = seed();
    let rounds = if torture() { 20_000 } else { 300 };
    for (nodesize, len_max) in NODE_SIZES.into_iter().zip([200, 400, 800, 1500, 2500]) {
        let mut grove = Grove::new(nodesize, 256 << 10);
        let mut random = Random::new(seed ^ u64::from(nodesize));
        for round in 0..rounds {
            let number = random.index(grove.trees.len());
            grove.change(number, &mut random, 1500, len_max);
            if random.one_in(40) && grove.trees.len() < 6 {
                let number = random.index(grove.trees.len());
                if random.one_in(2) {
                    grove.snapshot(number);
                } else {
                    grove.snapshot_now(number);
                }
            }
            if random.one_in(10) {
                grove.commit();
            }
            if round % 50 == 0 {
                grove.check();
            }
        }
        grove.check();
    }
}

#[test]
fn a_tree_emptied_is_one_leaf_again() {
    let mut grove = Grove::new(4096, 1 << 20);
    let (tree, items) = &mut grove.trees[0];
    let keys: Vec<_> = (0..20_000).map(|number| Key::new(number, ANY, 0)).collect();
    let mut put: Vec<_> = keys.iter().map(|key| ItemEdit::Put(*key, vec![7; 40])).collect();
    tree.apply(&grove.store, &grove.books, &mut put).unwrap();
    items.extend(keys.iter().map(|key| (*key, vec![7; 40])));
    assert!(tree.root().level >= 2);
    grove.check();
    let used = grove.books.free.lock().unwrap().len();
    let (tree, items) = &mut grove.trees[0];
    let mut remove: Vec<_> = keys.iter().map(|key| ItemEdit::Remove(*key)).collect();
    tree.apply(&grove.store, &grove.books, &mut remove).unwrap();
    items.retain(|key, _| key.objectid == 1 << 40);
    // A root whose only child is not in memory is replaced by it in the next change.
    let mut again = [ItemEdit::Put(Key::new(1 << 40, ANY, 0), b"first".to_vec())];
    tree.apply(&grove.store, &grove.books, &mut again).unwrap();
    assert_eq!(tree.root().level, 0);
    grove.check();
    assert!(grove.books.free.lock().unwrap().len() > used, "blocks came back");
}

#[test]
fn root_left_with_one_child_is_replaced_in_the_same_change() {
    // The first leaf is removed; the last one is; the first one is merged with the last one.
    for numbers in [0..8, 8..12, 0..7] {
        let mut grove = Grove::new(4096, 1 << 20);
        let (tree, items) = &mut grove.trees[0];
        let key = |number| Key::new(number, ANY, 0);
        let put = (0..12).map(|number| ItemEdit::Put(key(number), vec![7; 450]));
        let first = ItemEdit::Remove(*items.keys().next().unwrap());
        let mut edits: Vec<_> = put.chain([first]).collect();
        tree.apply(&grove.store, &grove.books, &mut edits).unwrap();
        *items = (0..12).map(|number| (key(number), vec![7; 450])).collect();
        assert_eq!(tree.root().level, 1);
        grove.check();
        let (tree, items) = &mut grove.trees[0];
        items.retain(|key, _| !numbers.contains(&key.objectid));
        let mut edits: Vec<_> = numbers.clone().map(key).map(ItemEdit::Remove).collect();
        tree.apply(&grove.store, &grove.books, &mut edits).unwrap();
        assert_eq!(tree.root().level, 0, "without {numbers:?}");
        grove.check();
    }
}

#[test]
fn ascending_items_fill_their_leaves() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    for number in 0..10_000 {
        let mut one = [ItemEdit::Put(Key::new(number, ANY, 0), vec![1; 75])];
        tree.apply(&grove.store, &grove.books, &mut one).unwrap();
    }
    grove.commit();
    let (leaves, used) = grove.fill_of(0);
    assert!(used / leaves > 3995 / 10 * 9, "{used} bytes in {leaves} leaves");
}

#[test]
fn items_in_any_order_fill_their_leaves() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    let mut numbers: Vec<u64> = (0..10_000).collect();
    Random::new(seed()).shuffle(&mut numbers);
    for number in numbers {
        let mut one = [ItemEdit::Put(Key::new(number, ANY, 0), vec![1; 75])];
        tree.apply(&grove.store, &grove.books, &mut one).unwrap();
    }
    grove.commit();
    let (leaves, used) = grove.fill_of(0);
    assert!(used / leaves > 3995 / 100 * 75, "{used} bytes in {leaves} leaves");
}

/// All items of the leaf would fit into half of the neighbour's free space, but one has to stay.
#[test]
fn full_leaf_keeps_an_item_when_others_move_to_its_neighbour() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    let key = |number| Key::new(number, ANY, 0);
    let put = |number, len| ItemEdit::Put(key(number), vec![1; len]);
    let edits = [put(5, 1473), put(6, 2400), put(7, 974), ItemEdit::Remove(key(6)), put(4, 2500)];
    let edits = [ItemEdit::Remove(key(1 << 40))].into_iter().chain(edits);
    for edit in edits {
        tree.apply(&grove.store, &grove.books, &mut [edit]).unwrap();
    }
    grove.commit();
    let found = plain(&grove.volume, tree.id(), tree.root());
    let lens: Vec<_> = found.iter().map(|(key, data)| (key.objectid, data.len())).collect();
    assert_eq!(lens, [(4, 2500), (5, 1473), (7, 974)]);
}

/// Like checksums of an extent with many small holes: shortening a large item leaves a sparse leaf.
#[test]
fn a_leaf_of_items_that_become_short_is_merged() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    let put = |number, len| [ItemEdit::Put(Key::new(number, ANY, 0), vec![1; len])];
    for number in 0..200 {
        tree.apply(&grove.store, &grove.books, &mut put(number + 1, 3900)).unwrap();
        tree.apply(&grove.store, &grove.books, &mut put(number, 100)).unwrap();
    }
    grove.commit();
    let (leaves, used) = grove.fill_of(0);
    assert!(used / leaves > 3995 / 4, "{used} bytes in {leaves} leaves");
}

#[test]
fn leaves_of_a_log_are_not_among_the_oldest_leaves() {
    let grove = Grove::new(4096, 1 << 20);
    let store = &grove.store;
    let books = &grove.books;
    let log = Tree::create(TreeId::TREE_LOG, store, books, uuid::Uuid::nil()).unwrap();
    assert_eq!((log.root().level, log.root().generation), (0, books.generation()));
    assert!(log.search(store, &Key::MIN).unwrap().leaf.is_empty());
    let mut items: Vec<_> =
        (0..200).map(|n| ItemEdit::Put(Key::new(n, ANY, 0), vec![1; 75])).collect();
    log.apply(store, books, &mut items).unwrap();
    grove.trees[0].0.apply(store, books, &mut items[..5]).unwrap();
    let seal = |list: &DirtyList| store.seal(list).collect::<Result<Vec<_>, _>>().unwrap();
    let oldest = seal(&store.oldest_leaves(usize::MAX));
    assert_eq!(oldest.len(), 1, "the leaf of the tree that is no log");
    let root = log.root().logical;
    let of_log = seal(&store.dirty_at([root, oldest[0].0, Logical(1 << 50)]));
    let places: Vec<_> = of_log.iter().map(|(at, _)| *at).collect();
    assert_eq!(places, [root, oldest[0].0], "those that are not written");
    seal(&store.dirty_nodes());
    log.apply(store, books, &mut items[..1]).unwrap();
    assert_ne!(log.root().logical, root, "what is sealed is copied");
}

/// A log may reuse the address of a leaf that was freed before it was written.
#[test]
fn log_leaf_at_the_address_of_a_freed_leaf_is_not_among_the_oldest_leaves() {
    let grove = Grove::new(4096, 1 << 20);
    let store = &grove.store;
    let books = &grove.books;
    let items = |tree: &Tree, numbers: std::ops::Range<u64>, len: usize| {
        let put = |number| ItemEdit::Put(Key::new(number, ANY, 0), vec![1; len]);
        tree.apply(store, books, &mut numbers.map(put).collect::<Vec<_>>()).unwrap();
    };
    items(&grove.trees[0].0, 0..400, 75);
    let remove = |number| ItemEdit::Remove(Key::new(number, ANY, 0));
    grove.trees[0].0.apply(store, books, &mut (5..400).map(remove).collect::<Vec<_>>()).unwrap();
    let log = Tree::create(TreeId::TREE_LOG, store, books, uuid::Uuid::nil()).unwrap();
    items(&log, 0..400, 75);
    let oldest = store.oldest_leaves(usize::MAX);
    let sealed: Vec<_> = store.seal(&oldest).collect::<Result<_, _>>().unwrap();
    let owner = |bytes: &Buffer| u64::from_le_bytes(bytes[0x58..0x60].try_into().unwrap());
    let owners: Vec<_> = sealed.iter().map(|(_, bytes)| owner(bytes)).collect();
    assert!(!owners.is_empty() && !owners.contains(&TreeId::TREE_LOG.0), "{owners:x?}");
}

#[test]
fn leaf_freed_before_it_is_written_keeps_the_new_node_at_its_address() {
    let mut grove = Grove::new(4096, 1 << 20);
    let key = |number| Key::new(number, ANY, 0);
    let put = |number| ItemEdit::Put(key(number), vec![1; 75]);
    let apply = |grove: &Grove, mut edits: Vec<_>| {
        grove.trees[0].0.apply(&grove.store, &grove.books, &mut edits).unwrap();
    };
    apply(&grove, (0..400).map(put).collect());
    let leaves = grove.store.oldest_leaves(usize::MAX);
    // The addresses of removed leaves are reused for new ones.
    apply(&grove, (100..300).map(|number| ItemEdit::Remove(key(number))).collect());
    apply(&grove, (100..300).map(put).collect());
    for sealed in grove.store.seal(&leaves) {
        let (logical, bytes) = sealed.unwrap();
        grove.write_bytes(logical, &bytes);
    }
    grove.store.written(leaves);
    grove.trees[0].1.extend((0..400).map(|number| (key(number), vec![1; 75])));
    grove.check();
}

/// All trees that share a block lock the same node, until only one of them refers to it.
#[test]
fn shared_leaf_stays_in_memory_after_it_is_copied() {
    let mut grove = Grove::new(4096, 1 << 20);
    let key = |number| Key::new(number, ANY, 0);
    let put = |number, byte| ItemEdit::Put(key(number), vec![byte; 75]);
    let apply = |grove: &Grove, tree: usize, mut edits: Vec<_>| {
        grove.trees[tree].0.apply(&grove.store, &grove.books, &mut edits).unwrap();
    };
    apply(&grove, 0, (0..400).map(|number| put(number, 1)).collect());
    grove.trees[0].1.extend((0..400).map(|number| (key(number), vec![1; 75])));
    grove.snapshot(0);
    let search = |grove: &Grove, tree: usize| {
        grove.trees[tree].0.search(&grove.store, &key(200)).unwrap();
        grove.store.stats().misses
    };
    let read = search(&grove, 1);
    apply(&grove, 0, vec![put(200, 2)]);
    assert_eq!(search(&grove, 1), read, "the leaf is the other's still");
    apply(&grove, 1, vec![put(200, 3)]);
    for (tree, byte) in [(0, 2), (1, 3)] {
        grove.trees[tree].1.insert(key(200), vec![byte; 75]);
    }
    grove.check();
}

/// Blocks below the root are of the running transaction: the source and both snapshots share them,
/// and each change copies what is still shared, once.
#[test]
fn snapshots_and_their_source_change_in_the_same_transaction() {
    let mut grove = Grove::new(4096, 16 << 20);
    let key = |number| Key::new(number, ANY, 0);
    let put = |number, byte: u8| ItemEdit::Put(key(number), vec![byte; 75]);
    let apply = |grove: &mut Grove, tree: usize, numbers: std::ops::Range<u64>, byte: u8| {
        let (changed, items) = &mut grove.trees[tree];
        let mut edits: Vec<_> = numbers.clone().map(|number| put(number, byte)).collect();
        changed.apply(&grove.store, &grove.books, &mut edits).unwrap();
        items.extend(numbers.map(|number| (key(number), vec![byte; 75])));
    };
    apply(&mut grove, 0, 0..9000, 1);
    assert_eq!(grove.trees[0].0.root().level, 2);
    grove.snapshot_now(0);
    apply(&mut grove, 0, 100..101, 2);
    let free = |grove: &Grove| grove.books.free.lock().unwrap().len();
    let before = free(&grove);
    apply(&mut grove, 0, 100..102, 3);
    assert_eq!(free(&grove), before, "the path is not shared any more");
    grove.snapshot_now(0);
    for (tree, byte) in [(0, 4), (2, 5), (1, 6)] {
        apply(&mut grove, tree, 100..103, byte);
        apply(&mut grove, tree, 4000..4300, byte);
    }
    grove.check();
}

/// The new item does not fit into a leaf that holds one large item.
#[test]
fn a_split_without_space_leaves_the_tree_as_it_was() {
    let mut grove = Grove::new(4096, 1 << 20);
    let (tree, items) = &mut grove.trees[0];
    let put = |number| ItemEdit::Put(Key::new(number, ANY, 0), vec![1; 3000]);
    tree.apply(&grove.store, &grove.books, &mut [put(10), put(20)]).unwrap();
    items.extend([10, 20].map(|number| (Key::new(number, ANY, 0), vec![1; 3000])));
    let free = std::mem::take(&mut *grove.books.free.lock().unwrap());
    let failed = tree.apply(&grove.store, &grove.books, &mut [put(5)]);
    assert!(matches!(failed, Err(EditError::NoSpace(_))), "{failed:?}");
    assert!(tree.search(&grove.store, &Key::new(10, ANY, 0)).unwrap().exact);
    *grove.books.free.lock().unwrap() = free;
    grove.check();
}

/// A forged tree of eight levels whose leftmost path is full.
#[test]
fn split_of_a_full_tree_of_the_maximum_height_fails() {
    let grove = Grove::new(4096, 1 << 20);
    let owner = grove.new_id();
    let generation = grove.books.generation() - 1;
    let block = |level| {
        let logical = grove.books.allocate(owner, level, Logical(0)).unwrap();
        let new = NewBlock { logical, owner, level, generation };
        TreeBlock::empty(grove.bytes(), &new, grove.geometry(), uuid::Uuid::nil())
    };
    let key = |number| Key::new(number, ANY, 0);
    let mut below = block(0);
    below.insert_item(0, key(1), &[1; 3000]);
    let mut child = Logical(0);
    for level in 0..=MAX_LEVEL {
        child = below.header().logical;
        grove.write(below.clone());
        below = block(level + 1);
        for slot in 0..below.pointers_max() {
            let logical = if slot == 0 { child } else { Logical(1 << 50) };
            let key = key(1 + 125_u64.pow(u32::from(level) + 1) * slot as u64);
            let pointer = ChildPointer { key, logical, generation };
            below.insert_child(slot, &pointer);
        }
    }
    let tree = grove.store.tree(owner, Root { logical: child, level: MAX_LEVEL, generation });
    let mut edit = [ItemEdit::Put(key(2), vec![1; 3000])];
    let failed = tree.apply(&grove.store, &grove.books, &mut edit);
    assert!(matches!(failed, Err(EditError::TooHigh(id)) if id == owner), "{failed:?}");
    assert!(tree.search(&grove.store, &key(1)).unwrap().exact);
}

/// A new leaf is locked until it is filled: sealing waits for that.
#[test]
fn leaves_are_written_early_while_their_tree_changes() {
    let mut grove = Grove::new(4096, 1 << 20);
    let mut random = Random::new(seed());
    let done = AtomicBool::new(false);
    let (tree, items) = grove.trees.pop().unwrap();
    let items = Mutex::new(items);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let leaves = grove.store.oldest_leaves(usize::MAX);
                for sealed in grove.store.seal(&leaves) {
                    let (logical, bytes) = sealed.unwrap();
                    grove.write_bytes(logical, &bytes);
                }
                grove.store.written(leaves);
            }
        });
        let mut items = items.lock().unwrap();
        for _ in 0..if torture() { 500_000 } else { 20_000 } {
            let key = Key::new(random.below(1000), ANY, 0);
            let data = vec![1; usize::try_from(random.below(300)).unwrap()];
            let mut edit = [ItemEdit::Put(key, data.clone())];
            tree.apply(&grove.store, &grove.books, &mut edit).unwrap();
            items.insert(key, data);
        }
        done.store(true, Ordering::Relaxed);
    });
    grove.trees.push((tree, items.into_inner().unwrap()));
    grove.check();
}

/// Like a checksum item that fills a leaf and is cut at its front: the rest of it is inserted
/// before the next item, which is alone in the only leaf.
#[test]
fn large_item_is_inserted_before_the_only_item_of_a_tree() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    for number in [9, 5, 7, 3, 8, 4] {
        let mut one = [ItemEdit::Put(Key::new(number, ANY, 0), vec![1; 3900])];
        tree.apply(&grove.store, &grove.books, &mut one).unwrap();
    }
    let mut first = [ItemEdit::Remove(Key::new(1 << 40, ANY, 0))];
    tree.apply(&grove.store, &grove.books, &mut first).unwrap();
    grove.commit();
    let items = plain(&grove.volume, tree.id(), tree.root());
    let numbers: Vec<_> = items.iter().map(|(key, _)| key.objectid).collect();
    assert_eq!(numbers, [3, 4, 5, 7, 8, 9]);
}

/// Appends to the current content, as a change of a directory item does.
struct Append(Key, u8, Vec<u8>);

impl Edit for Append {
    fn key(&self) -> Key {
        self.0
    }

    fn apply(&mut self, current: Option<&[u8]>) -> Change<'_> {
        self.2 = current.unwrap_or_default().to_vec();
        self.2.push(self.1);
        Change::Put(&self.2)
    }
}

#[test]
fn edit_sees_the_current_content_and_is_made_once() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    for round in 0..200 {
        let mut edits: Vec<_> =
            (0..100).map(|number| Append(Key::new(number, ANY, 0), round, Vec::new())).collect();
        tree.apply(&grove.store, &grove.books, &mut edits).unwrap();
        if round % 17 == 0 {
            grove.commit();
        }
    }
    grove.commit();
    let all: Vec<u8> = (0..200).collect();
    let items = plain(&grove.volume, tree.id(), tree.root());
    assert_eq!(items.len(), 101);
    assert!(items[..100].iter().all(|(_, data)| *data == all));
}

#[test]
fn threads_change_one_tree_together() {
    let grove = Grove::new(4096, 1 << 20);
    let seed = seed();
    let rounds = if torture() { 2000 } else { 100 };
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let grove = &grove;
            scope.spawn(move || {
                let tree = &grove.trees[0].0;
                let mut random = Random::new(seed ^ thread << 40);
                for _ in 0..rounds {
                    let start = random.below(500);
                    let key = |step| Key::new(start + step, ANY, thread);
                    let edit = |step| {
                        if random.one_in(3) {
                            ItemEdit::Remove(key(step))
                        } else {
                            ItemEdit::Put(key(step), vec![9; 60])
                        }
                    };
                    let mut edits: Vec<_> = (0..40).map(edit).collect();
                    tree.apply(&grove.store, &grove.books, &mut edits).unwrap();
                    let position = tree.search(&grove.store, &edits[0].key()).unwrap();
                    assert_eq!(position.exact, matches!(edits[0], ItemEdit::Put(..)));
                }
            });
        }
    });
    grove.commit();
    plain(&grove.volume, grove.trees[0].0.id(), grove.trees[0].0.root());
}
