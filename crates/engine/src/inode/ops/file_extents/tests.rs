//! Changes and deletion of files in a filesystem in memory.

use userbtrfs_format::{FileKind, ItemKind, Key, RegularExtent, Timestamp};
use userbtrfs_sync::{Class, Mutex};

use super::*;
use crate::error::Error;
use crate::inode::ops::create::create;
use crate::inode::ops::file_extents::change_file;
use crate::inode::ops::orphan::open;
use crate::inode::ops::setattr::{set_attributes, set_flags};
use crate::inode::ops::targets::file_to_change;
use crate::inode::ops::unlink::unlink;
use crate::inode::testing::references;
use crate::inode::tests::{FILE, Lab, TOP};
use crate::inode::tree::ondisk;
use crate::inode::{InodeEvents, NewInode, NewKind, SetAttributes};
use crate::units::SECTOR;

const MIB: u64 = 1 << 20;

/// Records the files that were reported as deleted.
struct Told(Mutex<Vec<InodeId>>);

impl InodeEvents for Told {
    fn gone(&self, id: InodeId) {
        self.0.lock().push(id);
    }
}

/// A filesystem with a file, and the receiver of inode events.
struct World {
    /// Dropped before the transaction manager, whose space it may hold.
    inode: Arc<Inode>,
    lab: Lab,
    told: Arc<Told>,
}

impl World {
    fn new() -> Self {
        let lab = Lab::new();
        let told = Arc::new(Told(Mutex::new(Class::CacheShard, Vec::new())));
        let watch: Arc<dyn InodeEvents> = Arc::clone(&told) as Arc<dyn InodeEvents>;
        lab.namespace.watch(Arc::downgrade(&watch));
        let id = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
        let inode = lab.nodes.inode(id).unwrap();
        Self { inode, lab, told }
    }

    /// Allocates a range of the file.
    fn allocate(&self, start: u64, bytes: u64) {
        let transactions = &self.lab.transactions;
        let reserved = transactions.reserve_data(bytes).unwrap();
        let (disk, disk_bytes) = transactions.allocate_data(bytes, bytes).unwrap();
        drop(reserved);
        let extent = RegularExtent { disk, disk_bytes, offset: 0, bytes, ram_bytes: bytes };
        self.change(|file| {
            file.put(start, start + bytes, ExtentMapKind::Prealloc(extent), true);
            file.add_bytes(bytes.cast_signed());
            file.set_size(file.size().max(start + bytes));
            file.set_disk_size(file.size());
        })
        .unwrap();
    }

    fn change(&self, change: impl FnOnce(&mut FileChange<'_>)) -> Result<()> {
        let reservation = self.lab.nodes.reserve(10)?;
        let kind = HandleKind::Operation;
        change_file(&self.lab.nodes, &self.inode, kind, Some(reservation), change)
    }

    fn punch(&self, start: u64, bytes: u64) {
        self.change(|file| {
            file.put(start, start + bytes, ExtentMapKind::Hole, false);
            file.add_bytes(-bytes.cast_signed());
        })
        .unwrap();
    }

    /// Flushes, and returns the size in the tree.
    fn stored_size(&self) -> u64 {
        self.lab.transactions.merge_pending().unwrap();
        ondisk::size(self.lab.nodes.tree_roots(), self.inode.tree(), self.inode.number()).unwrap()
    }
}

/// When a file is deleted that has extents in the tree and pending ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    NothingMerged,
    Merged,
    /// Flushed, and open when its only name is removed.
    Open,
}

#[test]
fn deleted_file_drops_all_extent_references() {
    for when in [When::NothingMerged, When::Merged, When::Open] {
        for extent in [16 * SECTOR, 8 * MIB] {
            let world = World::new();
            world.allocate(0, extent);
            if when != When::NothingMerged {
                world.lab.transactions.merge_pending().unwrap();
            }
            let id = world.inode.id();
            world.punch(SECTOR, SECTOR);
            world.allocate(extent, extent);
            world.punch(extent + SECTOR, SECTOR);
            let open = (when == When::Open).then(|| open(&world.lab.namespace, id).unwrap());
            unlink(&world.lab.namespace, TOP, b"file").unwrap();
            if open.is_some() {
                world.lab.transactions.commit().unwrap();
                assert_eq!(references(world.lab.nodes.tree_roots(), id).values().sum::<u32>(), 4);
                world.punch(3 * SECTOR, SECTOR);
                assert_eq!(*world.told.0.lock(), []);
            }
            drop(open);
            assert_eq!(*world.told.0.lock(), [id], "{when:?} {extent}");
            let late = world.change(|_| unreachable!("it is dead"));
            assert!(matches!(late, Err(Error::NoInode(dead)) if dead == id));
            let lab = &world.lab;
            lab.transactions.commit().unwrap();
            assert_eq!(references(lab.nodes.tree_roots(), id), [].into());
            let first = Key::new(id.number, ItemKind(0), 0);
            let tree = lab.nodes.tree_roots().tree(id.subvolume).unwrap();
            let found = tree.search(lab.nodes.tree_roots().store(), &first).unwrap();
            let rest = (found.slot < found.leaf.len()).then(|| found.leaf.item(found.slot).key);
            assert!(rest.is_none_or(|key| key.objectid != id.number), "{when:?} {extent}");
        }
    }
}

