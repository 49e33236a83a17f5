//! `stats`: what was counted since the filesystem was opened.

use std::io::Write;

use anyhow::Result;
use serde_json::Value;
use userbtrfs::{CommitCause, CommitReason, Stats};

use super::args::Format;
use super::output::{print_json, stdout};

/// Prints all counters: of the cache of nodes, of discards, of logs, of commits by cause, and of
/// those in place of logs by reason.
pub(crate) fn print(stats: &Stats, format: Format) -> Result<()> {
    let causes = CommitCause::ALL.map(|cause| (cause.name().to_owned(), stats.commits.by(cause)));
    let reasons = CommitReason::ALL.map(|reason| (reason.to_string(), stats.log.commits(reason)));
    match format {
        Format::Text => {
            let mut out = stdout();
            for (name, count) in counters(stats) {
                writeln!(out, "{name}: {count}")?;
            }
            for (cause, count) in causes.iter().chain(&reasons).filter(|(_, count)| *count > 0) {
                writeln!(out, "commits, {cause}: {count}")?;
            }
            out.flush()?;
            Ok(())
        }
        Format::Json => {
            let counts = counters(stats).map(|(name, count)| (name.replace(' ', "-"), count));
            let mut document = json_counts(counts);
            document["commits"] = json_counts(causes);
            document["commits-for-syncs"] = json_counts(reasons);
            print_json("stats", &document)
        }
    }
}

fn json_counts(counts: impl IntoIterator<Item = (String, u64)>) -> Value {
    counts.into_iter().map(|(name, count)| (name, Value::from(count))).collect()
}

fn counters(stats: &Stats) -> [(&'static str, u64); 10] {
    let Stats { nodes, discards, log, .. } = stats;
    [
        ("nodes found", nodes.hits),
        ("nodes read", nodes.misses),
        ("bytes discarded", discards.bytes),
        ("discards failed", discards.failed),
        ("log groups", log.groups),
        ("log groups shared", log.shared),
        ("log nodes", log.nodes),
        ("log bytes", log.bytes),
        ("log waits for group", log.waits_for_group),
        ("log waits for commit", log.waits_for_commit),
    ]
}
