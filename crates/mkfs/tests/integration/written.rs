//! New filesystems, read with our own crates.

use std::sync::Arc;

use userbtrfs_device::{Device, DeviceError, MemoryDevice, Operation};
use userbtrfs_format::{
    BlockGroupItem, DeviceExtent, Expectation, ItemKind, Key, RootItem, SUPERBLOCK_OFFSETS,
    Superblock, TreeId,
};
use userbtrfs_mkfs::{MkfsError, Options, Uuid, make};
use userbtrfs_testkit::devices::{Fault, FaultyDevice, How, SparseDevice, SparseImage};
use userbtrfs_volume::{Volume, walk};

use crate::{Image, MIB, cases};

type Items = Vec<(Key, Vec<u8>)>;

fn items(volume: &Volume, owner: TreeId, at: userbtrfs_format::Logical, level: u8) -> Items {
    let expected = Expectation { owner, level, generation: 1, first_key: None, end: None };
    let mut leaves = walk(volume, at, expected, 100);
    let mut items = Vec::new();
    while let Some(leaf) = leaves.next_leaf().unwrap() {
        items.extend((0..leaf.len()).map(|slot| leaf.item(slot)).map(|i| (i.key, i.data.to_vec())));
    }
    items
}

/// The items of all trees except the chunk tree.
fn all_items(volume: &Volume) -> Items {
    let superblock = volume.superblock();
    let roots = items(volume, TreeId::ROOT, superblock.root, superblock.root_level);
    let mut all = roots.clone();
    for (key, data) in roots.iter().filter(|(key, _)| key.kind == ItemKind::ROOT_ITEM) {
        let root = RootItem::parse(data).unwrap();
        all.extend(items(volume, TreeId(key.objectid), root.logical, root.level));
    }
    all
}

/// Checks that totals that are stored in two places are equal.
fn check_sums(volume: &Volume, superblock: &Superblock) {
    let items = all_items(volume);
    let of = |kind| items.iter().filter(move |(key, _)| key.kind == kind);
    let used: u64 = of(ItemKind::BLOCK_GROUP_ITEM)
        .map(|(key, data)| BlockGroupItem::parse(key.offset, data).unwrap().used)
        .sum();
    let blocks = of(ItemKind::METADATA_ITEM).count() as u64;
    assert_eq!(used, superblock.bytes_used);
    assert_eq!(blocks * u64::from(superblock.nodesize), used);
    let held: u64 =
        of(ItemKind::DEV_EXTENT).map(|(_, d)| DeviceExtent::parse(d).unwrap().len).sum();
    assert_eq!(held, superblock.device.bytes_used);
    let free: u64 = of(ItemKind::FREE_SPACE_EXTENT).map(|(key, _)| key.offset).sum();
    let groups: u64 = of(ItemKind::BLOCK_GROUP_ITEM).map(|(key, _)| key.offset).sum();
    if of(ItemKind::FREE_SPACE_INFO).count() > 0 {
        assert_eq!(free + used, groups);
    }
}

#[test]
fn every_filesystem_opens_without_warnings() {
    for case in cases() {
        let image = Image::empty(case.len);
        let made = image.make(&case.options).unwrap();
        let device: Arc<dyn Device> = Arc::new(image.device());
        let volume = Volume::open(vec![device]).unwrap();
        assert_eq!(volume.superblock().fsid, made.fsid, "{}", case.name);
        assert!(volume.warnings().is_empty(), "{}", case.name);
        assert_eq!(made.label, case.options.label);
        check_sums(&volume, &made);
    }
}

#[test]
fn mirrors_are_written_if_device_extends_beyond_them() {
    let [_, second, third] = SUPERBLOCK_OFFSETS.map(|at| at.0);
    for (len, copies) in [
        (64 * MIB, 1),
        (second + 4096, 1),
        (second + 8192, 2),
        (third + 4096, 2),
        (third + 8192, 3),
    ] {
        let image = Image::empty(len);
        image.make(&Options::default()).unwrap();
        let device = image.device();
        let there = SUPERBLOCK_OFFSETS.iter().filter(|&&at| {
            let copy = userbtrfs_volume::read_superblock_copy(&device, at);
            matches!(copy, Some(Ok(_)))
        });
        assert_eq!(there.count(), copies, "{len}");
    }
}

#[test]
fn unused_mirror_at_end_of_device_is_wiped() {
    let image = Image::empty(80 * MIB);
    image.make(&Options::default()).unwrap();
    let file = std::fs::File::options().write(true).open(image.path()).unwrap();
    file.set_len(64 * MIB + 4096).unwrap();
    image.make(&Options { force: true, ..Options::default() }).unwrap();
    let bytes = image.device().read(64 * MIB, 4096).unwrap();
    assert!(bytes[..] == [0; 4096]);
}

#[test]
fn ids_are_as_requested_or_random() {
    let image = Image::empty(64 * MIB);
    let fsid = Uuid::from_u128(7);
    let wished = Options { fsid: Some(fsid), force: true, ..Options::default() };
    let made = image.make(&wished).unwrap();
    assert_eq!((made.fsid, made.metadata_uuid, made.device.fsid), (fsid, fsid, fsid));
    let again = image.make(&wished).unwrap();
    assert_ne!(made.device.uuid, again.device.uuid);
    let random = image.make(&Options { fsid: None, ..wished }).unwrap();
    assert_ne!(random.fsid, fsid);
}

/// The content of a device that was full of data after a filesystem is created on it.
fn made_over_old(discard: bool) -> Vec<u8> {
    let device = MemoryDevice::from_bytes(vec![0xa5; usize::try_from(128 * MIB).unwrap()]);
    let fsid = Some(Uuid::from_u128(1));
    make(&device, &Options { discard, force: true, fsid, ..Options::default() }).unwrap();
    device.snapshot()
}

#[test]
fn make_with_discard_discards_old_content() {
    let kept = made_over_old(false);
    let given_back = made_over_old(true);
    let old = |image: &[u8]| image.chunks(4096).filter(|page| **page == [0xa5; 4096]).count();
    assert!(old(&kept) > 100 << 8);
    assert_eq!(old(&given_back), 0);
}

#[test]
fn make_with_failing_discard_returns_error() {
    let inner = Arc::new(SparseDevice::new(128 * MIB));
    let device = FaultyDevice::new(inner.clone());
    let operation = Operation::Discard;
    let how = How::Eio;
    device.arm(Fault { operation, after: 0, how, lasting: false });
    let made = make(&device, &Options { discard: true, ..Options::default() });
    assert!(matches!(made, Err(MkfsError::Device(DeviceError::Io { .. }))));
    assert_eq!(inner.image(), SparseImage::new(128 * MIB), "nothing is written");
}
