//! Data of files: flipped bits, missing checksums, wrong extent items.

use std::io::Read as _;

use userbtrfs::{
    BlockError, DataError, DecompressError, Error, ExtentKind, Filesystem, ItemError, ItemKind,
    Key, Logical, MirrorError, PathError, ReadError, TreeId,
};
use userbtrfs_codec::ChecksumKind;
use userbtrfs_image_builder::{
    ExtentSpec, ImageEditor, InodeSpec, compressed_inline, inline_extent, put_u32, put_u64,
};

use crate::support::command::Bench;
use crate::support::forging::{
    LARGE, LARGE_DATA, SECTOR, edit_item, edit_leaf, extent, find, flip, inode, sector, write_data,
};
use crate::support::golden::Unpacked;
use crate::support::{assert_says, open, small, top_level};

/// The file offsets of the extents of "large".
const PLAIN: u64 = 0;
const ZLIB: u64 = 8192;
const LZO: u64 = 24576;
const ZSTD: u64 = 32768;
const PREALLOC: u64 = 40960;
const END: u64 = 45056;

fn large(editor: &ImageEditor) -> Result<Vec<u8>, Error> {
    open(editor).expect("the image opens").read("/large").map_err(|failed| failed.error)
}

/// Returns the logical address of an extent of "large".
fn disk(editor: &ImageEditor, offset: u64) -> Logical {
    let file = open(editor).unwrap().open_file("/large").unwrap();
    let extents = file.extents().unwrap();
    let kind = extents.into_iter().find(|e| e.start == offset).map(|e| e.kind);
    let Some(ExtentKind::Data { logical, .. }) = kind else { panic!("no data at {offset}") };
    Logical(logical)
}

/// Returns the offset in "large" and the error there.
fn data_error(error: &Error) -> (u64, &DataError) {
    let Error::Data { file, offset, error } = error else { panic!("{error}") };
    assert_eq!(*file, top_level(LARGE));
    (*offset, error)
}

#[test]
fn a_flipped_bit_is_named_with_file_offset_and_both_checksums() {
    let mut editor = small();
    let bad = Logical(LARGE_DATA.0 + 4096);
    let right = ChecksumKind::Crc32c.compute(&sector(&editor, bad));
    flip(&mut editor, bad, 0);
    let wrong = ChecksumKind::Crc32c.compute(&sector(&editor, bad));

    let file = open(&editor).unwrap().open_file("/large").unwrap();
    let mut bytes = [0; 100];
    let error = file.read_at(&mut bytes, 5000).unwrap_err();

    let (offset, what) = data_error(&error);
    let DataError::Checksum { logical, expected, found, copies: 1 } = what else {
        panic!("{error}")
    };
    assert_eq!((offset, *logical, *expected, *found), (5000, bad, right, wrong));
    let right = right.to_string();
    let wrong = wrong.to_string();
    assert_says(&error, &["inode 258 of subvolume 5", "at offset 5000", &right, &wrong]);
    assert_eq!(error.errno(), 5);
    assert_eq!(data_error(&large(&editor).unwrap_err()).0, 4096);
}

/// A read fails only for a bad sector in its own range, not in what is fetched with it, and the
/// error has the offset within that range.
#[test]
fn good_sectors_beside_a_bad_sector_are_read() {
    let sound = large(&small()).unwrap();
    let mut editor = small();
    flip(&mut editor, Logical(LARGE_DATA.0 + 4096), 0);
    let file = open(&editor).unwrap().open_file("/large").unwrap();
    for (start, len) in
        [(0usize, 4096), (0, 1), (4095, 1), (8192, 36864), (45055, 1), (12000, 20000)]
    {
        let mut bytes = vec![0; len];
        assert_eq!(file.read_at(&mut bytes, start as u64).unwrap(), len, "at {start}");
        assert_eq!(bytes, sound[start..][..len], "at {start}");
    }
    for (start, len) in [(4096, 1), (8191, 1), (0, 4097), (0, 45056), (8000, 1000)] {
        let error = file.read_at(&mut vec![0; len], start).unwrap_err();
        assert_eq!(data_error(&error).0, start.max(4096), "at {start}");
    }
}

