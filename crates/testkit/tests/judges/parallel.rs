//! Files read by many threads concurrently, at any offset, with little and much memory.
//!
//! 1. The content is that shown by Linux: its digest is that in the manifest.
//! 2. Single reads, sequential reads (with readahead), chunk readers, and `io::Read` all return
//!    that content.

use std::io::Read;
use std::thread;

use userbtrfs::{File, Filesystem};
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::manifest::{ContentDigest, Kind, Manifest};
use userbtrfs_testkit::random::Random;

use super::{Unpacked, is_torture, open, seed};

const THREADS: u64 = 8;
/// The maximum size of files that are read, in bytes.
const FILE_MAX: u64 = 16 << 20;
/// Memory limits, in MiB.
const MEMORY: &[u64] = &[4, 256];
/// Reads have at most one bit more than this.
const READ_BITS: u64 = 19;
/// Images with large files: compressed, shared, fragmented, with holes, without checksums.
const IMAGES: &[&str] = &["basic", "shared", "extents", "holes", "flags", "nodesize-4k"];

#[test]
fn every_way_of_reading_gives_the_content() {
    let seed = seed();
    for name in IMAGES {
        let golden = Golden::named(name);
        let unpacked = Unpacked::new(&golden);
        for memory in MEMORY {
            let filesystem = open(&unpacked.image, *memory).unwrap();
            read_from_threads(&filesystem, &golden.manifest().unwrap().unwrap(), seed);
        }
    }
}

/// Reads the files of a filesystem with this manifest of Linux from many threads concurrently.
pub(crate) fn read_from_threads(filesystem: &Filesystem, manifest: &Manifest, seed: u64) {
    let mut random = Random::new(seed);
    let files = some_files(filesystem, manifest, &mut random);
    let reads = if is_torture() { 4000 } else { 200 };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let files = &files;
            let mut random = Random::new(seed ^ (thread << 40));
            scope.spawn(move || {
                for _ in 0..reads {
                    let (file, content) = random.pick(files).expect("there are files");
                    read_somehow(file, content, &mut random);
                }
            });
        }
    });
}

/// The maximum total size of content kept for comparison, in bytes.
const CONTENT_MAX: u64 = 64 << 20;

fn some_files(
    filesystem: &Filesystem,
    manifest: &Manifest,
    random: &mut Random,
) -> Vec<(File, Vec<u8>)> {
    let of_size = |size: u64| (1..=FILE_MAX).contains(&size);
    let mut entries: Vec<_> = manifest.entries().iter().collect();
    entries.retain(|entry| entry.kind == Kind::File && of_size(entry.size));
    random.shuffle(&mut entries);
    let mut held = 0;
    let mut files = Vec::new();
    for entry in entries {
        held += entry.size;
        if held > CONTENT_MAX {
            break;
        }
        let file = filesystem.open_file(entry.path.as_slice()).unwrap();
        let content = file.read_all().unwrap();
        let mut digest = ContentDigest::default();
        digest.update(0, &content);
        assert_eq!(Some(digest.finish()), entry.content, "{}", entry.path);
        files.push((file, content));
    }
    files
}

fn read_somehow(file: &File, content: &[u8], random: &mut Random) {
    let start = random.below(content.len() as u64 + 2);
    let length = random.length(READ_BITS);
    match random.below(8) {
        0 => read_in_sequence(file, content, start, random),
        1 => read_chunks(file, content, start, start + length),
        2 => read_copies(file, content, start, random),
        _ => drop(read_once(file, content, start, length)),
    }
}

/// Returns a range of the content, up to its end.
fn part(content: &[u8], start: u64, end: u64) -> &[u8] {
    let within = |offset: u64| usize::try_from(offset).unwrap().min(content.len());
    &content[within(start)..within(end)]
}

/// Returns the number of bytes read.
fn read_once(file: &File, content: &[u8], start: u64, length: u64) -> u64 {
    let mut target = vec![0x55; usize::try_from(length).unwrap()];
    let read = file.read_at(&mut target, start).unwrap();
    assert!(&target[..read] == part(content, start, start + length), "{length} from {start}");
    assert!(target[read..].iter().all(|byte| *byte == 0x55), "written behind the end");
    read as u64
}

fn read_in_sequence(file: &File, content: &[u8], start: u64, random: &mut Random) {
    let length = random.length(16);
    let mut at = start;
    loop {
        match read_once(file, content, at, length) {
            0 => break,
            read => at += read,
        }
    }
}

fn read_chunks(file: &File, content: &[u8], start: u64, end: u64) {
    let mut reader = file.reader_of(start, end);
    let mut at = start;
    while let Some(chunk) = reader.next_chunk().unwrap() {
        assert_eq!(chunk.offset(), at);
        let expected = part(content, at, at + chunk.len());
        match chunk.bytes() {
            Some(bytes) => assert!(bytes == expected, "chunk at {at}"),
            None => assert!(expected.iter().all(|byte| *byte == 0), "no hole at {at}"),
        }
        assert!(!chunk.is_empty() && expected.len() as u64 == chunk.len());
        at += chunk.len();
    }
    assert_eq!(at, end.min(content.len() as u64).max(start));
}

fn read_copies(file: &File, content: &[u8], start: u64, random: &mut Random) {
    let mut reader = file.reader_of(start, u64::MAX);
    let mut target = vec![0; usize::try_from(random.length(16)).unwrap()];
    let mut found = Vec::new();
    loop {
        match reader.read(&mut target).unwrap() {
            0 => break,
            read => found.extend_from_slice(&target[..read]),
        }
    }
    assert!(found == part(content, start, u64::MAX), "from {start}");
}
