//! `subvolume list` and `subvolume show`, in the format of btrfs-progs.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use userbtrfs::{Filesystem, Quoted, SubvolumeInfo, Timestamp};

use crate::cli::admin::mounted::request;
use crate::cli::args::{DirectIo, Format, Global, RootArgs};
use crate::cli::output::{JsonList, json_name, stdout, write_json};
use crate::cli::session::{Access, Session};
use crate::cli::text;
use crate::cli::text::shown;

/// The ways to show subvolumes.
#[derive(Subcommand)]
pub(crate) enum SubvolumeVerb {
    /// List all subvolumes
    List(RootOnlyArgs),
    /// Show one subvolume
    Show(SubvolumeShowArgs),
}

#[derive(clap::Args)]
pub(crate) struct RootOnlyArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
}

#[derive(clap::Args)]
pub(crate) struct SubvolumeShowArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
    /// Path of the subvolume in the image
    #[arg(default_value = "/")]
    pub(crate) path: OsString,
}

pub(crate) fn run(global: &Global, verb: &SubvolumeVerb) -> Result<ExitCode> {
    match verb {
        SubvolumeVerb::List(args) => list(global, args),
        SubvolumeVerb::Show(args) => show(global, args),
    }
}

fn list(global: &Global, args: &RootOnlyArgs) -> Result<ExitCode> {
    if let Some(point) = mountpoint(&args.root)? {
        return request(global, point, &["subvolume-list".into()]);
    }
    let filesystem = Session::open(global, &args.root, Access::Read)?.filesystem;
    let listed = write_list(&mut stdout(), &filesystem, global.format);
    listed.with_context(|| args.root.image.name())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the argument if it is a directory, which is a mount point and no image.
fn mountpoint(root: &RootArgs) -> Result<Option<&Path>> {
    let image = &root.image.image;
    if !image.is_dir() {
        return Ok(None);
    }
    let of_images = [
        ("--subvol", root.subvol.is_some()),
        ("--subvolid", root.subvolid.is_some()),
        ("--direct", root.direct != DirectIo::Auto),
        ("--no-log-replay", root.no_log_replay),
    ];
    let given = of_images.iter().find(|(_, given)| *given).map(|(option, _)| *option);
    match given.or_else(|| root.image.given_option()) {
        Some(option) => bail!("{}: {option} applies to images only", image.display()),
        None => Ok(Some(image)),
    }
}

/// Writes a list of all subvolumes.
pub(in crate::cli) fn write_list(
    mut out: &mut dyn Write,
    filesystem: &Filesystem,
    format: Format,
) -> Result<()> {
    let subvolumes = filesystem.subvolumes()?;
    match format {
        Format::Text => {
            for subvolume in &subvolumes {
                let id = subvolume.id.0;
                let top = subvolume.parent.map_or(0, |parent| parent.0);
                let generation = subvolume.root.generation;
                let path = Quoted(&subvolume.path);
                writeln!(out, "ID {id} gen {generation} top level {top} path {path}")?;
            }
            out.flush()?;
        }
        Format::Json => {
            let mut list = JsonList::start(&mut out, "subvolume-list")?;
            for subvolume in &subvolumes {
                list.add(&document(subvolume))?;
            }
            list.end()?;
        }
    }
    Ok(())
}

fn show(global: &Global, args: &SubvolumeShowArgs) -> Result<ExitCode> {
    if let Some(point) = mountpoint(&args.root)? {
        return request(global, point, &["subvolume-show".into(), "--".into(), args.path.clone()]);
    }
    let filesystem = Session::open(global, &args.root, Access::Read)?.filesystem;
    let mut out = stdout();
    write_shown(&mut out, &filesystem, &args.path, global.format)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the attributes of the subvolume at a path.
pub(in crate::cli) fn write_shown(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    path: &OsStr,
    format: Format,
) -> Result<()> {
    let subvolume = filesystem
        .lookup(path.as_encoded_bytes())
        .and_then(|inode| filesystem.subvolume_at(&inode))
        .with_context(|| shown(path))?;
    let snapshots = snapshots_of(filesystem, &subvolume)?;
    match format {
        Format::Text => write_text(out, &subvolume, &snapshots),
        Format::Json => {
            let mut document = document(&subvolume);
            let paths = snapshots.iter().map(|snapshot| json_name(&snapshot.path));
            document["snapshots"] = paths.collect();
            write_json(out, "subvolume-show", &document)
        }
    }
}

fn snapshots_of(filesystem: &Filesystem, of: &SubvolumeInfo) -> Result<Vec<SubvolumeInfo>> {
    let uuid = of.root.extended.as_ref().map(|extended| extended.uuid);
    let mut all = filesystem.subvolumes()?;
    all.retain(|other| {
        let parent = other.root.extended.as_ref().map(|extended| extended.parent_uuid);
        uuid.is_some_and(|uuid| !uuid.is_nil()) && parent == uuid
    });
    Ok(all)
}

fn write_text(
    out: &mut dyn Write,
    subvolume: &SubvolumeInfo,
    snapshots: &[SubvolumeInfo],
) -> Result<()> {
    let name = if subvolume.path.is_empty() { b"/" } else { subvolume.path.as_slice() };
    writeln!(out, "{}", Quoted(name))?;
    let mut row = |name: &str, value: &str| writeln!(out, "\t{name:<24}{value}");
    let extended = subvolume.root.extended.as_ref();
    let uuid = |uuid: Option<uuid::Uuid>| match uuid {
        Some(uuid) if !uuid.is_nil() => uuid.to_string(),
        _ => "-".to_owned(),
    };
    let time = |time: Option<Timestamp>| time.map_or("-".to_owned(), text::time_exact);
    row("Name:", &Quoted(&subvolume.name).to_string())?;
    row("UUID:", &uuid(extended.map(|e| e.uuid)))?;
    row("Parent UUID:", &uuid(extended.map(|e| e.parent_uuid)))?;
    row("Received UUID:", &uuid(extended.map(|e| e.received_uuid)))?;
    row("Creation time:", &time(extended.map(|e| e.otime)))?;
    row("Subvolume ID:", &subvolume.id.0.to_string())?;
    row("Generation:", &subvolume.root.generation.to_string())?;
    row("Gen at creation:", &extended.map_or(0, |e| e.otransid).to_string())?;
    row("Parent ID:", &subvolume.parent.map_or(0, |parent| parent.0).to_string())?;
    row("Flags:", if subvolume.is_read_only() { "readonly" } else { "-" })?;
    row("Send transid:", &extended.map_or(0, |e| e.stransid).to_string())?;
    row("Receive transid:", &extended.map_or(0, |e| e.rtransid).to_string())?;
    row("Snapshot(s):", "")?;
    for snapshot in snapshots {
        row("", &Quoted(&snapshot.path).to_string())?;
    }
    Ok(())
}

fn document(subvolume: &SubvolumeInfo) -> Value {
    let mut document = json!({
        "ID": subvolume.id.0,
        "gen": subvolume.root.generation,
        "top level": subvolume.parent.map(|parent| parent.0),
        "name": json_name(&subvolume.name),
        "path": json_name(&subvolume.path),
        "readonly": subvolume.is_read_only(),
    });
    if let Some(extended) = &subvolume.root.extended {
        let uuid = |uuid: uuid::Uuid| (!uuid.is_nil()).then(|| uuid.to_string());
        document["cgen"] = json!(extended.otransid);
        document["uuid"] = json!(uuid(extended.uuid));
        document["parent_uuid"] = json!(uuid(extended.parent_uuid));
        document["received_uuid"] = json!(uuid(extended.received_uuid));
        document["otime"] = json!(extended.otime.to_string());
    }
    document
}
