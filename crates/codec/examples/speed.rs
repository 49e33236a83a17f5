//! Measures the throughput of compression and checksums on text, on one core.
//!
//! `speed [FILE OR DIRECTORY]`: uses the text files there; by default, those in `/usr/share`.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use userbtrfs_codec::{ChecksumKind, Compression, MAX_CONTENT};

/// Number of bytes of text to collect.
const CORPUS: usize = 32 << 20;

/// The duration of each measurement.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() {
    let root = std::env::args_os().nth(1).map_or_else(|| "/usr/share".into(), PathBuf::from);
    let mut corpus = Vec::new();
    collect(&root, &mut corpus);
    if corpus.is_empty() {
        corpus = generated();
    }
    println!("{} MiB of text from {}", corpus.len() >> 20, root.display());
    for method in [Compression::Lzo, Compression::Zlib, Compression::Zstd] {
        measure_compression(method, &corpus);
    }
    for kind in
        [ChecksumKind::Crc32c, ChecksumKind::Xxhash64, ChecksumKind::Sha256, ChecksumKind::Blake2b]
    {
        let sectors = &corpus[..corpus.len() & !4095];
        let speed = megabytes_per_second(sectors.len(), || {
            kind.compute_blocks(sectors, 4096, |checksum| {
                black_box(checksum);
            });
        });
        println!("{kind:>9}: {speed:7.0} MB/s");
    }
}

fn measure_compression(method: Compression, corpus: &[u8]) {
    let mut stream = Vec::new();
    let mut streams = Vec::new();
    for extent in corpus.chunks(MAX_CONTENT) {
        method.compress(None, extent, &mut stream).expect("extents are short enough");
        streams.push(stream.clone());
    }
    let compress = megabytes_per_second(corpus.len(), || {
        for extent in corpus.chunks(MAX_CONTENT) {
            method.compress(None, extent, &mut stream).expect("extents are short enough");
        }
    });
    let mut content = vec![0; MAX_CONTENT];
    let decompress = megabytes_per_second(corpus.len(), || {
        for stream in &streams {
            black_box(method.decompress(stream, &mut content).expect("our own stream"));
        }
    });
    let ratio = 100 * streams.iter().map(Vec::len).sum::<usize>() / corpus.len();
    println!(
        "{method:>9?}: compress {compress:5.0} MB/s to {ratio}%, decompress {decompress:5.0} MB/s"
    );
}

/// The throughput of the fastest of several runs.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn megabytes_per_second(bytes: usize, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < PATIENCE {
        let lap = Instant::now();
        run();
        best = best.min(lap.elapsed());
    }
    bytes as f64 / best.as_secs_f64() / 1e6
}

/// Appends the text files under `path`, in the order of their names.
fn collect(path: &Path, corpus: &mut Vec<u8>) {
    if corpus.len() >= CORPUS || path.is_symlink() {
        return;
    }
    if let Ok(entries) = std::fs::read_dir(path) {
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            collect(&path, corpus);
        }
    } else if let Ok(text) = std::fs::read_to_string(path) {
        corpus.extend_from_slice(text.as_bytes());
    }
}

/// Generates lines of numbers, used if there is no text.
fn generated() -> Vec<u8> {
    let line = |n: usize| format!("line {n} of {}: {}\n", n % 97, n.wrapping_mul(2_654_435_761));
    (0..500_000).flat_map(|n| line(n).into_bytes()).collect()
}
