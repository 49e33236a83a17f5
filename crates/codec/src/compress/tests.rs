//! Tests of every method on many kinds of content, and on damaged streams.

use proptest::prelude::*;

use super::*;

pub(super) const METHODS: [Compression; 3] =
    [Compression::Zlib, Compression::Lzo, Compression::Zstd];

/// Content made of noise, runs, text and repetitions of earlier content.
pub(super) fn content(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Piece::Noise),
        (any::<u8>(), 1..2000usize).prop_map(|(byte, length)| Piece::Run(byte, length)),
        (1..70_000usize, 1..600usize).prop_map(|(back, length)| Piece::Again(back, length)),
        (1..20usize, 1..30usize).prop_map(|(back, length)| Piece::Again(back, length)),
        Just(Piece::Text),
    ];
    prop::collection::vec(piece, 0..120).prop_map(move |pieces| assemble(&pieces, longest))
}

#[derive(Clone, Debug)]
enum Piece {
    Noise(Vec<u8>),
    Run(u8, usize),
    Again(usize, usize),
    Text,
}

fn assemble(pieces: &[Piece], longest: usize) -> Vec<u8> {
    let mut content = Vec::new();
    for piece in pieces {
        match *piece {
            Piece::Noise(ref bytes) => content.extend(bytes),
            Piece::Run(byte, length) => content.extend(std::iter::repeat_n(byte, length)),
            Piece::Again(back, length) => {
                for _ in 0..length {
                    let byte = content.len().checked_sub(back).map_or(0, |at| content[at]);
                    content.push(byte);
                }
            }
            Piece::Text => content.extend_from_slice(&include_bytes!("tests.rs")[..3000]),
        }
    }
    content.truncate(longest);
    content
}

/// Pseudo-random bytes, determined by the seed.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

fn compressed(method: Compression, level: Option<i32>, content: &[u8]) -> Vec<u8> {
    let mut stream = vec![0xaa; 5];
    method.compress(level, content, &mut stream).expect("short enough");
    stream
}

/// Checks that `stream` decompresses to `content` in a destination with `spare` extra bytes.
fn assert_holds(method: Compression, stream: &[u8], content: &[u8], spare: usize) {
    let mut dst = vec![0xff; content.len() + spare];
    assert_eq!(method.decompress(stream, &mut dst), Ok(content.len()), "{method:?}");
    assert!(dst[..content.len()] == *content, "{method:?} changed the content");
    assert!(dst[content.len()..].iter().all(|&byte| byte == 0), "{method:?} left bytes behind");
}

#[test]
fn every_length_around_a_sector_survives() {
    let noise = noise(7, 3 * 4096);
    let text = include_bytes!("tests.rs").repeat(4);
    for source in [&noise[..], &text, &[0; 3 * 4096]] {
        for length in (0..40).chain(4090..4102).chain(8186..8198) {
            for method in METHODS {
                let stream = compressed(method, None, &source[..length]);
                assert_holds(method, &stream, &source[..length], length % 3);
            }
        }
    }
}

#[test]
fn the_longest_content_survives_at_every_level() {
    let mut content = noise(3, MAX_CONTENT);
    content[1000..90_000].fill(b'x');
    for method in METHODS {
        for level in [None, Some(i32::MIN), Some(-15), Some(0), Some(1), Some(9), Some(i32::MAX)] {
            assert_holds(method, &compressed(method, level, &content), &content, 0);
        }
    }
}

#[test]
fn longer_content_is_refused() {
    for method in METHODS {
        let mut stream = vec![1];
        let error = CompressError::TooLong { length: MAX_CONTENT + 1 };
        assert_eq!(method.compress(None, &vec![0; MAX_CONTENT + 1], &mut stream), Err(error));
        assert_eq!(stream, []);
    }
}

