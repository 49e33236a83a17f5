//! `subvolume list` and `subvolume get-default`, in the format of btrfs-progs.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io::Write;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use userbtrfs::{Filesystem, SubvolumeInfo, Timestamp, TreeId, join_path};
use uuid::Uuid;

use crate::cli::args::{Format, Global};
use crate::cli::output::{JsonList, with_name, write_json, write_listed};
use crate::cli::text::{shown, time_to_seconds};

/// The width of a UUID.
const UUID_WIDTH: usize = 36;

/// The selection, the columns and the order of a list. `-q`, the column of parent UUIDs, is the
/// global option.
#[derive(Clone, Default, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of btrfs-progs")]
pub(crate) struct ListOptions {
    /// Only subvolumes directly below the subvolume of PATH
    #[arg(short = 'o')]
    below: bool,
    /// Show paths that are not relative to PATH as <FS_TREE>/...
    #[arg(short = 'a')]
    absolute: bool,
    /// Show the id of the parent
    #[arg(short = 'p')]
    parent: bool,
    /// Show the generation at creation
    #[arg(short = 'c')]
    created: bool,
    /// Show the generation (always shown)
    #[arg(short = 'g')]
    generation: bool,
    /// Show UUIDs (-q: those of parents)
    #[arg(short = 'u')]
    uuid: bool,
    /// Show received UUIDs
    #[arg(short = 'R')]
    received: bool,
    /// Only snapshots
    #[arg(short = 's')]
    snapshots: bool,
    /// Only read-only subvolumes
    #[arg(short = 'r')]
    read_only: bool,
    /// Only deleted subvolumes that are not gone yet
    #[arg(short = 'd')]
    deleted: bool,
    /// Print a table
    #[arg(short = 't')]
    table: bool,
    /// Only this generation (+N: and later, -N: and earlier)
    #[arg(short = 'G', value_name = "[+-]N", allow_hyphen_values = true, value_parser = bound)]
    at_generation: Option<Bound>,
    /// Only those created in this generation (+N: or later, -N: or earlier)
    #[arg(short = 'C', value_name = "[+-]N", allow_hyphen_values = true, value_parser = bound)]
    at_creation: Option<Bound>,
    /// Sort by gen, ogen, rootid or path (-KEY: descending)
    #[arg(long, value_name = "KEY,...", value_delimiter = ',', allow_hyphen_values = true,
        value_parser = sort_key)]
    sort: Vec<SortKey>,
}

/// A number to compare with.
#[derive(Clone, Copy)]
struct Bound {
    /// The order in which a value beside the number may stand to it.
    beside: Option<Ordering>,
    number: u64,
}

#[derive(Clone, Copy)]
struct SortKey {
    by: SortBy,
    descending: bool,
}

#[derive(Clone, Copy)]
enum SortBy {
    Generation,
    Creation,
    Id,
    Path,
}

/// The keys of `--sort` by their names.
const SORT_KEYS: [(&str, SortBy); 4] = [
    ("gen", SortBy::Generation),
    ("ogen", SortBy::Creation),
    ("rootid", SortBy::Id),
    ("path", SortBy::Path),
];

fn bound(text: &str) -> Result<Bound, String> {
    let (beside, digits) = match text.as_bytes().first() {
        Some(b'+') => (Some(Ordering::Greater), &text[1..]),
        Some(b'-') => (Some(Ordering::Less), &text[1..]),
        _ => (None, text),
    };
    let number = digits.parse().map_err(|_| "not a number".to_owned())?;
    Ok(Bound { beside, number })
}

fn sort_key(text: &str) -> Result<SortKey, String> {
    let name = text.strip_prefix(['+', '-']).unwrap_or(text);
    let found = SORT_KEYS.iter().find(|(key, _)| *key == name);
    let (_, by) = found.ok_or("one of gen, ogen, rootid, path")?;
    Ok(SortKey { by: *by, descending: text.starts_with('-') })
}

impl Bound {
    fn admits(self, value: u64) -> bool {
        let order = value.cmp(&self.number);
        order == Ordering::Equal || self.beside == Some(order)
    }

    fn word(self) -> String {
        let sign = match self.beside {
            Some(Ordering::Greater) => "+",
            Some(Ordering::Less) => "-",
            _ => "",
        };
        format!("{sign}{}", self.number)
    }
}

impl SortKey {
    fn compare(self, one: &SubvolumeInfo, other: &SubvolumeInfo) -> Ordering {
        let order = match self.by {
            SortBy::Generation => one.root.generation.cmp(&other.root.generation),
            SortBy::Creation => created(one).cmp(&created(other)),
            SortBy::Id => one.id.cmp(&other.id),
            SortBy::Path => one.path.cmp(&other.path),
        };
        if self.descending { order.reverse() } else { order }
    }

