//! Translates a command of btrfs-progs to calls of our verbs.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::call::Call;
use super::commands::{Found, Object};
use super::globals::Globals;
use super::place::{is_image, is_in_kernel_btrfs, is_in_mount, parent};
use super::words::{Opt, Words};
use crate::cli::admin::subvolume::object;

/// The options of `subvolume show` for the sizes of quota groups.
const SIZE_UNITS: [&str; 15] = [
    "b",
    "h",
    "H",
    "k",
    "m",
    "g",
    "t",
    "raw",
    "human-readable",
    "iec",
    "si",
    "kbytes",
    "mbytes",
    "gbytes",
    "tbytes",
];

/// A command with everything that its calls are made of.
struct Translation<'a> {
    globals: &'a Globals,
    found: &'a Found,
    words: &'a Words,
}

/// Returns the calls of a command; `before` are the words of the command line before its options.
/// `None` if no part is ours.
pub(super) fn calls(
    globals: &Globals,
    found: &Found,
    words: &Words,
    before: &[OsString],
) -> Option<Vec<Call>> {
    if words.has("help") {
        return None;
    }
    let translation = Translation { globals, found, words };
    let operands = &words.operands;
    let first = operands.first()?;
    let last = operands.last()?;
    let object = found.command.object;
    let is_image = |operand: &OsString| translation.is_image(operand);
    // The object is named by the last operand, and an image may be the first one as well.
    let named = if object == Object::Last && !is_image(first) { last } else { first };
    if is_image(named) {
        return Some(vec![translation.on_image()]);
    }
    if !matches!(object, Object::Each | Object::EachFile) {
        let is_ours = is_in_mount(Path::new(named));
        return is_ours.then(|| vec![translation.in_mount(operands)]);
    }
    let are_ours = |operand: &OsString| is_in_mount(Path::new(operand));
    if !operands.iter().any(are_ours) {
        return None;
    }
    let parts = operands.chunk_by(|one, other| are_ours(one) == are_ours(other));
    Some(parts.map(|part| translation.part(part, before)).collect())
}

