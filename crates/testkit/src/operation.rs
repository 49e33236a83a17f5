//! Changes of a tree of files, one value each: made at random, printed, read back, shrunk.
//!
//! 1. A path is names from the root with `/` between them; the root itself is empty. Every name
//!    but the last must be a directory; links are not followed. All parents an operation names are
//!    looked up first, from left to right, then the names in them and the handles, likewise.
//! 2. A handle is an open file or directory, by a small number. It keeps what it stands for though
//!    all names are gone, until it is closed, replaced, or the filesystem reopened. An operation on
//!    a number that stands for nothing ends with EBADF.
//! 3. Files and directories alone are opened and given flags, else with ELOOP on a symbolic link
//!    and EINVAL on other things. What is done to the content of a file ends with EISDIR on a
//!    directory and EINVAL on other things.
//! 4. Naming the root where a name is made or removed ends with EINVAL.
//! 5. What would end behind [`FILE_MAX`] is not done at all: a write ends with EINVAL, an append or
//!    an allocation with EFBIG. What is written is not in the operation, but made of its seed
//!    ([`crate::pattern`]).
//! 6. The text of an operation is one line of JSON, and is read back exactly.

mod data;
mod generator;
mod names;
mod shrink;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::manifest::{Bytes, Kind, Mode, Time};

pub use generator::Generator;
pub use names::colliding_names;
pub use shrink::{shrink, simplify};

/// Where a file ends at the latest: the largest size there is, in bytes.
pub const FILE_MAX: u64 = i64::MAX as u64;

/// What is read and written whole, in bytes.
const SECTOR: u64 = 4096;

/// Larger than anything for which there is space, in bytes.
const LARGE: u64 = 1 << 20;

/// What attributes and contents belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Object {
    /// What is at a path.
    Path(Bytes),
    /// What is open.
    Handle(u8),
}

/// How a name is moved, by the flags of renameat2(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenameKind {
    /// What has the new name is replaced.
    Plain,
    /// Nothing may have the new name.
    NoReplace,
    /// Both names change places.
    Exchange,
    /// A whiteout, a character device 0:0 of mode 0, takes the old name.
    Whiteout,
    /// Both of these.
    WhiteoutNoReplace,
}

/// How an xattr is set, by the flags of setxattr(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XattrKind {
    /// Whether it is there or not.
    Any,
    /// It may not be there.
    Create,
    /// It must be there.
    Replace,
}

/// What fallocate(2) does, by its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocateKind {
    /// Takes space; the file grows to the end of the range.
    Reserve,
    /// Takes space; the size stays.
    ReserveKeepSize,
    /// Makes a hole; the size stays.
    Punch,
    /// Makes zeros; the file grows to the end of the range.
    Zero,
    /// Makes zeros; the size stays.
    ZeroKeepSize,
}

/// Attributes to be set; none stays as it is. An owner or group drops, unless the mode is given,
/// the set-id bits of what is no directory: set-group-id only if the group may execute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Attributes {
    /// Permissions; a symbolic link has none to be set: EOPNOTSUPP, and nothing is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// The time of the last reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atime: Option<Time>,
    /// The time of the last change of content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "fields have the names of what the call takes")]
