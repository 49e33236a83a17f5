//! Tests of blocks against the format's description and another implementation, and of streams
//! against each rule of the framing.

use proptest::prelude::*;

use super::*;
use crate::DecompressError;
use crate::compress::LzoError;
use crate::compress::tests::{content, noise};

fn encode(content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; worst_length(content.len())];
    let length = compress_block(content, &mut block);
    block.truncate(length);
    block
}

fn decode(block: &[u8], limit: usize) -> Result<Vec<u8>, BlockError> {
    let mut content = vec![0xee; limit];
    let held = decompress_block(block, &mut content)?;
    content.truncate(held);
    Ok(content)
}

fn encode_elsewhere(content: &[u8]) -> Vec<u8> {
    lzokay::compress::compress(content).expect("memory suffices")
}

fn decode_elsewhere(block: &[u8], limit: usize) -> Vec<u8> {
    let mut content = vec![0; limit];
    let held = lzokay::decompress::decompress(block, &mut content).expect("a sound block");
    content.truncate(held);
    content
}

fn unframe(stream: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut content = vec![0xee; limit];
    let held = decompress(stream, &mut content)?;
    content.truncate(held);
    Ok(content)
}

/// A stream of these segments, padded according to the framing rules.
fn frame(segments: &[&[u8]]) -> Vec<u8> {
    let mut stream = vec![0; 4];
    for segment in segments {
        while stream.len() % 4096 > 4092 {
            stream.push(0);
        }
        stream.extend(u32::try_from(segment.len()).unwrap().to_le_bytes());
        stream.extend_from_slice(segment);
    }
    let total = u32::try_from(stream.len()).unwrap();
    stream[..4].copy_from_slice(&total.to_le_bytes());
    stream
}

