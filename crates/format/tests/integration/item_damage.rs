//! Each variant of the item error is returned for its damage, inside a valid leaf.

use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{BlockError, ChunkError, ItemError, ItemKind, Key, Logical, TreeBlock};
use userbtrfs_image_builder::{
    Bytes, ChunkSpec, ExtentSpec, InodeSpec, LeafBuilder, RootSpec, Sample, block_group,
    compressed_inline, data_ref, device_extent, device_item, dir_entry, extent_head, geometry,
    inline_extent, inode_ref, put_u64, samples, shared_data_ref, tree_ref,
};

const INODE: Key = Key::new(257, ItemKind::INODE_ITEM, 0);
const FILE: Key = Key::new(257, ItemKind::EXTENT_DATA, 0);
const DATA: Logical = Logical(0x40_0000);
const EXTENT: Key = Key::new(DATA.0, ItemKind::EXTENT_ITEM, 8192);
const CSUM: Key = Key::new(u64::MAX - 9, ItemKind::EXTENT_CSUM, DATA.0);

/// Builds a leaf that holds only the item, and verifies it.
pub(crate) fn check(key: Key, content: Vec<u8>) -> Result<(), ItemError> {
    check_all(vec![(key, content)])
}

fn check_all(items: Vec<Sample>) -> Result<(), ItemError> {
    let leaf = items.into_iter().fold(LeafBuilder::default(), |leaf, (k, c)| leaf.item(k, c));
    let here = Logical(0x20_0000);
    match TreeBlock::verify(leaf.build(), here, &geometry(), &leaf.expected()) {
        Ok(_) => Ok(()),
        Err(BlockError::Item { error, .. }) => Err(error),
        Err(other) => panic!("not the item: {other}"),
    }
}

/// The first sample of a kind.
fn sample(kind: ItemKind) -> Sample {
    samples().into_iter().find(|(key, _)| key.kind == kind).expect("each kind has a sample")
}

/// The error of a valid item whose content was edited.
fn edited(kind: ItemKind, edit: impl FnOnce(&mut Vec<u8>)) -> ItemError {
    let (key, mut content) = sample(kind);
    edit(&mut content);
    check(key, content).expect_err("it was damaged")
}

/// The error of a valid item whose key was edited.
fn rekeyed(kind: ItemKind, edit: impl FnOnce(&mut Key)) -> ItemError {
    let (mut key, content) = sample(kind);
    edit(&mut key);
    check(key, content).expect_err("it was damaged")
}

fn file_extent(spec: ExtentSpec) -> Result<(), ItemError> {
    check(Key { offset: 4096, ..FILE }, spec.build())
}

#[test]
fn too_short() {
    let cut = |kind, by: usize| edited(kind, |content| content.truncate(content.len() - by));
    for (kind, need) in [
        (ItemKind::INODE_ITEM, 160),
        (ItemKind::DEV_ITEM, 98),
        (ItemKind::DEV_EXTENT, 48),
        (ItemKind::BLOCK_GROUP_ITEM, 24),
        (ItemKind::FREE_SPACE_INFO, 8),
        (ItemKind::QGROUP_INFO, 40),
        (ItemKind::QGROUP_LIMIT, 40),
        (ItemKind::PERSISTENT_ITEM, 40),
        (ItemKind::DEV_REPLACE, 72),
        (ItemKind(0), 41),
    ] {
        assert_eq!(cut(kind, 1), ItemError::TooShort { need, have: need - 1 }, "{kind}");
    }
    let name = ItemKind::INODE_REF;
    let entry = ItemKind::DIR_ITEM;
    assert_eq!(cut(name, 1), ItemError::TooShort { need: 5, have: 4 });
    assert_eq!(cut(entry, 4), ItemError::TooShort { need: 4, have: 0 });
    assert_eq!(cut(ItemKind::XATTR_ITEM, 1), ItemError::TooShort { need: 5, have: 4 });
    assert_eq!(cut(ItemKind::ROOT_REF, 3), ItemError::TooShort { need: 3, have: 0 });
    assert_eq!(cut(ItemKind::METADATA_ITEM, 1), ItemError::TooShort { need: 8, have: 7 });
    let cut_head = inline_extent(b"")[..20].to_vec();
    assert_eq!(check(FILE, cut_head), Err(ItemError::TooShort { need: 21, have: 20 }));
}

