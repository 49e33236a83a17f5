//! Running commands of the system.

use std::process::{Command, Output};

use anyhow::{Context, ensure};

use crate::time_limit::limit_time;

/// Makes Linux forget every device that is not mounted.
pub fn forget() -> anyhow::Result<()> {
    run(Command::new("btrfs").args(["device", "scan", "--forget"])).map(drop)
}

/// Runs a command to completion; fails with its output unless it succeeds.
pub fn run(command: &mut Command) -> anyhow::Result<Output> {
    limit_time();
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    Ok(output)
}

/// Reports a failed cleanup of a guard: by a panic, unless the thread panics already.
pub(super) fn undone(result: anyhow::Result<()>) {
    match result {
        Err(error) if std::thread::panicking() => eprintln!("while panicking: {error:#}"),
        result => result.expect("what a guard made can be undone"),
    }
}
