//! Tree blocks: header, keys, item bounds, pointers.

use userbtrfs_codec::{Checksum, ChecksumKind};
use userbtrfs_format::{
    BlockError, Expectation, Geometry, ItemError, ItemKind, Key, Logical, TreeBlock, TreeId,
};
use userbtrfs_image_builder::{
    FSID, InodeSpec, LeafBuilder, NodeBuilder, Place, RawBlock, geometry, header, inode_ref,
    put_u32, put_u64, seal_block,
};
use uuid::Uuid;

type Verified = Result<TreeBlock<Vec<u8>>, BlockError>;

const HERE: Logical = Logical(0x20_0000);
const INODE: Key = Key::new(256, ItemKind::INODE_ITEM, 0);
const REF: Key = Key::new(256, ItemKind::INODE_REF, 256);
const FAR: Key = Key::new(900, ItemKind::INODE_ITEM, 0);

/// Two items, of 160 and 12 bytes.
fn leaf() -> LeafBuilder {
    let leaf = LeafBuilder::default();
    leaf.item(INODE, InodeSpec::directory(4).build()).item(REF, inode_ref(0, b".."))
}

fn node() -> NodeBuilder {
    let node = NodeBuilder::new(&geometry(), 1);
    node.pointer(INODE, Logical(0x20_1000), 7).pointer(FAR, Logical(0x20_2000), 6)
}

fn verify(mut block: Vec<u8>, expected: &Expectation, edit: impl FnOnce(&mut [u8])) -> Verified {
    edit(&mut block);
    seal_block(&mut block, ChecksumKind::Crc32c);
    TreeBlock::verify(block, HERE, &geometry(), expected)
}

#[track_caller]
fn leaf_refused(expected: &BlockError, edit: impl FnOnce(&mut [u8])) {
    assert_eq!(
        verify(leaf().build(), &leaf().expected(), edit).expect_err("it was damaged"),
        *expected
    );
}

#[track_caller]
fn node_refused(expected: &BlockError, edit: impl FnOnce(&mut [u8])) {
    assert_eq!(
        verify(node().build(), &node().expected(), edit).expect_err("it was damaged"),
        *expected
    );
}

#[test]
fn valid_leaf_returns_built_header_and_items() {
    let block = verify(leaf().build(), &leaf().expected(), |_| ()).unwrap();
    let header = block.header();
    assert_eq!((header.logical, header.fsid, header.owner), (HERE, FSID, TreeId::FS));
    assert_eq!((header.generation, header.nritems, header.level), (7, 2, 0));
    assert_eq!((header.flags.bits(), header.backref_revision), (1, 1));
    assert!(block.is_leaf() && block.len() == 2 && !block.is_empty());
    assert_eq!((block.key(0), block.key(1)), (INODE, REF));
    assert_eq!(block.item(1).data, inode_ref(0, b".."));
    assert_eq!(block.item(1).offset, 4096 - 0x65 - 160 - 12);
    assert_eq!((block.search(&INODE), block.search(&REF)), (Ok(0), Ok(1)));
    assert_eq!((block.search(&Key::MIN), block.search(&Key::MAX)), (Err(0), Err(2)));
}

#[test]
fn valid_node_returns_built_pointers() {
    let block = verify(node().build(), &node().expected(), |_| ()).unwrap();
    assert!(!block.is_leaf());
    let child = block.child(1);
    assert_eq!((child.key, child.logical, child.generation), (FAR, Logical(0x20_2000), 6));
    assert_eq!((block.next_child_key(0), block.next_child_key(1)), (Some(FAR), None));
    assert_eq!(
        [Key::MIN, INODE, REF, FAR, Key::MAX].map(|k| block.child_slot(&k)),
        [0, 0, 0, 1, 1]
    );
}

#[test]
fn blocks_of_each_size_and_checksum_are_read() {
    use ChecksumKind::{Blake2b, Crc32c, Sha256, Xxhash64};
    for checksum_kind in [Crc32c, Xxhash64, Sha256, Blake2b] {
        for nodesize in [4096, 16384, 65536] {
            let geometry = Geometry { checksum_kind, nodesize, fsid: FSID };
            let leaf = LeafBuilder::new(&geometry).item(REF, inode_ref(0, b".."));
            TreeBlock::verify(leaf.build(), HERE, &geometry, &leaf.expected()).unwrap();
        }
    }
}

#[test]
fn size() {
    let error = TreeBlock::verify(&[0; 4095][..], HERE, &geometry(), &leaf().expected());
    assert_eq!(error.unwrap_err(), BlockError::Size { need: 4096, have: 4095 });
}

#[test]
fn checksum() {
    let mut block = leaf().build();
    let expected = Checksum::from_slice(&block[..4]).unwrap();
    block[2000] ^= 1;
    let found = ChecksumKind::Crc32c.compute(&block[32..]);
    let error = TreeBlock::verify(block, HERE, &geometry(), &leaf().expected()).unwrap_err();
    assert_eq!(error, BlockError::Checksum { expected, found });
}

#[test]
fn address() {
    leaf_refused(&BlockError::Address(Logical(1)), |block| put_u64(block, header::BYTENR, 1));
}

#[test]
fn fsid() {
    leaf_refused(&BlockError::Fsid(Uuid::nil()), |block| block[header::FSID..][..16].fill(0));
}

#[test]
fn flags() {
    let never_written = BlockError::Flags { flags: 0, revision: 1 };
    leaf_refused(&never_written, |block| block[header::FLAGS] = 0);
    let too_old = BlockError::Flags { flags: 1, revision: 0 };
    leaf_refused(&too_old, |block| block[header::REVISION] = 0);
}

