//! Copying a tree into a new filesystem: a generated one of small files, or a real one.
//!
//! The tree is read once before each turn, so that it is in the page cache for all targets: only
//! writing is measured. Each target's work ends when its result is durable or unmounted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use userbtrfs::OpenOptions;
use userbtrfs::copy::{Copier, CopyOptions, ImageTarget, Progress};

use crate::args::{BuildArgs, PutArgs};
use crate::bench::{Bench, say};
use crate::case::{Step, take_turns};
use crate::floor;
use crate::fresh::Fresh;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::tally::Tally;
use crate::target::Target;
use crate::workload::Workload;

/// The directory in the image into which the command copies the tree.
const COPY: &str = "copy";

/// The space of a filesystem in addition to the bytes of a real tree, and for each file in it.
const ROOM: u64 = 1 << 30;
const ROOM_PER_FILE: u64 = 16 << 10;

/// Measures a generated tree.
pub(crate) fn run(bench: &Bench, args: &PutArgs, report: &mut Report) -> Result<()> {
    let files = (args.files.get() / args.common.scale.get()).max(1);
    measure(bench, || Put::made(bench, Workload::Inline { files }), report)
}

/// Measures a real tree.
pub(crate) fn build(bench: &Bench, args: &BuildArgs, report: &mut Report) -> Result<()> {
    measure(bench, || Put::real(&args.source), report)
}

fn measure(bench: &Bench, tree: impl FnOnce() -> Result<Put>, report: &mut Report) -> Result<()> {
    let ours = [Target::Lib, Target::Cli];
    let mut targets = bench.chosen(&[&ours[..], &[Target::Btrfs, Target::Rootdir]].concat())?;
    if targets.is_empty() {
        return Ok(());
    }
    targets.push(Target::FloorWrite);
    let put = tree()?;
    let case = put.case.clone();
    let rows = take_turns(bench, &case, targets, |target| {
        let case = case.clone();
        let amount = put.amount();
        Ok([Step { case, amount, sample: put.turn(bench, target)?, ..Step::default() }])
    })?;
    report.add(rows, bench.compares_durable());
    Ok(())
}

/// A tree on this machine.
struct Put {
    case: String,
    source: PathBuf,
    tally: Tally,
    /// The size of a filesystem with room for it, in bytes.
    room: u64,
    /// The tree was generated, and is removed on drop.
    is_made: bool,
}

impl Put {
    fn real(source: &Path) -> Result<Self> {
        let path = source.canonicalize()?;
        let tally = Tally::of(source)?;
        let items = tally.files + tally.others;
        let case = format!("build {}", path.display());
        let room = ROOM + tally.bytes + items * ROOM_PER_FILE;
        Ok(Self { case, source: path, tally, room, is_made: false })
    }

    fn made(bench: &Bench, workload: Workload) -> Result<Self> {
        let source = bench.folder().join("source");
        if source.exists() {
            fs::remove_dir_all(&source)?;
        }
        fs::create_dir(&source)?;
        let case = format!("put {}", workload.name());
        let tally = Tally::default();
        let mut put = Self { case, source, tally, room: workload.room(), is_made: true };
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
        let image = Fresh::new(bench, self.room)?;
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
        let copier = Copier::new(CopyOptions::default(), &progress);
        let report = |error| say(&format!("{error}"));
        bench.interrupt().stopping(&progress, || {
            let target = ImageTarget { dir: &filesystem.root(), name: None, path: b"/" };
            copier.put(&self.source, &target, &report);
        });
        bench.interrupt().check()?;
        ensure!(progress.errors() == 0, "{} errors", progress.errors());
        Ok(filesystem.close()?)
    }

    /// Runs `cp -a` and unmounts; returns the time of mkfs and mount, and that of the copy.
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

    /// Checks the counts of the files that Linux finds in the image.
    fn check(&self, bench: &Bench, target: Target, image: &Fresh) -> Result<()> {
        let mount = bench.linux().mount(image.path(), "ro,noatime")?;
        let below = if target == Target::Cli { COPY } else { "" };
        let made = Tally::of(&mount.path().join(below))?;
        let expected = self.tally;
        ensure!(made == expected, "copied {made:?} in place of {expected:?}");
        Ok(())
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        if self.is_made {
            // If this fails, the next turn removes the tree, or reports the error.
            let _ = fs::remove_dir_all(&self.source);
        }
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
