//! `ls`: lists directories. Errors are reported, and the listing continues.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use userbtrfs::{FileKind, Inode, Metadata, Quoted, WalkEntry, join_path};

use crate::cli::args::{Format, LsArgs};
use crate::cli::output::{JsonList, stdout, with_name};
use crate::cli::report::ExitStatus;
use crate::cli::session::Session;
use crate::cli::text;

pub(crate) fn run(session: &Session, args: &LsArgs) -> Result<ExitCode> {
    let failures = ExitStatus::default();
    let paths = session.expand(&session.paths_or_start(&args.paths));
    match session.global.format {
        Format::Text => list_text(session, args, &paths, &failures)?,
        Format::Json => list_json(session, args, &paths, &failures)?,
    }
    Ok(failures.code())
}

fn list_text(
    session: &Session,
    args: &LsArgs,
    paths: &[OsString],
    failures: &ExitStatus,
) -> Result<()> {
    let mut out = stdout();
    let several = paths.len() > 1 || args.recursive;
    let mut first = true;
    for_each_listing(session, args, paths, failures, |listing| {
        let gap = if std::mem::take(&mut first) { "" } else { "\n" };
        if listing.directory && several {
            writeln!(out, "{gap}{}:", Quoted(listing.path))?;
        }
        listing.each(failures, |name, inode| print_line(&mut out, args, name, inode))
    })?;
    out.flush()?;
    Ok(())
}

fn list_json(
    session: &Session,
    args: &LsArgs,
    paths: &[OsString],
    failures: &ExitStatus,
) -> Result<()> {
    let mut list = JsonList::start(stdout(), "ls")?;
    for_each_listing(session, args, paths, failures, |listing| {
        listing.each(failures, |name, inode| {
            let document = describe(&inode.metadata()?, inode)?;
            let document = with_name(document, "name", name);
            list.add(&with_name(document, "path", &listing.path_of(name)))
        })
    })?;
    list.end()
}

/// The entries of a directory, or the paths that name no directory.
struct Listing<'a> {
    path: &'a [u8],
    directory: bool,
    entries: Vec<(Vec<u8>, Inode)>,
}

impl Listing<'_> {
    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        if self.directory { join_path(self.path, name) } else { name.to_vec() }
    }

    fn each(
        &self,
        failures: &ExitStatus,
        mut show: impl FnMut(&[u8], &Inode) -> Result<()>,
    ) -> Result<()> {
        self.entries.iter().try_for_each(|(name, inode)| {
            let path = || Quoted(&self.path_of(name)).to_string();
            failures.continue_after(show(name, inode).with_context(path))
        })
    }

    /// Sorts the entries as the options say.
    fn sort(&mut self, args: &LsArgs) {
        self.entries.sort_by(|a, b| a.0.cmp(&b.0));
        // An error is reported when the entry is shown.
        if args.by_size {
            self.entries
                .sort_by_cached_key(|(_, it)| Reverse(it.metadata().map_or(0, |it| it.size)));
        } else if args.time {
            let time = |metadata: Metadata| (metadata.modified.sec, metadata.modified.nsec);
            self.entries.sort_by_cached_key(|(_, it)| Reverse(it.metadata().ok().map(time)));
        }
        if args.reverse {
            self.entries.reverse();
        }
    }
}

