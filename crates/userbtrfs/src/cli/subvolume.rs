//! `subvolume list` and `subvolume show`, in the words of btrfs-progs.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use userbtrfs::{Filesystem, Quoted, SubvolumeInfo, Timestamp};

use super::args::{Format, Global, RootOnlyArgs, SubvolumeShowArgs, SubvolumeVerb};
use super::ls::shown;
use super::output::{JsonList, json_name, print_json, stdout};
use super::text;
use super::verb::{Access, Session};

pub(crate) fn run(global: &Global, verb: &SubvolumeVerb) -> Result<ExitCode> {
    match verb {
        SubvolumeVerb::List(args) => list(global, args),
        SubvolumeVerb::Show(args) => show(global, args),
    }
}

fn list(global: &Global, args: &RootOnlyArgs) -> Result<ExitCode> {
    let filesystem = Session::open(global, &args.root, Access::Read)?.filesystem;
    let subvolumes =
        filesystem.subvolumes().with_context(|| args.root.image.display().to_string())?;
    match global.format {
        Format::Text => {
            let mut out = stdout();
            for subvolume in &subvolumes {
                let (id, top) = (subvolume.id.0, subvolume.parent.map_or(0, |parent| parent.0));
                let (generation, path) = (subvolume.root.generation, Quoted(&subvolume.path));
                writeln!(out, "ID {id} gen {generation} top level {top} path {path}")?;
            }
            out.flush()?;
        }
        Format::Json => {
            let mut list = JsonList::start(stdout(), "subvolume-list")?;
            for subvolume in &subvolumes {
                list.add(&document(subvolume))?;
            }
            list.end()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(global: &Global, args: &SubvolumeShowArgs) -> Result<ExitCode> {
    let filesystem = Session::open(global, &args.root, Access::Read)?.filesystem;
    let subvolume = filesystem
        .lookup(args.path.as_encoded_bytes())
        .and_then(|inode| filesystem.subvolume_at(&inode))
        .with_context(|| shown(&args.path))?;
    let snapshots = snapshots_of(&filesystem, &subvolume)?;
    match global.format {
        Format::Text => print(&subvolume, &snapshots)?,
        Format::Json => {
            let mut document = document(&subvolume);
            let paths = snapshots.iter().map(|snapshot| json_name(&snapshot.path));
            document["snapshots"] = paths.collect();
            print_json("subvolume-show", &document)?;
        }
    }
    Ok(ExitCode::SUCCESS)
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

fn print(subvolume: &SubvolumeInfo, snapshots: &[SubvolumeInfo]) -> Result<()> {
    let mut out = stdout();
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
    out.flush()?;
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
