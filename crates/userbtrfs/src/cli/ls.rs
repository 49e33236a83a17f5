//! `ls`: what is in directories.

use std::ffi::OsStr;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use userbtrfs::{FileKind, Filesystem, Inode, Metadata, Quoted, WalkEntry};

use super::args::{Format, Global, LsArgs};
use super::output::{JsonList, json_name, stdout};
use super::{open, text};

pub(crate) fn run(global: &Global, args: &LsArgs) -> Result<ExitCode> {
    let filesystem = open(global, &args.root)?;
    match global.format {
        Format::Text => list_text(&filesystem, args)?,
        Format::Json => list_json(&filesystem, args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list_text(filesystem: &Filesystem, args: &LsArgs) -> Result<()> {
    let mut out = stdout();
    let several = args.paths.len() > 1 || args.recursive;
    let mut first = true;
    for_each_listing(filesystem, args, |path, directory, listing| {
        if directory && several {
            let gap = if std::mem::take(&mut first) { "" } else { "\n" };
            writeln!(out, "{gap}{}:", Quoted(path))?;
        }
        for (name, inode) in listing {
            print_line(&mut out, args, name, inode)?;
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(())
}

fn list_json(filesystem: &Filesystem, args: &LsArgs) -> Result<()> {
    let mut list = JsonList::start(stdout(), "ls")?;
    for_each_listing(filesystem, args, |path, directory, listing| {
        for (name, inode) in listing {
            let path = if directory { join(path, name) } else { path.to_vec() };
            let mut document = describe(&inode.metadata()?, inode)?;
            document["name"] = json!(json_name(name));
            document["path"] = json!(json_name(&path));
            list.add(&document)?;
        }
        Ok(())
    })?;
    list.end()
}

type Listing = Vec<(Vec<u8>, Inode)>;

/// Calls `each` for each path: with what a directory holds, or with the one thing there.
fn for_each_listing(
    filesystem: &Filesystem,
    args: &LsArgs,
    mut each: impl FnMut(&[u8], bool, &Listing) -> Result<()>,
) -> Result<()> {
    for path in &args.paths {
        let path = path.as_encoded_bytes();
        let named = || Quoted(path).to_string();
        let inode = filesystem.lookup_no_follow(path).with_context(named)?;
        if inode.metadata().with_context(named)?.kind != FileKind::Directory {
            each(path, false, &vec![(path.to_vec(), inode)])?;
            continue;
        }
        each(path, true, &listing(&inode, args).with_context(named)?)?;
        if !args.recursive {
            continue;
        }
        for entry in filesystem.walk(path).with_context(named)?.skip(1) {
            let WalkEntry { path, kind, inode, .. } = entry.with_context(named)?;
            if kind == FileKind::Directory {
                let listing = listing(&inode, args).with_context(|| Quoted(&path).to_string())?;
                each(&path, true, &listing)?;
            }
        }
    }
    Ok(())
}

/// What a directory holds, by name.
fn listing(inode: &Inode, args: &LsArgs) -> Result<Listing> {
    let dir = inode.open_dir()?;
    let mut found = Listing::new();
    for entry in dir.entries() {
        let entry = entry?;
        if args.all || !entry.name().starts_with(b".") {
            found.push((entry.name().to_vec(), dir.follow(&entry)?));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn print_line(out: &mut impl Write, args: &LsArgs, name: &[u8], inode: &Inode) -> Result<()> {
    if !args.long {
        writeln!(out, "{}", Quoted(name))?;
        return Ok(());
    }
    let metadata = inode.metadata().with_context(|| Quoted(name).to_string())?;
    let size = match metadata.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!("{}, {}", metadata.device.0, metadata.device.1)
        }
        _ => metadata.size.to_string(),
    };
    let Metadata { nlink, uid, gid, modified, .. } = metadata;
    let (mode, time) = (text::mode(&metadata), text::time(modified));
    write!(out, "{mode} {nlink:>3} {uid:>5} {gid:>5} {size:>12} {time} {}", Quoted(name))?;
    if metadata.is_symlink() {
        write!(out, " -> {}", Quoted(&inode.read_link()?))?;
    }
    writeln!(out)?;
    Ok(())
}

/// An inode as a document.
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
        document["target"] = json!(json_name(&inode.read_link()?));
    }
    Ok(document)
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, separator, name].concat()
}

/// A path that was given on the command line, for messages.
pub(crate) fn shown(path: &OsStr) -> String {
    Quoted(path.as_encoded_bytes()).to_string()
}
