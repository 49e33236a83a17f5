//! Reading one large file: from start to end, and 4 KiB here and there.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Result, ensure};
use userbtrfs::Filesystem;

use crate::args::{ReadArgs, Tree};
use crate::bench::Bench;
use crate::case::{Case, measure};
use crate::image::Image;
use crate::random::Random;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::target::Target;
use crate::workload::Workload;

/// How much is read at once from start to end, in bytes.
const STEP: usize = 1 << 20;
/// How much is read at once here and there, in bytes.
const BLOCK: u64 = 4096;
/// How often it is read here and there.
const READS: u64 = 20_000;

/// Measures both ways to read, for each compression asked for.
pub(crate) fn run(bench: &Bench, args: &ReadArgs, report: &mut Report) -> Result<()> {
    for compression in &args.compression {
        let scale = args.common.scale.get();
        let image = Image::ensure(bench, Workload::tree(Tree::Large, scale), *compression)?;
        let reads = (READS / scale).max(1);
        for order in [Order::Sequential, Order::Random { reads }] {
            measure(bench, &Read { image: &image, order }, report)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Order {
    Sequential,
    Random { reads: u64 },
}

struct Read<'a> {
    image: &'a Image,
    order: Order,
}

impl Case for Read<'_> {
    fn name(&self) -> String {
        let order = match self.order {
            Order::Sequential => "sequential",
            Order::Random { .. } => "random",
        };
        format!("read {order} {}", self.image.name())
    }

    fn image(&self) -> &Image {
        self.image
    }

    fn targets(&self) -> &'static [Target] {
        match self.order {
            Order::Sequential => &[Target::Lib, Target::Cli, Target::Btrfs],
            Order::Random { .. } => &[Target::Lib, Target::Btrfs],
        }
    }

    fn amount(&self) -> Amount {
        match self.order {
            Order::Sequential => Amount { bytes: self.size(), ..Amount::default() },
            Order::Random { reads } => {
                Amount { bytes: reads * BLOCK, items: reads, ..Amount::default() }
            }
        }
    }

    fn turn(&self, bench: &Bench, target: Target) -> Result<Sample> {
        bench.settle()?;
        if target == Target::Btrfs {
            let read = |mount: &Path| {
                let file = mount.join(Workload::LARGE_FILE.trim_start_matches('/'));
                timed(|| self.read_mounted(&file)).map(|(work, ())| work)
            };
            let (mount, work) = bench.mounted(self.image, read)?;
            return Ok(Sample { mount: Some(mount), ..Sample::of_work(work) });
        }
        let (work, ()) = timed(|| match target {
            Target::Cli => bench.call(
                bench.cli().arg("cat").args([self.image.path(), Workload::LARGE_FILE.as_ref()]),
            ),
            _ => self.read_in_process(),
        })?;
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

    fn read_in_process(&self) -> Result<()> {
        let filesystem = Filesystem::open(self.image.path())?;
        let file = filesystem.open_file(Workload::LARGE_FILE)?;
        let Order::Random { reads } = self.order else {
            let (mut reader, mut total) = (file.reader(), 0);
            while let Some(chunk) = reader.next_chunk()? {
                total += chunk.len();
            }
            ensure!(total == self.size(), "read {total} bytes");
            return Ok(());
        };
        self.each_place(reads, |block, offset| Ok(file.read_at(block, offset)?))
    }

    fn read_mounted(&self, file: &Path) -> Result<()> {
        let mut file = fs::File::open(file)?;
        let Order::Random { reads } = self.order else {
            let (mut buffer, mut total) = (vec![0; STEP], 0);
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    len => total += len as u64,
                }
            }
            ensure!(total == self.size(), "read {total} bytes");
            return Ok(());
        };
        self.each_place(reads, |block, offset| Ok(file.read_at(block, offset)?))
    }

    /// Reads blocks at places that are the same for every target.
    fn each_place(
        &self,
        reads: u64,
        mut read: impl FnMut(&mut [u8], u64) -> Result<usize>,
    ) -> Result<()> {
        let mut random = Random::new(reads);
        let mut block = vec![0; usize::try_from(BLOCK)?];
        let blocks = (self.size() / BLOCK).max(1);
        for _ in 0..reads {
            let read = read(&mut block, random.below(blocks) * BLOCK)?;
            ensure!(read > 0, "read nothing");
        }
        Ok(())
    }
}
