//! A case: what every target does, and how their turns become rows.
//!
//! A turn has steps, one after another; the same step of the same target in all runs is a row.

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

/// What every target does.
pub(crate) trait Case {
    /// Its name in the report.
    fn name(&self) -> String;

    /// The image that it reads.
    fn image(&self) -> &Image;

    /// Who can do it.
    fn targets(&self) -> &'static [Target];

    /// What is done in one turn.
    fn amount(&self) -> Amount;

    /// Lets a target have its turn, settling just before what is timed.
    fn turn(&self, bench: &Bench, target: Target) -> Result<Sample>;
}

/// One step of a turn.
#[derive(Default)]
pub(crate) struct Step {
    /// What was done, as in the report.
    pub(crate) case: String,
    /// What this has in common with other cases that differ only in how much is done.
    pub(crate) series: Option<String>,
    /// How much was done.
    pub(crate) amount: Amount,
    /// How long it took.
    pub(crate) sample: Sample,
    /// How many requests the kernel made for it, by their kind, where these are counted.
    pub(crate) requests: Requests,
}

/// Lets all targets have their turns and adds their rows.
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

/// Lets all targets have their turns, another one first in each run; gives a row for each step of
/// each target.
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
        requests: last.requests.clone(),
        growth: None,
        speed: BTreeMap::new(),
    }
}
