//! The turns of the variants of one load on one device.
//!
//! 1. Variants take turns: each run begins with another one, on a new filesystem, with empty
//!    caches. The disk's write and flush are measured once in each run.
//! 2. The library runs in a process of its own, so that an experiment is switched on for it alone.
//! 3. A variant that fails once is not run again; its row in the report has the reason.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;

use super::case::{Case, Load, Scale};
use crate::args::Medium;
use crate::bench::{Bench, say};
use crate::fresh::Fresh;
use crate::load::outcome::{Figures, Outcome, Unit};
use crate::mounts::{BYTES, Mounted};
use crate::programs::{dbench_command, fio_command, fsmark_command, said};
use crate::sample::{Spread, timed};
use crate::slow::{Latency, SlowDisk};
use crate::target::Target;

/// The number of writes, each with a flush, by which a device is measured.
const FLOOR_WRITES: u64 = 64;
/// The size of such a write.
const FLOOR_BLOCK: u64 = 4096;

/// A variant of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Variant {
    /// The library in process, with the former behaviour.
    Before,
    /// The library in process.
    Lib,
    /// Our mount, with the real program.
    Fuse,
    /// The kernel's btrfs, with the real program.
    Btrfs,
    /// The kernel's btrfs, with our loader: it shows whether the loader is like the program.
    Loader,
}

impl Variant {
    /// All variants.
    pub(crate) const ALL: [Self; 5] =
        [Self::Before, Self::Lib, Self::Fuse, Self::Btrfs, Self::Loader];
}

/// The outcomes of a variant.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ran {
    /// One for each run.
    Outcomes(Vec<Outcome>),
    /// The reason for which it was not run.
    Not(String),
}

/// The outcomes of all variants of a load.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseRan {
    pub(crate) case: Case,
    pub(crate) work: String,
    pub(crate) variants: BTreeMap<Variant, Ran>,
    /// The milliseconds of a write of 4 KiB and a flush.
    pub(crate) floor: Spread,
}

/// A device for images.
pub(crate) enum Place {
    Disk,
    Slow(SlowDisk),
}

impl Place {
    /// Makes a device.
    pub(crate) fn new(bench: &Bench, medium: Medium) -> Result<Self> {
        let time = |micros: u32| Duration::from_micros(micros.into());
        Ok(match medium {
            Medium::Disk => Self::Disk,
            Medium::Slow { write, flush } => {
                let latency = Latency { write: time(write), flush: time(flush) };
                Self::Slow(SlowDisk::new(bench.folder(), BYTES, latency)?)
            }
        })
    }

    fn fresh(&self, bench: &Bench) -> Result<Fresh> {
        match self {
            Self::Disk => Fresh::new(bench, BYTES),
            Self::Slow(disk) => Fresh::reused(&disk.path(), BYTES),
        }
    }
}

/// Runs all variants of a load.
pub(crate) fn run(bench: &Bench, place: &Place, case: Case, scale: &Scale) -> Result<CaseRan> {
    let mut variants = Variant::ALL.to_vec();
    let mut ran = BTreeMap::new();
    let mut floors = Vec::new();
    for run in 1..=bench.runs() {
        floors.push(floor(bench, place)?);
        for variant in &variants {
            let all = ran.entry(*variant).or_insert_with(|| Ran::Outcomes(Vec::new()));
            let Ran::Outcomes(outcomes) = all else { continue };
            let turn = turn(bench, place, &case, scale, *variant);
            // A signal ends the benchmark.
            bench.interrupt().check()?;
            match turn {
                Ok(outcome) => {
                    let Outcome { rate, unit, .. } = &outcome;
                    say(&format!("{case}: run {run}: {variant:?} {rate:.1} {unit}"));
                    outcomes.push(outcome);
                }
                Err(error) => {
                    let reason = reason(&format!("{error:#}"));
                    say(&format!("{case}: {variant:?}: not run: {reason}"));
                    *all = Ran::Not(reason);
                }
            }
        }
        variants.rotate_left(1);
    }
    let floor = Spread::of_figures(floors);
    Ok(CaseRan { case, work: scale.describe(&case), variants: ran, floor })
}

/// Returns the line of an error that names the reason: that of our loader begins with `Error:`.
fn reason(error: &str) -> String {
    let own = error.lines().find_map(|line| line.strip_prefix("Error: "));
    own.or_else(|| error.lines().next()).unwrap_or_default().to_owned()
}

fn turn(
    bench: &Bench,
    place: &Place,
    case: &Case,
    scale: &Scale,
    variant: Variant,
) -> Result<Outcome> {
    let image = place.fresh(bench)?;
    let target = match variant {
        Variant::Before => return in_process(bench, &image, case, scale, Some(case.seed.name())),
        Variant::Lib => return in_process(bench, &image, case, scale, None),
        Variant::Fuse => Target::Fuse,
        Variant::Btrfs | Variant::Loader => Target::Btrfs,
    };
    let (_, mounted) = Mounted::on(bench, target, image, scale.commit_seconds)?;
    bench.settle()?;
    let outcome = if variant == Variant::Loader {
        let mut command = loader(case, scale)?;
        by_loader(bench, command.arg("--directory").arg(mounted.path()))?
    } else {
        by_program(bench, mounted.path(), case, scale)?
    };
    mounted.end()?;
    Ok(outcome)
}

