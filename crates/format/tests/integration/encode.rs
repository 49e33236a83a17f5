//! Encoding and parsing returns the original values, also at the bounds of each field.

use userbtrfs_codec::{ChecksumKind, Compression};
use userbtrfs_format::{
    BackupRoot, BlockGroupFlags, DirEntry, DirEntryKind, ExtentFlags, ExtentItem, FileExtent,
    FileExtentKind, FileKind, HoleExtent, InlineExtent, InlineRef, InodeItem, InodeName, ItemKind,
    Key, KeyedRef, LABEL_LEN_MAX, Logical, MetadataLevel, Profile, RegularExtent, RootItem,
    RootRef, SUPERBLOCK_OFFSETS, SYS_CHUNK_ARRAY_SIZE, Superblock, TreeId, dir_entries,
    inode_extrefs, inode_refs, uuid_key, uuid_of_key,
};
use userbtrfs_image_builder::{SuperblockSpec, field, put_u64, samples, seal_superblock};
use uuid::Uuid;

const BLOCK: Key = Key::new(0x40_0000, ItemKind::EXTENT_ITEM, 16384);
const DATA: Key = Key::new(0x40_0000, ItemKind::EXTENT_ITEM, 4096);

fn data_ref(root: u64, inode: u64) -> InlineRef {
    InlineRef::ExtentData { root: TreeId(root), inode, offset: u64::MAX, count: u32::MAX }
}

#[track_caller]
fn extent_round_trip(key: Key, flags: ExtentFlags, level: MetadataLevel, inline: &[InlineRef]) {
    let refs = u64::MAX;
    let generation = 9;
    let extent = ExtentItem { refs, generation, flags, level, inline: inline.to_vec() };
    assert_eq!(ExtentItem::parse(key, &extent.encode()), Ok(extent));
}

#[test]
fn extents() {
    let parent = Logical(u64::MAX);
    let shared = InlineRef::SharedData { parent, count: 1 };
    let owner = InlineRef::Owner(TreeId(5));
    extent_round_trip(
        DATA,
        ExtentFlags::DATA,
        MetadataLevel::None,
        &[owner, data_ref(5, 1), shared],
    );
    let flags = ExtentFlags::TREE_BLOCK | ExtentFlags::FULL_BACKREF;
    let refs = [InlineRef::TreeBlock(TreeId::FS), InlineRef::SharedBlock(parent)];
    extent_round_trip(BLOCK, flags, MetadataLevel::InItem(Key::MAX, 7), &refs);
    let skinny = Key::new(0x40_0000, ItemKind::METADATA_ITEM, 7);
    extent_round_trip(skinny, flags, MetadataLevel::InKey(7), &refs);
}

#[test]
#[should_panic(expected = "inline references are sorted")]
fn unsorted_references_are_not_written() {
    let inline = vec![InlineRef::SharedBlock(Logical(0)), InlineRef::TreeBlock(TreeId::FS)];
    let flags = ExtentFlags::TREE_BLOCK;
    let level = MetadataLevel::InKey(0);
    ExtentItem { refs: 2, generation: 1, flags, level, inline }.encode();
}

#[test]
fn keyed_references() {
    for (kind, keyed) in [
        (ItemKind::TREE_BLOCK_REF, KeyedRef::Block),
        (ItemKind::SHARED_BLOCK_REF, KeyedRef::Block),
        (ItemKind::EXTENT_DATA_REF, KeyedRef::ExtentData(data_ref(u64::MAX, 257))),
        (ItemKind::SHARED_DATA_REF, KeyedRef::SharedData(u32::MAX)),
    ] {
        assert_eq!(KeyedRef::parse(kind, &keyed.encode()), Ok(keyed));
    }
}

#[test]
fn file_extents() {
    let extent = RegularExtent {
        disk: Logical(4096),
        disk_bytes: 8192,
        offset: 4096,
        bytes: 4096,
        ram_bytes: 8192,
    };
    let inline = InlineExtent { ram_bytes: 3, data: b"abc" };
    let hole = HoleExtent { bytes: 4096, offset: 0, ram_bytes: 8192 };
    for (compression, kind) in [
        (None, FileExtentKind::Inline(inline)),
        (None, FileExtentKind::Hole(hole)),
        (None, FileExtentKind::Prealloc(extent)),
        (Some(Compression::Zlib), FileExtentKind::Regular(extent)),
        (Some(Compression::Lzo), FileExtentKind::Inline(inline)),
        (Some(Compression::Zstd), FileExtentKind::Regular(extent)),
    ] {
        let extent = FileExtent { generation: u64::MAX, compression, kind };
        assert_eq!(FileExtent::parse(0, &extent.encode()), Ok(extent));
    }
}

#[test]
fn names_of_one_and_of_255_bytes() {
    let short = [b'/'; 1];
    let long = [0xff; 255];
    let mut entries = vec![];
    let mut refs = vec![];
    let mut extrefs = vec![];
    for name in [&short[..], &long] {
        let target = Key::new(257, ItemKind::INODE_ITEM, 0);
        let kind = DirEntryKind::Xattr;
        let data = &long[..];
        DirEntry { target, transid: 1, kind, name, data }.encode_into(&mut entries);
        let of_inode = InodeName { parent: 256, index: u64::MAX, name };
        of_inode.encode_ref_into(&mut refs);
        of_inode.encode_extref_into(&mut extrefs);
        let root_ref = RootRef { dirid: 256, sequence: u64::MAX, name };
        assert_eq!(RootRef::parse(&root_ref.encode()), Ok(root_ref));
    }
    let names = [&short[..], &long];
    assert!(dir_entries(&entries).map(|e| e.unwrap()).map(|e| e.name).eq(names));
    assert!(dir_entries(&entries).all(|entry| entry.unwrap().data == long));
    assert!(inode_refs(256, &refs).map(|name| name.unwrap().name).eq(names));
    assert!(inode_extrefs(&extrefs).map(|name| name.unwrap().name).eq(names));
}

