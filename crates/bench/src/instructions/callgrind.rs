//! Runs of this program under valgrind's callgrind.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use crate::args::Operation;

const VALGRIND: &str = "valgrind";
/// The text before the total in the output.
const TOTAL: &str = "Collected : ";

/// Returns valgrind's name and version.
pub(crate) fn version() -> Result<String> {
    let output = run(Command::new(VALGRIND).arg("--version"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the instructions of a process that runs this number of iterations.
pub(crate) fn count(operation: Operation, iterations: u64) -> Result<u64> {
    let program = std::env::current_exe().context("this program")?;
    let mut valgrind = Command::new(VALGRIND);
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    valgrind.args(["instructions", "--operation", &operation.name()]);
    let output = run(valgrind.args(["--iterations", &iterations.to_string()]))?;
    total(&String::from_utf8_lossy(&output.stderr))
}

/// Returns the total in callgrind's output.
fn total(output: &str) -> Result<u64> {
    let mut totals = output.lines().filter_map(|line| line.split_once(TOTAL));
    let (_, total) = totals.next_back().context("valgrind printed no total")?;
    total.trim().parse().with_context(|| format!("valgrind's total `{total}`"))
}

fn run(command: &mut Command) -> Result<Output> {
    let output = command.output().context("running valgrind: is it installed?")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_found_in_the_output() {
        let output = "==7== Events    : Ir\n==7== Collected : 6170241\n==7==\n";
        assert_eq!(total(output).unwrap(), 6_170_241);
        assert!(total("==7== Events    : Ir\n").is_err());
        assert!(total("==7== Collected : many\n").is_err());
    }
}
