//! `log`: replaying a pending log, with or without what is damaged, or letting go of it; and
//! `dump log`, which tells what is in it.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde_json::{Value, json};
use userbtrfs::dump::{self, dump_log};
use userbtrfs::{Counted, OpenOptions, PendingLog, Replayed, SkippedItem};
use userbtrfs_volume::Volume;

use crate::cli::args::{Format, Global};
use crate::cli::host::image::ImageArgs;
use crate::cli::host::retry::{device_to_read, is_open_elsewhere, patiently};
use crate::cli::output::{print_json, stdout};
use crate::cli::{fail, printed, unless_closed};

/// What is done with a log.
#[derive(Subcommand)]
pub(crate) enum LogVerb {
    /// Bring back what was fsynced since the last commit
    Replay(LogArgs),
    /// Bring back all but what is damaged, and list that
    Salvage(LogArgs),
    /// Show what would be lost, and throw it away
    Discard(LogArgs),
}

#[derive(clap::Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
}

pub(crate) fn run(global: &Global, verb: &LogVerb) -> Result<ExitCode> {
    match verb {
        LogVerb::Replay(args) => settle(global, args, PendingLog::Replay, "log-replay"),
        LogVerb::Salvage(args) => settle(global, args, PendingLog::Salvage, "log-salvage"),
        LogVerb::Discard(args) => {
            // Who closes the pipe has seen enough of what is lost.
            let shown = unless_closed(show(global, args))?;
            settle_quietly(args, PendingLog::Discard)?;
            Ok(shown)
        }
    }
}

/// Tells what is in a log.
pub(crate) fn show(global: &Global, args: &LogArgs) -> Result<ExitCode> {
    let name = args.image.name();
    let volume = open(&args.image).map_err(|error| args.image.explain(error))?;
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
    if !dump_log(&volume, format, &mut out, &mut damaged).with_context(|| name.clone())? {
        drop(out);
        return none_pending(global, "log", &name);
    }
    out.flush()?;
    Ok(code)
}

fn open(image: &ImageArgs) -> Result<Volume> {
    Ok(Volume::open(vec![Arc::new(device_to_read(image)?)])?)
}

fn settle(global: &Global, args: &LogArgs, what: PendingLog, name: &str) -> Result<ExitCode> {
    let Some(replayed) = settle_quietly(args, what)? else {
        return none_pending(global, name, &args.image.name());
    };
    printed(match global.format {
        Format::Json => print_json(name, &document(&replayed)),
        Format::Text => print(&replayed),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn settle_quietly(args: &LogArgs, what: PendingLog) -> Result<Option<Replayed>> {
    let named = || args.image.name();
    let mut options = OpenOptions::new();
    options.write(true).pending_log(what).commit_seconds(0);
    args.image.apply(&mut options);
    let opened = patiently(|| options.open(&args.image.image), is_open_elsewhere);
    let mut filesystem = opened.map_err(|error| args.image.explain(error))?;
    let replayed = filesystem.take_replayed();
    filesystem.close().with_context(named)?;
    Ok(replayed)
}

fn none_pending(global: &Global, name: &str, image: &str) -> Result<ExitCode> {
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

fn print(replayed: &Replayed) -> Result<()> {
    let Replayed { generation, subvolumes, inodes, names_added, names_removed, .. } = replayed;
    let mut out = stdout();
    writeln!(out, "Replayed what was fsynced after generation {generation}:")?;
    writeln!(out, "{} of {}", Counted(*inodes, "inode"), Counted(*subvolumes, "subvolume"))?;
    writeln!(out, "{} came, {names_removed} went", Counted(*names_added, "name"))?;
    writeln!(out, "{} of files", Counted(replayed.extents, "range"))?;
    writeln!(out, "{} deleted", Counted(replayed.deleted, "inode"))?;
    for left_out in &replayed.left_out {
        writeln!(out, "left out: {}", left_out.error)?;
    }
    out.flush()?;
    Ok(())
}

fn document(replayed: &Replayed) -> Value {
    json!({
        "generation": replayed.generation,
        "subvolumes": replayed.subvolumes,
        "inodes": replayed.inodes,
        "names_added": replayed.names_added,
        "names_removed": replayed.names_removed,
        "extents": replayed.extents,
        "deleted": replayed.deleted,
        "left_out": replayed.left_out.iter().map(left_out).collect::<Value>(),
    })
}

fn left_out(left_out: &SkippedItem) -> Value {
    json!({
        "subvolume": left_out.subvolume.map(|id| id.0),
        "item": left_out.key.map(|key| key.to_string()),
        "damage": left_out.error.to_string(),
    })
}
