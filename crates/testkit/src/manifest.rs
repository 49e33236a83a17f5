//! What a tree of files shows, as a sorted list that can be printed, read back and compared.
//!
//! 1. Entries are sorted by the bytes of their paths; the root is `/`, all others start with it.
//! 2. The text form is JSON lines, one entry a line, keys in the order of the fields of [`Entry`];
//!    attributes that have their usual value are left out. Text to manifest and back is exact.
//! 3. Byte strings (paths, link targets, xattrs) are printed with `%XX` for every byte that is not
//!    printable ASCII, and for `%`, `"` and `\`, so any bytes survive.
//! 4. A directory of inode number 2 stands where a snapshot would show a subvolume that was nested
//!    in its source; Linux makes up its times whenever it is looked at, so they are 0 here.
//! 5. A file's content is named by a digest that does not depend on where its holes are
//!    ([`ContentDigest`]); where they are is said by its data segments.

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

/// The inode number of a directory that stands for a subvolume which is not there.
const PLACEHOLDER: u64 = 2;

/// What an entry is, by the file type bits of its mode.
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

/// All that one path shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// From the root of the walk, starting with `/`.
    pub path: Bytes,
    /// What it is.
    pub kind: Kind,
    /// The inode number within its subvolume.
    pub inode: u64,
    /// It is a subvolume's root directory (inode number 256).
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
    /// In bytes.
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
    /// When the inode was made, where that is told.
    #[serde(default, skip_serializing_if = "is_default")]
    pub btime: Option<Time>,
    /// The inode flags of files and directories as `FS_IOC_GETFLAGS` gives them: `FS_*_FL` bits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flags: u32,
    /// Where a symbolic link points.
    #[serde(default, skip_serializing_if = "is_default")]
    pub target: Option<Bytes>,
    /// Extended attributes, raw, ACLs and capabilities among them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub xattrs: BTreeMap<Bytes, Bytes>,
    /// The first path, in sorted order, that is a hard link to the same inode; none on that path.
    #[serde(default, skip_serializing_if = "is_default")]
    pub link: Option<Bytes>,
    /// Where a regular file has data: offset and length in bytes, ascending, by `SEEK_DATA` and
    /// `SEEK_HOLE`.
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

/// Which subvolume an entry was met in: any number that differs between subvolumes of one walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubvolumeId(pub u64);

/// A sorted list of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
}

impl Manifest {
    /// Sorts what a walk met, in any order, and finds the hard links and the placeholders.
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

    /// The entries, sorted by path.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of exactly this path.
    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| entry.path.as_slice().cmp(path));
        found.ok().map(|index| &self.entries[index])
    }

    /// What a directory with all below it shows, as if it were the root; hard links are found anew.
    /// All there must be of one subvolume. Empty if there is nothing at this path (`/a/b`).
    #[must_use]
    pub fn below(&self, dir: &[u8]) -> Manifest {
        let part = self.entries.iter().filter_map(|entry| {
            let path: Bytes = match entry.path.as_slice().strip_prefix(dir)? {
                [] => b"/".into(),
                below @ [b'/', ..] => below.into(),
                _ => return None,
            };
            Some((SubvolumeId(0), Entry { path, link: None, ..entry.clone() }))
        });
        Self::new(part.collect())
    }

    /// The text form.
    pub fn to_text(&self) -> String {
        let line = |entry| serde_json::to_string(entry).expect("an entry has only string keys");
        self.entries.iter().map(|entry| line(entry) + "\n").collect()
    }

    /// Reads the text form back.
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