#[test]
fn size() {
    let longer = |kind| edited(kind, |content| content.push(0));
    for (kind, size) in [
        (ItemKind::INODE_ITEM, 161),
        (ItemKind::ROOT_ITEM, 440),
        (ItemKind::DEV_ITEM, 99),
        (ItemKind::TREE_BLOCK_REF, 1),
        (ItemKind::SHARED_BLOCK_REF, 1),
        (ItemKind::EXTENT_DATA_REF, 29),
        (ItemKind::SHARED_DATA_REF, 5),
        (ItemKind::FREE_SPACE_EXTENT, 1),
        (ItemKind::FREE_SPACE_BITMAP, 5),
        (ItemKind::EXTENT_CSUM, 13),
        (ItemKind::ORPHAN_ITEM, 1),
        (ItemKind::QGROUP_RELATION, 1),
        (ItemKind::UUID_KEY_SUBVOL, 9),
    ] {
        assert_eq!(longer(kind), ItemError::Size(size), "{kind}");
    }
    for kind in [
        ItemKind::INODE_REF,
        ItemKind::INODE_EXTREF,
        ItemKind::DIR_ITEM,
        ItemKind::DIR_INDEX,
        ItemKind::XATTR_ITEM,
        ItemKind::EXTENT_CSUM,
        ItemKind::UUID_KEY_SUBVOL,
    ] {
        assert_eq!(edited(kind, Vec::clear), ItemError::Size(0), "{kind}");
    }
    let mut extent = ExtentSpec::plain(DATA, 4096).build();
    extent.push(0);
    assert_eq!(check(FILE, extent), Err(ItemError::Size(33)));
}

#[test]
fn trailing() {
    let longer = |kind| edited(kind, |content| content.push(0));
    assert_eq!(longer(ItemKind::CHUNK_ITEM), ItemError::Trailing(1));
    assert_eq!(longer(ItemKind::ROOT_REF), ItemError::Trailing(1));
    let replace = edited(ItemKind::DEV_REPLACE, |content| content.extend([0; 9]));
    assert_eq!(replace, ItemError::Trailing(9));
    let (_, entry) = sample(ItemKind::DIR_INDEX);
    let twice = edited(ItemKind::DIR_INDEX, |content| content.extend(&entry));
    assert_eq!(twice, ItemError::Trailing(2 * entry.len()));
    let hash = u64::from(name_hash(b"name"));
    let with_data = dir_entry(INODE, 1, b"name", b"data");
    let error = check(Key::new(256, ItemKind::DIR_ITEM, hash), with_data);
    assert_eq!(error, Err(ItemError::Trailing(4)));
}

#[test]
fn object_id() {
    for (kind, id) in [
        (ItemKind::EXTENT_CSUM, 5),
        (ItemKind::CHUNK_ITEM, 257),
        (ItemKind::DEV_ITEM, 2),
        (ItemKind::ROOT_ITEM, 0),
        (ItemKind::ORPHAN_ITEM, 257),
    ] {
        let error = rekeyed(kind, |key| key.objectid = id);
        assert_eq!(error, ItemError::ObjectId(id), "{kind}");
    }
}

#[test]
fn key_offset() {
    for (kind, offset) in
        [(ItemKind::INODE_ITEM, 1), (ItemKind::DIR_INDEX, 1), (ItemKind::DEV_ITEM, 2)]
    {
        let error = rekeyed(kind, |key| key.offset = offset);
        assert_eq!(error, ItemError::KeyOffset(offset), "{kind}");
    }
    let inline_further_on = check(Key { offset: 4096, ..FILE }, inline_extent(b"x"));
    assert_eq!(inline_further_on, Err(ItemError::KeyOffset(4096)));
    let block = extent_head(1, 2, Some((INODE, 0))).raw(&tree_ref(176, 5)).build();
    assert_eq!(check(EXTENT, block), Err(ItemError::KeyOffset(8192)));
}

