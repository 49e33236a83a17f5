//! Chunks, and the array of them in the superblock.

use userbtrfs_format::{
    BlockGroupFlags, Chunk, ChunkError, ItemError, Logical, Physical, Profile, sys_chunk_array,
};
use userbtrfs_image_builder::{Bytes, ChunkSpec, DEVICE_UUID};

const RAID0: u64 = 1 << 3;
const RAID10: u64 = 1 << 6;

fn parse(chunk: &ChunkSpec) -> Result<Chunk, ItemError> {
    Chunk::parse(chunk.key(), &chunk.build())
}

#[track_caller]
fn refused(expected: ChunkError, chunk: &ChunkSpec) {
    assert_eq!(parse(chunk), Err(ItemError::Chunk(expected)));
}

#[test]
fn valid_chunk_returns_built_values() {
    let chunk = parse(&ChunkSpec::metadata()).unwrap();
    assert_eq!((chunk.logical, chunk.len), (Logical(0x20_0000), 0x2_0000));
    assert_eq!(chunk.end(), Logical(0x22_0000));
    assert_eq!(chunk.flags, BlockGroupFlags::METADATA | BlockGroupFlags::DUP);
    assert_eq!((chunk.profile, chunk.stripe_len, chunk.owner), (Profile::Dup, 65536, 2));
    let places = [0x4_0000, 0x6_0000].map(Physical);
    assert!(chunk.stripes.iter().map(|stripe| stripe.physical).eq(places));
    assert!(chunk.stripes.iter().all(|s| s.device == 1 && s.device_uuid == DEVICE_UUID));
}

#[test]
fn each_profile_is_read_with_its_stripes() {
    let numbers = [
        (0, 1, Profile::Single),
        (1 << 3, 3, Profile::Raid0),
        (1 << 4, 2, Profile::Raid1),
        (1 << 5, 2, Profile::Dup),
        (1 << 6, 4, Profile::Raid10),
        (1 << 7, 2, Profile::Raid5),
        (1 << 8, 3, Profile::Raid6),
        (1 << 9, 3, Profile::Raid1C3),
        (1 << 10, 4, Profile::Raid1C4),
    ];
    for (bits, stripes, profile) in numbers {
        let stripes = vec![0x10_0000; stripes];
        let chunk = ChunkSpec { flags: 1 | bits, stripes, sub_stripes: 2, ..ChunkSpec::data() };
        assert_eq!(parse(&chunk).unwrap().profile, profile);
    }
}

#[test]
fn no_stripes() {
    refused(ChunkError::NoStripes, &ChunkSpec { stripes: vec![], ..ChunkSpec::data() });
}

#[test]
fn unaligned() {
    let start = ChunkSpec { logical: Logical(0x40_0001), ..ChunkSpec::data() };
    refused(ChunkError::Unaligned { field: "start", value: 0x40_0001 }, &start);
    for len in [0, 4097] {
        let chunk = ChunkSpec { len, ..ChunkSpec::data() };
        refused(ChunkError::Unaligned { field: "length", value: len }, &chunk);
    }
    let stripe = ChunkSpec { stripes: vec![5], ..ChunkSpec::data() };
    refused(ChunkError::Unaligned { field: "stripe", value: 5 }, &stripe);
}

#[test]
fn overflow() {
    let start = u64::MAX - 4095;
    let len = 8192;
    let chunk = ChunkSpec { logical: Logical(start), len, ..ChunkSpec::data() };
    refused(ChunkError::Overflow { start, len }, &chunk);
    let chunk = ChunkSpec { stripes: vec![start], len, ..ChunkSpec::data() };
    refused(ChunkError::Overflow { start, len }, &chunk);
}

#[test]
fn stripe_len() {
    refused(ChunkError::StripeLen(0), &ChunkSpec { stripe_len: 0, ..ChunkSpec::data() });
    refused(ChunkError::StripeLen(4096), &ChunkSpec { stripe_len: 4096, ..ChunkSpec::data() });
}

#[test]
fn flags() {
    let no_type = 0;
    let two_profiles = 1 | 1 << 3 | 1 << 4;
    let system_and_data = 1 | 1 << 1;
    let remapped = 1 | 1 << 11;
    let unknown = 1 | 1 << 60;
    for flags in [no_type, two_profiles, system_and_data, remapped, unknown] {
        refused(ChunkError::Flags(flags), &ChunkSpec { flags, ..ChunkSpec::data() });
    }
}

#[test]
fn stripe_count() {
    let chunk = ChunkSpec { stripes: vec![0, 0], ..ChunkSpec::data() };
    let error = ChunkError::StripeCount { profile: "single", stripes: 2, sub_stripes: 1 };
    refused(error, &chunk);
    let chunk = ChunkSpec { flags: 1 | RAID10, stripes: vec![0; 4], ..ChunkSpec::data() };
    let error = ChunkError::StripeCount { profile: "RAID10", stripes: 4, sub_stripes: 1 };
    refused(error, &chunk);
    let chunk = ChunkSpec { flags: 1 | RAID0, stripes: vec![0; 4], ..ChunkSpec::data() };
    assert!(parse(&chunk).is_ok());
}

#[test]
fn the_item_has_exactly_its_stripes() {
    let key = ChunkSpec::data().key();
    let mut bytes = ChunkSpec::data().build();
    assert_eq!(Chunk::parse(key, &bytes[..79]), Err(ItemError::TooShort { need: 32, have: 31 }));
    bytes.push(0);
    assert_eq!(Chunk::parse(key, &bytes), Err(ItemError::Trailing(1)));
}

#[test]
fn the_array_holds_system_chunks_back_to_back() {
    let system = ChunkSpec::system();
    let data = ChunkSpec::data();
    let pair = |chunk: &ChunkSpec| Bytes::new().key(chunk.key()).raw(&chunk.build()).build();
    let other = ChunkSpec { logical: Logical(0), ..system.clone() };
    let chunks = sys_chunk_array(&[pair(&system), pair(&other)].concat()).unwrap();
    assert!(chunks.iter().map(|chunk| chunk.logical).eq([system.logical, Logical(0)]));

    let error = sys_chunk_array(&[pair(&system), pair(&data)].concat());
    assert_eq!(error, Err(ItemError::Flags { field: "chunk type", value: 1 }));
    let mut wrong_key = pair(&system);
    wrong_key[8] = 1;
    let error = sys_chunk_array(&wrong_key);
    assert_eq!(error, Err(ItemError::Flags { field: "key kind", value: 1 }));
    let array = pair(&system);
    let cut = sys_chunk_array(&[&array[..], &array[..10]].concat());
    assert_eq!(cut, Err(ItemError::TooShort { need: 17, have: 10 }));
}
