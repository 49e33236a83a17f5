//! Extents of files in a filesystem in memory, changed before, during and after a flush: compared
//! with a list of the content of each sector, and the extent tree with the items.

use std::collections::BTreeMap;

use proptest::prelude::*;
use userbtrfs_btree::ItemEdit;
use userbtrfs_codec::compress::Compression;
use userbtrfs_format::{FileExtentKind, InlineExtent, InodeFlags, Logical, RegularExtent};
use userbtrfs_mkfs::Options;
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_transaction::HandleKind;

use super::*;
use crate::error::InodeId;
use crate::inode::ops::create::create;
use crate::inode::ops::file_extents::change_file;
use crate::inode::ops::operation::Operation;
use crate::inode::ops::setattr::set_flags;
use crate::inode::testing::references;
use crate::inode::tests::{FILE, Lab, TOP};
use crate::inode::tree::ondisk;
use crate::inode::{FileChange, InlineData, Inode};
use crate::units::to_usize;

/// The number of sectors of a file; as many as a compressed extent holds.
const SECTORS: u64 = 32;

/// The content of a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cell {
    Hole,
    Inline(usize),
    /// The address on disk.
    Prealloc(u64),
    Data(u64),
    /// The address of the extent, and the sector in it.
    Compressed(u64, u64),
}

/// A step of the test.
#[derive(Clone, Debug)]
enum Step {
    /// Puts a new extent: plain, compressed or preallocated.
    New(u64, u64, Space),
    /// Writes preallocated sectors.
    Fill(u64, u64),
    Hole(u64, u64),
    Truncate(u64),
    Inline(usize),
    Merge,
    Commit,
    /// Freezes the set, does these steps, then flushes: edit by edit, with this limit of edits at a
    /// time.
    Slowly(usize, Vec<Step>),
}

#[derive(Clone, Copy, Debug)]
enum Space {
    Data,
    Compressed,
    Prealloc,
}

/// A file and its model.
struct World {
    /// Dropped before the transaction manager, whose space it may hold.
    inode: Arc<Inode>,
    lab: Lab,
    cells: Vec<Cell>,
    /// The size of each extent, by address.
    extents: BTreeMap<u64, u64>,
    hole_items: bool,
}

impl World {
    fn new(hole_items: bool) -> Self {
        let options = Options { nodesize: 4096, ..Options::default() };
        let lab = if hole_items { Lab::with_hole_items(&options) } else { Lab::of(&options) };
        let id = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
        // Nothing here has checksums.
        set_flags(&lab.namespace, id, InodeFlags::all(), InodeFlags::NODATACOW).unwrap();
        let inode = lab.nodes.inode(id).unwrap();
        let cells = vec![Cell::Hole; to_usize(SECTORS)];
        Self { inode, lab, cells, extents: BTreeMap::new(), hole_items }
    }

