//! Calls by path, as errors name them.

use std::fmt;

use userbtrfs_format::Quoted;

/// A call by path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathCall {
    /// The operation.
    pub operation: PathOperation,
    /// The path as it was given. If the call is about several inodes, as that to walk or remove a
    /// tree or to create missing directories, the path at which it failed.
    pub path: Vec<u8>,
    /// The second path of [`PathOperation::Rename`], [`PathOperation::HardLink`] and
    /// [`PathOperation::CloneFile`], as it was given.
    pub to: Option<Vec<u8>>,
}

/// An operation of calls by path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathOperation {
    /// Opens a filesystem; the path is that of its image or block device on the host.
    OpenImage,
    /// Returns a handle on an inode.
    Lookup,
    /// Opens a file, and may create it.
    OpenFile,
    /// Opens a directory.
    OpenDir,
    /// Opens the directory that contains the path.
    OpenParent,
    /// Returns the attributes.
    Metadata,
    /// Returns the target of a symbolic link.
    ReadLink,
    /// Reads the content of a file.
    Read,
    /// Replaces the content of a file.
    Write,
    /// Visits a tree.
    Walk,
    /// Creates a directory.
    CreateDir,
    /// Creates a symbolic link.
    Symlink,
    /// Adds a name of an inode, its second path.
    HardLink,
    /// Makes the file at the second path a clone.
    CloneFile,
    /// Moves an inode to the second path.
    Rename,
    /// Removes a name of an inode other than a directory.
    RemoveFile,
    /// Removes an empty directory.
    RemoveDir,
    /// Removes a directory with its content.
    RemoveDirAll,
    /// Sets the permissions.
    SetPermissions,
}

impl fmt::Display for PathOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenImage => "open image",
            Self::Lookup => "look up",
            Self::OpenFile => "open",
            Self::OpenDir => "open directory",
            Self::OpenParent => "open parent directory",
            Self::Metadata => "read attributes",
            Self::ReadLink => "read symbolic link",
            Self::Read => "read",
            Self::Write => "write",
            Self::Walk => "walk",
            Self::CreateDir => "create directory",
            Self::Symlink => "create symbolic link",
            Self::HardLink => "link",
            Self::CloneFile => "clone",
            Self::Rename => "rename",
            Self::RemoveFile => "remove",
            Self::RemoveDir => "remove directory",
            Self::RemoveDirAll => "remove tree",
            Self::SetPermissions => "set permissions",
        })
    }
}

impl fmt::Display for PathCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Quoted(&self.path), self.operation)?;
        self.to.as_ref().map_or(Ok(()), |to| write!(f, " to {}", Quoted(to)))
    }
}