#[test]
fn unaligned() {
    let unaligned = |field, value| ItemError::Unaligned { field, value };
    let plain = ExtentSpec::plain(DATA, 8192);
    for (spec, field) in [
        (ExtentSpec { disk: Logical(5), ..plain }, "extent address"),
        (ExtentSpec { disk_bytes: 5, ..plain }, "extent bytes on disk"),
        (ExtentSpec { offset: 5, ..plain }, "extent offset"),
        (ExtentSpec { bytes: 5, ..plain }, "extent bytes"),
        (ExtentSpec { ram_bytes: 5, ..plain }, "extent bytes in memory"),
    ] {
        assert_eq!(file_extent(spec), Err(unaligned(field, 5)));
    }
    let at_5 = |kind| rekeyed(kind, |key| key.offset = 5);
    assert_eq!(check(Key { offset: 5, ..FILE }, plain.build()), Err(unaligned("file offset", 5)));
    assert_eq!(at_5(ItemKind::EXTENT_CSUM), unaligned("checksum range", 5));
    assert_eq!(at_5(ItemKind::EXTENT_ITEM), unaligned("extent length", 5));
    assert_eq!(at_5(ItemKind::DEV_EXTENT), unaligned("device range", 5));
    assert_eq!(at_5(ItemKind::FREE_SPACE_INFO), unaligned("free space length", 5));
    let address = |kind| rekeyed(kind, |key| key.objectid = 5);
    assert_eq!(address(ItemKind::METADATA_ITEM), unaligned("extent address", 5));
    assert_eq!(address(ItemKind::FREE_SPACE_EXTENT), unaligned("free space", 5));
    let root = RootSpec::new(Logical(5)).build();
    let error = check(Key::new(2, ItemKind::ROOT_ITEM, 0), root);
    assert_eq!(error, Err(unaligned("root address", 5)));
    let device = edited(ItemKind::DEV_EXTENT, |content| put_u64(content, 24, 5));
    assert_eq!(device, unaligned("device extent length", 5));
}

#[test]
fn overflow() {
    let last = u64::MAX - 4095;
    let overflow = |field, start, len| Err(ItemError::Overflow { field, start, len });
    let plain = ExtentSpec::plain(DATA, 8192);
    let at_end = check(Key { offset: last, ..FILE }, plain.build());
    assert_eq!(at_end, overflow("file range", last, 8192));
    let on_disk = file_extent(ExtentSpec { disk: Logical(last), ..plain });
    assert_eq!(on_disk, overflow("extent", last, 8192));
    let of = |key: Key, content: Vec<u8>| check(key, content);
    let sums = of(Key { offset: last, ..CSUM }, vec![0; 8]);
    assert_eq!(sums, overflow("checksum range", last, 8192));
    let data = extent_head(1, 1, None).build();
    assert_eq!(of(Key { objectid: last, ..EXTENT }, data), overflow("extent", last, 8192));
    let group = Key::new(last, ItemKind::BLOCK_GROUP_ITEM, 8192);
    assert_eq!(of(group, block_group(0, 1)), overflow("block group", last, 8192));
    let free = Key::new(last, ItemKind::FREE_SPACE_EXTENT, 8192);
    assert_eq!(of(free, vec![]), overflow("free space", last, 8192));
    let device = Key::new(1, ItemKind::DEV_EXTENT, last);
    let range = of(device, device_extent(DATA, 8192));
    assert_eq!(range, overflow("device range", last, 8192));
}

#[test]
fn zero() {
    let plain = ExtentSpec::plain(DATA, 8192);
    let empty = file_extent(ExtentSpec { bytes: 0, ..plain });
    assert_eq!(empty, Err(ItemError::Zero("length of the extent")));
    let packed = ExtentSpec { compression: 1, disk_bytes: 0, ..plain };
    assert_eq!(file_extent(packed), Err(ItemError::Zero("length of the extent on disk")));
    let inline = check(FILE, compressed_inline(1, 10, b""));
    assert_eq!(inline, Err(ItemError::Zero("length of compressed inline data")));
    let root = edited(ItemKind::ROOT_ITEM, |content| put_u64(content, 0xb0, 0));
    assert_eq!(root, ItemError::Zero("root address"));
    let device = edited(ItemKind::DEV_ITEM, |content| put_u64(content, 8, 0));
    assert_eq!(device, ItemError::Zero("size of the device"));
    let group = rekeyed(ItemKind::BLOCK_GROUP_ITEM, |key| key.offset = 0);
    assert_eq!(group, ItemError::Zero("length of the block group"));
    let count = ItemError::Zero("count of a reference");
    let shared = edited(ItemKind::SHARED_DATA_REF, |content| content.fill(0));
    assert_eq!(shared, count);
    let keyed = edited(ItemKind::EXTENT_DATA_REF, |content| content[24] = 0);
    assert_eq!(keyed, count);
    let inline = extent_head(1, 1, None).u8(178).raw(&data_ref(5, 257, 0, 0)).build();
    assert_eq!(check(EXTENT, inline), Err(count));
}

