//! The differences between two manifests.

use std::fmt;

use serde_json::{Map, Value};

use super::{Bytes, Entry, Manifest};

/// The inode number of a directory that a snapshot has in place of a subvolume.
const EMPTY_DIR: u64 = 2;

/// One attribute of one path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path, present in one or both manifests.
    pub path: Bytes,
    /// The field of [`Entry`]; `path` if one manifest lacks the path.
    pub attribute: String,
    /// The value in the first manifest; empty if it is left out.
    pub left: String,
    /// The value in the second manifest; empty if it is left out.
    pub right: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, attribute, left, right } = self;
        write!(f, "{path}: {attribute}: {left} != {right}")
    }
}

/// Returns all differences in order of paths, except in the attributes named in `ignored` (fields
/// of [`Entry`], e.g. `atime`). The owner of a directory in place of a subvolume is not compared:
/// it is not stored, and Linux takes that of the parent.
pub fn diff(left: &Manifest, right: &Manifest, ignored: &[&str]) -> Vec<Difference> {
    let mut left = left.entries();
    let mut right = right.entries();
    let mut differences = Vec::new();
    loop {
        let (a, b) = next_pair(&mut left, &mut right);
        match (a, b) {
            (Some(a), Some(b)) => differences.extend(entry_diff(a, b, ignored)),
            (None, None) => return differences,
            (a, b) => differences.extend(lone_path(a, b)),
        }
    }
}

/// Takes the entries of the lowest remaining path: from both lists if both have it.
fn next_pair<'a>(
    left: &mut &'a [Entry],
    right: &mut &'a [Entry],
) -> (Option<&'a Entry>, Option<&'a Entry>) {
    let lowest = [left.first(), right.first()].into_iter().flatten().map(|e| &e.path).min();
    let take = |list: &mut &'a [Entry]| {
        let (first, rest) = list.split_first()?;
        (Some(&first.path) == lowest).then(|| *list = rest)?;
        Some(first)
    };
    (take(left), take(right))
}

fn lone_path(left: Option<&Entry>, right: Option<&Entry>) -> Option<Difference> {
    let path = left.or(right)?.path.clone();
    let word = |side: Option<&Entry>| if side.is_some() { "present" } else { "absent" };
    let left = word(left).into();
    let right = word(right).into();
    Some(Difference { path, attribute: "path".into(), left, right })
}

fn entry_diff(left: &Entry, right: &Entry, ignored: &[&str]) -> Vec<Difference> {
    let a = attributes(left);
    let b = attributes(right);
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort();
    names.dedup();
    let has_no_owner = left.inode == EMPTY_DIR && right.inode == EMPTY_DIR;
    let is_ignored =
        |name: &str| ignored.contains(&name) || has_no_owner && ["uid", "gid"].contains(&name);
    let differs = |name: &&String| !is_ignored(name) && a.get(*name) != b.get(*name);
    let difference = |name: &String| Difference {
        path: left.path.clone(),
        attribute: name.clone(),
        left: text(a.get(name)),
        right: text(b.get(name)),
    };
    names.into_iter().filter(differs).map(difference).collect()
}

fn attributes(entry: &Entry) -> Map<String, Value> {
    match serde_json::to_value(entry) {
        Ok(Value::Object(map)) => map,
        other => unreachable!("an entry is an object, not {other:?}"),
    }
}

fn text(value: Option<&Value>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}