    fn id(&self) -> InodeId {
        self.inode.id()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::New(start, end, space) => self.put_new(*start, *end, *space),
            Step::Fill(start, end) => self.fill(*start, *end),
            Step::Hole(start, end) => {
                self.cells[to_usize(*start)..to_usize(*end)].fill(Cell::Hole);
                self.change(|file| {
                    file.put(start * SECTOR, end * SECTOR, ExtentMapKind::Hole, false);
                });
            }
            Step::Truncate(start) => {
                self.cells[to_usize(*start)..].fill(Cell::Hole);
                self.change(|file| {
                    file.put(start * SECTOR, u64::MAX, ExtentMapKind::Hole, false);
                });
                self.change(|file| file.set_size(start * SECTOR));
            }
            Step::Inline(len) => {
                self.cells[0] = Cell::Inline(*len);
                let inline = InlineData::plain(vec![7; *len]);
                self.change(|file| file.put(0, SECTOR, ExtentMapKind::Inline(inline), false));
            }
            Step::Merge => self.lab.transactions.merge_pending().unwrap(),
            Step::Commit => self.lab.transactions.commit().unwrap(),
            Step::Slowly(max, steps) => self.merge_slowly(*max, steps),
        }
    }

    /// Flushes in the smallest steps, after each of which the file reads the same. Another thread
    /// makes other changes once the set is frozen.
    fn merge_slowly(&mut self, max: usize, steps: &[Step]) {
        let nodes = Arc::clone(&self.lab.nodes);
        let inode = Arc::clone(&self.inode);
        if inode.state().running.as_ref().is_none_or(|set| set.created) {
            self.step(&Step::Merge);
            self.step(&Step::Hole(SECTORS / 2, SECTORS / 2 + 1));
        }
        let operation = Operation::begin(&nodes).unwrap();
        let (frozen, item) = inode.state().freeze().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| steps.iter().for_each(|step| self.step(step))).join().unwrap();
        });
        let size = ondisk::size(nodes.tree_roots(), inode.tree(), inode.number()).unwrap();
        let drop_extents = DropExtents {
            tree_roots: nodes.tree_roots(),
            tree: inode.tree(),
            number: inode.number(),
            extents: &frozen.extents,
            generation: operation.handle.generation(),
            holes: self.hole_items.then_some((size, item.size)),
            created: false,
        };
        let put = |cuts: &mut ExtentSplits| {
            for (offset, item) in cuts.remnants.drain(..).chain(cuts.changes.drain(..)) {
                let key = Key::new(inode.number(), ItemKind::EXTENT_DATA, offset);
                let put = |item: ExtentData| ItemEdit::Put(key, item.encode());
                let edit = item.map_or(ItemEdit::Remove(key), put);
                operation.handle.apply(inode.tree(), &mut [edit]).unwrap();
                assert_eq!(self.seen(), self.cells);
            }
            cuts.replaced.drain(..).for_each(|one| one.count(&operation.handle, inode.id()));
            Ok(())
        };
        let mut rest = drop_extents.run(max, put).unwrap();
        put(&mut rest).unwrap();
        let key = Key::new(inode.number(), ItemKind::INODE_ITEM, 0);
        let item = ItemEdit::Put(key, item.encode().to_vec());
        operation.handle.apply(inode.tree(), &mut [item]).unwrap();
        inode.state().merging = None;
        nodes.waiting.shrink(frozen.bytes);
    }

    /// Changes the file, with its size and bytes.
    fn change(&self, change: impl FnOnce(&mut FileChange<'_>)) {
        let bytes: u64 = self.cells.iter().map(Cell::bytes).sum();
        let end = self.cells.iter().rposition(|cell| *cell != Cell::Hole);
        let size = end.map_or(0, |last| last as u64 + 1) * SECTOR;
        let reservation = self.lab.nodes.reserve(10).unwrap();
        let more = bytes.cast_signed() - self.inode.item().nbytes.cast_signed();
        let change = |file: &mut FileChange<'_>| {
            change(file);
            file.add_bytes(more);
            let size = size.max(file.size());
            file.set_size(size);
            file.set_disk_size(size);
        };
        let nodes = &self.lab.nodes;
        let kind = HandleKind::Operation;
        change_file(nodes, &self.inode, kind, Some(reservation), change).unwrap();
    }

    fn allocated(&self, bytes: u64) -> Logical {
        let _reserved = self.lab.transactions.reserve_data(bytes).unwrap();
        let (disk, len) = self.lab.transactions.allocate_data(bytes, bytes).unwrap();
        assert_eq!(len, bytes);
        disk
    }

    fn put_new(&mut self, start: u64, end: u64, space: Space) {
        let bytes = (end - start) * SECTOR;
        let disk_bytes = if matches!(space, Space::Compressed) { SECTOR } else { bytes };
        let disk = self.allocated(disk_bytes);
        self.extents.insert(disk.0, disk_bytes);
        for at in 0..end - start {
            self.cells[to_usize(start + at)] = match space {
                Space::Data => Cell::Data(disk.0 + at * SECTOR),
                Space::Prealloc => Cell::Prealloc(disk.0 + at * SECTOR),
                Space::Compressed => Cell::Compressed(disk.0, at),
            };
        }
        let extent = RegularExtent { disk, disk_bytes, offset: 0, bytes, ram_bytes: bytes };
        let kind = match space {
            Space::Data => ExtentMapKind::Regular(extent, None),
            Space::Prealloc => ExtentMapKind::Prealloc(extent),
            Space::Compressed => ExtentMapKind::Regular(extent, Some(Compression::Zstd)),
        };
        self.change(|file| file.put(start * SECTOR, end * SECTOR, kind, true));
    }

    /// Writes the preallocated sectors of a range, each as an extent.
    fn fill(&mut self, start: u64, end: u64) {
        for at in start..end {
            let Cell::Prealloc(disk) = self.cells[to_usize(at)] else { continue };
            self.cells[to_usize(at)] = Cell::Data(disk);
            let (&first, &len) = self.extents.range(..=disk).next_back().unwrap();
            let extent = RegularExtent {
                disk: Logical(first),
                disk_bytes: len,
                offset: disk - first,
                bytes: SECTOR,
                ram_bytes: len,
            };
            let kind = ExtentMapKind::Regular(extent, None);
            self.change(|file| file.put(at * SECTOR, (at + 1) * SECTOR, kind, false));
        }
    }

    /// Returns what a reader sees.
    fn seen(&self) -> Vec<Cell> {
        (0..SECTORS).map(|sector| self.seen_at(sector)).collect()
    }

    fn seen_at(&self, sector: u64) -> Cell {
        let at = sector * SECTOR;
        let end = (sector + 1) * SECTOR;
        let (pending, _) = self.inode.pending_extents(at, end, 3);
        let stored = || items_around(&self.lab, self.id(), at, end);
        let holds = |extent: &ExtentMap| extent.start <= at && end <= extent.end;
        let found = pending.into_iter().find(holds).or_else(|| stored().into_iter().find(holds));
        found.map_or(Cell::Hole, |extent| Cell::of(&extent.kind, at - extent.start))
    }

    fn check(&self) {
        assert_eq!(self.seen(), self.cells);
        if self.inode.state().sets().next().is_none() {
            let items = items(&self.lab, self.id());
            assert!(items.is_sorted_by(|a, b| a.end <= b.start), "items are disjoint");
            let ends = [0].into_iter().chain(items.iter().map(|item| item.end));
            let starts = items.iter().map(|item| item.start).chain([self.inode.item().size]);
            let gapless = ends.zip(starts).all(|(end, start)| end >= start);
            assert!(gapless || !self.hole_items, "holes have items");
            let holes = items.iter().filter(|item| item.kind == ExtentMapKind::Hole).count();
            assert!(self.hole_items || holes == 0, "holes have no items");
        }
    }

    /// Commits, and checks that the backrefs in the extent tree match the items.
    fn check_references(&self) {
        self.lab.transactions.commit().unwrap();
        let mut expected = BTreeMap::new();
        for item in items(&self.lab, self.id()) {
            if let Some(extent) = item.kind.on_disk() {
                let origin = item.start.wrapping_sub(extent.offset);
                *expected.entry((extent.disk.0, origin)).or_default() += 1;
            }
        }
        assert_eq!(references(self.lab.nodes.tree_roots(), self.id()), expected);
    }
}

