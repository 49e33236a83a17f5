//! `find`: lists everything below paths that matches all predicates. Errors are reported, and the
//! walk continues.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::json;
use userbtrfs::{FileKind, Filesystem, Quoted, WalkEntry};

use crate::cli::args::{FindArgs, Format};
use crate::cli::globs::{Case, is_match};
use crate::cli::output::{JsonList, stdout, with_name};
use crate::cli::paths::last_name;
use crate::cli::report::ExitStatus;
use crate::cli::session::Session;
use crate::cli::text;

pub(crate) fn run(session: &Session, args: &FindArgs) -> Result<ExitCode> {
    let failures = ExitStatus::default();
    match session.global.format {
        Format::Text => {
            let end: &[u8] = if args.print0 { b"\0" } else { b"\n" };
            let mut out = stdout();
            each(session, args, &failures, |entry| {
                out.write_all(&entry.path)?;
                out.write_all(end)?;
                Ok(())
            })?;
            out.flush()?;
        }
        Format::Json => {
            let mut list = JsonList::start(stdout(), "find")?;
            each(session, args, &failures, |entry| {
                let document = json!({ "type": text::kind(entry.kind) });
                list.add(&with_name(document, "path", &entry.path))
            })?;
            list.end()?;
        }
    }
    Ok(failures.code())
}

fn each(
    session: &Session,
    args: &FindArgs,
    failures: &ExitStatus,
    mut show: impl FnMut(&WalkEntry) -> Result<()>,
) -> Result<()> {
    for path in session.paths_or_start(&args.paths).iter() {
        let found = below(&session.filesystem, args, path, failures, &mut show);
        failures.continue_after(found.with_context(|| text::shown(path)))?;
    }
    Ok(())
}

fn below(
    filesystem: &Filesystem,
    args: &FindArgs,
    path: &OsStr,
    failures: &ExitStatus,
    show: &mut impl FnMut(&WalkEntry) -> Result<()>,
) -> Result<()> {
    let mut walk = filesystem.walk(path.as_encoded_bytes())?;
    let mut subvolume = None;
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                failures.report(&anyhow::Error::from(error).context(text::shown(path)));
                continue;
            }
        };
        let id = entry.inode.id().subvolume;
        let is_foreign = *subvolume.get_or_insert(id) != id;
        let is_deep = args.maxdepth.is_some_and(|most| entry.depth >= most);
        if entry.kind == FileKind::Directory && (is_deep || (is_foreign && args.one_subvolume)) {
            walk.skip_dir();
        }
        let shown = args.matches(&entry).map_err(anyhow::Error::from);
        let shown = shown.and_then(|matches| if matches { show(&entry) } else { Ok(()) });
        failures.continue_after(shown.with_context(|| Quoted(&entry.path).to_string()))?;
    }
    Ok(())
}

impl FindArgs {
    /// Returns true if an entry matches all predicates.
    fn matches(&self, entry: &WalkEntry) -> Result<bool, userbtrfs::Error> {
        let name = last_name(&entry.path).unwrap_or(&entry.path);
        let fits = |wanted: &[OsString], refused: &[OsString], text: &[u8], case| {
            let matches = |pattern: &OsString| is_match(pattern.as_encoded_bytes(), text, case);
            wanted.iter().all(matches) && !refused.iter().any(matches)
        };
        Ok(self.mindepth.is_none_or(|least| entry.depth >= least)
            && self.kinds.iter().all(|kinds| kinds.contains(entry.kind))
            && !self.not_kinds.iter().any(|kinds| kinds.contains(entry.kind))
            && fits(&self.name, &self.not_name, name, Case::Exact)
            && fits(&self.iname, &self.not_iname, name, Case::Ignored)
            && fits(&self.path, &self.not_path, &entry.path, Case::Exact)
            && (!self.empty || is_empty(entry)?)
            && (!self.not_empty || !is_empty(entry)?))
    }
}

fn is_empty(entry: &WalkEntry) -> Result<bool, userbtrfs::Error> {
    match entry.kind {
        FileKind::Regular => Ok(entry.inode.metadata()?.size == 0),
        FileKind::Directory => Ok(entry.inode.open_dir()?.entries().next().is_none()),
        _ => Ok(false),
    }
}
