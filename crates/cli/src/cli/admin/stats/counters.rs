//! The counters of `stats`, each with its explanation.
//!
//! 1. A counter is defined here once: its name, its explanation and its value. The output, `stats
//!    --explain` and the manual page are made from these definitions.

use userbtrfs::mount::Opcode;
use userbtrfs::{CommitTrigger, FullCommitReason, StatFs, Stats};

/// The values that counters are read from.
pub(super) struct Values {
    pub(super) stats: Stats,
    /// `None` if it cannot be read.
    pub(super) space: Option<StatFs>,
}

/// A counter of the filesystem.
pub(super) struct Counter {
    pub(super) name: &'static str,
    pub(super) explanation: &'static str,
    pub(super) value: fn(&Values) -> u64,
}

impl Counter {
    const fn new(name: &'static str, explanation: &'static str, value: fn(&Values) -> u64) -> Self {
        Self { name, explanation, value }
    }
}

/// The counters that each filesystem has, in the order of the output.
pub(super) const COUNTERS: [Counter; 19] = [
    Counter::new("nodes found", "tree blocks that were in the cache", |of| of.stats.nodes.hits),
    Counter::new("nodes read", "tree blocks that were read from the device", |of| {
        of.stats.nodes.misses
    }),
    Counter::new("bytes discarded", "bytes that were discarded on the device", |of| {
        of.stats.discards.bytes
    }),
    Counter::new("discards failed", "discards that the device failed", |of| {
        of.stats.discards.failed
    }),
    Counter::new("copies bad", "bad copies of blocks that were found", |of| of.stats.copies.bad),
    Counter::new("copies repaired", "bad copies that were written again from a good one", |of| {
        of.stats.copies.repaired
    }),
    Counter::new("fsyncs", "fsyncs of files and directories that ended", |of| of.stats.syncs.count),
    Counter::new("fsync microseconds", "the sum of the durations of these fsyncs", |of| {
        u64::try_from(of.stats.syncs.time.as_micros()).unwrap_or(u64::MAX)
    }),
    Counter::new("log groups", "log commits that became durable", |of| of.stats.log.log_commits),
    Counter::new(
        "log groups shared",
        "fsyncs whose log commit was durable already, or that another thread wrote",
        |of| of.stats.log.shared,
    ),
    Counter::new("log nodes", "tree blocks of logs that were written", |of| of.stats.log.nodes),
    Counter::new("log bytes", "bytes of these tree blocks, one copy of each", |of| {
        of.stats.log.bytes
    }),
    Counter::new(
        "log waits for group",
        "log commits that waited for the log commit before",
        |of| of.stats.log.waits_for_log_commit,
    ),
    Counter::new(
        "log waits for commit",
        "log commits that waited for the superblock of the previous transaction",
        |of| of.stats.log.waits_for_commit,
    ),
    Counter::new("dirty data", "bytes of file data that are not written yet, now", |of| {
        of.stats.dirty.data
    }),
    Counter::new(
        "dirty metadata",
        "bytes of changes of trees that are not written yet, about, now",
        |of| of.stats.dirty.metadata,
    ),
    Counter::new("space total", "bytes that the empty filesystem can hold, as df shows", |of| {
        of.space.map_or(0, |space| space.total)
    }),
    Counter::new("space free", "bytes that neither data nor trees use, now", |of| {
        of.space.map_or(0, |space| space.free)
    }),
    Counter::new("space available", "bytes that files can still take, about, now", |of| {
        of.space.map_or(0, |space| space.available)
    }),
];

/// The start of the name of a counter of commits.
pub(super) const COMMITS: &str = "commits, ";
/// The start of the name of a counter of requests.
pub(super) const REQUESTS: &str = "requests, ";

/// Returns the kinds of requests that are counted; all unknown kinds count as the last one.
pub(super) fn request_kinds() -> impl Iterator<Item = Opcode> {
    Opcode::ALL.iter().copied().chain([Opcode::Unknown(0)])
}

/// Returns the names and the explanations of all counters, in the order of the output.
pub(super) fn explanations() -> Vec<(String, String)> {
    let counters = COUNTERS.iter().map(|it| (it.name.to_owned(), it.explanation.to_owned()));
    let commits = CommitTrigger::ALL.map(|it| (it.name().to_owned(), of_trigger(it)));
    let reasons = FullCommitReason::ALL.map(|it| (it.to_string(), of_reason(it)));
    let commits = commits.into_iter().chain(reasons);
    let commits = commits.map(|(name, text)| (format!("{COMMITS}{name}"), text.to_owned()));
    let requests = request_kinds().map(|kind| (format!("{REQUESTS}{kind}"), of_request(kind)));
    counters.chain(commits).chain(requests).collect()
}

fn of_trigger(trigger: CommitTrigger) -> &'static str {
    match trigger {
        CommitTrigger::Asked => "commits that a caller asked for, or the end of the mount",
        CommitTrigger::Sync => "commits in place of a log, each for one of the reasons below",
        CommitTrigger::Age => "commits because the commit interval was over",
        CommitTrigger::Memory => "commits because changes took too much memory",
        CommitTrigger::Space => "commits because space that they freed was needed",
    }
}

fn of_reason(reason: FullCommitReason) -> &'static str {
    match reason {
        FullCommitReason::Disabled => "transactions without logs, by the option notreelog",
        FullCommitReason::NewBlockGroup => {
            "transactions with changes in a block group that the last commit does not have"
        }
        FullCommitReason::NoSpace => "transactions for whose log there was no space",
        FullCommitReason::Failed => "transactions whose log could not be made or written",
        FullCommitReason::DataFailed => "transactions whose logged data could not be written",
        FullCommitReason::TooManyExtents => {
            "transactions in which a file had more extents than are logged"
        }
        FullCommitReason::LargeItem => {
            "transactions with an item that may be too large for a replay by Linux"
        }
        FullCommitReason::Forgotten => {
            "transactions in which the changes of an inode were no longer tracked"
        }
        FullCommitReason::SpaceBehindEnd => {
            "transactions in which space beyond the end of a file was no longer tracked"
        }
        FullCommitReason::NameMoved => {
            "transactions in which a directory to be logged was moved, or lost a name to another"
        }
        FullCommitReason::Subvolume => {
            "transactions in which a subvolume was created, renamed or deleted"
        }
        FullCommitReason::Feature => {
            "transactions that use a feature which the last superblock does not name"
        }
    }
}

/// Returns the explanation of a kind of requests as a phrase.
fn of_request(kind: Opcode) -> String {
    let text = kind.explanation().trim_end_matches('.');
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_counter_has_a_name_of_its_own_and_a_phrase() {
        let all = explanations();
        let names: HashSet<_> = all.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), all.len());
        for (name, text) in &all {
            let is_phrase = text.len() > 8 && !text.ends_with('.') && text.is_ascii();
            assert!(is_phrase && text.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
        }
        let kinds = Opcode::ALL.len() + 1;
        let commits = CommitTrigger::ALL.len() + FullCommitReason::ALL.len();
        assert_eq!(all.len(), COUNTERS.len() + commits + kinds);
    }
}
