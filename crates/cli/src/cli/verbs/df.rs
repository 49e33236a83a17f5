//! `df`: shows the use of space, in the format of `btrfs filesystem df`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use userbtrfs::{SpaceUse, Usage};

use crate::cli::args::{DfArgs, Format};
use crate::cli::block_groups::{document, kind_name};
use crate::cli::output::{print_json, stdout};
use crate::cli::session::Session;
use crate::cli::text;

pub(crate) fn run(session: &Session, args: &DfArgs) -> Result<ExitCode> {
    let usage = session.filesystem.usage().with_context(|| session.name.clone())?;
    match session.global.format {
        Format::Text => print(&usage, args.raw)?,
        Format::Json => print_json("filesystem-df", &document(&usage))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(usage: &Usage, raw: bool) -> Result<()> {
    let size = |bytes: u64| if raw { bytes.to_string() } else { text::size(bytes) };
    let mut out = stdout();
    for SpaceUse { flags, profile, total, used } in &usage.kinds {
        let kind = kind_name(*flags);
        let profile = profile.name();
        writeln!(out, "{kind}, {profile}: total={}, used={}", size(*total), size(*used))?;
    }
    let total = size(usage.device_size);
    let allocated = size(usage.device_allocated);
    writeln!(out, "Device: total={total}, allocated={allocated}")?;
    out.flush()?;
    Ok(())
}