/// Calls `show` with the paths that name no directory, then with each directory, and with
/// `--recursive` with the directories below it.
fn for_each_listing(
    session: &Session,
    args: &LsArgs,
    paths: &[OsString],
    failures: &ExitStatus,
    mut show: impl FnMut(&Listing<'_>) -> Result<()>,
) -> Result<()> {
    let filesystem = &session.filesystem;
    let mut files = Vec::new();
    let mut dirs = Vec::new();
    for path in paths {
        let path = path.as_encoded_bytes();
        let mut sort = || -> Result<()> {
            let inode = filesystem.lookup_no_follow(path)?;
            let is_dir = inode.metadata()?.is_dir() && !args.directory;
            (if is_dir { &mut dirs } else { &mut files }).push((path.to_vec(), inode));
            Ok(())
        };
        failures.continue_after(sort().with_context(|| Quoted(path).to_string()))?;
    }
    let sorted = |entries: Vec<(Vec<u8>, Inode)>| {
        let mut listing = Listing { path: b"", directory: false, entries };
        listing.sort(args);
        listing
    };
    let files = sorted(files);
    if !files.entries.is_empty() {
        show(&files)?;
    }
    sorted(dirs).entries.iter().try_for_each(|(path, inode)| {
        let done = list_one(inode, path, args, failures, &mut show);
        failures.continue_after(done.with_context(|| Quoted(path).to_string()))
    })
}

fn list_one(
    inode: &Inode,
    path: &[u8],
    args: &LsArgs,
    failures: &ExitStatus,
    show: &mut impl FnMut(&Listing<'_>) -> Result<()>,
) -> Result<()> {
    show(&listing(inode, path, args, failures)?)?;
    if !args.recursive {
        return Ok(());
    }
    for entry in inode.filesystem().walk(path)?.skip(1) {
        let below = entry.map_err(anyhow::Error::from).and_then(
            |WalkEntry { path, kind, inode, .. }| match kind {
                FileKind::Directory => show(&listing(&inode, &path, args, failures)?),
                _ => Ok(()),
            },
        );
        failures.continue_after(below.with_context(|| Quoted(path).to_string()))?;
    }
    Ok(())
}

/// Returns the entries of a directory, sorted.
fn listing<'a>(
    inode: &Inode,
    path: &'a [u8],
    args: &LsArgs,
    failures: &ExitStatus,
) -> Result<Listing<'a>> {
    let dir = inode.open_dir()?;
    let mut entries = Vec::new();
    for entry in dir.entries() {
        let take = || -> Result<()> {
            let entry = entry?;
            if args.all || !entry.name().starts_with(b".") {
                entries.push((entry.name().to_vec(), dir.follow(&entry)?));
            }
            Ok(())
        };
        failures.continue_after(take().with_context(|| Quoted(path).to_string()))?;
    }
    let mut listing = Listing { path, directory: true, entries };
    listing.sort(args);
    Ok(listing)
}

fn print_line(out: &mut impl Write, args: &LsArgs, name: &[u8], inode: &Inode) -> Result<()> {
    if !args.long {
        writeln!(out, "{}", Quoted(name))?;
        return Ok(());
    }
    let metadata = inode.metadata()?;
    let target = metadata.is_symlink().then(|| inode.read_link()).transpose()?;
    let size = match metadata.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!("{}, {}", metadata.device.0, metadata.device.1)
        }
        _ if args.human_readable => text::short_size(metadata.size, 1024),
        _ => metadata.size.to_string(),
    };
    let Metadata { nlink, uid, gid, modified, .. } = metadata;
    let mode = text::mode(&metadata);
    let time = text::time(modified);
    write!(out, "{mode} {nlink:>3} {uid:>5} {gid:>5} {size:>12} {time} {}", Quoted(name))?;
    if let Some(target) = target {
        write!(out, " -> {}", Quoted(&target))?;
    }
    writeln!(out)?;
    Ok(())
}

/// Returns the attributes of an inode as JSON.
pub(crate) fn describe(metadata: &Metadata, inode: &Inode) -> Result<Value> {
    let flags: Vec<_> = metadata.flags.iter_names().map(|(name, _)| name).collect();
    let mut document = json!({
        "type": text::kind(metadata.kind),
        "mode": format!("{:o}", metadata.mode & 0o7777),
        "nlink": metadata.nlink,
        "uid": metadata.uid,
        "gid": metadata.gid,
        "size": metadata.size,
        "allocated": metadata.allocated,
        "subvolume": metadata.id.subvolume.0,
        "inode": metadata.id.number,
        "generation": metadata.generation,
        "transid": metadata.transid,
        "sequence": metadata.sequence,
        "flags": flags,
        "atime": metadata.accessed.to_string(),
        "mtime": metadata.modified.to_string(),
        "ctime": metadata.changed.to_string(),
        "otime": metadata.created.to_string(),
    });
    if matches!(metadata.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        document["device"] = json!([metadata.device.0, metadata.device.1]);
    }
    if metadata.is_symlink() {
        document = with_name(document, "target", &inode.read_link()?);
    }
    Ok(document)
}