#[test]
fn range() {
    let range = |field, value| ItemError::Range { field, value };
    let inline = check(FILE, edit(inline_extent(b"abc"), |content| put_u64(content, 8, 4)));
    assert_eq!(inline, Err(range("bytes of inline data", 4)));
    let inline = check(FILE, compressed_inline(1, 4097, b"abc"));
    assert_eq!(inline, Err(range("bytes of a compressed inline extent", 4097)));
    let packed = ExtentSpec { compression: 1, disk_bytes: 4096, ..ExtentSpec::plain(DATA, 8192) };
    let too_much = file_extent(ExtentSpec { ram_bytes: 135_168, ..packed });
    assert_eq!(too_much, Err(range("bytes of a compressed extent", 135_168)));
    let too_much = file_extent(ExtentSpec { disk_bytes: 135_168, ..packed });
    assert_eq!(too_much, Err(range("bytes on disk of a compressed extent", 135_168)));
    let root = edited(ItemKind::ROOT_ITEM, |content| content[0xee] = 8);
    assert_eq!(root, range("root level", 8));
    let root = edited(ItemKind::ROOT_ITEM, |content| content[0xed] = 9);
    assert_eq!(root, range("drop level", 9));
    assert_eq!(rekeyed(ItemKind::METADATA_ITEM, |key| key.offset = 8), range("level", 8));
    let block = extent_head(1, 2, Some((INODE, 9))).build();
    assert_eq!(check(Key { offset: 4096, ..EXTENT }, block), Err(range("level", 9)));
    let device = check(Key::new(1, ItemKind::DEV_ITEM, 1), device_item(1, 8192, 8193));
    assert_eq!(device, Err(range("bytes used of the device", 8193)));
    let group = Key::new(0, ItemKind::BLOCK_GROUP_ITEM, 8192);
    assert_eq!(check(group, block_group(8193, 1)), Err(range("bytes used", 8193)));
}

fn edit(mut bytes: Vec<u8>, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    edit(&mut bytes);
    bytes
}

#[test]
fn future() {
    for (kind, at, field) in [
        (ItemKind::INODE_ITEM, 0, "inode generation"),
        (ItemKind::INODE_ITEM, 8, "inode transaction"),
        (ItemKind::ROOT_ITEM, 0xa0, "root generation"),
        (ItemKind::ROOT_ITEM, 0xc8, "last snapshot"),
        (ItemKind::EXTENT_ITEM, 8, "extent generation"),
    ] {
        let error = edited(kind, |content| put_u64(content, at, 8));
        assert_eq!(error, ItemError::Future { field, value: 8, limit: 7 });
    }
}

#[test]
fn name_len() {
    let put = |at: usize, len: u16| {
        move |content: &mut Vec<u8>| content[at..at + 2].copy_from_slice(&len.to_le_bytes())
    };
    for (kind, at) in [
        (ItemKind::INODE_REF, 8),
        (ItemKind::INODE_EXTREF, 16),
        (ItemKind::DIR_ITEM, 27),
        (ItemKind::DIR_INDEX, 27),
        (ItemKind::XATTR_ITEM, 27),
        (ItemKind::ROOT_REF, 16),
        (ItemKind::ROOT_BACKREF, 16),
    ] {
        for len in [0, 256] {
            assert_eq!(edited(kind, put(at, len)), ItemError::NameLen(len.into()), "{kind}");
        }
    }
    let longest = inode_ref(2, &[b'a'; 255]);
    assert_eq!(check(Key::new(257, ItemKind::INODE_REF, 256), longest), Ok(()));
}

#[test]
fn name_hash_of_another_name() {
    for kind in [ItemKind::DIR_ITEM, ItemKind::XATTR_ITEM, ItemKind::INODE_EXTREF] {
        let (key, _) = sample(kind);
        let found = key.offset;
        let error = rekeyed(kind, |key| key.offset = 1);
        assert_eq!(error, ItemError::NameHash { expected: 1, found }, "{kind}");
    }
}