#[test]
fn levels_matter() {
    let content = include_bytes!("tests.rs").as_slice();
    for method in [Compression::Zlib, Compression::Zstd] {
        let [least, usual, most] = [1, 0, 9].map(|level| compressed(method, Some(level), content));
        assert!(least.len() > most.len(), "{method:?}");
        assert_eq!(usual, compressed(method, Some(3), content));
        assert_eq!(usual, compressed(method, None, content));
    }
}

#[test]
fn padding_is_ignored() {
    let content = include_bytes!("tests.rs");
    for method in METHODS {
        let mut stream = compressed(method, None, content);
        for padding in [0, 1, 3, 4, 100, 4095, 5000] {
            stream.resize(stream.len() + padding, 0);
            assert_holds(method, &stream, content, 1);
        }
    }
}

#[test]
fn content_that_does_not_fit_is_too_long() {
    let content = include_bytes!("tests.rs").repeat(3);
    for method in METHODS {
        let stream = compressed(method, None, &content);
        for limit in [0, 1, 100, 4095, 4096, 4097, content.len() - 1] {
            let error = DecompressError::TooLong { limit };
            let result = method.decompress(&stream, &mut vec![0; limit]);
            assert_eq!(result, Err(error), "{method:?} {limit}");
        }
    }
}

#[test]
fn empty_content_needs_a_stream() {
    for method in METHODS {
        assert!(method.decompress(&[], &mut [0; 10]).is_err(), "{method:?}");
        assert!(method.decompress(&[0; 3], &mut [0; 10]).is_err(), "{method:?}");
        assert_holds(method, &compressed(method, None, &[]), &[], 10);
    }
}

#[test]
fn zstd_window_is_one_that_linux_reads() {
    let stream = compressed(Compression::Zstd, Some(15), &noise(9, MAX_CONTENT));
    // RFC 8878, 3.1.1: a single segment, whose window is its content, and the four-byte length.
    assert_eq!(stream[..4], 0xfd2f_b528_u32.to_le_bytes());
    assert_eq!(stream[4] & 0b1110_0000, 0b1010_0000);
    assert_eq!(stream[5..9], 131_072_u32.to_le_bytes());
}

#[test]
fn zlib_wrong_checksum_is_an_error() {
    let content = include_bytes!("tests.rs");
    let mut stream = compressed(Compression::Zlib, None, content);
    *stream.last_mut().unwrap() ^= 1;
    let result = Compression::Zlib.decompress(&stream, &mut vec![0; content.len()]);
    assert_eq!(result, Err(DecompressError::Zlib));
}

#[test]
fn truncated_streams_are_errors() {
    let content = [&noise(5, 3000)[..], &[7; 3000], &noise(6, 3000)].concat();
    let mut dst = vec![0; content.len()];
    for method in METHODS {
        let stream = compressed(method, None, &content);
        for length in (0..stream.len()).step_by(7) {
            let result = method.decompress(&stream[..length], &mut dst);
            assert!(result.is_err(), "{method:?} {length}");
        }
    }
}

proptest! {
    #[test]
    fn any_content_survives(
        content in content(MAX_CONTENT), level in prop::option::of(-20..20), spare in 0..50usize
    ) {
        for method in METHODS {
            assert_holds(method, &compressed(method, level, &content), &content, spare);
        }
    }

    #[test]
    fn damage_never_panics(
        content in content(20_000),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        limit in 0..25_000usize,
    ) {
        for method in METHODS {
            let mut stream = compressed(method, None, &content);
            for (index, byte) in &changes {
                let at = index.index(stream.len());
                stream[at] = *byte;
            }
            let mut dst = vec![0; limit];
            if let Ok(held) = method.decompress(&stream, &mut dst) {
                prop_assert!(held <= limit);
            }
        }
    }

    #[test]
    fn garbage_never_panics(
        src in prop::collection::vec(any::<u8>(), 0..500), limit in 0..9000usize
    ) {
        for method in METHODS {
            let _ = method.decompress(&src, &mut vec![0; limit]);
        }
    }
}
