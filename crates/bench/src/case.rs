//! Cases, and how the turns of their targets become rows of the report.
//!
//! A turn has consecutive steps; the same step of the same target in all runs is a row.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::{Bench, say};
use crate::floor;
use crate::image::Image;
use crate::mounts::Requests;
use crate::report::{Amount, Report, Row};
use crate::sample::{Sample, Spread};
use crate::target::Target;

/// A benchmark that several targets run.
pub(crate) trait Case {
    /// Returns the name in the report.
    fn name(&self) -> String;

    /// Returns the image that is read.
    fn image(&self) -> &Image;

    /// Returns the targets that support this case.
    fn targets(&self) -> &'static [Target];

    /// Returns the amount of work of one turn.
    fn amount(&self) -> Amount;

    /// Runs one turn of a target; calls `Bench::settle` just before the timed part.
    fn turn(&self, bench: &Bench, target: Target) -> Result<Sample>;
}

/// One step of a turn.
#[derive(Default)]
pub(crate) struct Step {
    /// The name of the case in the report.
    pub(crate) case: String,
    /// The name shared with cases that differ only in the amount of work.
    pub(crate) series: Option<String>,
    /// The amount of work.
    pub(crate) amount: Amount,
    /// The measured times.
    pub(crate) sample: Sample,
    /// The number of FUSE requests of each kind, if they are counted.
    pub(crate) requests: Requests,
}

/// Runs the turns of all targets and adds their rows.
pub(crate) fn measure(bench: &Bench, case: &dyn Case, report: &mut Report) -> Result<()> {
    let mut targets = bench.chosen(case.targets())?;
    if targets.is_empty() {
        return Ok(());
    }
    targets.push(Target::FloorRead);
    targets.extend((case.amount().writes).then_some(Target::FloorWrite));
    let name = case.name();
    let rows = take_turns(bench, &name, targets, |target| {
        let (sample, amount) = turn(bench, case, target)?;
        Ok([Step { case: name.clone(), amount, sample, ..Step::default() }])
    })?;
    report.describe(case.image());
    report.add(rows, bench.compares_durable());
    Ok(())
}

/// Runs the turns of all targets, each run beginning with another target; returns a row for each
/// step of each target.
pub(crate) fn take_turns<S: IntoIterator<Item = Step>>(
    bench: &Bench,
    title: &str,
    mut targets: Vec<Target>,
    turn: impl Fn(Target) -> Result<S>,
) -> Result<Vec<Row>> {
    let mut met = BTreeMap::<(String, Target), Vec<Step>>::new();
    for run in 1..=bench.runs() {
        for target in &targets {
            let steps = turn(*target).with_context(|| format!("{title}: {target}"))?;
            for step in steps {
                let seconds = step.sample.work.as_secs_f64();
                say(&format!("{}: run {run}: {target} {seconds:.3} s", step.case));
                met.entry((step.case.clone(), *target)).or_default().push(step);
            }
        }
        targets.rotate_left(1);
    }
    Ok(met.iter().map(|((case, target), steps)| row(case, *target, steps)).collect())
}

fn turn(bench: &Bench, case: &dyn Case, target: Target) -> Result<(Sample, Amount)> {
    let amount = case.amount();
    Ok(match target {
        Target::FloorRead => {
            bench.settle()?;
            let (sample, bytes) = floor::read(bench, case.image().path())?;
            (sample, Amount { bytes, ..Amount::default() })
        }
        Target::FloorWrite => (
            floor::write(bench, amount.bytes)?,
            Amount { bytes: amount.bytes, ..Amount::default() },
        ),
        other => (case.turn(bench, other)?, amount),
    })
}

fn row(case: &str, target: Target, steps: &[Step]) -> Row {
    let samples = || steps.iter().map(|step| step.sample);
    let with = |part: fn(&Sample) -> Option<Duration>| {
        let sums: Option<Vec<_>> = samples().map(|s| part(&s).map(|part| s.work + part)).collect();
        sums.map(Spread::of)
    };
    let last = steps.last().expect("at least one run");
    Row {
        case: case.to_owned(),
        target,
        series: last.series.clone(),
        amount: last.amount,
        work: Spread::of(samples().map(|sample| sample.work)),
        with_sync: with(|sample| sample.sync),
        with_mount: with(|sample| sample.mount),
        peak: samples().filter_map(|sample| sample.peak).max(),
        written: samples().filter_map(|sample| sample.written).max(),
        stored: samples().filter_map(|sample| sample.stored).max(),
        requests: last.requests.clone(),
        growth: None,
        speed: BTreeMap::new(),
    }
}
