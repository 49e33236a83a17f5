//! Changes of a file tree as values: generated at random, printed, parsed, and shrunk.
//!
//! 1. A path is names from the root, separated by `/`; the root itself is empty. Every name but the
//!    last must be a directory; symbolic links are not followed. All parents that an operation
//!    names are looked up first, from left to right, then the names in them and the handles, in the
//!    same order. But the source of a clone or a snapshot is looked up before its target.
//! 2. A handle is the small number of an open file or directory. It refers to its inode, even after
//!    the last name is removed, until it is closed, replaced, or the filesystem is reopened. An
//!    operation on an unused number fails with EBADF.
//! 3. Only files and directories can be opened and have flags set; otherwise ELOOP for a symbolic
//!    link and EINVAL for other types. An operation on file content fails with EISDIR on a
//!    directory and EINVAL on other types.
//! 4. Creating or removing a name fails with EINVAL if the path is the root.
//! 5. An operation that would end after [`FILE_MAX`] changes nothing: a write fails with EINVAL, an
//!    append or an allocation with EFBIG. The data of a write is not part of the operation, but
//!    generated from its seed ([`crate::pattern`]).
//! 6. Deleting a subvolume, also by rmdir(2), closes the handles of its files and directories.
//! 7. A filesystem is resized within its device, to 256 MiB or more, in whole sectors: EINVAL below
//!    that, EFBIG beyond the device. What is stored fits into each size that is asked for.
//! 8. The text of an operation is one line of JSON, and parses to the same operation.

mod choices;
mod data;
mod drivers;
mod generator;
mod names;
mod resizing;
mod shrink;
mod subvolumes;

use std::fmt;
use std::str::FromStr;

use userbtrfs_format::SECTOR;

use serde::{Deserialize, Serialize};

use crate::manifest::{Bytes, Kind, Mode, Time};

pub use generator::{Drivers, Generator};
pub use names::colliding_names;
pub use shrink::{shrink, simplify};
pub use subvolumes::is_answered_unlike_linux;

/// The maximum size of a file, in bytes.
pub const FILE_MAX: u64 = i64::MAX as u64;

const MIB: u64 = 1 << 20;
/// A length larger than any for which there is space, in bytes.
const LARGE: u64 = 1 << 20;

/// The object whose attributes or content an operation accesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Object {
    /// The file at a path.
    Path(Bytes),
    /// The file of an open handle.
    Handle(u8),
}

/// The kind of a rename, by the flags of renameat2(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenameKind {
    /// Replaces the inode of the new name.
    Plain,
    /// The new name must not exist.
    NoReplace,
    /// Exchanges both names.
    Exchange,
    /// Leaves a whiteout, a character device 0:0 of mode 0, at the old name.
    Whiteout,
    /// `NoReplace` and `Whiteout`.
    WhiteoutNoReplace,
}

/// How an xattr is set, by the flags of setxattr(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XattrKind {
    /// It may exist or not.
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// The mode of fallocate(2), by its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocateKind {
    /// Allocates space; the file grows to the end of the range.
    Reserve,
    /// Allocates space; the size does not change.
    ReserveKeepSize,
    /// Punches a hole; the size does not change.
    Punch,
    /// Zeroes the range; the file grows to the end of the range.
    Zero,
    /// Zeroes the range; the size does not change.
    ZeroKeepSize,
}

/// The algorithm that a defragmentation compresses with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// zlib.
    Zlib,
    /// LZO.
    Lzo,
    /// Zstandard.
    Zstd,
}

/// Attributes to set; `None` does not change one. Setting an owner or group without a mode clears
/// the set-id bits, except on directories; set-group-id only if the group may execute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Attributes {
    /// Permissions; cannot be set on a symbolic link: EOPNOTSUPP, and nothing is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// The time of the last access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atime: Option<Time>,
    /// The time of the last change of content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
}

/// One change of a file tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "fields have the names of what the call takes")]
pub enum Operation {
    /// Creates an empty file: open(2) with `O_CREAT | O_EXCL`.
    Create { path: Bytes, mode: Mode },
    /// mkdir(2): only the lowest nine bits and the sticky bit of the mode are used.
    Mkdir { path: Bytes, mode: Mode },
    /// mknod(2): a device, pipe, socket or empty file; `rdev` is used for devices only.
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
    /// open(2) of an existing file or directory.
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
    /// `FICLONERANGE`: shares a range of `source` with `object`, at the offset `at`; a length of 0
    /// means up to the end.
    Clone { source: Object, offset: u64, length: u64, object: Object, at: u64 },
    /// `FIDEDUPERANGE`: like a clone, if both ranges hold the same bytes; returns whether they do,
    /// as one byte.
    Dedupe { source: Object, offset: u64, length: u64, object: Object, at: u64 },
    /// `BTRFS_IOC_DEFRAG_RANGE`: rewrites the extents of a range that are smaller than `threshold`
    /// together; all of them if they are to be compressed, which Linux is not asked for. A length
    /// of 0 means up to the end, and a threshold of 0 the usual one.
    Defragment {
        object: Object,
        offset: u64,
        length: u64,
        threshold: u32,
        compression: Option<Algorithm>,
    },
    /// pread(2), up to the end of the file.
    Read { object: Object, offset: u64, length: u64 },
    /// fsync(2).
    Sync { object: Object },
    /// setxattr(2).
    SetXattr { object: Object, name: Bytes, value: Bytes, kind: XattrKind },
    /// removexattr(2).
    RemoveXattr { object: Object, name: Bytes },
    /// `BTRFS_IOC_SUBVOL_CREATE`: creates an empty subvolume of mode 0777.
    Subvolume { path: Bytes },
    /// `BTRFS_IOC_SNAP_CREATE_V2`: makes a snapshot of the subvolume at `source`. Everything so far
    /// is durable then.
    Snapshot { source: Bytes, path: Bytes, read_only: bool },
    /// `BTRFS_IOC_SUBVOL_SETFLAGS`: sets whether a subvolume may be changed.
    SetReadOnly { path: Bytes, read_only: bool },
    /// `BTRFS_IOC_SNAP_DESTROY`: deletes a subvolume with all of its files.
    DeleteSubvolume { path: Bytes },
    /// `BTRFS_IOC_RESIZE`: sets the size of the filesystem. Everything so far is durable then; the
    /// content of files, however, only if it shrinks.
    Resize { bytes: u64 },
    /// Makes everything so far durable.
    Commit,
    /// Closes the filesystem cleanly and opens it again.
    Reopen,
}

