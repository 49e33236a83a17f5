//! Making small changes durable, by one job and by many: 64 KiB appends with fsync; the bytes that
//! reach the device for smaller appends; and the fsync of a directory after very many files were
//! made in it.
//!
//! 1. Each job writes its own file sequentially. The total number of fsyncs does not depend on the
//!    number of jobs, but each job makes a minimum. The measurement begins when all jobs have
//!    started and made one fsync, which is not counted: the start of threads is not measured.
//! 2. The image is preallocated, on the same disk for all. Data is durable on that disk: the
//!    library flushes the image file, and so does the kernel's loop device.
//! 3. The floor is one job that writes the same amount to a preallocated file, and flushes it as
//!    often.
//! 4. Linux mounts the library's result and must find each file with its full length.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{RwLock, mpsc};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use userbtrfs::{File, Filesystem, OpenOptions};
use userbtrfs_testkit::linux::Mount;

use crate::amplify;
use crate::args::FsyncArgs;
use crate::bench::{Bench, Destination};
use crate::case::{Step, take_turns};
use crate::content::Content;
use crate::durable::Durable;
use crate::fresh::Fresh;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::target::Target;

/// The size of an append, in bytes.
const PART: u64 = 64 << 10;
/// The minimum number of fsyncs of a job: with fewer, the first use of memory dominates.
const EACH_MIN: u64 = 16;
/// Signals are checked once in this number of files.
const CHECKED: u64 = 4096;
/// The space of a filesystem in addition to that of its files, in bytes.
const ROOM: u64 = 4 << 30;
const FILE_MODE: u32 = 0o644;
const DIR: &str = "dir";

/// Measures each number of jobs, and the directory.
pub(crate) fn run(bench: &Bench, args: &FsyncArgs, report: &mut Report) -> Result<()> {
    let scale = args.common.scale.get();
    let syncs = (args.syncs.get() / scale).max(1);
    let targets = bench.chosen(&[Target::Lib, Target::Btrfs])?;
    if targets.is_empty() {
        return Ok(());
    }
    for jobs in &args.jobs {
        let each = syncs.div_ceil(jobs.get()).max(EACH_MIN / scale);
        let case = Appends { jobs: jobs.get(), each };
        let with_floor = [&targets[..], &[Target::FloorWrite]].concat();
        let rows = take_turns(bench, "fsync", with_floor, |target| case.turn(bench, target))?;
        report.add(rows, false);
    }
    let appends = (args.appends.get() / scale).max(1);
    let rows = take_turns(bench, "4K append + fsync", targets.clone(), |target| {
        amplify::turn(bench, target, appends)
    })?;
    report.add(rows, false);
    let files = (args.files.get() / scale).max(1);
    let rows =
        take_turns(bench, "fsync directory", targets, |target| directory(bench, target, files))?;
    report.add(rows, false);
    Ok(())
}

/// Files that grow, with an fsync after each append.
struct Appends {
    jobs: u64,
    /// The number of fsyncs of each file.
    each: u64,
}

impl Appends {
    fn turn(&self, bench: &Bench, target: Target) -> Result<Vec<Step>> {
        let work = match target {
            Target::FloorWrite => self.floor(bench)?,
            Target::Btrfs => {
                let image = Fresh::preallocated(bench, ROOM + 2 * self.bytes())?;
                let mounted = Mounted::new(bench, &image)?;
                self.measure(bench, &mounted.files(self.jobs)?)?
            }
            _ => {
                let image = Fresh::preallocated(bench, ROOM + 2 * self.bytes())?;
                let filesystem = open(&image)?;
                let files = self.files_in(&filesystem)?;
                let work = self.measure(bench, &files)?;
                drop(files);
                // As after a crash: the files are only in the log tree.
                filesystem.abandon();
                self.check(bench, &image)?;
                work
            }
        };
        let amount =
            Amount { bytes: self.bytes(), items: self.each * self.jobs, ..Amount::default() };
        let case = format!("64K write + fsync, {} jobs", self.jobs);
        Ok(vec![Step { case, amount, sample: Sample::of_work(work), ..Step::default() }])
    }

    fn bytes(&self) -> u64 {
        self.jobs * self.each * PART
    }

    fn files_in(&self, filesystem: &Filesystem) -> Result<Vec<File>> {
        let root = filesystem.root();
        let make = |job: u64| Ok(root.create(job.to_string().as_bytes(), FILE_MODE)?.open()?);
        let files = (0..self.jobs).map(make).collect::<Result<_>>()?;
        filesystem.commit()?;
        Ok(files)
    }

    fn measure<F: Durable>(&self, bench: &Bench, files: &[F]) -> Result<Duration> {
        let mut bytes = Vec::new();
        Content::new(PART).fill(&mut bytes, usize::try_from(PART)?);
        bench.settle()?;
        let gate = RwLock::new(());
        let (tell, ready) = mpsc::channel();
        let turns: Vec<_> = thread::scope(|scope| {
            let bytes = &bytes;
            let gate = &gate;
            // Released also if a thread cannot be started, so that the others do not hang.
            let closed = gate.write();
            let start = |file| {
                let tell = tell.clone();
                scope.spawn(move || self.job(bench, file, bytes, &tell, gate))
            };
            let jobs: Vec<_> = files.iter().map(start).collect();
            // Without this sender `recv` fails, rather than hangs, if a job has panicked.
            drop(tell);
            for _ in &jobs {
                ready.recv()?;
            }
            drop(closed);
            let join = |job: ScopedJoinHandle<'_, _>| job.join().expect("no job panics");
            jobs.into_iter().map(join).collect::<Result<_>>()
        })?;
        let (starts, ends): (Vec<_>, Vec<_>) = turns.into_iter().unzip();
        let first = starts.into_iter().min().context("no job")?;
        let last = ends.into_iter().max().context("no job")?;
        Ok(last - first)
    }