/// A reader returns all data before the bad sector, then the error, then the end.
#[test]
fn reader_returns_data_before_a_bad_sector() {
    let sound = large(&small()).unwrap();
    for (extent, bad) in [(PLAIN, 4096), (ZLIB, 8192), (ZSTD, 32768)] {
        let mut editor = small();
        let at = disk(&editor, extent);
        flip(&mut editor, Logical(at.0 + if extent == PLAIN { 4096 } else { 0 }), 0);
        let mut reader = open(&editor).unwrap().open_file("/large").unwrap().reader();
        let mut read = Vec::new();
        let error = loop {
            match reader.next_chunk() {
                Ok(chunk) => read.extend_from_slice(chunk.expect("no end").bytes().unwrap()),
                Err(error) => break error,
            }
        };
        assert_eq!(data_error(&error).0, bad);
        assert_eq!(read, sound[..usize::try_from(bad).unwrap()]);
        assert!(reader.next_chunk().unwrap().is_none(), "a reader ends after an error");
    }
}

#[test]
fn a_flipped_bit_reaches_io_errors() {
    let mut editor = small();
    flip(&mut editor, LARGE_DATA, 0);
    let mut reader = open(&editor).unwrap().open_file("/large").unwrap().reader();
    let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
    assert_says(&error, &["inode 258", "offset 0", "checksum of sector 4194304"]);
}

#[test]
fn cat_and_get_report_a_flipped_bit_and_get_leaves_no_file() {
    let mut editor = small();
    flip(&mut editor, Logical(LARGE_DATA.0 + 4096), 0);
    let bench = Bench::new(&editor);
    let cat = bench.verb("cat", &["/large"]);
    assert_eq!(cat.stdout, large(&small()).unwrap()[..4096]);
    let expected = ["userbtrfs: /large: inode 258", "offset 4096", "checksum of sector 4198400"];
    assert_says(&cat.bad(), &expected);

    let said = bench.get_all("copy").bad();

    assert_says(&said, &["userbtrfs: get: /large: inode 258", "checksum of sector 4198400"]);
    assert_eq!(said.lines().filter(|line| line.contains("/large")).count(), 1, "{said}");
    assert!(!bench.at("copy/large").exists());
    assert_eq!(std::fs::read(bench.at("copy/small")).unwrap(), b"hello\n");
    assert_eq!(std::fs::read(bench.at("copy/sub/inner")).unwrap(), b"world\n");
}

/// DUP data: each copy of it is damaged in turn.
#[test]
fn one_good_copy_of_data_is_enough() {
    let golden = Unpacked::new("dup");
    let mut editor = golden.editor();
    let path = "/dir/below/long";
    let sound = open(&editor).unwrap().read(path).unwrap();
    let extents = open(&editor).unwrap().open_file(path).unwrap().extents().unwrap();
    let ExtentKind::Data { logical, disk_bytes, .. } = extents[0].kind else { panic!() };
    let sectors = (logical..logical + disk_bytes).step_by(SECTOR).map(Logical);
    for copy in 0..2 {
        sectors.clone().for_each(|at| flip(&mut editor, at, copy));
        assert_eq!(open(&editor).unwrap().read(path).unwrap(), sound);
        editor.revert();
    }
    // Neither copy is sound, but each sector has a good copy.
    sectors
        .clone()
        .zip([0, 1].into_iter().cycle())
        .for_each(|(at, copy)| flip(&mut editor, at, copy));
    let file = open(&editor).unwrap().open_file(path).unwrap();
    assert_eq!(file.read_all().unwrap(), sound);
    let mut part = [0; 10_000];
    assert_eq!(file.read_at(&mut part, 100_001).unwrap(), 10_000);
    assert_eq!(part, sound[100_001..][..10_000]);
    editor.revert();
    for copy in 0..2 {
        flip(&mut editor, Logical(logical), copy);
    }
    let error = open(&editor).unwrap().read(path).unwrap_err();
    assert!(matches!(
        &error,
        PathError { error: Error::Data { error: DataError::Checksum { copies: 2, .. }, .. }, .. }
    ));
    assert_says(&error, &["copies tried: 2"]);
}

