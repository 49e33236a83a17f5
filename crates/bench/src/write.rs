//! Writing one large file: sequentially, reading it back, and then writing 4 KiB at random offsets.
//!
//! 1. The image is preallocated, so that no target pays for holes; each turn has a new, empty
//!    filesystem.
//! 2. Each step is measured up to the last write, and up to the following sync. The targets may
//!    keep different amounts of dirty data (the library has a limit, the kernel may use all of the
//!    memory), so the times with the sync are comparable.
//! 3. Each block begins with the number of its write. Some are read back by Linux.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context, Result, ensure};
use userbtrfs::{File, Filesystem, OpenOptions};
use userbtrfs_testkit::linux::Mount;
use userbtrfs_testkit::random::Random;

use crate::args::WriteArgs;
use crate::bench::Bench;
use crate::case::{Step, take_turns};
use crate::content::Content;
use crate::floor;
use crate::fresh::Fresh;
use crate::memory;
use crate::read::Readable;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::target::Target;

/// The size in bytes of a sequential write, and of a random one.
const PART: u64 = 1 << 20;
const BLOCK: u64 = 4 << 10;
/// Signals are checked once in this number of blocks.
const CHECKED: u64 = 1024;
/// The number of blocks that are read back.
const READ_BACK: usize = 1000;
/// The space of a filesystem in addition to that of the file, in bytes.
const ROOM: u64 = 2 << 30;
const NAME: &str = "file";

/// Measures both ways to write.
pub(crate) fn run(bench: &Bench, args: &WriteArgs, report: &mut Report) -> Result<()> {
    let mut targets = bench.chosen(&[Target::Lib, Target::Btrfs])?;
    if targets.is_empty() {
        return Ok(());
    }
    targets.push(Target::FloorWrite);
    let scale = args.common.scale.get();
    let parts = (args.mebibytes.get() / scale).max(1);
    let blocks = (args.blocks.get() / scale).max(1);
    let write = Write { parts, blocks, memory: args.memory.get() << 20 };
    let rows = take_turns(bench, "write", targets, |target| write.turn(bench, target))?;
    report.add(rows, bench.compares_durable());
    Ok(())
}

struct Write {
    /// The number of sequential writes.
    parts: u64,
    /// The number of random writes.
    blocks: u64,
    /// The library's memory limit, in bytes.
    memory: u64,
}

/// A file that is written and read back.
trait Written {
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Makes all written data durable.
    fn sync(&self) -> Result<()>;

    /// Returns the file for reading.
    fn readable(&self) -> &dyn Readable;
}

/// A step of a turn.
#[derive(Clone, Copy)]
enum Doing {
    Write,
    Read,
    WriteAtRandom,
}

impl Write {
    fn turn(&self, bench: &Bench, target: Target) -> Result<Vec<Step>> {
        if target == Target::FloorWrite {
            let sample = floor::write(bench, self.size())?;
            return Ok(self.steps(Doing::Write, sample));
        }
        let image = Fresh::preallocated(bench, ROOM + self.size() / 4 * 5)?;
        let steps = match target {
            Target::Btrfs => self.write(bench, &OnMount::new(bench, &image)?)?,
            _ => self.write_in_process(bench, &image)?,
        };
        self.check(bench, &image)?;
        Ok(steps)
    }

    fn write_in_process(&self, bench: &Bench, image: &Fresh) -> Result<Vec<Step>> {
        let library = InLibrary::new(image, self.memory)?;
        memory::reset_peak()?;
        let mut steps = self.write(bench, &library)?;
        let peak = memory::peak()?;
        library.close()?;
        for step in &mut steps {
            step.sample.peak = Some(peak);
        }
        Ok(steps)
    }

    fn write(&self, bench: &Bench, file: &dyn Written) -> Result<Vec<Step>> {
        bench.settle()?;
        let mut steps = Vec::new();
        let in_sequence = synced(file, || self.write_in_sequence(bench, file))?;
        steps.extend(self.steps(Doing::Write, in_sequence));
        bench.settle()?;
        let (read, total) = timed(|| file.readable().read_all())?;
        ensure!(total == self.size(), "read {total} bytes");
        steps.extend(self.steps(Doing::Read, Sample::of_work(read)));
        bench.settle()?;
        let at_random = synced(file, || self.write_at_random(bench, file))?;
        steps.extend(self.steps(Doing::WriteAtRandom, at_random));
        Ok(steps)
    }

    fn write_in_sequence(&self, bench: &Bench, file: &dyn Written) -> Result<()> {
        let mut bytes = content(PART)?;
        for number in 0..self.parts {
            bench.interrupt().check()?;
            stamp(&mut bytes, number);
            file.write(&bytes, number * PART)?;
        }
        Ok(())
    }

    fn write_at_random(&self, bench: &Bench, file: &dyn Written) -> Result<()> {
        let mut bytes = content(BLOCK)?;
        for (number, offset) in self.places().enumerate() {
            let number = number as u64;
            if number.is_multiple_of(CHECKED) {
                bench.interrupt().check()?;
            }
            stamp(&mut bytes, number);
            file.write(&bytes, offset)?;
        }
        Ok(())
    }

