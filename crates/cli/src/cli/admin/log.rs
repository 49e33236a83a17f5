//! `log`: replays a pending log, skips its damaged items on request, or discards it; and
//! `dump log`, which prints its content.

mod report;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde_json::Value;
use userbtrfs::dump::{self, dump_log};
use userbtrfs::{OpenOptions, PendingLog};
use userbtrfs_volume::Volume;

use crate::cli::args::{Format, Global};
use crate::cli::host::image::ImageArgs;
use crate::cli::host::meter::open_watched;
use crate::cli::host::retry::{device_to_read, open_when_free};
use crate::cli::output::{print_json, stdout, write_member};
use crate::cli::report::{end_at_closed_pipe, fail, ignore_closed_pipe};
use report::Report;

/// The operations on a pending log.
#[derive(Subcommand)]
pub(crate) enum LogVerb {
    /// Replay the log
    Replay(LogArgs),
    /// Replay the log, skip damaged items and list them
    Salvage(SalvageArgs),
    /// Show the log and discard it
    Discard(LogArgs),
}

#[derive(clap::Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
}

#[derive(clap::Args)]
pub(crate) struct SalvageArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Also replay files with missing ranges, which then hold the data of the last commit, or zeros
    /// [default: such a file keeps the contents of the last commit, or is empty if it is new]
    #[arg(long)]
    partial: bool,
}

pub(crate) fn run(global: &Global, verb: &LogVerb) -> Result<ExitCode> {
    match verb {
        LogVerb::Replay(args) => replay_and_report(global, args, PendingLog::Replay, "log-replay"),
        LogVerb::Salvage(args) => {
            let how = if args.partial { PendingLog::SalvagePartial } else { PendingLog::Salvage };
            replay_and_report(global, &args.log, how, "log-salvage")
        }
        LogVerb::Discard(args) => {
            // The log is discarded even if the reader closes the pipe before all of it is shown.
            let shown = end_at_closed_pipe(show(global, args, "log-discard"))?;
            replay(global, args, PendingLog::Discard)?;
            Ok(shown)
        }
    }
}

/// Prints the content of a log; `verb` is the name of the document.
pub(crate) fn show(global: &Global, args: &LogArgs, verb: &str) -> Result<ExitCode> {
    let name = args.image.name();
    let volume = open(&args.image).map_err(|error| args.image.explain(error))?;
    if volume.superblock().log_root.is_none() {
        return print_no_log(global, verb, &name);
    }
    let mut code = ExitCode::SUCCESS;
    let mut damaged = |error: &userbtrfs_volume::ReadError| {
        fail(&format!("{name}: {error}"));
        code = ExitCode::FAILURE;
    };
    let format = match global.format {
        Format::Text => dump::Format::Text,
        Format::Json => dump::Format::Json,
    };
    let mut out = stdout();
    write_member(&mut out, global.format, verb, |out| {
        dump_log(&volume, format, out, &mut damaged).with_context(|| name.clone())?;
        Ok(())
    })?;
    out.flush()?;
    Ok(code)
}

fn open(image: &ImageArgs) -> Result<Volume> {
    Ok(Volume::open(vec![Arc::new(device_to_read(image)?)])?)
}

fn replay_and_report(
    global: &Global,
    args: &LogArgs,
    what: PendingLog,
    name: &str,
) -> Result<ExitCode> {
    let Some(report) = replay(global, args, what)? else {
        return print_no_log(global, name, &args.image.name());
    };
    ignore_closed_pipe(match global.format {
        Format::Json => print_json(name, &report.document()),
        Format::Text => print(&report),
    })?;
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay(global: &Global, args: &LogArgs, what: PendingLog) -> Result<Option<Report>> {
    let named = || args.image.name();
    let mut options = OpenOptions::new();
    options.write(true).pending_log(what).commit_seconds(0);
    args.image.apply(&mut options);
    let opened =
        open_watched(global, options, |options| open_when_free(&args.image.image, options));
    let mut filesystem = opened.map_err(|error| args.image.explain(error))?;
    let replayed = filesystem.take_replayed();
    let report = replayed.map(|replayed| Report::new(&filesystem, replayed));
    filesystem.close().with_context(named)?;
    Ok(report)
}

fn print(report: &Report) -> Result<()> {
    let mut out = stdout();
    report.write(&mut out)?;
    Ok(out.flush()?)
}

fn print_no_log(global: &Global, name: &str, image: &str) -> Result<ExitCode> {
    match global.format {
        Format::Json => print_json(name, &Value::Null)?,
        Format::Text => {
            let mut out = stdout();
            writeln!(out, "{image}: no log is pending")?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
