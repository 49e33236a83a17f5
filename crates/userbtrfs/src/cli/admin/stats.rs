//! `stats`: shows the state of a filesystem, and its counters since it was opened.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};
use userbtrfs::device::DropWritesDevice;
use userbtrfs::mount::{Opcode, StatsHandle};
use userbtrfs::{CommitTrigger, Filesystem, FullCommitReason, Stats};

use crate::cli::admin::mounted::request;
use crate::cli::args::{Format, Global};
use crate::cli::output::write_json;
use crate::cli::report::without_os_error;

#[derive(clap::Args)]
pub(crate) struct StatsArgs {
    /// Discard all later writes, to simulate a power failure
    #[arg(long, value_enum, value_name = "ON|OFF")]
    drop_writes: Option<OnOff>,
    /// Mount point
    mountpoint: PathBuf,
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

/// Asks the server of a mount.
pub(crate) fn run(global: &Global, args: &StatsArgs) -> Result<ExitCode> {
    let words = match args.drop_writes {
        None => vec![OsString::from("stats")],
        Some(toggle) => vec!["drop-writes".into(), toggle.word().into()],
    };
    request(global, &args.mountpoint, &words)
}

impl OnOff {
    fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Writes the state of a filesystem and its counters: of the node cache, discards, logs, commits by
/// trigger, and full commits in place of logs by reason; for a mount the requests by kind too.
pub(crate) fn write(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    mount: Option<&MountParts<'_>>,
    format: Format,
) -> Result<()> {
    let stats = filesystem.stats();
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
            for (name, count) in counters(&stats) {
                writeln!(out, "{name}: {count}")?;
            }
            let commits = causes.into_iter().chain(reasons);
            let commits = commits.map(|(cause, count)| (format!("commits, {cause}"), count));
            let requests = requests.unwrap_or_default().into_iter();
            let requests = requests.map(|(kind, count)| (format!("requests, {kind}"), count));
            for (name, count) in commits.chain(requests).filter(|(_, count)| *count > 0) {
                writeln!(out, "{name}: {count}")?;
            }
            Ok(())
        }
        Format::Json => {
            let counts = counters(&stats).map(|(name, count)| (key(name), count));
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
    let kinds = Opcode::ALL.iter().copied().chain([Opcode::Unknown(0)]);
    kinds.map(|kind| (kind.to_string(), stats_handle.requests(kind))).collect()
}

fn json_counts(counts: impl IntoIterator<Item = (String, u64)>) -> Value {
    counts.into_iter().map(|(name, count)| (name, Value::from(count))).collect()
}

fn counters(stats: &Stats) -> [(&'static str, u64); 12] {
    let Stats { nodes, discards, log, copies, .. } = stats;
    [
        ("nodes found", nodes.hits),
        ("nodes read", nodes.misses),
        ("bytes discarded", discards.bytes),
        ("discards failed", discards.failed),
        ("copies bad", copies.bad),
        ("copies repaired", copies.repaired),
        ("log groups", log.log_commits),
        ("log groups shared", log.shared),
        ("log nodes", log.nodes),
        ("log bytes", log.bytes),
        ("log waits for group", log.waits_for_log_commit),
        ("log waits for commit", log.waits_for_commit),
    ]
}
