//! Compressed writing: one large file, and an image of a real tree.
//!
//! 1. The image is preallocated for the file. Each turn writes it in parts of 1 MiB, syncs, opens
//!    or mounts the image again, and reads the file with nothing cached.
//! 2. The data is in memory before the turn: text, programs, or random bytes.
//! 3. Linux compares all bytes of the file with what was written. The used bytes of the filesystem
//!    include its trees.

mod data;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use userbtrfs::{Filesystem, OpenOptions};

use crate::args::{CompressArgs, Data, Method, Part};
use crate::bench::Bench;
use crate::case::{Step, take_turns};
use crate::floor;
use crate::fresh::Fresh;
use crate::put;
use crate::read::Readable;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::target::Target;
use data::{PART, Pool};

/// The space of a filesystem in addition to that of the file, in bytes.
const ROOM: u64 = 1 << 30;
const NAME: &str = "file";

/// Measures the requested parts.
pub(crate) fn run(bench: &Bench, args: &CompressArgs, report: &mut Report) -> Result<()> {
    if args.parts.contains(&Part::File) {
        files(bench, args, report)?;
    }
    if args.parts.contains(&Part::Tree) {
        put::compressed(bench, &args.tree, args.tree_compress, report)?;
    }
    Ok(())
}

fn files(bench: &Bench, args: &CompressArgs, report: &mut Report) -> Result<()> {
    let mut targets = bench.chosen(&[Target::Lib, Target::Btrfs])?;
    if targets.is_empty() {
        return Ok(());
    }
    targets.push(Target::FloorWrite);
    let parts = (args.mebibytes.get() / args.common.scale.get()).max(1);
    for data in &args.data {
        let pool = Pool::new(*data, parts)?;
        for method in &args.compress {
            let case = Compressed { data: *data, method: *method, parts, pool: &pool };
            let title = case.name();
            let rows = take_turns(bench, &title, targets.clone(), |it| case.turn(bench, it))?;
            report.add(rows, bench.compares_durable());
        }
    }
    Ok(())
}

/// A file that is written with one compression.
struct Compressed<'a> {
    data: Data,
    method: Method,
    /// The size of the file, in parts.
    parts: u64,
    pool: &'a Pool,
}

/// The times of a turn.
struct Times {
    /// The time of all writes, and that of the sync.
    write: Sample,
    /// The time to read all.
    read: Duration,
}

impl Compressed<'_> {
    fn name(&self) -> String {
        format!("{} {} {}M", self.data.name(), self.method, self.size() >> 20)
    }

    /// Returns the size of the file in bytes.
    fn size(&self) -> u64 {
        self.parts * PART as u64
    }

    fn turn(&self, bench: &Bench, target: Target) -> Result<Vec<Step>> {
        if target == Target::FloorWrite {
            return Ok(self.written(floor::write(bench, self.size())?));
        }
        let image = Fresh::preallocated(bench, ROOM + self.size() / 4 * 5)?;
        let Times { write, read } = match target {
            Target::Btrfs => self.on_mount(bench, &image)?,
            _ => self.in_library(bench, &image)?,
        };
        let stored = Some(self.check(bench, &image)?);
        let mut steps = self.written(Sample { stored, ..write });
        let amount = Amount { writes: false, ..self.amount() };
        let sample = Sample::of_work(read);
        let case = format!("compress, read back {}", self.name());
        steps.push(Step { case, amount, sample, ..Step::default() });
        Ok(steps)
    }

    fn amount(&self) -> Amount {
        Amount { bytes: self.size(), writes: true, ..Amount::default() }
    }

    /// Returns the rows of the writes: without the sync, and with it.
    fn written(&self, sample: Sample) -> Vec<Step> {
        let name = self.name();
        let durable = sample.work + sample.sync.unwrap_or_default();
        let step = |case, sample| Step { case, amount: self.amount(), sample, ..Step::default() };
        vec![
            step(format!("compress, write {name}"), sample),
            step(
                format!("compress, write+sync {name}"),
                Sample { work: durable, sync: None, ..sample },
            ),
        ]
    }

    fn in_library(&self, bench: &Bench, image: &Fresh) -> Result<Times> {
        image.format()?;
        let mut options = OpenOptions::new();
        options.write(true).compress(self.method.option());
        let filesystem = options.open(image.path())?;
        let file = filesystem.root().create(NAME.as_bytes(), 0o644)?.open()?;
        filesystem.commit()?;
        bench.settle()?;
        let (work, ()) = timed(|| self.write(bench, |part, at| Ok(file.write_all_at(part, at)?)))?;
        let (sync, ()) = timed(|| Ok(filesystem.commit()?))?;
        file.close()?;
        filesystem.close()?;
        let filesystem = Filesystem::open(image.path())?;
        let read = self.read(bench, &filesystem.open_file(format!("/{NAME}"))?)?;
        Ok(Times { write: Sample { sync: Some(sync), ..Sample::of_work(work) }, read })
    }

    fn on_mount(&self, bench: &Bench, image: &Fresh) -> Result<Times> {
        image.format_by_progs(&[])?;
        let mount = bench.mount_with(image.path(), &self.method.mount_options())?;
        let file = fs::File::create_new(mount.path().join(NAME))?;
        rustix::fs::syncfs(&file)?;
        bench.settle()?;
        let (work, ()) = timed(|| self.write(bench, |part, at| Ok(file.write_all_at(part, at)?)))?;
        let (sync, ()) = timed(|| Ok(rustix::fs::syncfs(&file)?))?;
        drop(file);
        drop(mount);
        let mount = bench.mount(image.path())?;
        let read = self.read(bench, &fs::File::open(mount.path().join(NAME))?)?;
        Ok(Times { write: Sample { sync: Some(sync), ..Sample::of_work(work) }, read })
    }

    fn write(&self, bench: &Bench, write: impl Fn(&[u8], u64) -> Result<()>) -> Result<()> {
        for number in 0..self.parts {
            bench.interrupt().check()?;
            write(self.pool.part(number), number * PART as u64)?;
        }
        Ok(())
    }

    fn read(&self, bench: &Bench, file: &dyn Readable) -> Result<Duration> {
        bench.settle()?;
        let (time, total) = timed(|| file.read_all())?;
        ensure!(total == self.size(), "read {total} bytes");
        Ok(time)
    }

    /// Compares the file with what was written, by Linux; returns the used bytes of the filesystem.
    fn check(&self, bench: &Bench, image: &Fresh) -> Result<u64> {
        let mount = bench.mount(image.path())?;
        let mut file = fs::File::open(mount.path().join(NAME))?;
        let size = file.metadata()?.len();
        ensure!(size == self.size(), "{size} bytes in place of {}", self.size());
        let mut found = vec![0; PART];
        for number in 0..self.parts {
            file.read_exact(&mut found)?;
            ensure!(found == self.pool.part(number), "other bytes in part {number}");
        }
        drop(file);
        drop(mount);
        put::used_bytes(image)
    }
}
