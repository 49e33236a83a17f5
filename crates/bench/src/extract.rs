//! Copying a whole tree out.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use userbtrfs::Filesystem;
use userbtrfs::copy::{Copier, CopyOptions, ImageSource, Progress};

use crate::args::ExtractArgs;
use crate::bench::{Bench, Destination, say};
use crate::case::{Case, measure};
use crate::image::Image;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::tally::Tally;
use crate::target::Target;
use crate::workload::Workload;

/// Measures the requested trees.
pub(crate) fn run(bench: &Bench, args: &ExtractArgs, report: &mut Report) -> Result<()> {
    for tree in &args.workload {
        for compression in args.compressions(*tree) {
            let workload = Workload::tree(*tree, args.common.scale.get());
            let image = Image::ensure(bench, workload, compression)?;
            measure(bench, &Extract { image }, report)?;
        }
    }
    Ok(())
}

struct Extract {
    image: Image,
}

impl Case for Extract {
    fn name(&self) -> String {
        format!("extract {}", self.image.name())
    }

    fn image(&self) -> &Image {
        &self.image
    }

    fn targets(&self) -> &'static [Target] {
        &[Target::Lib, Target::Cli, Target::Btrfs, Target::Restore]
    }

    fn amount(&self) -> Amount {
        let Tally { files, bytes, .. } = self.image.contents().tally;
        Amount { bytes, items: files, writes: true }
    }

    fn turn(&self, bench: &Bench, target: Target) -> Result<Sample> {
        let destination = Destination::new(bench)?;
        if target == Target::Restore {
            fs::create_dir(destination.join(COPY))?;
        }
        bench.settle()?;
        let sample = if target == Target::Btrfs {
            let copy = |mount: &Path| {
                let mut cp = Command::new("cp");
                cp.arg("-a").arg(mount).arg(destination.join(COPY));
                durably(&destination, || bench.call(&mut cp))
            };
            let (mount, sample) = bench.mounted(self.image.path(), copy)?;
            Sample { mount: Some(mount), ..sample }
        } else {
            durably(&destination, || self.copy(bench, target, &destination))?
        };
        let made = Tally::of(&destination.join(COPY))?;
        let expected = self.image.contents().tally;
        ensure!(made == expected, "copied {made:?} in place of {expected:?}");
        Ok(sample)
    }
}

/// The name of the copy in its destination.
const COPY: &str = "copy";

fn durably(destination: &Destination, copy: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let (work, ()) = timed(copy)?;
    Ok(Sample { sync: Some(destination.sync()?), ..Sample::of_work(work) })
}

impl Extract {
    fn copy(&self, bench: &Bench, target: Target, destination: &Destination) -> Result<()> {
        let image = self.image.path();
        let copy = destination.join(COPY);
        match target {
            Target::Cli => bench.call(bench.cli().arg("get").args([image, "/".as_ref(), &copy])),
            Target::Restore => {
                let mut restore = Command::new("btrfs");
                restore.args(["restore", "-m", "-x", "-S"]).args([image, &copy]);
                bench.call(restore.stdin(consent()?))
            }
            _ => self.copy_in_process(bench, &copy),
        }
    }

    fn copy_in_process(&self, bench: &Bench, copy: &Path) -> Result<()> {
        let filesystem = Filesystem::open(self.image.path())?;
        let progress = Progress::default();
        let copier = Copier::new(CopyOptions::default(), &progress);
        let source = filesystem.lookup_no_follow("/")?;
        let report = |error| say(&format!("{error}"));
        bench.interrupt().stopping(&progress, || {
            copier.get(&ImageSource { inode: &source, path: b"/" }, copy, &report);
        });
        bench.interrupt().check()?;
        ensure!(progress.errors() == 0, "{} errors", progress.errors());
        Ok(())
    }
}

/// Returns the stdin for `btrfs restore`, which asks after each thousand extents of a file whether
/// to continue, and reads one letter: always "a", for "always".
fn consent() -> Result<Stdio> {
    let (reader, mut writer) = io::pipe().context("a pipe")?;
    // The data fits into the pipe buffer, so the write does not block.
    io::Write::write_all(&mut writer, &[b'a'; 4096])?;
    Ok(reader.into())
}
