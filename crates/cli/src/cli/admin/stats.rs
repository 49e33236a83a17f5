//! `stats`: shows the state of a filesystem, and its counters since it was opened.

mod counters;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde_json::{Value, json};
use userbtrfs::device::DropWritesDevice;
use userbtrfs::mount::StatsHandle;
use userbtrfs::{CommitTrigger, Filesystem, FullCommitReason};

use crate::cli::admin::mounted::request;
use crate::cli::args::{Format, Global};
use crate::cli::output::{stdout, write_json};
use crate::cli::report::without_os_error;
use counters::{COMMITS, COUNTERS, REQUESTS, Values, explanations, request_kinds};

#[derive(clap::Args)]
#[command(after_long_help = explained())]
pub(crate) struct StatsArgs {
    /// Discard all later writes, to simulate a power failure
    #[arg(long, value_enum, value_name = "ON|OFF")]
    drop_writes: Option<OnOff>,
    /// Explain each counter
    #[arg(long, conflicts_with_all = ["drop_writes", "mountpoint"])]
    explain: bool,
    /// Mount point
    #[arg(required_unless_present = "explain")]
    mountpoint: Option<PathBuf>,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    /// Discard all writes
    On,
    /// Resume (only if nothing was discarded yet)
    Off,
}

/// The parts of a mount that are shown in addition to its filesystem.
pub(crate) struct MountParts<'a> {
    pub(crate) stats_handle: &'a StatsHandle,
    /// `None` if the mount is read-only.
    pub(crate) switch: Option<&'a DropWritesDevice>,
}

/// Asks the server of a mount, or explains the counters.
pub(crate) fn run(global: &Global, args: &StatsArgs) -> Result<ExitCode> {
    if args.explain {
        explain(&mut stdout(), global.format)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mountpoint = args.mountpoint.as_ref().context("no mount point is given")?;
    let words = match args.drop_writes {
        None => vec![OsString::from("stats")],
        Some(toggle) => vec!["drop-writes".into(), toggle.word().into()],
    };
    request(global, mountpoint, &words)
}

/// Writes the name and the explanation of each counter.
fn explain(out: &mut dyn Write, format: Format) -> Result<()> {
    match format {
        Format::Text => out.write_all(explained().as_bytes())?,
        Format::Json => {
            let rows = explanations();
            let rows = rows.iter().map(|(name, text)| json!({ "name": name, "explanation": text }));
            write_json(out, "stats-explain", &rows.collect())?;
        }
    }
    Ok(out.flush()?)
}

/// Returns a line for each counter.
fn explained() -> String {
    let line = |(name, text)| format!("{name}: {text}\n");
    explanations().into_iter().map(line).collect::<Vec<_>>().concat()
}

impl OnOff {
    fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Writes the state of a filesystem and its counters; for a mount the requests by kind too.
pub(crate) fn write(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    mount: Option<&MountParts<'_>>,
    format: Format,
) -> Result<()> {
    let stats = filesystem.stats();
    let values = Values { stats, space: filesystem.space_left().ok() };
    let counts = COUNTERS.map(|counter| (counter.name, (counter.value)(&values)));
    let (state, why) = state(filesystem);
    let dropped = mount.and_then(|mount| mount.switch).filter(|switch| switch.is_cut());
    let dropped = dropped.map(DropWritesDevice::dropped);
    let causes = CommitTrigger::ALL.map(|cause| (cause.name().to_owned(), stats.commits.by(cause)));
    let reasons =
        FullCommitReason::ALL.map(|reason| (reason.to_string(), stats.log.commits(reason)));
    let requests = mount.map(|mount| requests(mount.stats_handle));
    match format {
        Format::Text => {
            writeln!(out, "state: {state}")?;
            let lines = why.map(|why| format!("why: {why}"));
            let dropped = dropped.map(|count| format!("writes dropped: {count}"));
            lines.iter().chain(&dropped).try_for_each(|line| writeln!(out, "{line}"))?;
            for (name, count) in counts {
                writeln!(out, "{name}: {count}")?;
            }
            let commits = causes.into_iter().chain(reasons);
            let commits = commits.map(|(cause, count)| (format!("{COMMITS}{cause}"), count));
            let requests = requests.unwrap_or_default().into_iter();
            let requests = requests.map(|(kind, count)| (format!("{REQUESTS}{kind}"), count));
            for (name, count) in commits.chain(requests).filter(|(_, count)| *count > 0) {
                writeln!(out, "{name}: {count}")?;
            }
            Ok(())
        }
        Format::Json => {
            let counts = counts.map(|(name, count)| (key(name), count));
            let mut document = json_counts(counts);
            document["state"] = json!(state);
            document["why"] = json!(why);
            document["commits"] = json_counts(causes.map(|(name, count)| (key(&name), count)));
            let reasons = reasons.map(|(name, count)| (key(&name), count));
            document["commits_for_syncs"] = json_counts(reasons);
            if let Some(requests) = requests {
                document["requests"] = json_counts(requests);
                document["writes_dropped"] = json!(dropped);
            }
            write_json(out, "stats", &document)
        }
    }
}

/// Returns the JSON key of a counter.
fn key(name: &str) -> String {
    name.to_lowercase().replace(' ', "_")
}

/// Returns the state, and the reason if writing has ended.
fn state(filesystem: &Filesystem) -> (&'static str, Option<String>) {
    let reason = |error: userbtrfs::Error| without_os_error(&error.to_string());
    match filesystem.failure() {
        None if filesystem.is_writable() => ("read-write", None),
        None => ("read-only", None),
        Some(why) if filesystem.is_shut_down() => ("shut down", Some(reason(why))),
        Some(why) => ("read-only", Some(reason(why))),
    }
}

fn requests(stats_handle: &StatsHandle) -> Vec<(String, u64)> {
    request_kinds().map(|kind| (kind.to_string(), stats_handle.requests(kind))).collect()
}

fn json_counts(counts: impl IntoIterator<Item = (String, u64)>) -> Value {
    counts.into_iter().map(|(name, count)| (name, Value::from(count))).collect()
}
