//! `find`: everything below a path. What cannot be read is reported, and the rest goes on.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::json;
use userbtrfs::WalkEntry;

use super::args::{FindArgs, Format, Global};
use super::ls::shown;
use super::output::{JsonList, json_name, stdout};
use super::{complain, open, text};

pub(crate) fn run(global: &Global, args: &FindArgs) -> Result<ExitCode> {
    match global.format {
        Format::Text => {
            let end: &[u8] = if args.print0 { b"\0" } else { b"\n" };
            let mut out = stdout();
            let code = each(global, args, |entry| {
                out.write_all(&entry.path)?;
                out.write_all(end)?;
                Ok(())
            })?;
            out.flush()?;
            Ok(code)
        }
        Format::Json => {
            let mut list = JsonList::start(stdout(), "find")?;
            let code = each(global, args, |entry| {
                let (path, kind) = (json_name(&entry.path), text::kind(entry.kind));
                list.add(&json!({ "path": path, "type": kind }))
            })?;
            list.end()?;
            Ok(code)
        }
    }
}

fn each(
    global: &Global,
    args: &FindArgs,
    mut show: impl FnMut(&WalkEntry) -> Result<()>,
) -> Result<ExitCode> {
    let filesystem = open(global, &args.root)?;
    let start = args.path.as_encoded_bytes();
    let mut code = ExitCode::SUCCESS;
    for entry in filesystem.walk(start).with_context(|| shown(&args.path))? {
        match entry {
            Ok(entry) => show(&entry)?,
            Err(error) => {
                complain(&format!("{}: {error}", shown(&args.path)));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