/// Removes all checksums but that of the first sector.
fn forget_checksums(editor: &mut ImageEditor) {
    let item = editor.items(TreeId::CSUM).remove(0);
    edit_leaf(editor, TreeId::CSUM, item.key, |items| {
        items.get_mut(&item.key).unwrap().truncate(4);
    });
}

#[test]
fn data_without_a_checksum_is_an_error() {
    let mut editor = small();
    forget_checksums(&mut editor);
    let error = large(&editor).unwrap_err();
    let (offset, what) = data_error(&error);
    assert_eq!(offset, 4096);
    assert!(matches!(what, DataError::NoChecksum(Logical(0x40_1000))), "{error}");
    assert_says(&error, &["sector 4198400 has no checksum"]);
}

#[test]
fn a_file_that_has_no_checksums_is_read_as_it_is() {
    for without in [flip_first, forget_checksums] {
        let mut editor = small();
        without(&mut editor);
        edit_item(&mut editor, inode(LARGE), |item| item[0x40] |= 1);
        let mut expected = large(&small()).unwrap();
        expected[..SECTOR].copy_from_slice(&sector(&editor, LARGE_DATA));
        assert_eq!(large(&editor).unwrap(), expected);
    }
}

fn flip_first(editor: &mut ImageEditor) {
    flip(editor, LARGE_DATA, 0);
}

#[test]
fn a_golden_file_without_checksums_is_read_as_it_is() {
    let golden = Unpacked::new("flags");
    let mut editor = golden.editor();
    let filesystem = open(&editor).unwrap();
    let mut expected = filesystem.read("/no sum").unwrap();
    let extents = filesystem.open_file("/no sum").unwrap().extents().unwrap();
    let ExtentKind::Data { logical, .. } = extents[0].kind else { panic!("{extents:?}") };
    flip(&mut editor, Logical(logical), 0);
    expected[10] ^= 1;
    assert_eq!(open(&editor).unwrap().read("/no sum").unwrap(), expected);
}

/// Changes the sizes in the extent item of "large" at `offset`.
fn resize(editor: &mut ImageEditor, offset: u64, ram_bytes: u64, bytes: u64) {
    edit_item(editor, extent(LARGE, offset), |item| {
        put_u64(item, 0x08, ram_bytes);
        put_u64(item, 0x2d, bytes);
    });
}

#[test]
fn stream_longer_than_its_item_says_is_an_error() {
    for (offset, said) in [(ZLIB, 12288), (LZO, 4096), (ZSTD, 4096)] {
        let mut editor = small();
        resize(&mut editor, offset, said, said);
        let error = large(&editor).unwrap_err();
        let (at, what) = data_error(&error);
        assert!(matches!(what, DataError::Decompress { .. }), "{error}");
        assert_eq!(at, offset);
        assert_says(&error, &[&format!("offset {offset}"), "extent at"]);
    }
}

/// The rest is zeros, since compressed data ends with its file, not with a sector.
#[test]
fn stream_shorter_than_its_item_says_is_zero_filled() {
    let mut editor = small();
    let sound = large(&editor).unwrap();
    edit_leaf(&mut editor, TreeId::FS, inode(LARGE), |items| {
        items.remove(&extent(LARGE, PREALLOC));
    });
    resize(&mut editor, ZSTD, 12288, 12288);
    assert_eq!(large(&editor).unwrap(), sound);
    for (offset, said) in [(ZLIB, 20480), (LZO, 12288), (ZSTD, 131_072)] {
        let mut editor = small();
        edit_item(&mut editor, extent(LARGE, offset), |item| put_u64(item, 0x08, said));
        assert_eq!(large(&editor).unwrap(), sound);
    }
}