fn broken(stream: &[u8]) -> LzoError {
    match unframe(stream, 1 << 17) {
        Err(DecompressError::Lzo(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// An instruction for a long run of literals.
fn literals(bytes: &[u8]) -> Vec<u8> {
    let mut run = vec![0];
    let mut rest = bytes.len() - 18;
    while rest > 255 {
        run.push(0);
        rest -= 255;
    }
    run.push(u8::try_from(rest).unwrap());
    run.extend_from_slice(bytes);
    run
}

/// Decodes the pieces with an end marker appended.
fn ended(pieces: &[&[u8]]) -> Vec<u8> {
    decode(&[pieces.concat().as_slice(), &END].concat(), 100_000).unwrap()
}

#[test]
fn literals_one_by_one() {
    assert_eq!(ended(&[]), b"");
    // The first byte has codes of its own, for 1 to 3 literals and for up to 238.
    assert_eq!(ended(&[&[18], b"a"]), b"a");
    assert_eq!(ended(&[&[21], b"abcd"]), b"abcd");
    assert_eq!(ended(&[&[255], &[b'x'; 238]]), [b'x'; 238]);
    assert_eq!(ended(&[&[1], b"abcd"]), b"abcd");
    assert_eq!(ended(&[&[15], &[b'x'; 18]]), [b'x'; 18]);
    assert_eq!(ended(&[&[0, 1], &[b'x'; 19]]), [b'x'; 19]);
    assert_eq!(ended(&[&[0, 0, 2], &[b'x'; 275]]), [b'x'; 275]);
}

#[test]
fn copies_one_by_one() {
    // Near: 3 bytes from 4 back; 8 from 2 back and one literal.
    assert_eq!(ended(&[&[21], b"abcd", &[0b0100_1100, 0]]), b"abcdabc");
    assert_eq!(ended(&[&[21], b"abcd", &[0b1110_0101, 0], b"e"]), b"abcdcdcdcdcde");
    // Middle: 4 bytes from 3 back; 35 and 300 from 1 back, the former with three literals.
    assert_eq!(ended(&[&[20], b"abc", &[34, 2 << 2, 0]]), b"abcabca");
    let run = [&[b'a'; 36][..], b"xyz"].concat();
    assert_eq!(ended(&[&[18], b"a", &[32, 2, 3, 0], b"xyz"]), run);
    assert_eq!(ended(&[&[18], b"a", &[32, 0, 12, 0, 0]]), [b'a'; 301]);
    // Tiny: two bytes from 5 back after one literal.
    assert_eq!(ended(&[&[21], b"abcd", &[0b0100_0001, 0], b"e", &[0, 1]]), b"abcddddedd");
}

#[test]
fn distant_copies_one_by_one() {
    let source = noise(11, 40_000);
    let copied = |instruction: &[u8], distance: usize, length: usize| {
        let content = ended(&[&literals(&source), instruction]);
        assert_eq!(content[..40_000], source);
        assert_eq!(content[40_000..], source[40_000 - distance..][..length]);
    };
    copied(&[0b0000_1000, 1], 2049 + 4 + 2, 3);
    copied(&[0b0111_1000, 255], 2047, 4);
    copied(&[0b0010_0110, 0xfc, 0xff], 16_384, 8);
    copied(&[0b0001_0010, 5 << 2, 0], 16_384 + 5, 4);
    copied(&[0b0001_1010, 5 << 2, 1], 2 * 16_384 + 64 + 5, 4);
    copied(&[0b0001_0000, 2, 4, 0], 16_384 + 1, 11);
}

#[test]
fn damaged_blocks() {
    let fails = |block: &[u8], limit| decode(block, limit).unwrap_err();
    for block in [&[][..], &[18], &[18, b'a'], &[21, 1, 2, 3], &[18, 1, 64], &[18, 1, 34, 0]] {
        assert_eq!(fails(block, 100), BlockError::Truncated, "{block:?}");
    }
    for block in [&[0][..], &[0, 0, 0], &[18, 1, 32, 0], &[17, 0], &[18, 1, 0]] {
        assert_eq!(fails(block, 100), BlockError::Truncated, "{block:?}");
    }
    assert_eq!(fails(&[&[21][..], &[7; 4], &END].concat(), 3), BlockError::OutputOverrun);
    assert_eq!(fails(&[&[18, 1, 34, 0, 0][..], &END].concat(), 4), BlockError::OutputOverrun);
    assert_eq!(fails(&[&[18, 1, 32, 1, 0, 0][..], &END].concat(), 34), BlockError::OutputOverrun);
    let lookbehind = BlockError::LookbehindOutOfRange { distance: 2, produced: 1 };
    assert_eq!(fails(&[18, 1, 34, 1 << 2, 0], 100), lookbehind);
    let lookbehind = BlockError::LookbehindOutOfRange { distance: 16_385, produced: 0 };
    assert_eq!(fails(&[0x11, 1 << 2, 0], 100), lookbehind);
    assert_eq!(fails(&[18, 1, 0x12, 0, 0], 100), BlockError::BadEnd { length: 4 });
    assert_eq!(fails(&[18, 1, 0x11, 0, 0, 0, 0], 100), BlockError::TrailingBytes { count: 2 });
}

#[test]
fn every_prefix_of_a_block_is_truncated() {
    let block = encode(&[include_bytes!("tests.rs"), &noise(2, 3000)[..]].concat());
    for length in 0..block.len() {
        assert_eq!(decode(&block[..length], 20_000), Err(BlockError::Truncated), "{length}");
    }
}

#[test]
fn blocks_stay_within_their_bound_and_reach_it_rarely() {
    for length in [0, 1, 3, 4, 18, 19, 238, 239, 255, 4096, 16_384, 65_536] {
        let content = noise(1, length);
        let block = encode(&content);
        assert!(block.len() <= length + length / 255 + 5, "{} of {length}", block.len());
        assert_eq!(decode(&block, length).unwrap(), content);
        assert_eq!(decode_elsewhere(&block, length), content);
    }
}

#[test]
fn matches_are_found() {
    let text = include_bytes!("tests.rs");
    assert!(encode(text).len() < text.len() * 2 / 3);
    assert!(encode(&vec![0; 65_536]).len() < 300);
    // Repeated noise is found if it is in reach of a middle copy, up to 16 KiB back.
    let noise = noise(4, 200);
    let apart = |zeros| encode(&[&noise, &vec![0; zeros][..], &noise].concat()).len();
    assert!(apart(16_384 - 200) < apart(16_385 - 200) - 150);
}

#[test]
fn headers_cross_no_sector_of_the_stream() {
    // Noise compresses to segments of 4117 bytes, so that headers get every position in a sector.
    let content = noise(8, 1 << 17);
    let mut stream = Vec::new();
    compress(&content, &mut stream);
    let mut segments = framing_offsets(&stream);
    assert_eq!(segments.len(), 32);
    segments.retain(|header| header % 4096 > 4092);
    assert_eq!(segments, []);
    assert_eq!(unframe(&stream, 1 << 17).unwrap(), content);
    assert_eq!(stream[..4], u32::try_from(stream.len()).unwrap().to_le_bytes());
}

/// The offsets of the headers according to the framing rules.
fn framing_offsets(stream: &[u8]) -> Vec<usize> {
    let mut headers = Vec::new();
    let mut at = 4;
    while at < stream.len() {
        if at % 4096 > 4092 {
            at = at.next_multiple_of(4096);
        }
        headers.push(at);
        let length = u32::from_le_bytes(stream[at..at + 4].try_into().unwrap());
        at += 4 + usize::try_from(length).unwrap();
    }
    headers
}

#[test]
fn padding_before_a_header_is_skipped() {
    let sector = [9; 4096];
    let block = encode(&sector);
    // Byte by byte, the noise moves the second header over the boundary.
    let mut skipped = 0;
    for length in 4000..4096 {
        let first = encode(&[&vec![1; 4096 - length][..], &noise(3, length)].concat());
        let stream = frame(&[&first, &block]);
        skipped += stream.len() - 4 - 4 - first.len() - 4 - block.len();
        assert_eq!(unframe(&stream, 8192).unwrap()[4096..], sector);
    }
    assert!(skipped > 0);
}

#[test]
fn padding_after_the_last_segment_may_count() {
    let block = encode(&noise(1, 4065));
    let mut stream = frame(&[&block]);
    assert!((4092..4096).contains(&(stream.len() % 4096)), "{}", stream.len());
    stream.resize(4096, 0);
    stream[..4].copy_from_slice(&4096u32.to_le_bytes());
    assert_eq!(unframe(&stream, 4096).unwrap().len(), 4065);
}

#[test]
fn damaged_frames() {
    let sector = encode(&[5; 4096]);
    let little = encode(b"little");
    assert_eq!(broken(&[1, 0, 0]), LzoError::NoHeader { length: 3 });
    let total = LzoError::BadTotalLength { total: 3, available: 5 };
    assert_eq!(broken(&[3, 0, 0, 0, 0]), total);
    let total = LzoError::BadTotalLength { total: 6, available: 5 };
    assert_eq!(broken(&[6, 0, 0, 0, 0]), total);
    assert_eq!(broken(&[6, 0, 0, 0, 0, 0]), LzoError::HeaderPastEnd { offset: 4, total: 6 });
    let long = frame(&[&[0; 4420]]);
    assert_eq!(broken(&long), LzoError::SegmentTooLong { offset: 8, length: 4420 });
    let past = LzoError::SegmentPastEnd { offset: 8, length: 2, total: 9 };
    assert_eq!(broken(&[9, 0, 0, 0, 2, 0, 0, 0, 0]), past);
    let second = 4 + 4 + sector.len() + 4 + little.len() + 4;
    let short = LzoError::ShortSegment { offset: second, held: 6 };
    assert_eq!(broken(&frame(&[&sector, &little, &sector])), short);
    let source = BlockError::OutputOverrun;
    assert_eq!(broken(&frame(&[&encode(&[5; 4097])])), LzoError::Block { offset: 8, source });
    let source = BlockError::TrailingBytes { count: 1 };
    let trailing = [&sector[..], &[0]].concat();
    assert_eq!(broken(&frame(&[&trailing])), LzoError::Block { offset: 8, source });
}

proptest! {
    #[test]
    fn blocks_agree_with_another_implementation(content in content(65_536)) {
        let ours = encode(&content);
        prop_assert!(decode(&ours, content.len()).unwrap() == content);
        prop_assert!(decode_elsewhere(&ours, content.len()) == content);
        // Its block for empty content starts with a byte that decoders refuse.
        if !content.is_empty() {
            let theirs = encode_elsewhere(&content);
            prop_assert!(decode(&theirs, content.len()).unwrap() == content);
        }
    }

    #[test]
    fn blocks_fill_their_destination_exactly(content in content(9000), seed in any::<u64>()) {
        let content = [&noise(seed, 10)[..], &content].concat();
        let theirs = encode_elsewhere(&content);
        for block in [encode(&content), theirs] {
            let result = decode(&block, content.len() - 1);
            prop_assert_eq!(result, Err(BlockError::OutputOverrun));
        }
    }
}
