//! Counts of instructions of single operations, on a filesystem in memory.
//!
//! 1. An operation runs in a process of its own under valgrind: N iterations in one run, and 2 N in
//!    another. The difference, divided by N, is the count: what both runs do once cancels out. Both
//!    run at the same time, since no time is measured.
//! 2. One thread makes the calls, with names, offsets and contents that a fixed seed determines.
//!    The filesystem's own threads are counted, too.
//! 3. Counts depend on the compiler, its profile, and the features of the processor that valgrind
//!    emulates. A change is reported, never an error.

mod callgrind;
mod counts;
mod load;
mod table;

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum as _;
use jiff::Timestamp;

use crate::args::{InstructionsArgs, Operation};
use crate::bench::say;
use crate::machine;
use counts::{Count, Counts};
use table::Table;

/// Counts the requested operations, or only runs the iterations of one.
pub(crate) fn run(args: &InstructionsArgs) -> Result<Option<Counts>> {
    if let Some(iterations) = args.iterations {
        let [operation] = args.operations[..] else {
            anyhow::bail!("--iterations needs exactly one --operation");
        };
        load::run(operation, iterations)?;
        return Ok(None);
    }
    let earlier = args.compare.as_deref().map(read).transpose()?;
    let profile = profile()?;
    let mut counts = Counts::new(head(&profile)?);
    if let (Some(file), Some(earlier)) = (&args.compare, &earlier) {
        counts.compare_with(file, earlier.of_profile(&profile));
    }
    let all = Operation::value_variants();
    let operations = if args.operations.is_empty() { all } else { &args.operations };
    for operation in operations {
        say(&operation.name());
        counts.add(count(*operation, args.scale.get())?);
    }
    if let Some(file) = &args.update {
        let mut table = read(file)?;
        table.replace(&profile, &machine::commit(), counts.counts());
        fs::write(file, table.to_string()).with_context(|| file.display().to_string())?;
    }
    Ok(Some(counts))
}

fn read(file: &Path) -> Result<Table> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    text.parse().with_context(|| file.display().to_string())
}

/// Returns the lines of the head of the report.
fn head(profile: &str) -> Result<Vec<String>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    Ok(vec![
        format!("`userbtrfs-bench {}`, profile {profile}", arguments.join(" ")),
        format!("{}, commit {}", Timestamp::now().strftime("%Y-%m-%d"), machine::commit()),
        format!("{}, {}", callgrind::version()?, machine::processors()?),
    ])
}

/// Returns the name of the profile that this program was built with: that of its folder.
fn profile() -> Result<String> {
    let program = std::env::current_exe().context("this program")?;
    let folder = program.parent().and_then(Path::file_name).context("this program's folder")?;
    Ok(folder.to_string_lossy().into_owned())
}

fn count(operation: Operation, scale: u64) -> Result<Count> {
    let iterations = (load::iterations(operation) / scale).max(1);
    let (once, twice) = thread::scope(|scope| {
        let twice = scope.spawn(|| callgrind::count(operation, 2 * iterations));
        let once = callgrind::count(operation, iterations);
        (once, twice.join().expect("counting does not panic"))
    });
    let once = once?;
    let twice = twice?;
    ensure!(twice > once, "{}: {twice} instructions after {once}", operation.name());
    Ok(Count { operation, instructions: (twice - once) / iterations })
}