#[test]
#[should_panic(expected = "1 to 255 bytes")]
fn a_name_of_256_bytes_is_not_written() {
    InodeName { parent: 256, index: 2, name: &[b'a'; 256] }.encode_ref_into(&mut Vec::new());
}

#[test]
#[should_panic(expected = "1 to 255 bytes")]
fn an_empty_name_is_not_written() {
    InodeName { parent: 256, index: 2, name: b"" }.encode_extref_into(&mut Vec::new());
}

fn root_sample() -> RootItem {
    let (_, content) = samples()
        .into_iter()
        .find(|(key, content)| key.kind == ItemKind::ROOT_ITEM && content.len() > 239)
        .expect("there is a sample of the long form");
    RootItem::parse(&content).expect("samples are sound")
}

#[test]
fn root_extension_stays_valid_after_generation_changes() {
    let mut root = root_sample();
    root.generation += 1;
    assert!(root.extended.is_some());
    let again = RootItem::parse(&root.encode()).unwrap();
    assert_eq!(again.extended, root.extended);
    assert_eq!(again.generation_v2, Some(root.generation));
}

#[test]
fn a_root_without_extension_keeps_its_size() {
    let short = RootItem { extended: None, generation_v2: None, ..root_sample() };
    assert_eq!(short.encode().len(), 239);
    assert_eq!(RootItem::parse(&short.encode()), Ok(short));
    let stale = RootItem { extended: None, generation_v2: Some(0), ..root_sample() };
    assert_eq!(stale.encode().len(), 439);
    assert_eq!(RootItem::parse(&stale.encode()), Ok(stale));
}

#[test]
fn superblocks_of_each_kind_at_each_place() {
    use ChecksumKind::{Blake2b, Crc32c, Sha256, Xxhash64};
    let mut bytes = SuperblockSpec::default().build();
    put_u64(&mut bytes, field::COMPAT_RO, 1 << 63);
    seal_superblock(&mut bytes);
    let mut superblock = Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]).unwrap();
    superblock.label = vec![b'l'; LABEL_LEN_MAX];
    superblock.sys_chunk_array = vec![1; SYS_CHUNK_ARRAY_SIZE];
    superblock.reserved = [7; 28];
    superblock.backup_roots[3] = BackupRoot { levels: [1, 2, 3, 4, 5, 6], ..Default::default() };
    for kind in [Crc32c, Xxhash64, Sha256, Blake2b] {
        superblock.checksum_kind = kind;
        for at in SUPERBLOCK_OFFSETS {
            let bytes = superblock.encode(at);
            let again = Superblock::parse(&bytes, at).unwrap();
            assert_eq!((again.physical, again.checksum_kind), (at, kind));
            assert_eq!(again.label, superblock.label);
            assert_eq!(again.sys_chunk_array, superblock.sys_chunk_array);
            assert_eq!(again.reserved, superblock.reserved);
            assert_eq!(again.backup_roots, superblock.backup_roots);
            assert_eq!(again.compat_ro, superblock.compat_ro);
            assert_eq!(again.encode(at), bytes);
        }
    }
}

#[test]
fn metadata_uuid_is_written_if_its_feature_is_set() {
    let mut superblock =
        Superblock::parse(&SuperblockSpec::default().build(), SUPERBLOCK_OFFSETS[0]).unwrap();
    superblock.incompat |= userbtrfs_format::IncompatFlags::METADATA_UUID;
    superblock.fsid = Uuid::from_u128(1);
    let at = SUPERBLOCK_OFFSETS[0];
    let again = Superblock::parse(&superblock.encode(at), at).unwrap();
    assert_eq!((again.fsid, again.metadata_uuid), (superblock.fsid, superblock.metadata_uuid));
}

#[test]
fn modes_and_entry_types() {
    for number in 1..8 {
        let entry = DirEntryKind::try_from(number).unwrap();
        let kinds = [
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::CharDevice,
            FileKind::BlockDevice,
            FileKind::Fifo,
            FileKind::Socket,
        ];
        let kind = kinds.into_iter().find(|&kind| DirEntryKind::from(kind) == entry).unwrap();
        assert_eq!(FileKind::from_mode(kind.to_mode() | 0o7777), Some(kind));
    }
}

#[test]
fn device_numbers() {
    let (_, content) =
        samples().into_iter().find(|(key, _)| key.kind == ItemKind::INODE_ITEM).unwrap();
    let mut inode = InodeItem::parse(&content).unwrap();
    for numbers in [(0, 0), (1, 3), (4095, 0xf_ffff), (u32::MAX, 1)] {
        inode.rdev = InodeItem::device_number(numbers.0, numbers.1);
        assert_eq!(InodeItem::parse(&inode.encode()).unwrap().device(), numbers);
    }
}

#[test]
fn profiles_and_uuid_keys() {
    for name in BlockGroupFlags::all().iter() {
        if let Some(profile) = name.profile().filter(|&profile| profile != Profile::Single) {
            assert_eq!(profile.flag(), name);
        }
    }
    assert_eq!(Profile::Single.flag(), BlockGroupFlags::empty());
    let uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    let key = uuid_key(uuid, ItemKind::UUID_KEY_SUBVOL);
    assert_eq!((uuid_of_key(key), key.kind), (uuid, ItemKind::UUID_KEY_SUBVOL));
}