#[test]
fn level() {
    let expected = BlockError::Level { expected: 0, found: 1 };
    leaf_refused(&expected, |block| block[header::LEVEL] = 1);
    let expected = BlockError::Level { expected: 1, found: 255 };
    node_refused(&expected, |block| block[header::LEVEL] = 255);
}

#[test]
fn a_level_above_the_highest_is_refused_even_if_expected() {
    let node = NodeBuilder::new(&geometry(), 8).pointer(INODE, Logical(0x20_1000), 7);
    let error = verify(node.build(), &node.expected(), |_| ()).unwrap_err();
    assert_eq!(error, BlockError::Level { expected: 8, found: 8 });
}

#[test]
fn owner() {
    let expected = BlockError::Owner { expected: TreeId::FS, found: TreeId::CSUM };
    leaf_refused(&expected, |block| put_u64(block, header::OWNER, 7));
    let expected = BlockError::Owner { expected: TreeId::FS, found: TreeId::DATA_RELOC };
    leaf_refused(&expected, |block| put_u64(block, header::OWNER, TreeId::DATA_RELOC.0));
}

#[test]
fn a_snapshot_shares_blocks_of_other_subvolumes() {
    let owned = |owner| move |block: &mut [u8]| put_u64(block, header::OWNER, owner);
    for owner in [256, 700, TreeId::FS.0] {
        assert!(verify(leaf().build(), &leaf().expected(), owned(owner)).is_ok());
    }
    let expected = Expectation { owner: TreeId::DATA_RELOC, ..leaf().expected() };
    assert!(verify(leaf().build(), &expected, owned(TreeId::DATA_RELOC.0)).is_ok());
    assert!(verify(leaf().build(), &expected, owned(5)).is_err());
}

#[test]
fn generation() {
    let expected = BlockError::Generation { expected: 7, found: 8 };
    leaf_refused(&expected, |block| put_u64(block, header::GENERATION, 8));
}

#[test]
fn first_key() {
    let expected = Expectation { first_key: Some(REF), ..leaf().expected() };
    let error = verify(leaf().build(), &expected, |_| ()).unwrap_err();
    assert_eq!(error, BlockError::FirstKey { expected: REF, found: Some(INODE) });
    let place = Place { owner: TreeId::CSUM, ..Place::default() };
    let empty = LeafBuilder::default().place(place);
    let expected = place.expected(0, Some(REF));
    let error = verify(empty.build(), &expected, |_| ()).unwrap_err();
    assert_eq!(error, BlockError::FirstKey { expected: REF, found: None });
    assert!(verify(empty.build(), &empty.expected(), |_| ()).is_ok());
}

#[test]
fn past_end() {
    let expected = Expectation { end: Some(REF), ..leaf().expected() };
    let error = verify(leaf().build(), &expected, |_| ()).unwrap_err();
    assert_eq!(error, BlockError::PastEnd { last: REF, end: REF });
    let expected = Expectation { end: REF.successor(), ..leaf().expected() };
    assert!(verify(leaf().build(), &expected, |_| ()).is_ok());
}

#[test]
fn item_count() {
    for count in [160, u32::MAX] {
        let put = |block: &mut [u8]| put_u32(block, header::NRITEMS, count);
        leaf_refused(&BlockError::ItemCount(count), put);
        node_refused(&BlockError::ItemCount(count), put);
    }
    node_refused(&BlockError::ItemCount(0), |block| put_u32(block, header::NRITEMS, 0));
    leaf_refused(&BlockError::ItemCount(0), |block| put_u32(block, header::NRITEMS, 0));
}

#[test]
fn key_order() {
    for (key, before) in [(INODE, INODE), (Key::new(256, ItemKind(0), 5), INODE)] {
        let expected = BlockError::KeyOrder { slot: 1, key, before };
        leaf_refused(&expected, |block| RawBlock::set_key(block, 1, key));
        node_refused(&expected, |block| RawBlock::set_key(block, 1, key));
    }
}

#[test]
fn item_end() {
    let area = 4096 - 0x65;
    let gap = BlockError::ItemEnd { slot: 1, expected: area - 160, found: u64::from(area) - 161 };
    leaf_refused(&gap, |block| RawBlock::set_item_size(block, 1, 11));
    let overlap = BlockError::ItemEnd { slot: 0, expected: area, found: u64::from(area) + 1 };
    leaf_refused(&overlap, |block| RawBlock::set_item_size(block, 0, 161));
    let found = u64::from(u32::MAX) + 12;
    let wild = BlockError::ItemEnd { slot: 1, expected: area - 160, found };
    leaf_refused(&wild, |block| RawBlock::set_item_offset(block, 1, u32::MAX));
}

#[test]
fn item_start() {
    let area = 4096 - 0x65;
    leaf_refused(&BlockError::ItemStart { slot: 1, offset: 49 }, |block| {
        RawBlock::set_item_offset(block, 1, 49);
        RawBlock::set_item_size(block, 1, area - 160 - 49);
    });
}

#[test]
fn child_address() {
    for child in [0, 0x20_1001] {
        let expected = BlockError::ChildAddress { slot: 1, child: Logical(child) };
        node_refused(&expected, |block| RawBlock::set_child(block, 1, child));
    }
}

#[test]
fn child_generation() {
    let expected = BlockError::ChildGeneration { slot: 0, child: 8, own: 7 };
    node_refused(&expected, |block| RawBlock::set_child_generation(block, 0, 8));
}

#[test]
fn item() {
    let expected = BlockError::Item { slot: 1, key: REF, error: ItemError::NameLen(256) };
    leaf_refused(&expected, |block| {
        let range = RawBlock(block).item(1).unwrap();
        block[range.start + 8..range.start + 10].copy_from_slice(&256u16.to_le_bytes());
    });
}