    fn word(self) -> String {
        let sign = if self.descending { "-" } else { "+" };
        let is_it = |by: &SortBy| std::mem::discriminant(by) == std::mem::discriminant(&self.by);
        let found = SORT_KEYS.iter().find(|(_, by)| is_it(by));
        format!("{sign}{}", found.map_or("", |(name, _)| name))
    }
}

impl ListOptions {
    /// Returns the words of a command line that mean the same.
    pub(super) fn words(&self, global: &Global) -> Vec<OsString> {
        let flags = [
            ("-o", self.below),
            ("-a", self.absolute),
            ("-p", self.parent),
            ("-c", self.created),
            ("-u", self.uuid),
            ("-q", global.quiet),
            ("-R", self.received),
            ("-s", self.snapshots),
            ("-r", self.read_only),
            ("-d", self.deleted),
            ("-t", self.table),
        ];
        let given = flags.iter().filter(|(_, is_given)| *is_given);
        let flags = given.map(|(flag, _)| (*flag).to_owned());
        let generation = self.at_generation.map(|bound| format!("-G={}", bound.word()));
        let creation = self.at_creation.map(|bound| format!("-C={}", bound.word()));
        let keys: Vec<_> = self.sort.iter().map(|key| key.word()).collect();
        let sort = (!keys.is_empty()).then(|| format!("--sort={}", keys.join(",")));
        let words = flags.chain(generation).chain(creation).chain(sort);
        words.map(OsString::from).collect()
    }

    fn admits(&self, subvolume: &SubvolumeInfo, top: TreeId) -> bool {
        let is_snapshot = || parent_uuid(subvolume).is_some();
        (!self.below || subvolume.parent == Some(top))
            && (!self.snapshots || is_snapshot())
            && (!self.read_only || subvolume.is_read_only())
            && self.at_generation.is_none_or(|bound| bound.admits(subvolume.root.generation))
            && self.at_creation.is_none_or(|bound| bound.admits(created(subvolume)))
    }

    fn compare(&self, one: &SubvolumeInfo, other: &SubvolumeInfo) -> Ordering {
        let by_keys = self.sort.iter().map(|key| key.compare(one, other));
        by_keys.fold(Ordering::Equal, Ordering::then).then(one.id.cmp(&other.id))
    }

    /// Returns the columns: their names, and the values of a subvolume.
    fn columns(&self, global: &Global) -> Vec<Column> {
        let created = self.created || self.snapshots || self.at_creation.is_some();
        let all: [(bool, Column); 9] = [
            (true, Column("ID", |it| it.id.0.to_string())),
            (true, Column("gen", |it| it.root.generation.to_string())),
            (created, Column("cgen", |it| self::created(it).to_string())),
            (self.parent, Column("parent", |it| parent_id(it).to_string())),
            (true, Column(TOP_LEVEL, |it| parent_id(it).to_string())),
            (self.snapshots, Column("otime", |it| otime(it).map_or("-".into(), time_to_seconds))),
            (global.quiet, Column("parent_uuid", |it| padded(parent_uuid(it)))),
            (self.received, Column("received_uuid", |it| padded(received_uuid(it)))),
            (self.uuid, Column("uuid", |it| text_of(uuid(it)))),
        ];
        all.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, column)| column).collect()
    }
}

/// The column that a table separates from the next one by two tabs.
const TOP_LEVEL: &str = "top level";

