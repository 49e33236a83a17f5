//! Reading one large file: sequentially; and 4 KiB at random offsets, by one thread, by many at
//! once, and from the cache.
//!
//! 1. For cached reads the data was read completely just before: by the library into its own cache,
//!    by the kernel into the page cache. Opening and filling are not timed there; in other cases
//!    opening an image is, and caches are empty.
//! 2. For *lent* data all bytes are also added up. The library lends them without a copy; read(2)
//!    copies them first; with a mapped file there is no system call, no copy and no check.
//! 3. n reads in flight are n threads with one read each, on both sides.

use std::fs;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use userbtrfs::{File, Filesystem};
use userbtrfs_testkit::random::Random;

use crate::args::{ReadArgs, Tree};
use crate::bench::Bench;
use crate::case::{Case, measure};
use crate::image::Image;
use crate::mapping::Mapping;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::target::Target;
use crate::workload::Workload;

/// The size of a sequential read, in bytes.
pub(crate) const STEP: u64 = 1 << 20;
/// The size of a random read, in bytes.
const BLOCK: u64 = 4096;
/// The number of random reads: by one thread, by many, and from the cache.
const READS: u64 = 20_000;
const READS_AT_DEPTH: u64 = 50_000;
const READS_CACHED: u64 = 1_000_000;
/// The number of reads in flight by many threads.
const DEPTH: u64 = 32;

/// Measures all ways to read, for each requested compression.
pub(crate) fn run(bench: &Bench, args: &ReadArgs, report: &mut Report) -> Result<()> {
    let scale = args.common.scale.get();
    let scaled = |reads: u64| (reads / scale).max(1);
    let cached = |mebibytes: &NonZeroU64| {
        let reads = scaled(READS_CACHED);
        let mebibytes = mebibytes.get();
        [false, true].map(|lent| Order::Cached { reads, mebibytes, lent })
    };
    let uncached = [
        Order::Sequential,
        Order::Random { reads: scaled(READS), depth: 1 },
        Order::Random { reads: scaled(READS_AT_DEPTH), depth: DEPTH },
    ];
    for compression in &args.compression {
        let image = Image::ensure(bench, Workload::tree(Tree::Large, scale), *compression)?;
        for order in uncached.into_iter().chain(args.cached.iter().flat_map(cached)) {
            measure(bench, &Read { image: &image, order }, report)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Order {
    Sequential,
    Random { reads: u64, depth: u64 },
    Cached { reads: u64, mebibytes: u64, lent: bool },
}

struct Read<'a> {
    image: &'a Image,
    order: Order,
}

/// A file that is read.
pub(crate) trait Readable: Sync {
    /// Reads at an offset; returns the number of bytes.
    fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize>;

    /// Adds up the bytes at an offset, 8 at a time, as many as fit into `room`.
    fn sum_at(&self, room: &mut [u8], offset: u64) -> Result<u64> {
        let len = self.read_at(room, offset)?;
        Ok(sum(&room[..len]))
    }

    /// Reads the whole file; returns the number of bytes.
    fn read_all(&self) -> Result<u64> {
        read_up_to(self, u64::MAX)
    }
}

impl Readable for File {
    fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize> {
        Ok(Self::read_at(self, target, offset)?)
    }

    fn sum_at(&self, room: &mut [u8], offset: u64) -> Result<u64> {
        let mut total = 0_u64;
        let mut done = 0;
        while done < room.len()
            && let Some(lent) = self.slice(offset + done as u64)?
        {
            let len = lent.len().min(room.len() - done);
            total = total.wrapping_add(sum(&lent[..len]));
            done += len;
        }
        Ok(total)
    }

    fn read_all(&self) -> Result<u64> {
        let mut reader = self.reader();
        let mut total = 0;
        while let Some(chunk) = reader.next_chunk()? {
            total += chunk.len();
        }
        Ok(total)
    }
}

impl Readable for fs::File {
    fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize> {
        Ok(std::os::unix::fs::FileExt::read_at(self, target, offset)?)
    }
}

impl Readable for Mapping {
    fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize> {
        let bytes = self.part(offset, target.len());
        target[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn sum_at(&self, room: &mut [u8], offset: u64) -> Result<u64> {
        Ok(sum(self.part(offset, room.len())))
    }
}

/// Adds up bytes, 8 at a time.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
    words.fold(0, u64::wrapping_add)
}

/// Reads a file from its start up to an offset; returns the number of bytes.
fn read_up_to<F: Readable + ?Sized>(file: &F, end: u64) -> Result<u64> {
    let mut buffer = vec![0; usize::try_from(STEP)?];
    let mut total = 0;
    while total < end {
        match file.read_at(&mut buffer, total)? {
            0 => break,
            len => total += len as u64,
        }
    }
    Ok(total)
}

impl Case for Read<'_> {
    fn name(&self) -> String {
        let order = match self.order {
            Order::Sequential => "sequential".to_owned(),
            Order::Random { depth: 1, .. } => "random".to_owned(),
            Order::Random { depth, .. } => format!("random x{depth}"),
            Order::Cached { mebibytes, lent: false, .. } => format!("random cached {mebibytes}M"),
            Order::Cached { mebibytes, .. } => format!("random cached {mebibytes}M, lent,"),
        };
        format!("read {order} {}", self.image.name())
    }

    fn image(&self) -> &Image {
        self.image
    }

    fn targets(&self) -> &'static [Target] {
        match self.order {
            Order::Sequential => &[Target::Lib, Target::Cli, Target::Btrfs],
            Order::Cached { lent: true, .. } => &[Target::Lib, Target::Btrfs, Target::Mmap],
            Order::Random { .. } | Order::Cached { .. } => &[Target::Lib, Target::Btrfs],
        }
    }

    fn amount(&self) -> Amount {
        match self.order {
            Order::Sequential => Amount { bytes: self.size(), ..Amount::default() },
            Order::Random { reads, .. } | Order::Cached { reads, .. } => {
                Amount { bytes: reads * BLOCK, items: reads, ..Amount::default() }
            }
        }
    }

    fn turn(&self, bench: &Bench, target: Target) -> Result<Sample> {
        bench.settle()?;
        let work = match target {
            Target::Btrfs | Target::Mmap => {
                let read = |mount: &Path| {
                    let path = mount.join(Workload::LARGE_FILE.trim_start_matches('/'));
                    match target {
                        Target::Mmap => self.read(|| Mapping::new(&fs::File::open(path)?)),
                        _ => self.read(|| Ok(fs::File::open(path)?)),
                    }
                };
                let (mount, work) = bench.mounted(self.image.path(), read)?;
                return Ok(Sample { mount: Some(mount), ..Sample::of_work(work) });
            }
            Target::Cli => self.print(bench)?,
            _ => self.read(|| {
                let filesystem = Filesystem::open(self.image.path())?;
                Ok(filesystem.open_file(Workload::LARGE_FILE)?)
            })?,
        };
        bench.interrupt().check()?;
        Ok(Sample::of_work(work))
    }
}

impl Read<'_> {
    /// Returns the size of the file in bytes; all files have the same.
    fn size(&self) -> u64 {
        let tally = self.image.contents().tally;
        tally.bytes / tally.files
    }

    /// Has the command print the file; returns the time that took.
    fn print(&self, bench: &Bench) -> Result<Duration> {
        let mut cat = bench.cli();
        cat.arg("cat").args([self.image.path(), Workload::LARGE_FILE.as_ref()]);
        timed(|| bench.call(&mut cat)).map(|(work, ())| work)
    }

    /// Opens the file and reads; returns the time of the measured part.
    fn read<F: Readable>(&self, open: impl FnOnce() -> Result<F>) -> Result<Duration> {
        let size = self.size();
        let blocks = self.size().div_ceil(BLOCK);
        let (work, ()) = match self.order {
            Order::Sequential => timed(|| {
                let total = open()?.read_all()?;
                ensure!(total == size, "read {total} bytes");
                Ok(())
            })?,
            Order::Random { reads, depth } => timed(|| at_depth(&open()?, reads, depth, blocks))?,
            Order::Cached { reads, mebibytes, lent } => {
                let file = open()?;
                let blocks = read_up_to(&file, (mebibytes << 20).min(size))?.div_ceil(BLOCK);
                timed(|| {
                    if lent {
                        looked_at(&file, reads, blocks)
                    } else {
                        here_and_there(&file, reads, reads, blocks)
                    }
                })?
            }
        };
        Ok(work)
    }
}