impl Operation {
    /// Returns the operation with its paths below a directory and its handles renumbered from
    /// `first_handle`, for use with others on one filesystem.
    #[must_use]
    pub fn below(mut self, dir: &[u8], first_handle: u8) -> Self {
        for path in self.paths() {
            *path = join(dir, path.as_slice()).into();
        }
        for handle in self.handles() {
            *handle = handle.checked_add(first_handle).expect("handles are small numbers");
        }
        self
    }

    /// Returns variants with a smaller length, the smallest first, or with a rounder size.
    pub fn simpler(&self) -> Vec<Self> {
        if let Self::Resize { bytes } = self {
            let round = bytes / MIB * MIB;
            return if round < *bytes { vec![Self::Resize { bytes: round }] } else { Vec::new() };
        }
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
            | Self::Clone { length, .. }
            | Self::Dedupe { length, .. }
            | Self::Defragment { length, .. }
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
            | Self::Subvolume { path }
            | Self::SetReadOnly { path, .. }
            | Self::DeleteSubvolume { path }
            | Self::Tmpfile { dir: path, .. }
            | Self::Open { path, .. } => vec![path],
            Self::Rename { from, to, .. } => vec![from, to],
            Self::Snapshot { source, path, .. } => vec![source, path],
            Self::Link { from, to } => from.path().into_iter().chain([to]).collect(),
            Self::Clone { source, object, .. } | Self::Dedupe { source, object, .. } => {
                source.path().into_iter().chain(object.path()).collect()
            }
            Self::Close { .. } | Self::Resize { .. } | Self::Commit | Self::Reopen => Vec::new(),
            other => other.object_mut().and_then(Object::path).into_iter().collect(),
        }
    }

    /// Returns the object whose attributes or content it changes or reads.
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
            | Self::Defragment { object, .. }
            | Self::Clone { object, .. }
            | Self::Dedupe { object, .. }
            | Self::Read { object, .. }
            | Self::Sync { object }
            | Self::SetXattr { object, .. }
            | Self::RemoveXattr { object, .. } => Some(object),
            _ => None,
        }
    }

    fn handles(&mut self) -> Vec<&mut u8> {
        match self {
            Self::Tmpfile { handle, .. } | Self::Open { handle, .. } | Self::Close { handle } => {
                vec![handle]
            }
            Self::Link { from: object, .. } => object.handle().into_iter().collect(),
            Self::Clone { source, object, .. } | Self::Dedupe { source, object, .. } => {
                source.handle().into_iter().chain(object.handle()).collect()
            }
            other => other.object_mut().and_then(Object::handle).into_iter().collect(),
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

/// Returns the text of a list of operations, one per line.
pub fn to_text(operations: &[Operation]) -> String {
    operations.iter().map(|operation| operation.to_string() + "\n").collect()
}

/// Parses the text of a list of operations.
pub fn from_text(text: &str) -> Result<Vec<Operation>, serde_json::Error> {
    text.lines().map(str::parse).collect()
}

/// Splits a path into the directory and the last name; `None` for the root.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty())?;
    let dir = &path[..path.len() - name.len()];
    Some((dir.strip_suffix(b"/").unwrap_or(dir), name))
}

/// Returns the names of a path.
pub fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// Appends a name to the path of a directory.
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
        let generator = |seed| {
            let generator = Generator::new(seed, 4096).with_subvolumes(Drivers::Linux);
            generator.with_resizing(1 << 30)
        };
        let operations: Vec<_> = (0..8).flat_map(|seed| generator(seed).take(500)).collect();
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
        let clone = below(
            r#"{"clone":{"source":{"handle":2},"offset":0,"length":1,"object":{"path":"a"},
                "at":0}}"#,
        );
        assert!(clone.contains(r#"{"handle":10}"#) && clone.contains(r#"{"path":"t1/x/a"}"#));
        let tmpfile = below(r#"{"tmpfile":{"dir":"","handle":3,"mode":"0600"}}"#);
        assert_eq!(tmpfile, r#"{"tmpfile":{"dir":"t1/x","handle":11,"mode":"0600"}}"#);
        assert_eq!(below(r#""commit""#), r#""commit""#);
    }

    #[test]
    fn simpler_size_is_one_in_mebibytes() {
        let resize = |bytes| Operation::Resize { bytes };
        assert_eq!(resize((300 << 20) + 4095).simpler(), [resize(300 << 20)]);
        assert_eq!(resize(300 << 20).simpler(), []);
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
