//! The visible content of a file tree, as a sorted list that can be printed, parsed and compared.
//!
//! 1. Entries are sorted by the bytes of their paths; the root is `/`, all others start with it.
//! 2. The text form is JSON lines, one entry per line, keys in the order of the fields of
//!    [`Entry`]; attributes with their default value are left out. The conversion to text and back
//!    is exact.
//! 3. Byte strings (paths, link targets, xattrs) are printed with `%XX` for every byte that is not
//!    printable ASCII, and for `%`, `"` and `\`, so any bytes survive.
//! 4. A snapshot has a directory of inode number 2 in place of a subvolume that was nested in its
//!    source; Linux invents its times on every access, so they are 0 here.
//! 5. The content of a file is represented by a digest that does not depend on the location of its
//!    holes ([`ContentDigest`]); the data segments have that.

mod bytes;
mod content;
mod diff;
mod scalars;

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

pub use bytes::Bytes;
pub use content::ContentDigest;
pub use diff::{Difference, diff};
pub use scalars::{Mode, Time};

/// The inode number of a directory in place of a missing subvolume.
const PLACEHOLDER: u64 = 2;

/// The file type, as in the type bits of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory, also the root of a subvolume.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A block device.
    Block,
    /// A character device.
    Char,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// Everything visible at one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The path from the root of the walk, starting with `/`.
    pub path: Bytes,
    /// The file type.
    pub kind: Kind,
    /// The inode number within its subvolume.
    pub inode: u64,
    /// Whether it is the root directory of a subvolume (inode number 256).
    #[serde(default, skip_serializing_if = "is_default")]
    pub subvolume: bool,
    /// Permissions with set-id and sticky bits: the lowest twelve bits of the mode.
    pub mode: Mode,
    /// The owner.
    #[serde(default, skip_serializing_if = "is_default")]
    pub uid: u32,
    /// The owning group.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gid: u32,
    /// The link count.
    pub nlink: u32,
    /// The size in bytes.
    pub size: u64,
    /// Major and minor number of a device.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rdev: Option<(u32, u32)>,
    /// When the content last changed.
    pub mtime: Time,
    /// When the inode last changed.
    pub ctime: Time,
    /// When the content was last read.
    pub atime: Time,
    /// When the inode was created, if known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub btime: Option<Time>,
    /// The inode flags of files and directories as of `FS_IOC_GETFLAGS`: `FS_*_FL` bits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flags: u32,
    /// The target of a symbolic link.
    #[serde(default, skip_serializing_if = "is_default")]
    pub target: Option<Bytes>,
    /// Extended attributes, raw, ACLs and capabilities among them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub xattrs: BTreeMap<Bytes, Bytes>,
    /// The first path, in sorted order, that is a hard link to the same inode; `None` on that path.
    #[serde(default, skip_serializing_if = "is_default")]
    pub link: Option<Bytes>,
    /// The data segments of a regular file: offset and length in bytes, ascending, by `SEEK_DATA`
    /// and `SEEK_HOLE`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub segments: Vec<(u64, u64)>,
    /// The digest of a regular file's content ([`ContentDigest`]).
    #[serde(default, skip_serializing_if = "is_default")]
    pub content: Option<String>,
}

impl Entry {
    fn forget_made_up_times(&mut self) {
        if self.inode == PLACEHOLDER {
            (self.mtime, self.ctime, self.atime) = Default::default();
            self.btime = None;
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The subvolume of an entry: any number that differs between the subvolumes of one walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubvolumeId(pub u64);

/// A sorted list of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
}

impl Manifest {
    /// Sorts the entries of a walk, and finds the hard links and the placeholders.
    pub fn new(mut met: Vec<(SubvolumeId, Entry)>) -> Self {
        met.sort_by(|(_, a), (_, b)| a.path.cmp(&b.path));
        let mut first: HashMap<(SubvolumeId, u64), Bytes> = HashMap::new();
        for (subvolume, entry) in &mut met {
            if entry.kind == Kind::Dir {
                entry.forget_made_up_times();
                continue;
            }
            let group =
                first.entry((*subvolume, entry.inode)).or_insert_with(|| entry.path.clone());
            entry.link = (*group != entry.path).then(|| group.clone());
        }
        Self { entries: met.into_iter().map(|(_, entry)| entry).collect() }
    }

    /// Returns the entries, sorted by path.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the manifest with these inode flags cleared.
    #[must_use]
    pub fn without_flags(mut self, flags: u32) -> Self {
        for entry in &mut self.entries {
            entry.flags &= !flags;
        }
        self
    }

    /// Returns the entry with exactly this path.
    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| entry.path.as_slice().cmp(path));
        found.ok().map(|index| &self.entries[index])
    }

    /// Returns the part of the manifest below a directory, as if that were the root, and finds hard
    /// links again. Empty if this path (`/a/b`) does not exist.
    #[must_use]
    pub fn below(&self, dir: &[u8]) -> Manifest {
        // The subvolumes are not known here, so each group of links counts as one.
        let mut groups: HashMap<&Bytes, u64> = HashMap::new();
        let part = self.entries.iter().filter_map(|entry| {
            let path: Bytes = match entry.path.as_slice().strip_prefix(dir)? {
                [] => b"/".into(),
                below @ [b'/', ..] => below.into(),
                _ => return None,
            };
            let next = groups.len() as u64;
            let group = groups.entry(entry.link.as_ref().unwrap_or(&entry.path)).or_insert(next);
            Some((SubvolumeId(*group), Entry { path, link: None, ..entry.clone() }))
        });
        Self::new(part.collect())
    }

    /// Returns the text form.
    pub fn to_text(&self) -> String {
        let line = |entry| serde_json::to_string(entry).expect("an entry has only string keys");
        self.entries.iter().map(|entry| line(entry) + "\n").collect()
    }

    /// Parses the text form.
    pub fn from_text(text: &str) -> anyhow::Result<Self> {
        let entry = |(index, line)| {
            serde_json::from_str(line).with_context(|| format!("manifest line {}", index + 1))
        };
        let entries: Vec<Entry> = text.lines().enumerate().map(entry).collect::<Result<_, _>>()?;
        ensure!(entries.is_sorted_by(|a, b| a.path < b.path), "manifest not sorted by path");
        Ok(Self { entries })
    }
}

#[cfg(test)]
mod tests;