impl Cell {
    /// Returns the content `skip` bytes into a range.
    fn of(kind: &ExtentMapKind, skip: u64) -> Self {
        match kind {
            ExtentMapKind::Hole => Self::Hole,
            ExtentMapKind::Inline(inline) => Self::Inline(inline.stored().len()),
            ExtentMapKind::Prealloc(extent) => Self::Prealloc(extent.disk.0 + extent.offset + skip),
            ExtentMapKind::Regular(extent, None) => {
                Self::Data(extent.disk.0 + extent.offset + skip)
            }
            ExtentMapKind::Regular(extent, Some(_)) => {
                Self::Compressed(extent.disk.0, (extent.offset + skip) / SECTOR)
            }
        }
    }

    /// Returns its share of the bytes of the file.
    fn bytes(&self) -> u64 {
        match self {
            Self::Hole => 0,
            Self::Inline(len) => *len as u64,
            _ => SECTOR,
        }
    }
}

/// Returns the extents of a file in the tree.
fn items(lab: &Lab, id: InodeId) -> Vec<ExtentMap> {
    items_around(lab, id, 0, u64::MAX)
}

/// Returns the extents of a file in the tree from the last one that starts at or before an offset,
/// up to `end`.
fn items_around(lab: &Lab, id: InodeId, offset: u64, end: u64) -> Vec<ExtentMap> {
    let tree_roots = lab.nodes.tree_roots();
    let first = Key::new(id.number, ItemKind::EXTENT_DATA, 0);
    let tree = tree_roots.tree(id.subvolume).unwrap();
    let key = Key { offset, ..first };
    let mut cursor = Cursor::seek_back(tree_roots.store(), &tree, &key, ReadAhead::Off).unwrap();
    let mut items = Vec::new();
    let belongs = |key: Key| {
        key < first || (key.objectid, key.kind) == (first.objectid, first.kind) && key.offset < end
    };
    while let Some(item) = cursor.item().filter(|item| belongs(item.key)) {
        if item.key >= first {
            items.push(shown(item.key.offset, item.data));
        }
        cursor.advance().unwrap();
    }
    items
}

