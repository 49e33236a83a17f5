//! The seeds: five published changes of the kernel, with the loads by which their authors measured
//! them.
//!
//! 1. Each load runs on the library with the behaviour before the change and without it, through
//!    our mount, and on the kernel's btrfs. The report sets the ratios beside those published.
//! 2. The same is done on each device: the disk, and ones whose latency is set.
//! 3. The report is a folder: `README.md` with tables and plots, and `figures.json` with all
//!    figures.

mod case;
mod figure;
mod published;
mod report;
mod turns;

use anyhow::{Context as _, Result};

use self::case::Scale;
use self::report::{Report, Section};
use self::turns::Place;
use crate::args::{Common, Medium, SeedsArgs};
use crate::bench::{Bench, say};
use crate::machine;

/// Measures the seeds, and writes the report; returns its text.
pub(crate) fn run(args: &SeedsArgs) -> Result<String> {
    let common = Common {
        runs: args.runs,
        targets: Vec::new(),
        dir: args.dir.clone(),
        keep: false,
        warm: args.warm,
        sync: false,
        scale: std::num::NonZeroU64::MIN,
        cli: None,
    };
    let bench = Bench::new(&common)?;
    let scale = Scale::new(args);
    let mut report = Report::new(machine::head(bench.folder(), &common)?, scale);
    for medium in &args.media {
        report.add(section(&bench, args, *medium, &scale)?);
    }
    let text = report.write(&args.out).with_context(|| args.out.display().to_string())?;
    say(&format!("report in {}", args.out.display()));
    Ok(text)
}

fn section(bench: &Bench, args: &SeedsArgs, medium: Medium, scale: &Scale) -> Result<Section> {
    let place = Place::new(bench, medium)?;
    let memory = machine::memory_bytes()?;
    let cases = args.chosen().iter().flat_map(|seed| case::of(*seed, args, memory));
    let ran = cases.map(|case| turns::run(bench, &place, case, scale)).collect::<Result<_>>()?;
    Ok(Section { medium: medium.to_string(), cases: ran })
}