impl Translation<'_> {
    fn is_image(&self, operand: &OsStr) -> bool {
        let path = Path::new(operand);
        let is_file = || is_in_kernel_btrfs(path) || is_in_mount(path);
        is_image(path) && !(self.found.command.object.may_be_file() && is_file())
    }

    /// Returns the call for a part of the operands, which are all ours or none.
    fn part(&self, operands: &[OsString], before: &[OsString]) -> Call {
        if operands.first().is_some_and(|first| is_in_mount(Path::new(first))) {
            return self.in_mount(operands);
        }
        let mut arguments = before.to_vec();
        arguments.extend(self.words.options_without(&[]));
        arguments.push("--".into());
        arguments.extend_from_slice(operands);
        Call::Theirs(arguments)
    }

    fn on_image(&self) -> Call {
        if self.found.group == "property" {
            return self.on_property_of_image();
        }
        let operands = self.words.operands.clone();
        let swapped = |operands: Vec<OsString>| operands.into_iter().rev().collect();
        let is_default_id = self.is("subvolume", "set-default")
            && operands.first().is_some_and(|first| !self.is_image(first));
        self.call(if is_default_id { swapped(operands) } else { operands })
    }

    /// Returns the call for operands in a mount of ours.
    fn in_mount(&self, operands: &[OsString]) -> Call {
        if self.found.group == "property" {
            return self.on_property(operands);
        }
        if self.is("filesystem", "resize") {
            return self.on_resize(operands);
        }
        let name = self.found.command.name;
        let first = operands.first().map_or(Path::new(""), Path::new);
        if self.found.group != "subvolume" {
            return match name {
                "df" | "usage" if first.exists() && !first.is_dir() => {
                    Call::Refused(format!("not a directory: {}", first.display()))
                }
                _ => self.call(operands.to_vec()),
            };
        }
        match name {
            "create" => {
                let existing = operands.iter().find(|path| Path::new(path).exists());
                match existing {
                    Some(path) if operands.len() == 1 => Call::Refused(format!(
                        "target path already exists: {}",
                        Path::new(path).display()
                    )),
                    _ => self.call(operands.iter().map(|path| with_directory(path)).collect()),
                }
            }
            // Our verb would take a file for an image.
            "delete" if first.exists() && !first.is_dir() => {
                Call::Refused("Not a Btrfs subvolume: Invalid argument".to_owned())
            }
            "delete" if self.words.value(["i", "subvolid"]).is_none() => {
                self.call(operands.iter().map(resolved).collect())
            }
            "set-default" => match operands {
                // Our verb would take a file for an image.
                [id, path] if Path::new(path).is_file() => {
                    self.call(vec![parent(Path::new(path)).into(), id.clone()])
                }
                [id, path] => self.call(vec![path.clone(), id.clone()]),
                _ => self.call(operands.to_vec()),
            },
            "snapshot" => match operands {
                [source, dest] => self.on_snapshot(source, dest),
                _ => self.call(operands.to_vec()),
            },
            _ if first.exists() && !first.is_dir() => {
                Call::Refused(format!("not a directory: {}", first.display()))
            }
            _ => self.call(operands.to_vec()),
        }
    }

    /// Returns the call for a resize of a mount of ours, whose image is taken for a device.
    fn on_resize(&self, operands: &[OsString]) -> Call {
        let path = operands.last().map_or(Path::new(""), Path::new);
        if path.exists() && !path.is_dir() {
            return Call::Refused(format!("not a directory: {}", path.display()));
        }
        if operands.first().is_some_and(|size| size == "cancel") {
            return Call::Refused("resize cancel is not supported".to_owned());
        }
        self.call_with("--as-progs".into(), operands.to_vec())
    }

    /// Returns the call for a snapshot in a mount of ours. The path of the snapshot is complete, so
    /// it must not exist: our verb would take a directory for the parent of the snapshot.
    fn on_snapshot(&self, source: &OsStr, dest: &OsStr) -> Call {
        let path = snapshot_path(source, dest);
        let source_name = Path::new(source).display();
        match Path::new(&path).symlink_metadata() {
            Err(_) => self.call(vec![source.to_owned(), path]),
            Ok(_) if Path::new(dest).is_dir() => {
                Call::Refused(format!("cannot snapshot '{source_name}': File exists"))
            }
            Ok(_) => Call::Refused(format!(
                "'{}' exists and it is not a directory",
                Path::new(dest).display()
            )),
        }
    }

    /// Returns the call for a property of an object in a mount of ours.
    fn on_property(&self, operands: &[OsString]) -> Call {
        let object = operands.first().map_or(Path::new(""), Path::new);
        let kind = self.object_kind();
        let needs_dir = kind == "s" && self.found.command.name != "list";
        if object.symlink_metadata().is_err() {
            return Call::Refused(format!(
                "failed to open {}: No such file or directory",
                object.display()
            ));
        }
        if needs_dir && !object.is_dir() {
            return Call::Refused(format!("not a subvolume: {}", object.display()));
        }
        self.call_on_kind(kind, operands.to_vec())
    }

    /// Returns the call for a property of an object in an image. Without a path in it, the object
    /// is the device, whose label is that of the filesystem.
    fn on_property_of_image(&self) -> Call {
        let mut operands = self.words.operands.clone();
        let after = &operands[1..];
        let is_device = match self.found.command.name {
            "get" => after.is_empty() || after.len() == 1 && object::is_name(&after[0]),
            "set" => after.len() == 2,
            _ => after.is_empty(),
        };
        if !is_device {
            return self.call_on_kind(self.object_kind(), operands);
        }
        operands.insert(1, "/".into());
        let kind = self.object_kind();
        self.call_on_kind(if kind == "any" { "f".into() } else { kind }, operands)
    }

    /// Returns the type of an object that has properties, as our verb names it.
    fn object_kind(&self) -> OsString {
        let named = |name: &OsStr| match name.as_encoded_bytes() {
            [b's', ..] => "s".into(),
            [b'i', ..] => "i".into(),
            // The label of a device is that of its filesystem.
            [b'f' | b'd', ..] => "f".into(),
            _ => name.to_owned(),
        };
        self.words.value(["t", "t"]).map_or("any".into(), named)
    }

    fn call_on_kind(&self, kind: OsString, operands: Vec<OsString>) -> Call {
        self.call_with(Opt { name: "t".to_owned(), value: Some(kind) }.word(), operands)
    }

    /// Returns the call with another option.
    fn call_with(&self, option: OsString, operands: Vec<OsString>) -> Call {
        match self.call(operands) {
            Call::Ours(mut line) => {
                let at = line.iter().position(|word| word == "--").unwrap_or(line.len());
                line.insert(at, option);
                Call::Ours(line)
            }
            other => other,
        }
    }

    fn call(&self, operands: Vec<OsString>) -> Call {
        let Globals { is_quiet, is_verbose, is_dry_run, format } = self.globals;
        if *is_dry_run {
            return Call::Refused("--dry-run is not supported".to_owned());
        }
        let Found { group, command } = self.found;
        let mut line: Vec<OsString> = vec!["userbtrfs".into()];
        if let Some(format) = format {
            line.push(format!("--format={format}").into());
        }
        // In `list`, our option adds a column; ours are not verbose about subvolumes.
        if *is_quiet && !self.is("subvolume", "list") {
            line.push("--quiet".into());
        }
        if *is_verbose && *group == "filesystem" {
            line.push("--verbose".into());
        }
        line.extend([OsString::from(group), OsString::from(command.name)]);
        let dropped: &[&str] = match command.name {
            "show" => &SIZE_UNITS,
            "sync" => &["s"],
            // Only one operation is in progress at a time; another one fails.
            "resize" => &["enqueue"],
            "get" | "set" | "list" if *group == "property" => &["t"],
            _ => &[],
        };
        line.extend(self.words.options_without(dropped));
        line.push("--".into());
        line.extend(operands);
        Call::Ours(line)
    }

    fn is(&self, group: &str, command: &str) -> bool {
        self.found.group == group && self.found.command.name == command
    }
}

/// Returns a path with its directory before the last name, as btrfs-progs prints new paths.
fn with_directory(path: &OsStr) -> OsString {
    let path = Path::new(path);
    match path.file_name() {
        Some(name) => join(parent(path).as_os_str(), name),
        None => path.as_os_str().to_owned(),
    }
}

fn join(dir: &OsStr, name: &OsStr) -> OsString {
    [dir, OsStr::new("/"), name].into_iter().collect()
}

/// Returns the path of a new snapshot: in a directory that exists, it is named after the source.
fn snapshot_path(source: &OsStr, dest: &OsStr) -> OsString {
    match Path::new(source).file_name() {
        Some(name) if Path::new(dest).is_dir() => join(dest, name),
        _ => with_directory(dest),
    }
}

/// Returns the path without links, if it exists.
fn resolved(path: &OsString) -> OsString {
    Path::new(path).canonicalize().map_or_else(|_| path.clone(), Into::into)
}