pub enum Operation {
    /// A new empty file: open(2) with `O_CREAT | O_EXCL`.
    Create { path: Bytes, mode: Mode },
    /// mkdir(2): of the mode, the lowest nine bits and the sticky bit count.
    Mkdir { path: Bytes, mode: Mode },
    /// mknod(2): a device, pipe, socket or empty file; `rdev` counts for devices alone.
    Mknod { path: Bytes, kind: Kind, mode: Mode, rdev: (u32, u32) },
    /// symlink(2).
    Symlink { path: Bytes, target: Bytes },
    /// link(2); from a handle, linkat(2) with `AT_EMPTY_PATH`.
    Link { from: Object, to: Bytes },
    /// unlink(2).
    Unlink { path: Bytes },
    /// rmdir(2).
    Rmdir { path: Bytes },
    /// renameat2(2).
    Rename { from: Bytes, to: Bytes, kind: RenameKind },
    /// open(2) with `O_TMPFILE`: a file without a name.
    Tmpfile { dir: Bytes, handle: u8, mode: Mode },
    /// open(2) of what is there.
    Open { path: Bytes, handle: u8 },
    /// close(2).
    Close { handle: u8 },
    /// chown(2), chmod(2) and utimensat(2), in this order.
    Setattr { object: Object, attributes: Attributes },
    /// `FS_IOC_SETFLAGS`: `FS_*_FL` bits of sync, dirsync, noatime, nodump and nocow.
    SetFlags { object: Object, flags: u32 },
    /// ftruncate(2).
    Truncate { object: Object, size: u64 },
    /// pwrite(2).
    Write { object: Object, offset: u64, length: u64, seed: u32 },
    /// write(2) with `O_APPEND`.
    Append { object: Object, length: u64, seed: u32 },
    /// Replaces all the content of a file.
    Replace { object: Object, length: u64, seed: u32 },
    /// fallocate(2).
    Allocate { object: Object, offset: u64, length: u64, kind: AllocateKind },
    /// pread(2), as far as the file goes.
    Read { object: Object, offset: u64, length: u64 },
    /// fsync(2).
    Sync { object: Object },
    /// setxattr(2).
    SetXattr { object: Object, name: Bytes, value: Bytes, kind: XattrKind },
    /// removexattr(2).
    RemoveXattr { object: Object, name: Bytes },
    /// What was done so far is made durable.
    Commit,
    /// The filesystem is closed in order, and opened again.
    Reopen,
}

impl Operation {
    /// The same below a directory, and with handles from a number on: for who shares a filesystem
    /// with others.
    #[must_use]
    pub fn below(mut self, dir: &[u8], first_handle: u8) -> Self {
        for path in self.paths() {
            *path = join(dir, path.as_slice()).into();
        }
        if let Some(handle) = self.handle() {
            *handle = handle.checked_add(first_handle).expect("handles are small numbers");
        }
        self
    }

    /// The same with less of what it puts into a file, or reads, or does there: the least first.
    pub fn simpler(&self) -> Vec<Self> {
        let with = |length: u64| {
            let mut simpler = self.clone();
            *simpler.length()? = length;
            Some(simpler)
        };
        let length = self.clone().length().map_or(0, |length| *length);
        let less = [1, SECTOR, length / 2, length / SECTOR * SECTOR, length - length / 8];
        less.into_iter()
            .filter(|less| (1..length.min(LARGE)).contains(less))
            .filter_map(with)
            .collect()
    }

    fn length(&mut self) -> Option<&mut u64> {
        match self {
            Self::Write { length, .. }
            | Self::Append { length, .. }
            | Self::Replace { length, .. }
            | Self::Allocate { length, .. }
            | Self::Read { length, .. } => Some(length),
            _ => None,
        }
    }

    fn paths(&mut self) -> Vec<&mut Bytes> {
        match self {
            Self::Create { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Mknod { path, .. }
            | Self::Symlink { path, .. }
            | Self::Unlink { path }
            | Self::Rmdir { path }
            | Self::Tmpfile { dir: path, .. }
            | Self::Open { path, .. } => vec![path],
            Self::Rename { from, to, .. } => vec![from, to],
            Self::Link { from, to } => from.path().into_iter().chain([to]).collect(),
            Self::Close { .. } | Self::Commit | Self::Reopen => Vec::new(),
            other => other.object_mut().and_then(Object::path).into_iter().collect(),
        }
    }

    /// What it changes, or reads, the attributes or the content of.
    pub fn object(&self) -> Option<Object> {
        self.clone().object_mut().cloned()
    }

    fn object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Self::Setattr { object, .. }
            | Self::SetFlags { object, .. }
            | Self::Truncate { object, .. }
            | Self::Write { object, .. }
            | Self::Append { object, .. }
            | Self::Replace { object, .. }
            | Self::Allocate { object, .. }
            | Self::Read { object, .. }
            | Self::Sync { object }
            | Self::SetXattr { object, .. }
            | Self::RemoveXattr { object, .. } => Some(object),
            _ => None,
        }
    }

    fn handle(&mut self) -> Option<&mut u8> {
        match self {
            Self::Tmpfile { handle, .. } | Self::Open { handle, .. } | Self::Close { handle } => {
                Some(handle)
            }
            Self::Link { from: object, .. } => object.handle(),
            other => other.object_mut().and_then(Object::handle),
        }
    }
}

