//! `stat`: shows the attributes of files, with their extended attributes and extents. Errors are
//! reported, and the next file follows.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use userbtrfs::{Extent, ExtentKind, FileKind, Inode, Metadata, Quoted};

use crate::cli::args::{Format, PathsArgs};
use crate::cli::output::{JsonList, stdout, with_name};
use crate::cli::report::ExitStatus;
use crate::cli::session::{RunVerb, Session};
use crate::cli::text;
use crate::cli::text::shown;
use crate::cli::verbs::encoding::encode;
use crate::cli::verbs::ls::describe;
use crate::cli::verbs::stat_format::Template;

#[derive(clap::Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    paths: PathsArgs,
    /// Print FORMAT and a newline for each file, as stat(1) does: %a %A %b %B %d %D %f %F %g %G %h
    /// %i %m %n %N %o %r %R %s %t %T %u %U %w %W %x %X %y %Y %z %Z
    #[arg(
        short = 'c',
        value_name = "FORMAT",
        conflicts_with = "printf",
        allow_hyphen_values = true
    )]
    line: Option<Template>,
    /// Like -c, but with escapes such as \n, and without a newline at the end
    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = Template::with_escapes,
        allow_hyphen_values = true
    )]
    printf: Option<Template>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
}

impl RunVerb for StatArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let failures = ExitStatus::default();
        match session.global.format {
            Format::Text => {
                let mut out = stdout();
                each(session, self, &failures, |path, inode| self.print(&mut out, path, inode))?;
                out.flush()?;
            }
            Format::Json => {
                let mut list = JsonList::start(stdout(), "stat")?;
                each(session, self, &failures, |path, inode| list.add(&document(path, inode)?))?;
                list.end()?;
            }
        }
        Ok(failures.code())
    }
}

impl StatArgs {
    fn print(&self, out: &mut impl Write, path: &[u8], inode: &Inode) -> Result<()> {
        match (&self.line, &self.printf) {
            (Some(line), _) => {
                out.write_all(&line.fill(path, inode)?)?;
                Ok(writeln!(out)?)
            }
            (None, Some(printf)) => Ok(out.write_all(&printf.fill(path, inode)?)?),
            (None, None) => print(out, path, inode),
        }
    }
}

fn each(
    session: &Session,
    args: &StatArgs,
    failures: &ExitStatus,
    mut show: impl FnMut(&[u8], &Inode) -> Result<()>,
) -> Result<()> {
    let filesystem = &session.filesystem;
    for path in &session.expand(&args.paths.paths) {
        let bytes = path.as_encoded_bytes();
        let inode = if args.dereference {
            filesystem.lookup(bytes)
        } else {
            filesystem.lookup_no_follow(bytes)
        };
        let inode = inode.map_err(anyhow::Error::from);
        let done = inode.and_then(|inode| show(bytes, &inode));
        failures.continue_after(done.with_context(|| shown(path)))?;
    }
    Ok(())
}

fn print(out: &mut impl Write, path: &[u8], inode: &Inode) -> Result<()> {
    let metadata = inode.metadata()?;
    let Metadata { id, size, allocated, nlink, uid, gid, .. } = metadata;
    writeln!(out, "  File: {}", Quoted(path))?;
    if metadata.is_symlink() {
        writeln!(out, "Target: {}", Quoted(&inode.read_link()?))?;
    }
    let kind = text::kind(metadata.kind);
    writeln!(out, "  Size: {size}\tAllocated: {allocated}\t{kind}")?;
    writeln!(out, " Inode: {}\tSubvolume: {}\tLinks: {nlink}", id.number, id.subvolume.0)?;
    if matches!(metadata.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        writeln!(out, "Device: {}, {}", metadata.device.0, metadata.device.1)?;
    }
    let octal = metadata.mode & 0o7777;
    let mode = text::mode(&metadata);
    writeln!(out, "Access: ({octal:04o}/{mode})\tUid: {uid}\tGid: {gid}")?;
    for (name, time) in [
        ("Access", metadata.accessed),
        ("Modify", metadata.modified),
        ("Change", metadata.changed),
        (" Birth", metadata.created),
    ] {
        writeln!(out, "{name}: {}", text::time_exact(time))?;
    }
    let flags: Vec<_> = metadata.flags.iter_names().map(|(name, _)| name).collect();
    if !flags.is_empty() {
        writeln!(out, " Flags: {}", flags.join(" "))?;
    }
    for (name, value) in inode.xattrs()? {
        writeln!(out, " Xattr: {}={}", Quoted(&name), text::hex(&value))?;
    }
    for extent in extents(&metadata, inode)? {
        print_extent(out, &extent)?;
    }
    Ok(())
}

fn print_extent(out: &mut impl Write, extent: &Extent) -> Result<()> {
    let Extent { start, len, kind } = extent;
    write!(out, "Extent: {start} +{len} ")?;
    match kind {
        ExtentKind::Hole => writeln!(out, "hole")?,
        ExtentKind::Inline => writeln!(out, "inline")?,
        ExtentKind::Prealloc { logical } => writeln!(out, "prealloc at {logical}")?,
        ExtentKind::Data { logical, disk_bytes, offset, compression } => {
            let how = compression.map_or_else(String::new, |how| format!(" {how:?}"));
            let how = how.to_lowercase();
            writeln!(out, "data at {logical} +{disk_bytes}, {offset} into it{how}")?;
        }
    }
    Ok(())
}

fn extents(metadata: &Metadata, inode: &Inode) -> Result<Vec<Extent>> {
    Ok(if metadata.is_file() { inode.open()?.extents()? } else { Vec::new() })
}

fn document(path: &[u8], inode: &Inode) -> Result<Value> {
    let metadata = inode.metadata()?;
    let mut document = with_name(describe(&metadata, inode)?, "path", path);
    let xattrs = inode.xattrs()?;
    document["xattrs"] = xattrs
        .iter()
        .map(|(name, value)| with_name(json!({ "value": encode(value) }), "name", name))
        .collect();
    document["extents"] = extents(&metadata, inode)?.iter().map(extent_document).collect();
    Ok(document)
}

fn extent_document(extent: &Extent) -> Value {
    let mut document = json!({ "start": extent.start, "length": extent.len });
    let (kind, details) = match extent.kind {
        ExtentKind::Hole => ("hole", json!({})),
        ExtentKind::Inline => ("inline", json!({})),
        ExtentKind::Prealloc { logical } => ("prealloc", json!({ "logical": logical })),
        ExtentKind::Data { logical, disk_bytes, offset, compression } => {
            let compression = compression.map(|how| format!("{how:?}").to_lowercase());
            let details = json!({
                "logical": logical,
                "disk_bytes": disk_bytes,
                "offset": offset,
                "compression": compression,
            });
            ("data", details)
        }
    };
    document["type"] = json!(kind);
    if let (Value::Object(all), Value::Object(details)) = (&mut document, details) {
        all.extend(details);
    }
    document
}