#[test]
fn entry_kind() {
    let put = |kind, number| edited(kind, |content| content[29] = number);
    for number in [0, 8, 9, 0x81] {
        for kind in [ItemKind::DIR_ITEM, ItemKind::DIR_INDEX] {
            assert_eq!(put(kind, number), ItemError::EntryKind(number));
        }
    }
    assert_eq!(put(ItemKind::XATTR_ITEM, 1), ItemError::EntryKind(1));
    let subvolume = Key::new(256, ItemKind::ROOT_ITEM, u64::MAX);
    let file = check(Key::new(256, ItemKind::DIR_INDEX, 3), dir_entry(subvolume, 1, b"sub", b""));
    assert_eq!(file, Err(ItemError::EntryKind(1)));
}

#[test]
fn entry_target() {
    for target in [
        Key::new(257, ItemKind::INODE_REF, 0),
        Key::new(257, ItemKind::INODE_ITEM, 1),
        Key::new(255, ItemKind::INODE_ITEM, 0),
        Key::new(u64::MAX - 254, ItemKind::INODE_ITEM, 0),
        Key::new(7, ItemKind::ROOT_ITEM, 0),
    ] {
        let error = check(Key::new(256, ItemKind::DIR_INDEX, 3), dir_entry(target, 2, b"sub", b""));
        assert_eq!(error, Err(ItemError::EntryTarget(target)));
    }
}

#[test]
fn mode() {
    for mode in [0, 0o644, 0o110_000, 0o170_000] {
        assert_eq!(check(INODE, InodeSpec::new(mode, 0).build()), Err(ItemError::Mode(mode)));
    }
}

#[test]
fn directory_links() {
    let directory = InodeSpec { nlink: 2, ..InodeSpec::directory(0) };
    assert_eq!(check(INODE, directory.build()), Err(ItemError::DirectoryLinks(2)));
    let removed = InodeSpec { nlink: 0, ..directory };
    assert_eq!(check(INODE, removed.build()), Ok(()));
}

#[test]
fn inode_flags() {
    let with = |flags| check(INODE, InodeSpec { flags, ..InodeSpec::file(0) }.build());
    assert_eq!(with(1 << 20 | 1), Err(ItemError::InodeFlags(1 << 20 | 1)));
    assert_eq!(with(1 << 40), Ok(()));
}

#[test]
fn extent_type() {
    let plain = ExtentSpec::plain(DATA, 8192);
    assert_eq!(file_extent(ExtentSpec { kind: 3, ..plain }), Err(ItemError::ExtentType(3)));
}

#[test]
fn compression() {
    let plain = ExtentSpec::plain(DATA, 8192);
    let error = file_extent(ExtentSpec { compression: 4, ..plain });
    assert_eq!(error, Err(ItemError::Compression(4)));
}

#[test]
fn encoding() {
    let with = |at: usize| check(FILE, edit(inline_extent(b"abc"), |content| content[at] = 1));
    assert_eq!(with(17), Err(ItemError::Encoding { encryption: 1, encoding: 0 }));
    assert_eq!(with(18), Err(ItemError::Encoding { encryption: 0, encoding: 1 }));
}

#[test]
fn past_extent() {
    let plain = ExtentSpec::plain(DATA, 8192);
    let past = |offset, len| Err(ItemError::PastExtent { offset, len, limit: 8192 });
    assert_eq!(file_extent(ExtentSpec { offset: 4096, ..plain }), past(4096, 8192));
    let wild = u64::MAX - 4095;
    assert_eq!(file_extent(ExtentSpec { offset: wild, ..plain }), past(wild, 8192));
    let packed = ExtentSpec { compression: 2, bytes: 12288, disk_bytes: 16384, ..plain };
    assert_eq!(file_extent(packed), past(0, 12288));
}

