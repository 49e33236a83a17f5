//! Copying a tree of small files into a new filesystem.
//!
//! The tree is read once before each turn, so that all find it in the page cache: what is measured
//! is writing. Each target's work ends when its result is durable or unmounted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use userbtrfs::OpenOptions;
use userbtrfs::insert::{InsertOptions, Inserter, Progress};

use crate::args::PutArgs;
use crate::bench::{Bench, say};
use crate::case::{Step, take_turns};
use crate::floor;
use crate::fresh::Fresh;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::tally::Tally;
use crate::target::Target;
use crate::workload::Workload;

/// Where the command, which takes one tree into another, puts it.
const COPY: &str = "copy";

/// Measures one tree.
pub(crate) fn run(bench: &Bench, args: &PutArgs, report: &mut Report) -> Result<()> {
    let ours = [Target::Lib, Target::Cli];
    let mut targets = bench.chosen(&[&ours[..], &[Target::Btrfs, Target::Rootdir]].concat())?;
    if targets.is_empty() {
        return Ok(());
    }
    targets.push(Target::FloorWrite);
    let files = (args.files.get() / args.common.scale.get()).max(1);
    let put = Put::new(bench, Workload::Inline { files })?;
    let case = format!("put {}", put.workload.name());
    let rows = take_turns(bench, &case, targets, |target| {
        let (case, amount) = (case.clone(), put.amount());
        Ok([Step { case, series: None, amount, sample: put.turn(bench, target)? }])
    })?;
    report.add(rows, bench.compares_durable());
    Ok(())
}

/// A tree on this machine; removed with the value.
struct Put {
    workload: Workload,
    source: PathBuf,
    tally: Tally,
}

impl Put {
    fn new(bench: &Bench, workload: Workload) -> Result<Self> {
        let source = bench.folder().join("source");
        if source.exists() {
            fs::remove_dir_all(&source)?;
        }
        fs::create_dir(&source)?;
        let mut put = Self { workload, source, tally: Tally::default() };
        workload.fill(&put.source, bench.interrupt())?;
        put.tally = Tally::of(&put.source)?;
        Ok(put)
    }

    fn amount(&self) -> Amount {
        Amount { bytes: self.tally.bytes, items: self.tally.files, writes: true }
    }

    fn turn(&self, bench: &Bench, target: Target) -> Result<Sample> {
        if target == Target::FloorWrite {
            return floor::write(bench, self.tally.bytes);
        }
        let image = Fresh::new(bench, self.workload.room())?;
        bench.settle()?;
        read_all(&self.source)?;
        let mut mount = None;
        let work = match target {
            Target::Btrfs => {
                let (before, work) = self.copy_onto_mount(bench, &image)?;
                mount = Some(before);
                work
            }
            _ => timed(|| self.copy(bench, target, &image))?.0,
        };
        let sample = Sample { sync: Some(image.sync()?), mount, ..Sample::of_work(work) };
        self.check(bench, target, &image)?;
        Ok(sample)
    }

    fn copy(&self, bench: &Bench, target: Target, image: &Fresh) -> Result<()> {
        match target {
            Target::Cli => {
                bench.call(bench.cli().args(["mkfs", "--quiet"]).arg(image.path()))?;
                let mut put = bench.cli();
                put.arg("put").arg(image.path()).arg(&self.source).arg(format!("/{COPY}"));
                bench.call(&mut put)
            }
            Target::Rootdir => image.format_by_progs(&["--rootdir".as_ref(), &self.source]),
            _ => self.copy_in_process(bench, image),
        }
    }

    fn copy_in_process(&self, bench: &Bench, image: &Fresh) -> Result<()> {
        image.format()?;
        let filesystem = OpenOptions::new().write(true).open(image.path())?;
        let progress = Progress::default();
        let inserter = Inserter::new(InsertOptions::default(), &progress);
        let report = |error| say(&format!("{error}"));
        bench.interrupt().stopping(&progress, || {
            inserter.insert_content(&self.source, &filesystem.root(), &report);
        });
        bench.interrupt().check()?;
        ensure!(progress.errors() == 0, "{} errors", progress.errors());
        Ok(filesystem.close()?)
    }

    /// `cp -a` with the umount; gives also what was before: mkfs and mounting.
    fn copy_onto_mount(&self, bench: &Bench, image: &Fresh) -> Result<(Duration, Duration)> {
        let (before, mount) = timed(|| {
            image.format_by_progs(&[])?;
            bench.linux().mount(image.path(), "noatime")
        })?;
        let (work, ()) = timed(|| {
            let content = self.source.join(".");
            bench.call(Command::new("cp").arg("-a").arg(content).arg(mount.path()))?;
            drop(mount);
            Ok(())
        })?;
        Ok((before, work))
    }

    /// Counts what Linux finds in the image.
    fn check(&self, bench: &Bench, target: Target, image: &Fresh) -> Result<()> {
        let mount = bench.linux().mount(image.path(), "ro,noatime")?;
        let below = if target == Target::Cli { COPY } else { "" };
        let (made, expected) = (Tally::of(&mount.path().join(below))?, self.tally);
        ensure!(made == expected, "copied {made:?} in place of {expected:?}");
        Ok(())
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        // The next one is made over what is left, or says why not.
        let _ = fs::remove_dir_all(&self.source);
    }
}

/// Reads every file below a directory.
fn read_all(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => read_all(&entry.path())?,
            kind if kind.is_file() => {
                std::io::copy(&mut File::open(entry.path())?, &mut std::io::sink())?;
            }
            _ => {}
        }
    }
    Ok(())
}
