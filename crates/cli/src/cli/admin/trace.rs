//! `trace fsync`: prints a line for each fsync when it has ended.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::json;
use userbtrfs::{Filesystem, SyncOutcome, SyncRecord};

use crate::cli::admin::mounted::request;
use crate::cli::args::{Format, Global};
use crate::cli::output::json_line;

/// The arguments in the shell.
#[derive(clap::Args)]
pub(crate) struct TraceArgs {
    #[arg(value_enum)]
    what: Traced,
    /// Stop tracing
    #[arg(long)]
    stop: bool,
}

/// The arguments for a mount.
#[derive(clap::Args)]
pub(crate) struct TraceMountArgs {
    #[arg(value_enum)]
    what: Traced,
    /// Mount point
    mountpoint: PathBuf,
}

/// The operations that can be traced.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Traced {
    /// fsync of files and directories
    Fsync,
}

/// Prints the trace of a mount, until the mount ends or this process is stopped.
pub(crate) fn run(global: &Global, args: &TraceMountArgs) -> Result<ExitCode> {
    let Traced::Fsync = args.what;
    request(global, &args.mountpoint, &["trace".into(), "fsync".into()])
}

/// Starts or stops the trace of a filesystem.
pub(crate) fn set(filesystem: &Filesystem, args: &TraceArgs, format: Format) {
    let Traced::Fsync = args.what;
    if args.stop {
        return filesystem.stop_trace();
    }
    filesystem.trace_syncs(move |record| {
        // If the pipe is closed, the next output of the shell returns the error.
        let _ = writeln!(io::stdout(), "{}", line(record, format));
    });
}

/// Returns the line for an fsync.
pub(crate) fn line(record: &SyncRecord, format: Format) -> String {
    match format {
        Format::Text => text(record),
        Format::Json => document(record),
    }
}

/// Returns the line that counts lost lines, which were not read in time.
pub(crate) fn lost(lines: u64, format: Format) -> String {
    match format {
        Format::Text => format!("lines lost: {lines}"),
        Format::Json => json_line(json!({ "lost": lines })),
    }
}

fn text(record: &SyncRecord) -> String {
    let SyncRecord { inode, inodes, items, bytes, .. } = record;
    let (how, reason) = how(record.how);
    let how = reason.map_or_else(|| how.into(), |reason| format!("{how}, {reason}"));
    let phases = phases(record).map(|(phase, time)| format!("{phase} {}", time.as_micros()));
    let amount = format!("inodes {inodes}, items {items}, bytes {bytes}");
    format!("{inode}: {how}; {amount}; us: {}", phases.join(", "))
}

fn document(record: &SyncRecord) -> String {
    let (how, reason) = how(record.how);
    let mut document = json!({
        "subvolume": record.inode.subvolume.0,
        "inode": record.inode.number,
        "how": how,
        "reason": reason,
        "inodes": record.inodes,
        "items": record.items,
        "bytes": record.bytes,
    });
    for (phase, time) in phases(record) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        document[format!("{phase}_us").replace('-', "_")] = us.into();
    }
    json_line(document)
}

/// Returns the result of an fsync in a word, and the reason if it was a commit.
fn how(how: SyncOutcome) -> (&'static str, Option<String>) {
    match how {
        SyncOutcome::Unchanged => ("unchanged", None),
        SyncOutcome::Logged => ("log", None),
        SyncOutcome::Committed(reason) => ("commit", Some(reason.to_string())),
        SyncOutcome::Failed => ("failed", None),
    }
}

fn phases(record: &SyncRecord) -> [(&'static str, Duration); 5] {
    [
        ("write-back", record.write_back),
        ("collect", record.collect),
        ("writers", record.writers),
        ("commit", record.previous),
        ("device", record.device),
    ]
}