/// Reads `reads` random blocks among the first `blocks` of a file, by `depth` threads.
fn at_depth<F: Readable>(file: &F, reads: u64, depth: u64, blocks: u64) -> Result<()> {
    thread::scope(|scope| {
        let part = |number| reads * (number + 1) / depth - reads * number / depth;
        let start =
            |number| scope.spawn(move || here_and_there(file, number, part(number), blocks));
        let threads: Vec<_> = (0..depth).map(start).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("reading does not panic"))
    })
}

/// Reads `reads` blocks among the first `blocks` of a file, at offsets that the seed determines.
fn here_and_there<F>(file: &F, seed: u64, reads: u64, blocks: u64) -> Result<()>
where
    F: Readable,
{
    let mut random = Random::new(seed);
    let mut block = vec![0; usize::try_from(BLOCK)?];
    for _ in 0..reads {
        let read = file.read_at(&mut block, random.below(blocks) * BLOCK)?;
        ensure!(read > 0, "read nothing");
    }
    Ok(())
}

/// Adds up `reads` random blocks among the first `blocks` of a file.
fn looked_at<F: Readable>(file: &F, reads: u64, blocks: u64) -> Result<()> {
    let mut random = Random::new(reads);
    let mut total = 0_u64;
    let mut block = vec![0; usize::try_from(BLOCK)?];
    for _ in 0..reads {
        let sum = file.sum_at(&mut block, random.below(blocks) * BLOCK)?;
        total = total.wrapping_add(sum);
    }
    black_box(total);
    Ok(())
}
