//! `find`: lists everything below a path. Errors are reported, and the walk continues.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::json;
use userbtrfs::{Filesystem, WalkEntry};

use crate::cli::args::{FindArgs, Format};
use crate::cli::output::{JsonList, json_name, stdout};
use crate::cli::report::ExitStatus;
use crate::cli::session::Session;
use crate::cli::text;
use crate::cli::text::shown;

pub(crate) fn run(session: &Session, args: &FindArgs) -> Result<ExitCode> {
    let filesystem = &session.filesystem;
    let failures = ExitStatus::default();
    match session.global.format {
        Format::Text => {
            let end: &[u8] = if args.print0 { b"\0" } else { b"\n" };
            let mut out = stdout();
            each(filesystem, args, &failures, |entry| {
                out.write_all(&entry.path)?;
                out.write_all(end)?;
                Ok(())
            })?;
            out.flush()?;
        }
        Format::Json => {
            let mut list = JsonList::start(stdout(), "find")?;
            each(filesystem, args, &failures, |entry| {
                let path = json_name(&entry.path);
                let kind = text::kind(entry.kind);
                list.add(&json!({ "path": path, "type": kind }))
            })?;
            list.end()?;
        }
    }
    Ok(failures.code())
}

fn each(
    filesystem: &Filesystem,
    args: &FindArgs,
    failures: &ExitStatus,
    mut show: impl FnMut(&WalkEntry) -> Result<()>,
) -> Result<()> {
    let named = || shown(&args.path);
    let walk = match filesystem.walk(args.path.as_encoded_bytes()) {
        Ok(walk) => walk,
        Err(error) => return failures.continue_after(Err(error).with_context(named)),
    };
    for entry in walk {
        let entry = entry.map_err(anyhow::Error::from);
        failures.continue_after(entry.and_then(|entry| show(&entry)).with_context(named))?;
    }
    Ok(())
}