    /// Returns the offsets of random writes: the same for every target.
    fn places(&self) -> impl Iterator<Item = u64> {
        let mut random = Random::new(self.blocks);
        let blocks = self.size() / BLOCK;
        (0..self.blocks).map(move |_| random.below(blocks) * BLOCK)
    }

    /// Returns the size of the file in bytes.
    fn size(&self) -> u64 {
        self.parts * PART
    }

    /// Returns the steps, one or two rows, that one sample belongs to.
    fn steps(&self, doing: Doing, sample: Sample) -> Vec<Step> {
        let whole = Amount { bytes: self.size(), writes: true, ..Amount::default() };
        let (name, amount) = match doing {
            Doing::Write => ("write sequential", whole),
            Doing::Read => ("write, read back", Amount { writes: false, ..whole }),
            Doing::WriteAtRandom => {
                let bytes = self.blocks * BLOCK;
                let items = self.blocks;
                ("write random 4K", Amount { bytes, items, writes: true })
            }
        };
        let step = |what, sample| {
            let case = format!("{name}{what} {}M", self.size() >> 20);
            Step { case, amount, sample, ..Step::default() }
        };
        let durable = sample
            .sync
            .map(|sync| step("+sync", Sample { work: sample.work + sync, sync: None, ..sample }));
        [step("", sample)].into_iter().chain(durable).collect()
    }

    /// Checks some blocks by reading them with Linux.
    fn check(&self, bench: &Bench, image: &Fresh) -> Result<()> {
        let mount = bench.mount_with(image.path(), "ro,noatime")?;
        let file = fs::File::open(mount.path().join(NAME))?;
        let size = file.metadata()?.len();
        ensure!(size == self.size(), "{size} bytes in place of {}", self.size());
        let in_sequence = (0..self.parts).map(|number| (number * PART, number));
        let at_random = self.places().zip(0..);
        // The last write of a block counts.
        let expected: BTreeMap<u64, u64> = in_sequence.chain(at_random).collect();
        let every = (expected.len() / READ_BACK).max(1);
        for (offset, number) in expected.iter().step_by(every) {
            let mut found = [0; 8];
            file.read_exact_at(&mut found, *offset)?;
            let found = u64::from_le_bytes(found);
            ensure!(found == *number, "write {found} at {offset} in place of {number}");
        }
        Ok(())
    }
}

/// Runs `act` and syncs; returns both times.
fn synced(file: &dyn Written, act: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let (work, ()) = timed(act)?;
    let (sync, ()) = timed(|| file.sync())?;
    Ok(Sample { sync: Some(sync), ..Sample::of_work(work) })
}

fn content(len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Content::new(len).fill(&mut bytes, usize::try_from(len)?);
    Ok(bytes)
}

/// Makes the bytes of one write differ from those of all others.
fn stamp(bytes: &mut [u8], number: u64) {
    bytes[..8].copy_from_slice(&number.to_le_bytes());
}

/// A file in the library.
struct InLibrary {
    file: File,
    filesystem: Filesystem,
}

impl InLibrary {
    fn new(image: &Fresh, memory: u64) -> Result<Self> {
        image.format()?;
        let filesystem = OpenOptions::new().write(true).memory(memory).open(image.path())?;
        let file = filesystem.root().create(NAME.as_bytes(), 0o644)?.open()?;
        filesystem.commit()?;
        Ok(Self { file, filesystem })
    }

    fn close(self) -> Result<()> {
        self.file.close()?;
        Ok(self.filesystem.close()?)
    }
}

impl Written for InLibrary {
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let written = self.file.write_at(bytes, offset)?;
        ensure!(written == bytes.len(), "no space at {offset}");
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.filesystem.commit()?)
    }

    fn readable(&self) -> &dyn Readable {
        &self.file
    }
}

/// A file on the kernel's mount.
struct OnMount {
    file: fs::File,
    /// Dropped last: unmounts after the file is closed.
    _mount: Mount,
}

impl OnMount {
    fn new(bench: &Bench, image: &Fresh) -> Result<Self> {
        image.format_by_progs(&[])?;
        let mount = bench.mount_with(image.path(), "noatime")?;
        let file = fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(mount.path().join(NAME))
            .context("the file to be written")?;
        rustix::fs::syncfs(&file)?;
        Ok(Self { file, _mount: mount })
    }
}

impl Written for OnMount {
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        Ok(self.file.write_all_at(bytes, offset)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(&self.file)?)
    }

    fn readable(&self) -> &dyn Readable {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_offsets_are_blocks_and_reproducible() {
        let write = Write { parts: 3, blocks: 500, memory: 0 };
        let places: Vec<u64> = write.places().collect();
        assert_eq!(places, write.places().collect::<Vec<_>>());
        assert_eq!(places.len(), 500);
        assert!(places.iter().all(|at| at.is_multiple_of(BLOCK) && *at < write.size()));
        assert!(places.iter().any(|at| *at != places[0]));
    }

    #[test]
    fn stamped_block_begins_with_its_number() {
        let mut bytes = content(BLOCK).unwrap();
        let before = bytes.clone();
        stamp(&mut bytes, 7);
        assert_eq!((&bytes[..8], &bytes[8..]), (&7_u64.to_le_bytes()[..], &before[8..]));
    }
}
