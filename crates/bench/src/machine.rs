//! The head of a report: the machine, the versions and the options.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use jiff::Timestamp;
use userbtrfs_testkit::linux;

use crate::args::Common;

/// Returns the lines of the head; `folder` contains images and copies.
pub(crate) fn head(folder: &Path, common: &Common) -> Result<Vec<String>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let caches = if common.warm { "warm caches" } else { "cold caches" };
    let compared = if common.sync { "durable copies compared" } else { "work alone compared" };
    Ok(vec![
        format!("`userbtrfs-bench {}`", arguments.join(" ")),
        format!("{}, commit {}", Timestamp::now().strftime("%Y-%m-%d"), commit()),
        format!("Linux {}, {}", kernel()?, progs()?),
        format!("{}, {}", processors()?, memory()?),
        format!("images and copies on {}", filesystem(folder)?),
        format!("median of {} runs, {caches}, {compared}", common.runs),
    ])
}

/// Returns the commit that is checked out, marked if there are uncommitted changes.
pub(crate) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments);
        said(&mut git)
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    match (git(&["rev-parse", "--short=12", "HEAD"]), changed) {
        (Ok(commit), Ok(changes)) if changes.is_empty() => commit,
        (Ok(commit), _) => format!("{commit} with changes"),
        (Err(_), _) => "unknown".to_owned(),
    }
}

fn kernel() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned())
}

fn progs() -> Result<String> {
    said(Command::new("btrfs").arg("--version"))
}

/// Returns the number and the model of the processors.
pub(crate) fn processors() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let model = field(&text, "model name").unwrap_or("processors");
    Ok(format!("{} x {model}", std::thread::available_parallelism()?))
}

fn memory() -> Result<String> {
    Ok(format!("{} MiB of memory", memory_bytes()? >> 20))
}

/// Returns the size of the memory in bytes.
pub(crate) fn memory_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let total = field(&text, "MemTotal").and_then(|total| total.strip_suffix(" kB"));
    Ok(total.context("no MemTotal")?.parse::<u64>()? << 10)
}

fn filesystem(folder: &Path) -> Result<String> {
    said(
        Command::new("findmnt")
            .args(["--noheadings", "--output", "FSTYPE", "--target"])
            .arg(folder),
    )
}

/// Returns the value of a field, in text of the form of `/proc`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
}

/// Returns the first line that a program prints.
fn said(command: &mut Command) -> Result<String> {
    let output = linux::run(command)?.stdout;
    Ok(String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotal:       24 kB\nmodel name\t: Fast\nmodel\t\t: 7\n";
        assert_eq!(field(text, "model name"), Some("Fast"));
        assert_eq!(field(text, "MemTotal"), Some("24 kB"));
        assert_eq!(field(text, "Mem"), None);
    }
}
