//! Valid items of each kind return the values they were built from.

use std::collections::BTreeSet;

use userbtrfs_codec::Compression;
use userbtrfs_format::{
    BlockGroupFlags, BlockGroupItem, DevReplaceItem, DevStats, DeviceExtent, DirEntryKind,
    ExtentFlags, ExtentItem, FileExtent, FileExtentKind, FileKind, FreeSpaceInfo, InlineRef,
    InodeFlags, InodeItem, ItemKind, Key, KeyedRef, Logical, MetadataLevel, QgroupStatus, RootItem,
    RootRef, Timestamp, TreeId, csum_count, dir_entries, inode_extrefs, inode_refs, uuid_of_key,
    uuid_subvolumes,
};
use userbtrfs_image_builder::{
    Bytes, ExtentSpec, InodeSpec, RootSpec, block_group, compressed_inline, data_ref,
    device_extent, dir_entry, extent_head, extrefs, inline_extent, inode_ref, root_ref, samples,
    shared_data_ref, tree_ref,
};
use uuid::Uuid;

use crate::item_damage::check;

const INODE: Key = Key::new(257, ItemKind::INODE_ITEM, 0);
const DATA: Logical = Logical(0x40_0000);

#[test]
fn every_sample_passes() {
    for (key, content) in samples() {
        assert_eq!(check(key, content), Ok(()), "{key}");
    }
}

/// Kinds that are known but have no content to check.
const UNCHECKED: [ItemKind; 8] = [
    ItemKind::VERITY_DESC_ITEM,
    ItemKind::VERITY_MERKLE_ITEM,
    ItemKind::DIR_LOG_ITEM,
    ItemKind::DIR_LOG_INDEX,
    ItemKind::EXTENT_OWNER_REF,
    ItemKind::RAID_STRIPE,
    ItemKind::TEMPORARY_ITEM,
    ItemKind::STRING_ITEM,
];

#[test]
fn there_is_a_sample_of_every_kind_that_is_checked() {
    let sampled: BTreeSet<_> = samples().iter().map(|(key, _)| key.kind).collect();
    let known = (0..=u8::MAX).map(ItemKind).filter(|kind| kind.name().is_some());
    let missing: Vec<_> =
        known.filter(|kind| !sampled.contains(kind) && !UNCHECKED.contains(kind)).collect();
    assert_eq!(missing, []);
}

#[test]
fn unknown_kinds_pass_unread() {
    assert_eq!(check(Key::new(1, ItemKind(99), 2), vec![1, 2, 3]), Ok(()));
}

#[test]
fn inode() {
    let spec = InodeSpec { flags: 1 << 33 | 1, time: (-2, 500), ..InodeSpec::file(5) };
    let inode = InodeItem::parse(&spec.build()).unwrap();
    assert_eq!((inode.generation, inode.transid, inode.sequence), (7, 7, 3));
    assert_eq!((inode.size, inode.nbytes, inode.nlink), (5, 5, 1));
    assert_eq!((inode.uid, inode.gid), (1000, 100));
    assert_eq!((inode.mode, inode.kind), (0o100_644, FileKind::Regular));
    assert!(inode.flags.contains(InodeFlags::NODATASUM));
    let time = Timestamp { sec: -2, nsec: 500 };
    assert_eq!([inode.atime, inode.ctime, inode.mtime, inode.otime], [time; 4]);
}

#[test]
fn impossible_nanoseconds_are_read_as_the_last_of_their_second() {
    let spec = InodeSpec { time: (1, 1_000_000_000), ..InodeSpec::file(5) };
    assert_eq!(InodeItem::parse(&spec.build()).unwrap().mtime.nsec, 999_999_999);
}

#[test]
fn a_device_has_major_and_minor_number() {
    let mut bytes = InodeSpec::new(0o20_600, 0).build();
    bytes[0x38..0x40].copy_from_slice(&0xffff_ffff_u64.to_le_bytes());
    assert_eq!(InodeItem::parse(&bytes).unwrap().device(), (4095, 1_048_575));
}