    /// The body of a job; returns the times of its start and end.
    fn job(
        &self,
        bench: &Bench,
        file: &impl Durable,
        bytes: &[u8],
        is_ready: &mpsc::Sender<()>,
        gate: &RwLock<()>,
    ) -> Result<(Instant, Instant)> {
        let first = file.write_and_sync(bytes, 0);
        is_ready.send(())?;
        drop(gate.read());
        first?;
        let start = Instant::now();
        self.write_file(bench, file, bytes)?;
        Ok((start, Instant::now()))
    }

    fn write_file(&self, bench: &Bench, file: &impl Durable, bytes: &[u8]) -> Result<()> {
        for number in 1..=self.each {
            bench.interrupt().check()?;
            file.write_and_sync(bytes, number * PART)?;
        }
        Ok(())
    }

    fn floor(&self, bench: &Bench) -> Result<Duration> {
        let destination = Destination::new(bench)?;
        let file = fs::File::create(destination.join("floor"))?;
        fallocate(&file, FallocateFlags::empty(), 0, self.bytes())?;
        file.sync_all()?;
        let mut bytes = Vec::new();
        Content::new(PART).fill(&mut bytes, usize::try_from(PART)?);
        bench.settle()?;
        let (work, ()) = timed(|| {
            for number in 0..self.each * self.jobs {
                bench.interrupt().check()?;
                file.write_all_at(&bytes, number * PART)?;
                file.sync_data()?;
            }
            Ok(())
        })?;
        Ok(work)
    }

    /// Checks that Linux replays the log and finds all files.
    fn check(&self, bench: &Bench, image: &Fresh) -> Result<()> {
        let mount = bench.mount_with(image.path(), "noatime")?;
        for job in 0..self.jobs {
            let found = fs::metadata(mount.path().join(job.to_string()))?.len();
            ensure!(found == (1 + self.each) * PART, "{found} bytes in file {job}");
        }
        Ok(())
    }
}

fn open(image: &Fresh) -> Result<Filesystem> {
    image.format()?;
    Ok(OpenOptions::new().write(true).open(image.path())?)
}

/// Files on the kernel's mount.
struct Mounted(Mount);

impl Mounted {
    fn new(bench: &Bench, image: &Fresh) -> Result<Self> {
        image.format_by_progs(&[])?;
        Ok(Self(bench.mount_with(image.path(), "noatime")?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn commit(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(self.0.path())?)?)
    }

    fn files(&self, jobs: u64) -> Result<Vec<fs::File>> {
        let make = |job: u64| {
            fs::File::create_new(self.path(&job.to_string())).context("a file to be written")
        };
        let files = (0..jobs).map(make).collect::<Result<_>>()?;
        self.commit()?;
        Ok(files)
    }
}

/// Measures the fsync of a directory in which `files` empty files were just made.
fn directory(bench: &Bench, target: Target, files: u64) -> Result<Vec<Step>> {
    let image = Fresh::preallocated(bench, ROOM + files * PART / 8)?;
    let work = match target {
        Target::Btrfs => directory_on_mount(bench, &image, files)?,
        _ => directory_in_library(bench, &image, files)?,
    };
    let amount = Amount { items: files, ..Amount::default() };
    let case = format!("fsync of a directory, {files} creates before");
    Ok(vec![Step { case, amount, sample: Sample::of_work(work), ..Step::default() }])
}

fn directory_on_mount(bench: &Bench, image: &Fresh, files: u64) -> Result<Duration> {
    let mounted = Mounted::new(bench, image)?;
    let dir = mounted.path(DIR);
    fs::create_dir(&dir)?;
    mounted.commit()?;
    each(bench, files, |name| {
        fs::File::create_new(dir.join(name))?;
        Ok(())
    })?;
    let dir = fs::File::open(&dir)?;
    Ok(timed(|| Ok(dir.sync_all()?))?.0)
}

fn directory_in_library(bench: &Bench, image: &Fresh, files: u64) -> Result<Duration> {
    let filesystem = open(image)?;
    let dir = filesystem.root().create_dir(DIR.as_bytes(), 0o755)?;
    filesystem.commit()?;
    each(bench, files, |name| {
        dir.create(name.as_bytes(), FILE_MODE)?;
        Ok(())
    })?;
    let (work, ()) = timed(|| Ok(dir.sync_all()?))?;
    drop(dir);
    filesystem.abandon();
    let mount = bench.mount_with(image.path(), "noatime")?;
    let found = fs::read_dir(mount.path().join(DIR))?.count() as u64;
    ensure!(found == files, "{found} files in the directory");
    Ok(work)
}

fn each(bench: &Bench, files: u64, make: impl Fn(&str) -> Result<()>) -> Result<()> {
    for number in 0..files {
        if number.is_multiple_of(CHECKED) {
            bench.interrupt().check()?;
        }
        make(&format!("file-{number}"))?;
    }
    Ok(())
}