#[test]
fn overlap() {
    let pair = |first: Sample, second: Sample| check_all(vec![first, second]);
    let plain = |bytes| ExtentSpec::plain(DATA, bytes).build();
    let next = Key { offset: 4096, ..FILE };
    assert_eq!(pair((FILE, plain(8192)), (next, plain(4096))), Err(ItemError::Overlap(8192)));
    assert_eq!(pair((FILE, plain(4096)), (next, plain(4096))), Ok(()));
    let other_file = Key { objectid: 258, ..next };
    assert_eq!(pair((FILE, plain(8192)), (other_file, plain(4096))), Ok(()));
    let sums = pair((CSUM, vec![0; 8]), (Key { offset: DATA.0 + 4096, ..CSUM }, vec![0; 4]));
    assert_eq!(sums, Err(ItemError::Overlap(DATA.0 + 8192)));
    let data = || extent_head(1, 1, None).build();
    let inside = Key { objectid: DATA.0 + 4096, ..EXTENT };
    assert_eq!(pair((EXTENT, data()), (inside, data())), Err(ItemError::Overlap(DATA.0 + 8192)));
    let group = |start| (Key::new(start, ItemKind::BLOCK_GROUP_ITEM, 8192), block_group(0, 1));
    assert_eq!(pair(group(4096), group(8192)), Err(ItemError::Overlap(12288)));
    let device = |at| (Key::new(1, ItemKind::DEV_EXTENT, at), device_extent(DATA, 8192));
    assert_eq!(pair(device(0), device(4096)), Err(ItemError::Overlap(8192)));
}

#[test]
fn back_reference() {
    let data = |refs: &[u8]| check(EXTENT, extent_head(9, 1, None).raw(refs).build());
    let metadata = Key::new(DATA.0, ItemKind::METADATA_ITEM, 0);
    let block = |refs: &[u8]| check(metadata, extent_head(9, 2, None).raw(refs).build());
    let shared = |parent| Bytes::new().u8(184).raw(&shared_data_ref(parent, 1)).build();
    let refused = |kind| Err(ItemError::BackReference(kind));
    assert_eq!(block(&tree_ref(180, 5)), refused(180));
    let descending_kinds = [tree_ref(182, 5), tree_ref(176, 5)].concat();
    assert_eq!(block(&descending_kinds), refused(176));
    let ascending_numbers = [tree_ref(176, 5), tree_ref(176, 256)].concat();
    assert_eq!(block(&ascending_numbers), refused(176));
    assert_eq!(data(&tree_ref(176, 5)), refused(176));
    assert_eq!(block(&shared(4096)), refused(184));
    assert_eq!(data(&[shared(4096), shared(8192)].concat()), refused(184));
    assert_eq!(data(&[shared(8192), shared(4096)].concat()), Ok(()));
}

#[test]
fn reference_count() {
    let refs = data_ref(5, 257, 0, 3);
    let content = |count| extent_head(count, 1, None).u8(178).raw(&refs).build();
    let error = check(EXTENT, content(2));
    assert_eq!(error, Err(ItemError::ReferenceCount { count: 2, listed: 3 }));
    assert_eq!(check(EXTENT, content(4)), Ok(()));
    let none = check(EXTENT, extent_head(0, 1, None).build());
    assert_eq!(none, Err(ItemError::ReferenceCount { count: 0, listed: 0 }));
}

#[test]
fn flags() {
    let of = |kind, at, value| edited(kind, |content| put_u64(content, at, value));
    for value in [0, 3, 1 << 5 | 1] {
        let error = ItemError::Flags { field: "extent flags", value };
        assert_eq!(of(ItemKind::EXTENT_ITEM, 16, value), error);
    }
    let data_as_block = ItemError::Flags { field: "extent flags", value: 1 };
    assert_eq!(of(ItemKind::METADATA_ITEM, 16, 1), data_as_block);
    for value in [0, 1 << 5, 3, 1 | 3 << 4, 1 | 1 << 50] {
        let error = ItemError::Flags { field: "block group type", value };
        assert_eq!(of(ItemKind::BLOCK_GROUP_ITEM, 16, value), error);
    }
    let info = edited(ItemKind::FREE_SPACE_INFO, |content| content[4] = 2);
    assert_eq!(info, ItemError::Flags { field: "free space flags", value: 2 });
}

#[test]
fn chunk() {
    let chunk = ChunkSpec { stripe_len: 1, ..ChunkSpec::data() };
    let error = check(chunk.key(), chunk.build());
    assert_eq!(error, Err(ItemError::Chunk(ChunkError::StripeLen(1))));
}