/// A column: its name, and the value of a subvolume.
struct Column(&'static str, fn(&SubvolumeInfo) -> String);

/// Writes a list of subvolumes, as seen from the subvolume that contains a path.
pub(in crate::cli) fn write_list(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    options: &ListOptions,
    path: &OsStr,
    global: &Global,
) -> Result<()> {
    let top = filesystem.lookup(path.as_encoded_bytes()).with_context(|| shown(path))?;
    let top = filesystem.subvolume(top.id().subvolume)?;
    write_list_of(out, filesystem, options, &top, global)
}

/// Writes a list of subvolumes, as seen from the subvolume `top`.
pub(in crate::cli) fn write_list_of(
    mut out: &mut dyn Write,
    filesystem: &Filesystem,
    options: &ListOptions,
    top: &SubvolumeInfo,
    global: &Global,
) -> Result<()> {
    let mut subvolumes =
        if options.deleted { filesystem.deleted_subvolumes()? } else { filesystem.subvolumes()? };
    subvolumes.retain(|subvolume| options.admits(subvolume, top.id));
    subvolumes.sort_by(|one, other| options.compare(one, other));
    match global.format {
        Format::Text => {
            let columns = options.columns(global);
            if options.table {
                write_head(out, &columns)?;
            }
            for subvolume in &subvolumes {
                let path = shown_path(subvolume, top, options);
                for Column(name, value) in &columns {
                    let value = value(subvolume);
                    match options.table {
                        true if *name == TOP_LEVEL => write!(out, "{value}\t\t")?,
                        true => write!(out, "{value}\t")?,
                        false => write!(out, "{name} {value} ")?,
                    }
                }
                write_listed(out, if options.table { "" } else { "path " }, &path, global)?;
            }
            out.flush()?;
        }
        Format::Json => {
            let mut list = JsonList::start(&mut out, "subvolume-list")?;
            for subvolume in &subvolumes {
                list.add(&document(subvolume, &shown_path(subvolume, top, options)))?;
            }
            list.end()?;
        }
    }
    Ok(())
}

/// Writes the head of a table.
fn write_head(out: &mut dyn Write, columns: &[Column]) -> Result<()> {
    let names = || columns.iter().map(|Column(name, _)| *name).chain(["path"]);
    let head: String = names().flat_map(|name| [name, "\t"]).collect();
    let line: String = names().flat_map(|name| ["-".repeat(name.len()), "\t".to_owned()]).collect();
    writeln!(out, "{head}\n{line}")?;
    Ok(())
}

/// Writes one subvolume as a list shows it; the top level has no line there.
pub(super) fn write_one(
    out: &mut dyn Write,
    subvolume: &SubvolumeInfo,
    global: &Global,
) -> Result<()> {
    let SubvolumeInfo { id, root, path, .. } = subvolume;
    match (global.format, subvolume.parent) {
        (Format::Json, _) => {
            write_json(out, "subvolume-get-default", &document(subvolume, path))?;
        }
        (Format::Text, None) => writeln!(out, "ID {} (FS_TREE)", id.0)?,
        (Format::Text, Some(parent)) => {
            let parent = parent.0;
            let generation = root.generation;
            let before = format!("ID {} gen {generation} top level {parent} path ", id.0);
            write_listed(out, &before, path, global)?;
        }
    }
    Ok(())
}

/// Returns the path of a subvolume in a list: from the subvolume `top` if it is below that, else
/// from the top level.
fn shown_path(subvolume: &SubvolumeInfo, top: &SubvolumeInfo, options: &ListOptions) -> Vec<u8> {
    let path = &subvolume.path;
    if options.deleted {
        return b"DELETED".to_vec();
    }
    if options.absolute && subvolume.parent != Some(top.id) {
        return join_path(b"<FS_TREE>", path);
    }
    let below = path.strip_prefix(&top.path[..]).and_then(|rest| rest.strip_prefix(b"/"));
    match below {
        Some(below) if !options.absolute && !options.below => below.to_vec(),
        _ => path.clone(),
    }
}

fn extended<T>(
    subvolume: &SubvolumeInfo,
    field: impl FnOnce(&userbtrfs_format::RootExtension) -> T,
) -> Option<T> {
    subvolume.root.extended.as_ref().map(field)
}

fn parent_id(subvolume: &SubvolumeInfo) -> u64 {
    subvolume.parent.map_or(0, |parent| parent.0)
}

fn created(subvolume: &SubvolumeInfo) -> u64 {
    extended(subvolume, |it| it.otransid).unwrap_or(0)
}

fn otime(subvolume: &SubvolumeInfo) -> Option<Timestamp> {
    extended(subvolume, |it| it.otime)
}

fn uuid(subvolume: &SubvolumeInfo) -> Option<Uuid> {
    extended(subvolume, |it| it.uuid).filter(|uuid| !uuid.is_nil())
}

fn parent_uuid(subvolume: &SubvolumeInfo) -> Option<Uuid> {
    extended(subvolume, |it| it.parent_uuid).filter(|uuid| !uuid.is_nil())
}

fn received_uuid(subvolume: &SubvolumeInfo) -> Option<Uuid> {
    extended(subvolume, |it| it.received_uuid).filter(|uuid| !uuid.is_nil())
}

/// Returns a UUID, or `-` if there is none.
pub(super) fn text_of(uuid: Option<Uuid>) -> String {
    uuid.map_or("-".to_owned(), |uuid| uuid.to_string())
}

fn padded(uuid: Option<Uuid>) -> String {
    format!("{:UUID_WIDTH$}", text_of(uuid))
}

/// Returns a subvolume as JSON, with a path that is shown for it.
pub(super) fn document(subvolume: &SubvolumeInfo, path: &[u8]) -> Value {
    let document = json!({
        "ID": subvolume.id.0,
        "gen": subvolume.root.generation,
        "parent": subvolume.parent.map(|parent| parent.0),
        "top level": subvolume.parent.map(|parent| parent.0),
        "readonly": subvolume.is_read_only(),
    });
    let mut document = with_name(with_name(document, "name", &subvolume.name), "path", path);
    if let Some(extended) = &subvolume.root.extended {
        let uuid = |uuid: Uuid| (!uuid.is_nil()).then(|| uuid.to_string());
        document["cgen"] = json!(extended.otransid);
        document["uuid"] = json!(uuid(extended.uuid));
        document["parent_uuid"] = json!(uuid(extended.parent_uuid));
        document["received_uuid"] = json!(uuid(extended.received_uuid));
        document["otime"] = json!(extended.otime.to_string());
    }
    document
}