#[test]
fn impossible_sizes_are_errors_of_the_block() {
    let too_long = 128 * 1024 + 4096;
    for (at, value) in [(0x08, too_long), (0x08, 1 << 40), (0x1d, too_long), (0x25, 16384)] {
        let mut editor = small();
        edit_item(&mut editor, extent(LARGE, ZLIB), |item| put_u64(item, at, value));
        let error = large(&editor).unwrap_err();
        let found = item_error(&error);
        let expected = matches!(found, ItemError::Range { .. } | ItemError::PastExtent { .. });
        assert!(expected, "{at:#x}: {error}");
    }
}

/// Returns the item error that makes a block invalid.
fn item_error(error: &Error) -> &ItemError {
    let Error::Read(ReadError::Block { copies, .. }) = error else { panic!("{error}") };
    match &copies[0].1 {
        MirrorError::Block(BlockError::Item { error, .. }) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn a_stream_of_garbage_is_an_error() {
    let garbage: Vec<u8> =
        (0..4096u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    for (offset, found) in [
        (ZLIB, (|error| *error == DecompressError::Zlib) as fn(&DecompressError) -> bool),
        (LZO, |error| matches!(error, DecompressError::Lzo(_))),
        (ZSTD, |error| matches!(error, DecompressError::Zstd(_))),
    ] {
        for content in [&garbage, &vec![0; 4096], &vec![0xff; 4096]] {
            let mut editor = small();
            let at = disk(&editor, offset);
            write_data(&mut editor, at, content);
            let error = large(&editor).unwrap_err();
            let (place, what) = data_error(&error);
            let DataError::Decompress { logical, error: reason } = what else { panic!("{error}") };
            assert!(found(reason), "{error}");
            assert_eq!((place, *logical), (offset, at));
        }
    }
}

/// Changes every byte of each compressed extent, one at a time: reads return an error or content,
/// but do not panic.
#[test]
fn no_byte_of_a_stream_makes_reading_panic() {
    let editor = small();
    for offset in [ZLIB, LZO, ZSTD] {
        let at = disk(&editor, offset);
        let sound = sector(&editor, at);
        let end = sound.iter().rposition(|byte| *byte != 0).unwrap();
        let mut editor = small();
        edit_item(&mut editor, inode(LARGE), |item| item[0x40] |= 1);
        for byte in 0..=end {
            for mask in [1, 0x80, 0xff] {
                write_data(&mut editor, at, &{
                    let mut bytes = sound.clone();
                    bytes[byte] ^= mask;
                    bytes
                });
                match large(&editor) {
                    Ok(content) => assert_eq!(content.len() as u64, END),
                    Err(error) => assert_eq!(data_error(&error).0, offset),
                }
            }
        }
    }
}

#[test]
fn lzo_segments_of_wrong_length_are_errors() {
    for (at, value) in [(0, 0), (0, 3), (0, 4097), (0, u32::MAX), (4, 0), (4, 4420), (4, u32::MAX)]
    {
        let mut editor = small();
        let place = disk(&editor, LZO);
        let mut bytes = sector(&editor, place);
        put_u32(&mut bytes, at, value);
        write_data(&mut editor, place, &bytes);
        let error = large(&editor).unwrap_err();
        let DataError::Decompress { error: DecompressError::Lzo(_), .. } = data_error(&error).1
        else {
            panic!("{value}: {error}")
        };
    }
}

/// Replaces the extents of "large" from `offset` on by one extent.
fn with_extent(offset: u64, spec: ExtentSpec) -> ImageEditor {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(LARGE), |items| {
        items.retain(|key, _| !(extent(LARGE, offset)..=extent(LARGE, u64::MAX)).contains(key));
        items.insert(extent(LARGE, offset), spec.build());
    });
    editor
}

#[test]
fn an_extent_outside_every_chunk_is_named() {
    for logical in [0x900_0000, 0x42_0000, 0x40_0000 - 4096, 0x30_0000, 1 << 62] {
        for compression in [0, 3] {
            let plain = ExtentSpec::plain(Logical(logical), 8192);
            let editor = with_extent(PREALLOC, ExtentSpec { compression, ..plain });
            let error = large(&editor).unwrap_err();
            let (offset, what) = data_error(&error);
            assert_eq!(offset, PREALLOC);
            assert!(matches!(what, DataError::Range(ReadError::Unmapped { .. })), "{error}");
            assert_says(&error, &[&logical.to_string(), "lies in no chunk"]);
        }
    }
    // A compressed extent is read whole, and this one crosses the end of its chunk.
    let spec = ExtentSpec { compression: 3, ..ExtentSpec::plain(Logical(0x41_f000), 8192) };
    let error = large(&with_extent(PREALLOC, spec)).unwrap_err();
    assert_says(&error, &["offset 40960", "4321280 of 8192 bytes lies in no chunk"]);
    let beyond = with_extent(PREALLOC, ExtentSpec::plain(Logical(0u64.wrapping_sub(4096)), 8192));
    assert!(matches!(item_error(&large(&beyond).unwrap_err()), ItemError::Overflow { .. }));
}

#[test]
fn impossible_extent_is_an_error_of_the_block() {
    let plain = ExtentSpec::plain(LARGE_DATA, 8192);
    for spec in [
        ExtentSpec { bytes: 0, ..plain },
        ExtentSpec { bytes: 12288, ..plain },
        ExtentSpec { offset: 4096, ..plain },
        ExtentSpec { disk: Logical(LARGE_DATA.0 + 1), ..plain },
        ExtentSpec { disk_bytes: 0, ..plain },
        ExtentSpec { bytes: 0u64.wrapping_sub(4096), ..plain },
        ExtentSpec { kind: 3, ..plain },
        ExtentSpec { compression: 4, ..plain },
    ] {
        item_error(&large(&with_extent(PREALLOC, spec)).unwrap_err());
    }
}

/// Opens the image with this inline extent and this inode size for "small".
fn with_inline(content: Vec<u8>, size: u64) -> Filesystem {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(257), |items| {
        items.insert(extent(257, 0), content);
        items.insert(inode(257), InodeSpec::file(size).build());
    });
    open(&editor).unwrap()
}

#[test]
fn inline_data_of_the_wrong_length_is_an_error() {
    for said in [0, 5, 7, 1 << 40, u64::MAX] {
        let mut content = inline_extent(b"hello\n");
        put_u64(&mut content, 0x08, said);
        let error = with_inline(content, 6).read("/small").unwrap_err();
        assert!(matches!(item_error(&error.error), ItemError::Range { .. }), "{error}");
    }
    let error = with_inline(compressed_inline(1, 4097, b"x"), 6).read("/small").unwrap_err();
    assert!(matches!(item_error(&error.error), ItemError::Range { value: 4097, .. }), "{error}");
    let error = with_inline(compressed_inline(1, 6, b""), 6).read("/small").unwrap_err();
    assert!(matches!(item_error(&error.error), ItemError::Zero(_)), "{error}");
}

#[test]
fn compressed_inline_data_that_is_garbage_is_an_error() {
    for compression in 1..=3 {
        let content = compressed_inline(compression, 100, b"neither zlib nor lzo nor zstd");
        let error = with_inline(content, 100).read("/small").unwrap_err();
        let PathError { error: Error::Data { file, offset: 0, error: what }, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*file, top_level(257));
        assert!(matches!(what, DataError::Decompress { .. }), "{error}");
    }
}

#[test]
fn an_inline_extent_away_from_the_start_is_an_error() {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(257), |items| {
        let content = items.remove(&extent(257, 0)).unwrap();
        items.insert(extent(257, 4096), content);
    });
    let error = open(&editor).unwrap().read("/small").unwrap_err();
    assert_eq!(*item_error(&error.error), ItemError::KeyOffset(4096));
}