/// Runs a load on the library, in a process of its own.
fn in_process(
    bench: &Bench,
    image: &Fresh,
    case: &Case,
    scale: &Scale,
    experiment: Option<&str>,
) -> Result<Outcome> {
    image.format()?;
    image.sync()?;
    bench.settle()?;
    let mut command = loader(case, scale)?;
    command.arg("--image").arg(image.path());
    command.args(experiment.map(|name| format!("--experiment={name}")));
    by_loader(bench, &mut command)
}

/// Returns the command that runs a load by our loader.
fn loader(case: &Case, scale: &Scale) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program")?);
    command.args(["--format", "json", "load"]);
    let clients = case.clients;
    match case.load {
        Load::Dbench => command.arg("dbench").arg(format!("--seconds={}", scale.seconds)),
        Load::Fio => command.arg("fio").arg(format!("--each={}", scale.blocks(clients))),
        Load::Fsmark => command.arg("fsmark").arg(format!("--each={}", scale.files)),
    };
    command.arg(format!("--clients={clients}"));
    command.arg(format!("--commit-seconds={}", scale.commit_seconds));
    Ok(command)
}

fn by_loader(bench: &Bench, command: &mut Command) -> Result<Outcome> {
    serde_json::from_str(&said(bench, command)?).context("the outcome of a load")
}

/// Runs the real program on a mount.
fn by_program(
    bench: &Bench,
    point: &std::path::Path,
    case: &Case,
    scale: &Scale,
) -> Result<Outcome> {
    let clients = case.clients;
    match case.load {
        Load::Dbench => {
            let mut command = dbench_command(point, clients, scale.seconds);
            Outcome::of_dbench(&said(bench, &mut command)?)
        }
        Load::Fio => {
            let each = scale.blocks(clients) * crate::load::BLOCK;
            outcome_of_fio(clients, &said(bench, &mut fio_command(point, clients, each))?)
        }
        Load::Fsmark => {
            let mut command = fsmark_command(point, clients, scale.files);
            let (time, _) = timed(|| said(bench, &mut command))?;
            let rate = float(clients * scale.files) / time.as_secs_f64();
            Ok(Outcome { clients, rate, unit: Unit::Files, operations: Vec::new() })
        }
    }
}

/// Returns the outcome that fio prints as JSON.
fn outcome_of_fio(clients: u64, said: &str) -> Result<Outcome> {
    // fio may print notes before the JSON.
    let json = &said[said.find('{').context("fio prints no report")?..];
    let report: Value = serde_json::from_str(json)?;
    let job = &report["jobs"][0];
    let bytes = job["write"]["io_bytes"].as_f64().context("fio prints no size")?;
    let time = job["write"]["runtime"].as_f64().filter(|time| *time > 0.0);
    let rate = bytes / 1e3 / time.context("fio prints no time")?;
    let sync = &job["sync"]["lat_ns"];
    let milliseconds = |key: &str| sync[key].as_f64().map(|it| it / 1e6);
    let figures = || {
        Some(Figures {
            name: crate::load::FSYNC.to_owned(),
            count: sync["N"].as_u64()?,
            average: milliseconds("mean")?,
            max: milliseconds("max")?,
            distribution: Vec::new(),
        })
    };
    let operations = figures().into_iter().collect();
    Ok(Outcome { clients, rate, unit: Unit::Megabytes, operations })
}

/// Returns the milliseconds of a write of 4 KiB and a flush on a device.
fn floor(bench: &Bench, place: &Place) -> Result<f64> {
    let image = place.fresh(bench)?;
    let file = File::options().write(true).open(image.path())?;
    file.write_all_at(&vec![1; usize::try_from(FLOOR_WRITES * FLOOR_BLOCK)?], 0)?;
    file.sync_all()?;
    let began = Instant::now();
    let block = vec![2; usize::try_from(FLOOR_BLOCK)?];
    for number in 0..FLOOR_WRITES {
        file.write_all_at(&block, number * FLOOR_BLOCK)?;
        file.sync_data()?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e3 / float(FLOOR_WRITES))
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_of_a_failed_loader_is_its_own_error() {
        assert_eq!(reason("\"bench\": exit status: 1\nError: no space\n\nStack\n"), "no space");
        assert_eq!(reason("running fio: not found"), "running fio: not found");
    }

    #[test]
    fn report_of_fio_has_a_rate_and_the_latency_of_fsync() {
        let said = "note\n{\"jobs\": [{\"write\": {\"io_bytes\": 3000000, \"runtime\": 1500}, \
            \"sync\": {\"lat_ns\": {\"N\": 5, \"mean\": 2500000.0, \"max\": 4000000}}}]}";
        let outcome = outcome_of_fio(2, said).unwrap();
        assert!((outcome.rate - 2.0).abs() < 1e-9);
        let sync = outcome.operation("fsync").unwrap();
        assert!(sync.count == 5 && (sync.average - 2.5).abs() < 1e-9);
        assert!((sync.max - 4.0).abs() < 1e-9);
        assert!(outcome_of_fio(2, "{\"jobs\": []}").is_err());
    }
}