#[test]
fn orphan_after_crash_drops_all_extent_references() {
    for extent in [16 * SECTOR, 8 * MIB] {
        let world = World::new();
        let id = world.inode.id();
        world.allocate(0, extent);
        world.punch(SECTOR, SECTOR);
        let _open = open(&world.lab.namespace, id).unwrap();
        unlink(&world.lab.namespace, TOP, b"file").unwrap();
        world.lab.transactions.commit().unwrap();
        let crashed = world.lab.crashed();
        create(&crashed.namespace, TOP, b"other", &FILE).unwrap();
        let crashed = crashed.reopened();
        assert_eq!(references(crashed.nodes.tree_roots(), id), [].into());
        let tree = crashed.nodes.tree_roots().tree(id.subvolume).unwrap();
        assert_eq!(ondisk::orphans(crashed.nodes.tree_roots(), &tree).unwrap(), [0; 0]);
    }
}

#[test]
fn many_extents_replaced_at_once_keep_references_correct() {
    const COUNT: u64 = 6000;
    let world = World::new();
    let part = 2 * COUNT * SECTOR / 10;
    (0..10).for_each(|number| world.allocate(number * part, part));
    for number in 0..COUNT {
        world.punch(2 * number * SECTOR, SECTOR);
    }
    world.lab.transactions.commit().unwrap();
    let tree_roots = world.lab.nodes.tree_roots();
    assert_eq!(references(tree_roots, world.inode.id()).values().sum::<u32>(), 6000);
    world.punch(0, COUNT * SECTOR);
    world.allocate(COUNT / 2 * SECTOR, SECTOR);
    world.allocate(2 * COUNT * SECTOR, SECTOR);
    world.lab.transactions.commit().unwrap();
    let counts: Vec<_> = references(tree_roots, world.inode.id()).into_values().collect();
    assert_eq!(counts.iter().sum::<u32>(), 3002);
}

#[test]
fn size_in_tree_does_not_exceed_disk_size() {
    let world = World::new();
    let now = Timestamp { sec: 5, nsec: 6 };
    assert_eq!(world.stored_size(), 0);
    world.inode.written_to(3 * SECTOR, Some(now));
    let item = world.inode.item();
    assert_eq!((item.size, item.mtime, item.ctime), (3 * SECTOR, now, now));
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    set_attributes(&world.lab.namespace, world.inode.id(), &mode, None).unwrap();
    assert_eq!(world.stored_size(), 0);
    world.change(|file| file.set_disk_size(SECTOR)).unwrap();
    assert_eq!(world.stored_size(), SECTOR);
    world.change(|file| file.set_size(2 * SECTOR)).unwrap();
    assert_eq!(world.stored_size(), SECTOR);
    world.change(|file| file.set_size(10)).unwrap();
    assert_eq!((world.stored_size(), world.inode.item().size), (10, 10));
    world.inode.written_to(5, Some(now));
    assert_eq!(world.inode.item().size, 10);
    world
        .change(|file| {
            file.set_size(10);
            file.touch();
        })
        .unwrap();
    assert!(world.inode.item().mtime > now);
}

/// A truncate that fails after its first step reduces the on-disk size: the log may contain it by
/// then.
#[test]
fn change_of_disk_size_changes_stamp() {
    let world = World::new();
    world.allocate(0, 4 * SECTOR);
    world.change(|file| file.cut_size(SECTOR)).unwrap();
    let stamp = || world.inode.stamp(world.lab.transactions.generation());
    let before = stamp();
    assert!(before.is_some() && before == stamp());
    world.change(|file| file.set_disk_size(SECTOR)).unwrap();
    assert_ne!(stamp(), before, "all of it is logged anew");
}

#[test]
fn file_to_change_respects_kind_and_flags() {
    let world = World::new();
    let id = world.inode.id();
    let namespace = &world.lab.namespace;
    let flags = |flags| set_flags(namespace, id, InodeFlags::all(), flags).unwrap();
    assert!(file_to_change(namespace, id, false).is_ok());
    flags(InodeFlags::APPEND);
    assert!(file_to_change(namespace, id, true).is_ok());
    assert!(matches!(file_to_change(namespace, id, false), Err(Error::NotPermitted)));
    flags(InodeFlags::IMMUTABLE);
    assert!(matches!(file_to_change(namespace, id, true), Err(Error::NotPermitted)));
    assert!(matches!(file_to_change(namespace, TOP, true), Err(Error::IsADirectory)));
    let new = NewInode { kind: NewKind::Special(FileKind::Fifo, 0), ..FILE };
    let pipe = create(namespace, TOP, b"pipe", &new).unwrap();
    assert!(matches!(file_to_change(namespace, pipe, false), Err(Error::NotAFile)));
}
