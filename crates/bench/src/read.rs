//! Reading one large file: from start to end; and 4 KiB here and there, by one thread, by many at
//! once, and from memory.
//!
//! 1. What is read from memory was read just before, whole: by the library into its own cache, by
//!    the kernel into the page cache. Opening and filling are not timed there; elsewhere opening an
//!    image is, and caches are empty.
//! 2. What is *lent* is not only brought but looked at: all its bytes are added up. The library
//!    lends them without a copy; a call of the kernel copies them first; where the kernel's file is
//!    mapped nothing is called or copied, and nothing checked.
//! 3. Many reads in flight are as many threads with one read each, on both sides.

use std::fs;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use userbtrfs::{File, Filesystem};

use crate::args::{ReadArgs, Tree};
use crate::bench::Bench;
use crate::case::{Case, measure};
use crate::image::Image;
use crate::mapping::Mapping;
use crate::random::Random;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::target::Target;
use crate::workload::Workload;

/// How much is read at once from start to end, in bytes.
pub(crate) const STEP: u64 = 1 << 20;
/// How much is read at once here and there, in bytes.
const BLOCK: u64 = 4096;
/// How often it is read here and there: by one, by many, and from memory.
const READS: u64 = 20_000;
const READS_AT_DEPTH: u64 = 50_000;
const READS_CACHED: u64 = 1_000_000;
/// How many are in flight at once where many are.
const DEPTH: u64 = 32;

/// Measures all ways to read, for each compression asked for.
pub(crate) fn run(bench: &Bench, args: &ReadArgs, report: &mut Report) -> Result<()> {
    let scale = args.common.scale.get();
    let scaled = |reads: u64| (reads / scale).max(1);
    let cached = |mebibytes: &NonZeroU64| {
        let (reads, mebibytes) = (scaled(READS_CACHED), mebibytes.get());
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
    /// Reads at an offset; gives how many bytes.
    fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize>;

    /// Adds up the bytes from an offset on, as many as there is room for: 8 at a time.
    fn sum_at(&self, room: &mut [u8], offset: u64) -> Result<u64> {
        let len = self.read_at(room, offset)?;
        Ok(sum(&room[..len]))
    }

    /// Reads from start to end; gives how many bytes.
    fn read_all(&self) -> Result<u64> {
        read_up_to(self, u64::MAX)
    }
}

impl Readable for File {
    fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize> {
        Ok(Self::read_at(self, target, offset)?)
    }

    fn sum_at(&self, room: &mut [u8], offset: u64) -> Result<u64> {
        let (mut total, mut done) = (0_u64, 0);
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
        let (mut reader, mut total) = (self.reader(), 0);
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

/// The sum of bytes, 8 at a time.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
    words.fold(0, u64::wrapping_add)
}

/// Reads a file from its start up to an offset; gives how many bytes.
fn read_up_to<F: Readable + ?Sized>(file: &F, end: u64) -> Result<u64> {
    let (mut buffer, mut total) = (vec![0; usize::try_from(STEP)?], 0);
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
                let (mount, work) = bench.mounted(self.image, read)?;
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
    /// The size of the file, in bytes; all have the same.
    fn size(&self) -> u64 {
        let tally = self.image.contents().tally;
        tally.bytes / tally.files
    }

    /// Lets the command print the file.
    fn print(&self, bench: &Bench) -> Result<Duration> {
        let mut cat = bench.cli();
        cat.arg("cat").args([self.image.path(), Workload::LARGE_FILE.as_ref()]);
        timed(|| bench.call(&mut cat)).map(|(work, ())| work)
    }

    /// Opens the file and reads; gives how long what is measured of it took.
    fn read<F: Readable>(&self, open: impl FnOnce() -> Result<F>) -> Result<Duration> {
        let (size, blocks) = (self.size(), self.size().div_ceil(BLOCK));
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
                timed(|| match lent {
                    true => looked_at(&file, reads, blocks),
                    false => here_and_there(&file, reads, reads, blocks),
                })?
            }
        };
        Ok(work)
    }
}

/// Reads so many blocks among the first ones of a file, so many at a time.
fn at_depth<F: Readable>(file: &F, reads: u64, depth: u64, blocks: u64) -> Result<()> {
    thread::scope(|scope| {
        let part = |number| reads * (number + 1) / depth - reads * number / depth;
        let start =
            |number| scope.spawn(move || here_and_there(file, number, part(number), blocks));
        let threads: Vec<_> = (0..depth).map(start).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("reading does not panic"))
    })
}

/// Reads so many blocks among the first ones of a file, at places that a seed decides.
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

/// Adds up as many blocks among the first ones of a file.
fn looked_at<F: Readable>(file: &F, reads: u64, blocks: u64) -> Result<()> {
    let (mut random, mut total) = (Random::new(reads), 0_u64);
    let mut block = vec![0; usize::try_from(BLOCK)?];
    for _ in 0..reads {
        let sum = file.sum_at(&mut block, random.below(blocks) * BLOCK)?;
        total = total.wrapping_add(sum);
    }
    black_box(total);
    Ok(())
}
