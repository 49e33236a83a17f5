//! Random reads and writes past the kernel's cache, mixed with cached ones and compared with the
//! expected content in memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use userbtrfs_testkit::random::Random;

use crate::support::both;

/// The alignment of offsets, lengths and memory for I/O past the cache.
const BLOCK: u64 = 4096;
/// The most blocks of the file.
const FILE_BLOCKS: u64 = 256;
/// The most blocks that are read or written at once.
const RANGE_BLOCKS: u64 = 40;

/// A file, open for direct and for cached I/O, with its expected content.
struct Opened {
    random: Random,
    direct: File,
    cached: File,
    content: Vec<u8>,
}

/// Reads and writes in a new file for this time.
///
/// # Panics
///
/// Panics if a read returns something that was not written.
pub(crate) fn reads_what_it_writes(path: &Path, seed: u64, time: Duration) {
    let end = Instant::now() + time;
    let mut file = Opened::create(path, seed).unwrap();
    let mut steps = 0;
    while Instant::now() < end {
        file.step().unwrap_or_else(|error| panic!("seed {seed}, step {steps}: {error}"));
        steps += 1;
    }
    file.compare_all().unwrap();
    println!("direct, seed {seed}: {steps} steps");
}

impl Opened {
    fn create(path: &Path, seed: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let cached = options.clone().create_new(true).open(path)?;
        let direct = options.custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)?;
        Ok(Self { random: Random::new(seed), direct, cached, content: Vec::new() })
    }

    fn step(&mut self) -> io::Result<()> {
        match self.random.below(32) {
            0..10 => self.write_direct(),
            10..20 => {
                let (start, length) = self.blocks();
                self.read(start, length, true)
            }
            20..24 => self.write_cached(),
            24..28 => {
                let (start, length) = self.range();
                self.read(start, length, false)
            }
            28 => {
                let length = self.range().0;
                self.cached.set_len(length)?;
                self.content.resize(index(length), 0);
                Ok(())
            }
            29 => self.punch(),
            30 => self.direct.sync_data(),
            _ => self.compare_all(),
        }
    }

    /// Returns the start and the length of whole blocks.
    fn blocks(&mut self) -> (u64, u64) {
        let start = self.random.below(FILE_BLOCKS);
        let length = 1 + self.random.below(RANGE_BLOCKS.min(FILE_BLOCKS - start));
        (start * BLOCK, length * BLOCK)
    }

    /// Returns the start and the length of any bytes.
    fn range(&mut self) -> (u64, u64) {
        let (start, length) = self.blocks();
        let cut = self.random.below(BLOCK);
        (start + cut, (length - cut).min(1 + self.random.below(length)))
    }

    fn write_direct(&mut self) -> io::Result<()> {
        let (start, length) = self.blocks();
        let bytes = self.random.bytes(length);
        let mut memory = Memory::new(length);
        memory.bytes().copy_from_slice(&bytes);
        self.direct.write_all_at(memory.bytes(), start)?;
        self.written(start, &bytes);
        Ok(())
    }

    fn write_cached(&mut self) -> io::Result<()> {
        let (start, length) = self.range();
        let bytes = self.random.bytes(length);
        self.cached.write_all_at(&bytes, start)?;
        self.written(start, &bytes);
        Ok(())
    }

    fn written(&mut self, start: u64, bytes: &[u8]) {
        let end = index(start) + bytes.len();
        if end > self.content.len() {
            self.content.resize(end, 0);
        }
        self.content[index(start)..end].copy_from_slice(bytes);
    }

    fn punch(&mut self) -> io::Result<()> {
        let (start, length) = self.range();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.cached, flags, start, length)?;
        let end = self.content.len().min(index(start + length));
        if let Some(hole) = self.content.get_mut(index(start)..end) {
            hole.fill(0);
        }
        Ok(())
    }

    /// Reads and compares; past the end there must be nothing.
    fn read(&self, start: u64, length: u64, is_direct: bool) -> io::Result<()> {
        let mut memory = Memory::new(length);
        let file = if is_direct { &self.direct } else { &self.cached };
        let read = file.read_at(memory.bytes(), start)?;
        let end = self.content.len().min(index(start + length));
        let there = self.content.get(index(start)..end).unwrap_or_default();
        let differs =
            memory.bytes()[..read].iter().zip(there).position(|(read, there)| read != there);
        if read == there.len() && differs.is_none() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "read of {length} bytes at {start}, direct: {is_direct}: {read} of {} bytes, the first \
             that differs is {differs:?}",
            there.len()
        )))
    }

    /// Reads and compares the whole file in both ways.
    fn compare_all(&mut self) -> io::Result<()> {
        let length = (FILE_BLOCKS + 1) * BLOCK;
        self.read(0, length, false)?;
        self.read(0, length, true)
    }
}

/// Memory that is aligned to a block.
struct Memory {
    bytes: Vec<u8>,
    length: usize,
}

impl Memory {
    fn new(length: u64) -> Self {
        Self { bytes: vec![0xa5; index(length + BLOCK)], length: index(length) }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let start = self.bytes.as_ptr().align_offset(index(BLOCK));
        &mut self.bytes[start..][..self.length]
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

#[test]
fn direct_and_cached_writes_are_read_back() {
    both(|root| reads_what_it_writes(&root.join("file"), 1, Duration::from_secs(2)));
}