impl Object {
    fn path(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Path(path) => Some(path),
            Self::Handle(_) => None,
        }
    }

    fn handle(&mut self) -> Option<&mut u8> {
        match self {
            Self::Path(_) => None,
            Self::Handle(handle) => Some(handle),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("an operation has only string keys"))
    }
}

impl FromStr for Operation {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// A list of operations as text, one a line.
pub fn to_text(operations: &[Operation]) -> String {
    operations.iter().map(|operation| operation.to_string() + "\n").collect()
}

/// Reads the text of a list back.
pub fn from_text(text: &str) -> Result<Vec<Operation>, serde_json::Error> {
    text.lines().map(str::parse).collect()
}

/// The path of the directory and the name in it; none for the root.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty())?;
    let dir = &path[..path.len() - name.len()];
    Some((dir.strip_suffix(b"/").unwrap_or(dir), name))
}

/// The names of a path.
pub fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// A path of a directory with a name behind it.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (b"", only) | (only, b"") => only.to_vec(),
        (dir, name) => [dir, b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_every_generated_operation_is_read_back() {
        let operations: Vec<_> =
            (0..8).flat_map(|seed| Generator::new(seed, 4096).take(500)).collect();
        let text = to_text(&operations);
        assert_eq!(text.lines().count(), operations.len());
        assert_eq!(from_text(&text).unwrap(), operations);
        assert!(from_text(&text.replace("\"path\"", "\"pass\"")).is_err());
    }

    #[test]
    fn an_operation_moves_below_a_directory_with_all_it_names() {
        let below = |text: &str| text.parse::<Operation>().unwrap().below(b"t1/x", 8).to_string();
        let link = below(r#"{"link":{"from":{"path":"a"},"to":"b/c"}}"#);
        assert_eq!(link, r#"{"link":{"from":{"path":"t1/x/a"},"to":"t1/x/b/c"}}"#);
        let link = below(r#"{"link":{"from":{"handle":1},"to":"b"}}"#);
        assert_eq!(link, r#"{"link":{"from":{"handle":9},"to":"t1/x/b"}}"#);
        let rename = below(r#"{"rename":{"from":"a","to":"","kind":"no_replace"}}"#);
        assert_eq!(rename, r#"{"rename":{"from":"t1/x/a","to":"t1/x","kind":"no_replace"}}"#);
        let tmpfile = below(r#"{"tmpfile":{"dir":"","handle":3,"mode":"0600"}}"#);
        assert_eq!(tmpfile, r#"{"tmpfile":{"dir":"t1/x","handle":11,"mode":"0600"}}"#);
        assert_eq!(below(r#""commit""#), r#""commit""#);
    }

    #[test]
    fn paths_are_taken_apart_and_joined() {
        assert_eq!(split(b""), None);
        assert_eq!(split(b"a"), Some((&b""[..], &b"a"[..])));
        assert_eq!(split(b"a/b/c"), Some((&b"a/b"[..], &b"c"[..])));
        assert_eq!(names(b"a/b/c").collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(names(b"").count(), 0);
        let joined = [(&b""[..], &b"a"[..]), (b"a/b", b"c"), (b"a", b"")];
        assert_eq!(joined.map(|(dir, name)| join(dir, name)), [&b"a"[..], b"a/b/c", b"a"]);
    }
}
