//! Copying a tree into a new filesystem: a generated one of small files, or a real one.
//!
//! The tree is read once before each turn, so that it is in the page cache for all targets: only
//! writing is measured. Each target's work ends when its result is durable or unmounted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use userbtrfs::copy::{Copier, CopyOptions, ImageTarget, Progress};
use userbtrfs::{Filesystem, OpenOptions};
use userbtrfs_testkit::linux;

use crate::args::{BuildArgs, Method, PutArgs};
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

/// Measures a real tree that is compressed.
pub(crate) fn compressed(
    bench: &Bench,
    source: &Path,
    method: Method,
    report: &mut Report,
) -> Result<()> {
    let put = || -> Result<Put> {
        let mut put = Put::real(source)?;
        put.case = format!("{} {method}", put.case);
        put.method = Some(method);
        Ok(put)
    };
    measure(bench, put, report)
}

/// Returns true if `mkfs.btrfs` compresses the tree that it copies.
fn rootdir_compresses() -> Result<bool> {
    let help = linux::run(Command::new("mkfs.btrfs").arg("--help"))?;
    let text = [help.stdout, help.stderr].concat();
    Ok(String::from_utf8_lossy(&text).contains("--compress"))
}

/// Returns the bytes of data and of trees that an unmounted image has, each copy counted once.
///
/// `statvfs` would add the space that Linux reserves for trees.
pub(crate) fn used_bytes(image: &Fresh) -> Result<u64> {
    let usage = Filesystem::open(image.path())?.usage()?;
    Ok(usage.kinds.iter().map(|kind| kind.used).sum())
}

fn measure(bench: &Bench, tree: impl FnOnce() -> Result<Put>, report: &mut Report) -> Result<()> {
    let ours = [Target::Lib, Target::Cli];
    let mut targets = bench.chosen(&[&ours[..], &[Target::Btrfs, Target::Rootdir]].concat())?;
    if targets.is_empty() {
        return Ok(());
    }
    targets.push(Target::FloorWrite);
    let put = tree()?;
    if put.method.is_some() && targets.contains(&Target::Rootdir) && !rootdir_compresses()? {
        targets.retain(|target| *target != Target::Rootdir);
        report.note(format!("{}: rootdir cannot run, mkfs.btrfs has no --compress", put.case));
    }
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
    /// The compression; `None` without an option.
    method: Option<Method>,
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
        Ok(Self { case, source: path, tally, room, method: None, is_made: false })
    }

    fn made(bench: &Bench, workload: Workload) -> Result<Self> {
        let source = bench.folder().join("source");
        if source.exists() {
            fs::remove_dir_all(&source)?;
        }
        fs::create_dir(&source)?;
        let case = format!("put {}", workload.name());
        let tally = Tally::default();
        let room = workload.room();
        let mut put = Self { case, source, tally, room, method: None, is_made: true };
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
        let sync = Some(image.sync()?);
        let stored = Some(self.check(bench, target, &image)?);
        Ok(Sample { sync, mount, stored, ..Sample::of_work(work) })
    }

    fn copy(&self, bench: &Bench, target: Target, image: &Fresh) -> Result<()> {
        match (target, self.method) {
            (Target::Cli, Some(method)) => {
                let mut mkfs = bench.cli();
                mkfs.args(["mkfs", "--quiet", "--compress", &method.to_string(), "--rootdir"]);
                bench.call(mkfs.arg(&self.source).arg(image.path()))
            }
            (Target::Cli, None) => {
                bench.call(bench.cli().args(["mkfs", "--quiet"]).arg(image.path()))?;
                let mut put = bench.cli();
                put.arg("put").arg(image.path()).arg(&self.source).arg(format!("/{COPY}"));
                bench.call(&mut put)
            }
            (Target::Rootdir, Some(method)) => {
                let method = method.to_string();
                let how: [&Path; 2] = ["--compress".as_ref(), method.as_ref()];
                image.format_by_progs(&[how[0], how[1], "--rootdir".as_ref(), &self.source])
            }
            (Target::Rootdir, None) => image.format_by_progs(&["--rootdir".as_ref(), &self.source]),
            _ => self.copy_in_process(bench, image),
        }
    }

    fn copy_in_process(&self, bench: &Bench, image: &Fresh) -> Result<()> {
        image.format()?;
        let mut options = OpenOptions::new();
        options.write(true).compress(self.method.and_then(Method::option));
        let filesystem = options.open(image.path())?;
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
            let options = self.method.map_or("noatime".to_owned(), Method::mount_options);
            bench.mount_with(image.path(), &options)
        })?;
        let (work, ()) = timed(|| {
            let content = self.source.join(".");
            bench.call(Command::new("cp").arg("-a").arg(content).arg(mount.path()))?;
            drop(mount);
            Ok(())
        })?;
        Ok((before, work))
    }

    /// Checks the counts of the files that Linux finds in the image; returns the used bytes.
    fn check(&self, bench: &Bench, target: Target, image: &Fresh) -> Result<u64> {
        let mount = bench.mount_with(image.path(), "ro,noatime")?;
        let below = if target == Target::Cli && self.method.is_none() { COPY } else { "" };
        let made = Tally::of(&mount.path().join(below))?;
        let expected = self.tally;
        ensure!(made == expected, "copied {made:?} in place of {expected:?}");
        drop(mount);
        used_bytes(image)
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