#[test]
fn names_of_inodes() {
    let two = [inode_ref(2, b"a"), inode_ref(9, b"bc")].concat();
    let names = inode_refs(256, &two).collect::<Result<Vec<_>, _>>().unwrap();
    let parts: Vec<_> = names.iter().map(|n| (n.parent, n.index, n.name)).collect();
    assert_eq!(parts, [(256, 2, &b"a"[..]), (256, 9, b"bc")]);

    let two = extrefs(&[(256, 2, b"a"), (300, 9, b"bc")]);
    let names = inode_extrefs(&two).collect::<Result<Vec<_>, _>>().unwrap();
    let parts: Vec<_> = names.iter().map(|n| (n.parent, n.index, n.name)).collect();
    assert_eq!(parts, [(256, 2, &b"a"[..]), (300, 9, b"bc")]);
}

#[test]
fn directory_entries() {
    let nothing = Key::new(0, ItemKind(0), 0);
    let two = [dir_entry(INODE, 7, b"a", b""), dir_entry(nothing, 8, b"user.b", b"c")].concat();
    let entries = dir_entries(&two).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!((entries[0].target, entries[0].kind), (INODE, DirEntryKind::Symlink));
    assert_eq!((entries[0].name, entries[0].data, entries[0].transid), (&b"a"[..], &b""[..], 7));
    assert_eq!((entries[1].target, entries[1].kind), (nothing, DirEntryKind::Xattr));
    assert_eq!((entries[1].name, entries[1].data), (&b"user.b"[..], &b"c"[..]));
}

#[test]
fn entry_kind_to_disk_and_back_is_unchanged() {
    for number in 1..=8 {
        assert_eq!(DirEntryKind::try_from(number).unwrap().to_disk(), number);
    }
}

#[test]
fn inline_extents() {
    let bytes = inline_extent(b"hello");
    let extent = FileExtent::parse(0, &bytes).unwrap();
    let FileExtentKind::Inline(inline) = extent.kind else { panic!("{extent:?}") };
    assert_eq!((extent.generation, extent.compression, extent.file_bytes()), (7, None, 5));
    assert_eq!((inline.ram_bytes, inline.data), (5, &b"hello"[..]));
    let bytes = compressed_inline(2, 4096, b"xyz");
    let extent = FileExtent::parse(0, &bytes).unwrap();
    assert_eq!((extent.compression, extent.file_bytes()), (Some(Compression::Lzo), 4096));
}

#[test]
fn extents_on_disk() {
    let plain = ExtentSpec { offset: 4096, bytes: 8192, ..ExtentSpec::plain(DATA, 16384) };
    let bytes = plain.build();
    let FileExtentKind::Regular(extent) = FileExtent::parse(0, &bytes).unwrap().kind else {
        panic!("not regular")
    };
    assert_eq!((extent.disk, extent.disk_bytes, extent.ram_bytes), (DATA, 16384, 16384));
    assert_eq!((extent.offset, extent.bytes), (4096, 8192));
    let bytes = ExtentSpec { kind: 2, ..plain }.build();
    let prealloc = FileExtent::parse(0, &bytes).unwrap();
    assert_eq!(prealloc.kind, FileExtentKind::Prealloc(extent));
    for kind in [1, 2] {
        let bytes = ExtentSpec { kind, ..ExtentSpec::hole(8192) }.build();
        let hole = FileExtent::parse(4096, &bytes).unwrap();
        assert!(matches!(hole.kind, FileExtentKind::Hole(_)) && hole.file_bytes() == 8192);
    }
}

#[test]
fn roots() {
    let spec = RootSpec { level: 2, ..RootSpec::subvolume(Logical(0x20_3000), Uuid::from_u128(9)) };
    let root = RootItem::parse(&spec.build()).unwrap();
    assert_eq!((root.logical, root.level, root.generation), (Logical(0x20_3000), 2, 7));
    assert_eq!((root.root_dirid, root.bytes_used, root.refs), (256, 4096, 1));
    assert_eq!((root.inode.mode, root.inode.nlink), (0o40_755, 1));
    let extended = root.extended.unwrap();
    assert_eq!((extended.uuid, extended.parent_uuid), (Uuid::from_u128(9), Uuid::nil()));
    assert_eq!((extended.ctransid, extended.otransid, extended.stransid), (7, 6, 0));
    assert_eq!((extended.ctime.nsec, extended.otime.sec), (6, 1_600_000_000));

    assert_eq!(RootItem::parse(&spec.build_short()).unwrap().extended, None);
    let old_kernel = RootSpec { generation_v2: 6, ..spec };
    assert_eq!(RootItem::parse(&old_kernel.build()).unwrap().extended, None);
    let bytes = root_ref(256, 3, b"sub");
    let expected = RootRef { dirid: 256, sequence: 3, name: b"sub" };
    assert_eq!(RootRef::parse(&bytes), Ok(expected));
}

