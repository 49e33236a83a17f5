//! Listing every name of a filesystem with very many files.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use userbtrfs::Filesystem;

use crate::args::{Compression, ListArgs};
use crate::bench::Bench;
use crate::case::{Case, measure};
use crate::image::Image;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::target::Target;
use crate::workload::Workload;

/// Measures one image of empty files.
pub(crate) fn run(bench: &Bench, args: &ListArgs, report: &mut Report) -> Result<()> {
    let workload = Workload::Empty { files: (args.files / args.common.scale.get()).max(1) };
    let image = Image::ensure(bench, workload, Compression::None)?;
    measure(bench, &List { image }, report)
}

struct List {
    image: Image,
}

impl Case for List {
    fn name(&self) -> String {
        format!("list {}", self.image.name())
    }

    fn image(&self) -> &Image {
        &self.image
    }

    fn targets(&self) -> &'static [Target] {
        &[Target::Lib, Target::Cli, Target::Btrfs]
    }

    fn amount(&self) -> Amount {
        Amount { items: self.image.contents().tally.files, ..Amount::default() }
    }

    fn turn(&self, bench: &Bench, target: Target) -> Result<Sample> {
        bench.settle()?;
        if target == Target::Btrfs {
            let find = |mount: &Path| {
                timed(|| bench.call(Command::new("find").arg(mount))).map(|(work, ())| work)
            };
            let (mount, work) = bench.mounted(self.image.path(), find)?;
            return Ok(Sample { mount: Some(mount), ..Sample::of_work(work) });
        }
        let image = self.image.path();
        let (work, ()) = timed(|| match target {
            Target::Cli => bench.call(bench.cli().arg("find").args([image, "/".as_ref()])),
            _ => self.walk(bench),
        })?;
        Ok(Sample::of_work(work))
    }
}

impl List {
    fn walk(&self, bench: &Bench) -> Result<()> {
        let filesystem = Filesystem::open(self.image.path())?;
        let mut met = 0;
        for entry in filesystem.walk("/")? {
            entry?;
            met += 1;
            if met % 4096 == 0 {
                bench.interrupt().check()?;
            }
        }
        let tally = self.image.contents().tally;
        let expected = tally.files + tally.others + 1;
        ensure!(met == expected, "met {met} names in place of {expected}");
        Ok(())
    }
}
