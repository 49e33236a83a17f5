//! Prints the CRC-32 of every file of an image, summed by all processors at once.
//!
//! ```text
//! cargo run --release --example parallel_checksum -- disk.img
//! ```

#![forbid(unsafe_code)]

use std::sync::Mutex;
use std::thread;

use userbtrfs::{Error, FileKind, Filesystem, Inode, Quoted, Walk, WalkEntry};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args().nth(1).ok_or("usage: parallel_checksum IMAGE")?;
    let filesystem = Filesystem::open(image)?;
    // The walk is an iterator; behind a mutex, it hands files to idle threads.
    let files = Mutex::new(filesystem.walk("/")?);
    let sums = Mutex::new(Vec::new());
    let workers = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        for _ in 0..workers {
            // All handles may be used from any thread.
            scope.spawn(|| {
                while let Some(entry) = next(&files) {
                    let sum = entry.and_then(|entry| Ok((entry.path, sum(&entry.inode)?)));
                    sums.lock().expect("no one panics with it").push(sum);
                }
            });
        }
    });
    let sums = sums.into_inner()?;
    let mut sums = sums.into_iter().collect::<Result<Vec<_>, _>>()?;
    sums.sort();
    for (path, sum) in sums {
        println!("{sum:08x}  {}", Quoted(&path));
    }
    Ok(())
}

/// The next regular file, or an error of the walk.
fn next(walk: &Mutex<Walk>) -> Option<Result<WalkEntry, Error>> {
    let mut walk = walk.lock().expect("no one panics with it");
    let is_wanted = |entry: &WalkEntry| entry.kind == FileKind::Regular;
    let found = walk.find(|entry| entry.as_ref().map_or(true, is_wanted))?;
    Some(found.map_err(Error::from))
}

/// The CRC-32 of a file; of a hole it needs no bytes, but this is simpler.
fn sum(file: &Inode) -> Result<u32, Error> {
    let bytes = file.open()?.read_all()?;
    let step = |crc: u32, byte: &u8| {
        let crc = crc ^ u32::from(*byte);
        (0..8).fold(crc, |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    };
    Ok(!bytes.iter().fold(u32::MAX, step))
}