#[test]
fn extent_items() {
    let key = Key::new(DATA.0, ItemKind::EXTENT_ITEM, 8192);
    let user = data_ref(5, 257, 4096, 3);
    let bytes = extent_head(4, 1, None).raw(&tree_ref(172, 5)).u8(178).raw(&user).u8(184);
    let extent = ExtentItem::parse(key, &bytes.raw(&shared_data_ref(77, 1)).build()).unwrap();
    assert_eq!((extent.refs, extent.generation, extent.flags), (4, 7, ExtentFlags::DATA));
    assert_eq!(extent.level, MetadataLevel::None);
    let root = TreeId::FS;
    let parent = Logical(77);
    let data = InlineRef::ExtentData { root, inode: 257, offset: 4096, count: 3 };
    let shared = InlineRef::SharedData { parent, count: 1 };
    assert_eq!(extent.inline, [InlineRef::Owner(TreeId::FS), data, shared]);
    let keyed = KeyedRef::parse(ItemKind::EXTENT_DATA_REF, &user);
    assert_eq!(keyed, Ok(KeyedRef::ExtentData(data)));

    let first = Key::new(256, ItemKind::INODE_ITEM, 0);
    let old = extent_head(2, 2, Some((first, 3))).raw(&tree_ref(176, 5)).raw(&tree_ref(182, 77));
    let extent = ExtentItem::parse(key, &old.build()).unwrap();
    assert_eq!(extent.level, MetadataLevel::InItem(first, 3));
    assert_eq!(extent.inline, [InlineRef::TreeBlock(TreeId::FS), InlineRef::SharedBlock(parent)]);
    let key = Key::new(DATA.0, ItemKind::METADATA_ITEM, 2);
    let extent = ExtentItem::parse(key, &extent_head(1, 2, None).build()).unwrap();
    assert_eq!(extent.level, MetadataLevel::InKey(2));
}

#[test]
fn space() {
    let group = BlockGroupItem::parse(8192, &block_group(4096, 5)).unwrap();
    assert_eq!((group.used, group.chunk_objectid), (4096, 256));
    assert_eq!(group.flags, BlockGroupFlags::DATA | BlockGroupFlags::METADATA);
    let info = FreeSpaceInfo::parse(&Bytes::new().u32(9).u32(1).build()).unwrap();
    assert_eq!((info.extent_count, info.flags), (9, 1));
    let extent = DeviceExtent::parse(&device_extent(DATA, 8192)).unwrap();
    assert_eq!((extent.chunk, extent.len, extent.chunk_tree), (DATA, 8192, 3));
    assert_eq!(csum_count(24, 8), Ok(3));
}

#[test]
fn rare_items() {
    let numbers = |count: u64| (1..=count).fold(Bytes::new(), Bytes::u64).build();
    assert_eq!(QgroupStatus::parse(&numbers(4)).unwrap().enable_generation, None);
    assert_eq!(QgroupStatus::parse(&numbers(5)).unwrap().enable_generation, Some(5));
    assert_eq!(DevStats::parse(&numbers(5)).unwrap().generation_errors, 5);
    assert_eq!(DevStats::parse(&numbers(7)).unwrap().flush_errors, 3);
    assert_eq!(DevReplaceItem::parse(&numbers(9)).unwrap().state, 5);
    assert_eq!(uuid_subvolumes(&numbers(2)), Ok(vec![1, 2]));
    let key =
        Key::new(u64::from_le_bytes(*b"abcdefgh"), ItemKind(251), u64::from_le_bytes(*b"ijklmnop"));
    assert_eq!(uuid_of_key(key), Uuid::from_bytes(*b"abcdefghijklmnop"));
}
