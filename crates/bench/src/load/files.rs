//! The calls that loaders make, in the manner of the system calls of the programs that they
//! replace.

use anyhow::Result;

use super::loadfile::How;

/// A filesystem under load. Paths are absolute.
pub(crate) trait Files: Sync {
    /// An open file or directory.
    type File: Send;

    /// Looks up a path: `None` if it does not exist, or else whether it is a directory.
    fn stat(&self, path: &[u8]) -> Result<Option<bool>>;

    /// Calls `see` with each name in a directory, until it returns an error. Returns false if there
    /// is no such directory.
    fn list(&self, path: &[u8], see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool>;

    /// Creates a directory; an existing one is no error.
    fn make_dir(&self, path: &[u8]) -> Result<()>;

    /// Opens a file, and reads its attributes. Returns `None` if it does not exist.
    fn open(&self, path: &[u8], how: How) -> Result<Option<Self::File>>;

    /// Removes a file.
    fn remove(&self, path: &[u8]) -> Result<()>;

    /// Renames a file.
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()>;

    /// Reads the free space.
    fn space(&self) -> Result<()>;

    /// Reads the attributes of an open file.
    fn attributes(&self, file: &Self::File) -> Result<()>;

    /// Reads the attributes of an open file with this path, and sets the time of its last access.
    fn touch(&self, file: &Self::File, path: &[u8]) -> Result<()>;

    /// Reads from a file.
    fn read(&self, file: &Self::File, target: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes all bytes to a file.
    fn write(&self, file: &Self::File, bytes: &[u8], offset: u64) -> Result<()>;

    /// Makes a file durable.
    fn sync(&self, file: &Self::File) -> Result<()>;

    /// Locks or unlocks a file, as far as the filesystem has locks.
    fn lock(&self, file: &Self::File, lock: bool) -> Result<()>;
}