#[test]
fn extents_that_overlap_are_an_error_of_the_block() {
    let mut editor = small();
    edit_item(&mut editor, extent(LARGE, ZLIB), |item| put_u64(item, 0x2d, 12288));
    edit_leaf(&mut editor, TreeId::FS, inode(LARGE), |items| {
        let content = items.remove(&extent(LARGE, LZO)).unwrap();
        items.insert(extent(LARGE, LZO - 8192), content);
    });
    let error = large(&editor).unwrap_err();
    assert_eq!(*item_error(&error), ItemError::Overlap(20480));
}

/// The first extent reaches into the second, which is in the next leaf, so that no check of a
/// block sees both. The first is used as far as it reaches.
#[test]
fn extents_that_overlap_across_leaves_do_no_harm() {
    let mut editor = small();
    let sound = large(&editor).unwrap();
    let split = extent(LARGE, ZLIB);
    let mut moved = Vec::new();
    edit_leaf(&mut editor, TreeId::FS, inode(LARGE), |items| {
        let rest = items.split_off(&split);
        moved.extend(std::mem::replace(items, rest));
    });
    edit_leaf(&mut editor, TreeId::FS, inode(256), |items| {
        items.extend(moved);
        let spec = ExtentSpec::plain(LARGE_DATA, 12288);
        items.insert(extent(LARGE, PLAIN), spec.build());
    });
    let root = editor.root(TreeId::FS).unwrap();
    editor.edit_block(root, |block| userbtrfs_image_builder::RawBlock::set_key(block, 1, split));
    let read = large(&editor).unwrap();
    assert_eq!(read.len(), sound.len());
    assert_eq!(read[..8192], sound[..8192]);
    assert_eq!(read[12288..], sound[12288..]);
    let file = open(&editor).unwrap().open_file("/large").unwrap();
    let extents = file.extents().unwrap();
    let ends = extents.iter().map(|extent| extent.start + extent.len);
    let starts = extents.iter().map(|extent| extent.start).chain([END]);
    assert!(ends.eq(starts.skip(1)), "{extents:?}");
}

