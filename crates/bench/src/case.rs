//! A case: what every target does, and how their turns become rows.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::{Bench, say};
use crate::floor;
use crate::image::Image;
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

/// The turns of one target.
#[derive(Default)]
struct Turns {
    samples: Vec<Sample>,
    amount: Amount,
}

/// Lets all targets have their turns and adds their rows.
pub(crate) fn measure(bench: &Bench, case: &dyn Case, report: &mut Report) -> Result<()> {
    let mut targets = bench.chosen(case.targets())?;
    if targets.is_empty() {
        return Ok(());
    }
    targets.push(Target::FloorRead);
    targets.extend((case.amount().writes).then_some(Target::FloorWrite));
    let mut turns = BTreeMap::<Target, Turns>::new();
    for run in 1..=bench.runs() {
        for target in &targets {
            let (sample, amount) =
                turn(bench, case, *target).with_context(|| format!("{}: {target}", case.name()))?;
            let seconds = sample.work.as_secs_f64();
            say(&format!("{}: run {run}: {target} {seconds:.3} s", case.name()));
            let turns = turns.entry(*target).or_default();
            turns.samples.push(sample);
            turns.amount = amount;
        }
        targets.rotate_left(1);
    }
    report.describe(case.image());
    let rows = turns.iter().map(|(target, turns)| row(case, *target, turns)).collect();
    report.add(rows, bench.compares_durable());
    Ok(())
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

fn row(case: &dyn Case, target: Target, turns: &Turns) -> Row {
    let samples = &turns.samples;
    let with = |part: fn(&Sample) -> Option<Duration>| {
        let sums: Option<Vec<_>> =
            samples.iter().map(|s| part(s).map(|part| s.work + part)).collect();
        sums.map(Spread::of)
    };
    Row {
        case: case.name(),
        target,
        amount: turns.amount,
        work: Spread::of(samples.iter().map(|sample| sample.work)),
        with_sync: with(|sample| sample.sync),
        with_mount: with(|sample| sample.mount),
        speed: BTreeMap::new(),
    }
}
