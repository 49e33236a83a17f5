//! `subvolume show`, in the format of btrfs-progs.

use std::ffi::{OsStr, OsString};
use std::io::Write;

use anyhow::{Context as _, Result};
use userbtrfs::{Error, Filesystem, SubvolumeInfo, Timestamp, TreeId};
use uuid::Uuid;

use super::list::{document, text_of};
use crate::cli::args::{Format, Global};
use crate::cli::output::{with_names, write_json, write_listed};
use crate::cli::text::{shown, time_in_zone};

/// The options that name a subvolume other than by its path.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct Identity {
    /// Show the subvolume with this id
    #[arg(short, long, value_name = "ID", conflicts_with = "uuid")]
    rootid: Option<u64>,
    /// Show the subvolume with this UUID
    #[arg(short, long)]
    uuid: Option<Uuid>,
}

impl Identity {
    /// Returns true if one of the options is given.
    pub(super) fn is_given(&self) -> bool {
        self.rootid.is_some() || self.uuid.is_some()
    }

    /// Returns the words of a command line that mean the same.
    pub(super) fn words(&self) -> Vec<OsString> {
        let id = self.rootid.map(|id| format!("--rootid={id}"));
        let uuid = self.uuid.map(|uuid| format!("--uuid={uuid}"));
        id.into_iter().chain(uuid).map(OsString::from).collect()
    }

    /// Returns the subvolume that the options name.
    pub(in crate::cli) fn find(&self, filesystem: &Filesystem) -> Result<SubvolumeInfo> {
        if let Some(id) = self.rootid {
            // As for btrfs-progs, 0 is the top level.
            let id = if id == 0 { TreeId::FS.0 } else { id };
            return Ok(filesystem.subvolume(TreeId(id))?);
        }
        let uuid_of = |it: &SubvolumeInfo| it.root.extended.as_ref().map(|extended| extended.uuid);
        let top = filesystem.subvolume(TreeId::FS)?;
        let mut all = filesystem.subvolumes()?.into_iter().chain([top]);
        Ok(all.find(|it| uuid_of(it) == self.uuid).ok_or(Error::NoSubvolume)?)
    }
}

/// Writes the attributes of the subvolume at a path.
pub(in crate::cli) fn write_shown(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    path: &OsStr,
    global: &Global,
) -> Result<()> {
    let find = || filesystem.subvolume_at(&filesystem.lookup(path.as_encoded_bytes())?);
    let subvolume = find().with_context(|| shown(path))?;
    write_info(out, filesystem, &subvolume, global)
}

/// Writes the attributes of a subvolume.
pub(in crate::cli) fn write_info(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    subvolume: &SubvolumeInfo,
    global: &Global,
) -> Result<()> {
    let snapshots = snapshots_of(filesystem, subvolume)?;
    match global.format {
        Format::Text => write_text(out, subvolume, &snapshots, global),
        Format::Json => {
            let document = document(subvolume, &subvolume.path);
            let paths = snapshots.iter().map(|snapshot| snapshot.path.as_slice());
            write_json(out, "subvolume-show", &with_names(document, "snapshots", paths))
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
    global: &Global,
) -> Result<()> {
    let is_top = subvolume.parent.is_none();
    let path = if is_top { b"/" } else { subvolume.path.as_slice() };
    let name = if is_top { b"<FS_TREE>" } else { subvolume.name.as_slice() };
    let extended = subvolume.root.extended.as_ref();
    let uuid = |uuid: Option<Uuid>| text_of(uuid.filter(|uuid| !uuid.is_nil()));
    let time = |time: Option<Timestamp>| match time {
        Some(time) if time.sec != 0 => time_in_zone(time),
        _ => "-".to_owned(),
    };
    let number = |number: Option<u64>| number.unwrap_or(0).to_string();
    let parent = subvolume.parent.map(|parent| parent.0);
    let flags = if subvolume.is_read_only() { "readonly" } else { "-" };
    write_listed(out, "", path, global)?;
    write_listed(out, "\tName: \t\t\t", name, global)?;
    let rows: [(&str, String); 14] = [
        ("UUID: \t\t\t", uuid(extended.map(|it| it.uuid))),
        ("Parent UUID: \t\t", uuid(extended.map(|it| it.parent_uuid))),
        ("Received UUID: \t\t", uuid(extended.map(|it| it.received_uuid))),
        ("Creation time: \t\t", time(extended.map(|it| it.otime))),
        ("Subvolume ID: \t\t", subvolume.id.0.to_string()),
        ("Generation: \t\t", subvolume.root.generation.to_string()),
        ("Gen at creation: \t", number(extended.map(|it| it.otransid))),
        ("Parent ID: \t\t", number(parent)),
        ("Top level ID: \t\t", number(parent)),
        ("Flags: \t\t\t", flags.to_owned()),
        ("Send transid: \t\t", number(extended.map(|it| it.stransid))),
        ("Send time: \t\t", time(extended.map(|it| it.stime))),
        ("Receive transid: \t", number(extended.map(|it| it.rtransid))),
        ("Receive time: \t\t", time(extended.map(|it| it.rtime))),
    ];
    for (name, value) in rows {
        writeln!(out, "\t{name}{value}")?;
    }
    writeln!(out, "\tSnapshot(s):")?;
    for snapshot in snapshots {
        write_listed(out, "\t\t\t\t", &snapshot.path, global)?;
    }
    Ok(())
}
