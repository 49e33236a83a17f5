//! The observed state of a filesystem: its manifest, and the allocated bytes of its files.
//!
//! 1. The allocated bytes of a file are rounded up to whole sectors, and include allocations after
//!    its end.
//! 2. A replay may set the times of directories, and of inodes that it removes a name of, as Linux
//!    does. So a time after the crash was set by a replay, and is not compared with the state
//!    before, nor with another replay.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;
use userbtrfs::Filesystem;
use userbtrfs_format::SECTOR;

use crate::manifest::{Bytes, Difference, Entry, Kind, Manifest, Time, diff};
use crate::{walk_linux, walk_ours};

/// The unit of `st_blocks`, in bytes.
const LINUX_BLOCK: u64 = 512;
/// Attributes that a log need not keep: the atime, and the ctime, which a change of names sets even
/// if the change is not kept. The first path of a hard link depends on the others.
const NOT_KEPT: &[&str] = &["atime", "ctime", "link"];

/// The observed state.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The manifest of the tree.
    pub manifest: Manifest,
    /// The number of allocated bytes of each file.
    held: BTreeMap<Bytes, u64>,
}

impl Seen {
    /// Observes a filesystem mounted by Linux.
    pub(super) fn by_linux(root: &Path) -> Result<Self> {
        let manifest = walk_linux::walk(root)?;
        let held = |entry: &Entry| {
            let path = entry.path.as_slice().strip_prefix(b"/").expect("paths start at the root");
            let metadata = fs::symlink_metadata(root.join(std::ffi::OsStr::from_bytes(path)))?;
            Ok(metadata.blocks() * LINUX_BLOCK)
        };
        Self::new(manifest, held)
    }

    /// Observes a filesystem opened by userbtrfs.
    pub(super) fn by_us(filesystem: &Filesystem) -> Result<Self> {
        let manifest = walk_ours::walk(filesystem)?;
        let held = |entry: &Entry| {
            let metadata = filesystem.symlink_metadata(entry.path.as_slice())?;
            Ok(metadata.allocated.next_multiple_of(SECTOR))
        };
        Self::new(manifest, held)
    }

    fn new(manifest: Manifest, held: impl Fn(&Entry) -> Result<u64>) -> Result<Self> {
        let files = manifest.entries().iter().filter(|entry| entry.kind == Kind::File);
        let held = files.map(|entry| Ok((entry.path.clone(), held(entry)?)));
        let held = held.collect::<Result<_>>()?;
        Ok(Self { manifest, held })
    }

    /// Returns the entry of a path (`/a/b`).
    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        self.manifest.get(path)
    }

    /// Returns the differences from this state to one after the crash: of everything, or of one
    /// path (with the names in it) in some attributes (in all if none is named).
    pub(super) fn differences(
        &self,
        after: &Seen,
        of: Option<(&[u8], &[&str])>,
        cut: Time,
    ) -> Vec<String> {
        let Some((path, attributes)) = of else { return self.all_differences(after, cut) };
        if self.get(path).is_none() {
            return vec!["there was nothing".to_owned()];
        }
        let mut found = diff(&self.manifest, &after.manifest, NOT_KEPT);
        found.retain(|one| is_about(one, path, attributes) && !is_later(&after.manifest, one, cut));
        let mut found: Vec<_> = found.iter().map(ToString::to_string).collect();
        if attributes.is_empty() {
            found.extend(self.held_otherwise(after, path));
        }
        found
    }

    /// Returns the differences between two replays of one image, each of which may have set times.
    pub fn differences_of_judges(&self, other: &Seen, cut: Time) -> Vec<String> {
        let found = differences_of_replays(&self.manifest, &other.manifest, cut);
        found.into_iter().map(|one| one.to_string()).chain(self.all_held_otherwise(other)).collect()
    }

    /// Returns all differences to the state after a crash, except the mtime of directories: a log
    /// that keeps the entries of a directory need not keep it; only an fsync of the directory does.
    fn all_differences(&self, after: &Seen, cut: Time) -> Vec<String> {
        let is_of_dir = |one: &Difference| {
            let entry = self.get(one.path.as_slice());
            one.attribute == "mtime" && entry.is_some_and(|entry| entry.kind == Kind::Dir)
        };
        let mut found = diff(&self.manifest, &after.manifest, NOT_KEPT);
        found.retain(|one| !is_of_dir(one) && !is_later(&after.manifest, one, cut));
        let found = found.iter().map(ToString::to_string);
        found.chain(self.all_held_otherwise(after)).collect()
    }

    fn all_held_otherwise(&self, other: &Seen) -> impl Iterator<Item = String> {
        let paths = self.held.keys().filter(|path| other.held.contains_key(path));
        paths.filter_map(|path| self.held_otherwise(other, path.as_slice()))
    }

    fn held_otherwise(&self, other: &Seen, path: &[u8]) -> Option<String> {
        let of = |seen: &Seen| seen.held.get(&Bytes::from(path)).copied();
        let before = of(self);
        let after = of(other);
        let path = Bytes::from(path);
        (before != after).then(|| format!("{path}: holds {before:?} != {after:?} bytes"))
    }
}

/// Returns the differences between two replays of one log, except times set by one of them.
pub fn differences_of_replays(one: &Manifest, other: &Manifest, cut: Time) -> Vec<Difference> {
    let mut found = diff(one, other, &[]);
    found.retain(|difference| !is_later(one, difference, cut) && !is_later(other, difference, cut));
    found
}

/// Returns whether a difference is in a time that was set after the crash.
fn is_later(manifest: &Manifest, difference: &Difference, cut: Time) -> bool {
    let entry = manifest.get(difference.path.as_slice());
    entry.is_some_and(|entry| match difference.attribute.as_str() {
        "mtime" => entry.mtime > cut,
        "ctime" => entry.ctime > cut,
        _ => false,
    })
}

/// Returns whether a difference is in one of these attributes of the path (in any if none is
/// named), or, if none is named, in one of the names in it.
fn is_about(difference: &Difference, path: &[u8], attributes: &[&str]) -> bool {
    let attribute = difference.attribute.as_str();
    if difference.path.as_slice() == path {
        return attributes.is_empty() || attributes.contains(&attribute);
    }
    attributes.is_empty()
        && ["path", "inode", "kind"].contains(&attribute)
        && parent(difference.path.as_slice()) == path
}

fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) | None => b"/",
        Some(slash) => &path[..slash],
    }
}
