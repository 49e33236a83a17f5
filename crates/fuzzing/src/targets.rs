//! The bodies of the fuzz targets.

mod filesystem;
mod image;
mod items;
mod request;

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use userbtrfs_codec::Compression;
use userbtrfs_format::{
    Expectation, ItemKind, Key, Logical, SUPERBLOCK_OFFSETS, Superblock, TreeBlock, sys_chunk_array,
};
use userbtrfs_image_builder::{
    LeafBuilder, NodeBuilder, Sample, SuperblockSpec, geometry, samples, seal_block,
    seal_superblock,
};
use userbtrfs_volume::ChunkMap;

use crate::damage::damage;

pub(crate) use filesystem::path;
pub(crate) use image::image;
pub(crate) use request::request;

static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(samples);

/// The maximum size of the buffer for a decompression, in bytes.
const ROOM_MAX: usize = 128 << 10;

/// Parses a damaged superblock with a correct checksum.
pub(crate) fn superblock(input: &[u8]) {
    let mut bytes = SuperblockSpec::default().build();
    // Without more input there is no more damage.
    damage(&mut Unstructured::new(input), &mut bytes).ok();
    seal_superblock(&mut bytes);
    if let Ok(superblock) = Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]) {
        superblock.unreadable_features();
        let map = ChunkMap::of_superblock(&superblock, superblock.device.total_bytes);
        if let Ok(map) = map {
            map.map(superblock.chunk_root, u64::from(superblock.nodesize)).ok();
        }
    }
}

/// Verifies and uses a damaged leaf of valid items, or a damaged node, with a correct checksum.
pub(crate) fn tree_block(input: &[u8]) {
    let input = &mut Unstructured::new(input);
    let Ok((mut block, expected)) = sound_block(input) else { return };
    damage(input, &mut block).ok();
    seal_block(&mut block, geometry().checksum_kind);
    let here = Logical(0x20_0000);
    if let Ok(block) = TreeBlock::verify(block, here, &geometry(), &expected) {
        items::exercise(&block);
    }
}

fn sound_block(input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Expectation)> {
    if input.ratio(1, 6)? {
        let mut node = NodeBuilder::new(&geometry(), input.int_in_range(1..=8)?);
        for number in 0..input.int_in_range(1..=9)? {
            let key = Key::new(256 + number, ItemKind::INODE_ITEM, 0);
            node = node.pointer(key, Logical(0x20_1000 + number * 4096), 7);
        }
        return Ok((node.build(), Expectation { first_key: None, ..node.expected() }));
    }
    let mut chosen = Vec::new();
    for _ in 0..input.int_in_range(1..=4)? {
        chosen.push(input.choose(&SAMPLES)?.clone());
    }
    chosen.sort_by_key(|(key, _)| *key);
    chosen.dedup_by_key(|(key, _)| *key);
    let add = |leaf: LeafBuilder, (key, mut content): (Key, Vec<u8>)| {
        damage(input, &mut content).ok();
        leaf.item(key, content)
    };
    let leaf = chosen.into_iter().fold(LeafBuilder::default(), add);
    Ok((leaf.build(), Expectation { first_key: None, ..leaf.expected() }))
}

/// Parses arbitrary bytes as an item.
pub(crate) fn items(input: &[u8]) {
    try_items(&mut Unstructured::new(input)).ok();
}

fn try_items(input: &mut Unstructured<'_>) -> Result<()> {
    let kind = input.choose(&SAMPLES)?.0.kind;
    let kind = if input.ratio(1, 16)? { ItemKind(input.arbitrary()?) } else { kind };
    // Most numbers are only valid if they are small, or multiples of a sector.
    let objectid = if input.arbitrary()? { input.arbitrary()? } else { 256 };
    let offset = input.arbitrary::<u64>()? & if input.arbitrary()? { !4095 } else { u64::MAX };
    let content = input.bytes(input.len())?;
    items::parse(Key::new(objectid, kind, offset), content).ok();
    Ok(())
}

/// Parses the array of system chunks of a superblock, damaged or of arbitrary bytes.
pub(crate) fn chunk_array(input: &[u8]) {
    let mut array = SuperblockSpec::default().system_chunks.into_iter().fold(
        Vec::new(),
        |mut array: Vec<u8>, (key, chunk)| {
            array.extend(userbtrfs_image_builder::Bytes::new().key(key).raw(&chunk).build());
            array
        },
    );
    array.extend_from_within(..);
    damage(&mut Unstructured::new(input), &mut array).ok();
    for array in [&array[..], input] {
        for chunk in sys_chunk_array(array).unwrap_or_default() {
            assert!(chunk.end() > chunk.logical && !chunk.stripes.is_empty());
        }
    }
}

/// Decompresses a stream: arbitrary bytes, or a valid stream with damage.
pub(crate) fn decompress(input: &[u8]) {
    let input = &mut Unstructured::new(input);
    try_decompress(input).ok();
}

fn try_decompress(input: &mut Unstructured<'_>) -> Result<()> {
    let compression = *input.choose(&[Compression::Zlib, Compression::Lzo, Compression::Zstd])?;
    let room = input.int_in_range(0..=ROOM_MAX)?;
    let stream = if input.arbitrary()? {
        let repeat = input.int_in_range(1..=64)?;
        let damages = input.arbitrary::<[u8; 16]>()?;
        let content = input.bytes(input.len())?.repeat(repeat);
        let mut stream = Vec::new();
        let content = &content[..content.len().min(ROOM_MAX)];
        compression.compress(None, content, &mut stream).expect("the content is short enough");
        let mut back = vec![0xff; content.len()];
        let held = compression.decompress(&stream, &mut back);
        // There are no empty extents: only other content must be restored.
        assert!(content.is_empty() || held == Ok(content.len()) && back == content);
        damage(&mut Unstructured::new(&damages), &mut stream).ok();
        stream
    } else {
        input.bytes(input.len())?.to_vec()
    };
    let mut target = vec![0xff; room];
    if let Ok(held) = compression.decompress(&stream, &mut target) {
        assert!(target[held..].iter().all(|&byte| byte == 0));
    }
    Ok(())
}