fn shown(start: u64, data: &[u8]) -> ExtentMap {
    let stored = Stored::parse(start, data);
    let inline = || match FileExtent::parse(start, data).unwrap().kind {
        FileExtentKind::Inline(inline) => ExtentMapKind::Inline(InlineData::plain(inline.data)),
        _ => unreachable!("a kind"),
    };
    ExtentMap { start, end: stored.end, kind: stored.kind.unwrap_or_else(inline) }
}

fn ranges() -> impl Strategy<Value = (u64, u64)> {
    let ends = (0..SECTORS, prop_oneof![1..4_u64, 1..=SECTORS]);
    ends.prop_map(|(start, len)| (start, (start + len).min(SECTORS)))
}

fn puts() -> impl Strategy<Value = Step> {
    let new = |space: Space| move |(start, end)| Step::New(start, end, space);
    prop_oneof![
        4 => ranges().prop_map(new(Space::Data)),
        1 => ranges().prop_map(new(Space::Compressed)),
        2 => ranges().prop_map(new(Space::Prealloc)),
        3 => ranges().prop_map(|(start, end)| Step::Fill(start, end)),
        2 => ranges().prop_map(|(start, end)| Step::Hole(start, end)),
        1 => (0..SECTORS).prop_map(Step::Truncate),
        1 => (1..2000_usize).prop_map(Step::Inline),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slowly = (0..8_usize, prop::collection::vec(puts(), 0..4));
    let step = prop_oneof![
        6 => puts(),
        1 => Just(Step::Merge),
        1 => Just(Step::Commit),
        2 => slowly.prop_map(|(max, steps)| Step::Slowly(max, steps)),
    ];
    prop::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_shows_what_was_put_last_and_references_are_its_items(
        steps in steps(),
        hole_items in any::<bool>(),
    ) {
        let mut world = World::new(hole_items);
        for step in steps {
            world.step(&step);
            world.check();
        }
        world.check_references();
        world.check();
    }
}

/// Creates a file with these items, written directly into the tree.
fn with_items(items: &[(u64, FileExtent<'_>)]) -> World {
    let world = World::new(false);
    world.lab.transactions.merge_pending().unwrap();
    let operation = Operation::begin(&world.lab.nodes).unwrap();
    for (offset, extent) in items {
        let key = Key::new(world.id().number, ItemKind::EXTENT_DATA, *offset);
        let put = ItemEdit::Put(key, extent.encode());
        operation.handle.apply(world.inode.tree(), &mut [put]).unwrap();
    }
    drop(operation);
    world
}

fn regular(disk: u64, sectors: u64) -> FileExtent<'static> {
    let bytes = sectors * SECTOR;
    let extent = RegularExtent {
        disk: Logical(disk),
        disk_bytes: bytes,
        offset: 0,
        bytes,
        ram_bytes: bytes,
    };
    FileExtent { generation: 3, compression: None, kind: FileExtentKind::Regular(extent) }
}

fn ends(world: &World) -> Vec<(u64, u64)> {
    let items = items(&world.lab, world.id());
    items.iter().map(|item| (item.start / SECTOR, item.end / SECTOR)).collect()
}

#[test]
fn inline_data_is_removed_whole_or_kept() {
    let inline = |compression| {
        let kind = FileExtentKind::Inline(InlineExtent { ram_bytes: 3000, data: &[1; 3000] });
        (0, FileExtent { generation: 3, compression, kind })
    };
    for compression in [None, Some(Compression::Zlib)] {
        let world = with_items(&[inline(compression), (SECTOR, regular(1 << 30, 3))]);
        world.change(|file| file.put(2 * SECTOR, 3 * SECTOR, ExtentMapKind::Hole, false));
        world.lab.transactions.merge_pending().unwrap();
        assert_eq!(ends(&world), [(0, 1), (1, 2), (3, 4)]);
        world.change(|file| file.put(0, 2 * SECTOR, ExtentMapKind::Hole, false));
        world.lab.transactions.merge_pending().unwrap();
        assert_eq!(ends(&world), [(3, 4)]);
        world.lab.transactions.fail("nobody allocated the extent");
    }
}

#[test]
fn remnants_keep_generation_of_cut_item() {
    let world = with_items(&[(0, regular(1 << 30, 9))]);
    world.change(|file| file.put(3 * SECTOR, 4 * SECTOR, ExtentMapKind::Hole, false));
    world.lab.transactions.merge_pending().unwrap();
    let key = Key::new(world.id().number, ItemKind::EXTENT_DATA, 4 * SECTOR);
    let store = world.lab.nodes.tree_roots().store();
    let found = world.inode.tree().search(store, &key).unwrap();
    let item = found.leaf.item(found.slot);
    let extent = FileExtent::parse(item.key.offset, item.data).unwrap();
    assert_eq!((item.key, extent.generation, extent.file_bytes()), (key, 3, 5 * SECTOR));
    world.lab.transactions.fail("nobody allocated the extent");
}

#[test]
fn overlapping_items_are_reported_as_damage() {
    let world = with_items(&[(0, regular(1 << 30, 9)), (5 * SECTOR, regular(1 << 31, 1))]);
    world.change(|file| file.put(2 * SECTOR, 6 * SECTOR, ExtentMapKind::Hole, false));
    let error = world.lab.transactions.merge_pending().unwrap_err();
    let key = Key::new(world.id().number, ItemKind::EXTENT_DATA, 5 * SECTOR);
    assert!(error.to_string().contains(&format!("item {key} of tree")), "{error}");
}

/// The number of sectors of a file that threads change: its items fill many leaves.
const WIDE: u64 = 400;
/// The number of threads that change the file, each in its own sectors; as many sectors stay
/// unchanged.
const THREADS: u64 = 3;
const STRIDE: u64 = THREADS + 1;

/// Changes sectors of one thread, and checks that the thread always sees what it put last.
fn change_some(world: &World, first: u64, disk: Logical) {
    let mut put = BTreeMap::new();
    for round in 0..300 {
        let sector = (round * 37 % (WIDE / STRIDE)) * STRIDE + first;
        let new = world.allocated(SECTOR);
        let extent = RegularExtent {
            disk: new,
            disk_bytes: SECTOR,
            offset: 0,
            bytes: SECTOR,
            ram_bytes: SECTOR,
        };
        let start = sector * SECTOR;
        let end = (sector + 1) * SECTOR;
        world.change(|file| file.put(start, end, ExtentMapKind::Regular(extent, None), true));
        put.insert(sector, new);
        for sector in [sector, (round % (WIDE / STRIDE)) * STRIDE + first] {
            let old = Logical(disk.0 + sector * SECTOR);
            let expected = Cell::Data(put.get(&sector).unwrap_or(&old).0);
            assert_eq!(world.seen_at(sector), expected, "sector {sector}, round {round}");
        }
    }
}

#[test]
fn reads_during_flush_see_last_put_content() {
    let world = World::new(false);
    let bytes = WIDE * SECTOR;
    let disk = world.allocated(WIDE * SECTOR);
    let extent = RegularExtent { disk, disk_bytes: bytes, offset: 0, bytes, ram_bytes: bytes };
    world.change(|file| file.put(0, bytes, ExtentMapKind::Regular(extent, None), true));
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            let world = &world;
            let done = &done;
            scope.spawn(move || {
                let counts = Counts(done);
                change_some(world, first, disk);
                drop(counts);
            });
        }
        scope.spawn(|| {
            for sector in (THREADS..WIDE).step_by(to_usize(STRIDE)).cycle() {
                assert_eq!(world.seen_at(sector), Cell::Data(disk.0 + sector * SECTOR));
                if done.load(Ordering::Relaxed) == THREADS {
                    break;
                }
            }
        });
        while done.load(Ordering::Relaxed) < THREADS {
            world.lab.transactions.merge_pending().unwrap();
        }
    });
    world.check_references();
}

/// Increments the counter when it is dropped.
struct Counts<'a>(&'a AtomicU64);

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