/// Returns the small image with this size in the inode of "large".
fn sized(size: u64) -> ImageEditor {
    let mut editor = small();
    edit_item(&mut editor, inode(LARGE), |item| put_u64(item, 0x10, size));
    editor
}

#[test]
fn a_size_beyond_the_extents_reads_as_zeros() {
    let mut expected = large(&small()).unwrap();
    expected.resize(300_000, 0);
    assert_eq!(large(&sized(300_000)).unwrap(), expected);
    for size in [0, 1, 4096, 8191, 20_000] {
        assert_eq!(large(&sized(size)).unwrap(), expected[..usize::try_from(size).unwrap()]);
    }
}

#[test]
fn the_largest_size_is_read_at_any_offset() {
    for size in [u64::MAX, u64::MAX - 4096, i64::MAX.unsigned_abs()] {
        let file = open(&sized(size)).unwrap().open_file("/large").unwrap();
        let mut bytes = [7; 100];
        for offset in [size - 100, size - 131_072, size / 2, 1 << 62] {
            assert_eq!(file.read_at(&mut bytes, offset).unwrap(), 100);
            assert_eq!(bytes, [0; 100]);
        }
        assert_eq!(file.read_at(&mut bytes, size - 10).unwrap(), 10);
        assert_eq!(file.read_at(&mut bytes, u64::MAX).unwrap(), 0);
        assert_eq!(file.seek_hole(END).unwrap(), END);
        assert!(matches!(file.seek_data(END), Err(Error::NoMoreData)));
        let error = file.read_all().unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { bytes } if bytes == size), "{error}");
        assert_eq!(error.errno(), 12);
    }
}

/// The host refuses the size of the copy, or keeps it as a hole; either way `get` ends.
#[test]
fn get_of_a_file_with_the_largest_size_ends() {
    let bench = Bench::new(&sized(u64::MAX));
    let said = bench.get_all("copy").bad();
    assert_says(&said, &["copy/large: set size"]);
    assert!(!bench.at("copy/large").exists());
}

#[test]
fn a_file_whose_checksum_tree_is_missing_is_named() {
    let mut editor = small();
    let key = Key::new(7, ItemKind::ROOT_ITEM, 0);
    find(&editor, TreeId::ROOT, key);
    edit_leaf(&mut editor, TreeId::ROOT, key, |items| {
        items.remove(&key);
    });
    let filesystem = open(&editor).unwrap();
    assert!(matches!(
        filesystem.read("/large"),
        Err(PathError { error: Error::NoTree(TreeId::CSUM), .. })
    ));
    assert_eq!(filesystem.read("/small").unwrap(), b"hello\n");
}
