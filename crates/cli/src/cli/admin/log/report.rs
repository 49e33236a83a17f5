//! The report of a replay, as text and in JSON. Damage is reported with the paths of files.

use std::io::Write;
use std::ops::Range;

use anyhow::Result;
use serde_json::{Value, json};
use userbtrfs::{Filesystem, IncompleteFile, InodeId, Quoted, Replayed, SkippedItem};

use crate::cli::output::with_name_if_any;

/// A replay, with the paths of the files that it reports.
pub(super) struct Report {
    replayed: Replayed,
    /// The path of each damaged part that was skipped, if it belongs to a file that has a name.
    left_out: Vec<Option<Vec<u8>>>,
    /// The path of each file whose contents are damaged, if it has a name.
    incomplete: Vec<Option<Vec<u8>>>,
}

impl Report {
    pub(super) fn new(filesystem: &Filesystem, replayed: Replayed) -> Self {
        let item = |skipped: &SkippedItem| {
            let id = InodeId { subvolume: skipped.subvolume?, number: skipped.key?.objectid };
            path_of(filesystem, id)
        };
        let left_out = replayed.left_out.iter().map(item).collect();
        let file = |file: &IncompleteFile| path_of(filesystem, file.inode);
        let incomplete = replayed.incomplete.iter().map(file).collect();
        Self { replayed, left_out, incomplete }
    }

    /// Returns whether nothing was damaged.
    pub(super) fn is_complete(&self) -> bool {
        self.replayed.left_out.is_empty() && self.replayed.incomplete.is_empty()
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> Result<()> {
        let Replayed { generation, subvolumes, inodes, extents, deleted, .. } = &self.replayed;
        let Replayed { names_added, names_removed, .. } = &self.replayed;
        writeln!(out, "Replayed the log after generation {generation}:")?;
        writeln!(out, "subvolumes: {subvolumes}, inodes: {inodes}")?;
        writeln!(out, "names added: {names_added}, removed: {names_removed}")?;
        writeln!(out, "extents: {extents}")?;
        writeln!(out, "inodes deleted: {deleted}")?;
        for (left_out, path) in self.replayed.left_out.iter().zip(&self.left_out) {
            match (path, &left_out.inodes) {
                (Some(path), _) => writeln!(out, "left out: {}: {}", Quoted(path), left_out.error)?,
                (None, Some(inodes)) => {
                    writeln!(out, "left out: {}: {}", shown(inodes.clone()), left_out.error)?;
                }
                (None, None) => writeln!(out, "left out: {}", left_out.error)?,
            }
        }
        for (file, path) in self.replayed.incomplete.iter().zip(&self.incomplete) {
            let name = path
                .as_ref()
                .map_or_else(|| file.inode.to_string(), |path| Quoted(path).to_string());
            let ranges: Vec<_> = file.missing.iter().map(bytes).collect();
            let fate = if file.is_partial { "missing" } else { "missing, contents left out" };
            writeln!(out, "{name}: {} of {} {fate}", ranges.join(", "), file.size)?;
        }
        Ok(())
    }

    pub(super) fn document(&self) -> Value {
        let replayed = &self.replayed;
        let left_out = replayed.left_out.iter().zip(&self.left_out);
        let left_out = left_out.map(|(item, path)| left_out_document(item, path.as_deref()));
        let incomplete = replayed.incomplete.iter().zip(&self.incomplete);
        let incomplete = incomplete.map(|(file, path)| file_document(file, path.as_deref()));
        json!({
            "generation": replayed.generation,
            "subvolumes": replayed.subvolumes,
            "inodes": replayed.inodes,
            "names_added": replayed.names_added,
            "names_removed": replayed.names_removed,
            "extents": replayed.extents,
            "deleted": replayed.deleted,
            "left_out": left_out.collect::<Value>(),
            "incomplete": incomplete.collect::<Value>(),
        })
    }
}

fn left_out_document(left_out: &SkippedItem, path: Option<&[u8]>) -> Value {
    let document = json!({
        "subvolume": left_out.subvolume.map(|id| id.0),
        "item": left_out.key.map(|key| key.to_string()),
        "inodes": left_out.inodes.as_ref().map(|inodes| [*inodes.start(), *inodes.end()]),
        "damage": left_out.error.to_string(),
    });
    with_name_if_any(document, "path", path)
}

fn file_document(file: &IncompleteFile, path: Option<&[u8]>) -> Value {
    let document = json!({
        "subvolume": file.inode.subvolume.0,
        "inode": file.inode.number,
        "size": file.size,
        "missing": file.missing.iter().map(|range| [range.start, range.end]).collect::<Value>(),
        "is_partial": file.is_partial,
    });
    with_name_if_any(document, "path", path)
}

fn shown(inodes: std::ops::RangeInclusive<u64>) -> String {
    match inodes.into_inner() {
        (first, u64::MAX) => format!("items of inodes from {first} on"),
        (first, last) => format!("items of inodes {first} to {last}"),
    }
}

fn bytes(range: &Range<u64>) -> String {
    format!("bytes {} to {}", range.start, range.end - 1)
}

/// Returns a path of an inode: from the default subvolume, or else from the top level.
fn path_of(filesystem: &Filesystem, id: InodeId) -> Option<Vec<u8>> {
    let mut names = Vec::new();
    let mut inode = filesystem.inode(id);
    loop {
        let (dir, name) = inode.names().ok()?.into_iter().next()?;
        if dir.id() == inode.id() {
            break;
        }
        names.push(name);
        // Damaged directories may contain each other.
        if names.len() > DEPTH_MAX {
            return None;
        }
        inode = dir;
    }
    if id.subvolume != filesystem.root().inode().id().subvolume {
        let subvolumes = filesystem.subvolumes().ok()?;
        let path = subvolumes.into_iter().find(|it| it.id == id.subvolume)?.path;
        names.push(path);
    }
    names.push(Vec::new());
    names.reverse();
    Some(names.join(&b'/'))
}

/// The maximum number of names in a path.
const DEPTH_MAX: usize = 4096;
