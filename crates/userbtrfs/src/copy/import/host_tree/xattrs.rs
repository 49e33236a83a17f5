//! Extended attributes of the host's files.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::{self, CWD};
use rustix::io::Errno;

use super::Xattrs;

/// The maximum size of a list of attribute names, and of a value.
const XATTR_MAX: usize = 64 << 10;

/// A reader of extended attributes, with its buffer.
pub(super) struct XattrReader(Vec<u8>);

impl XattrReader {
    pub(super) fn new() -> Self {
        Self(vec![0; XATTR_MAX])
    }

    /// Returns the extended attributes of a file, without those that may not be read.
    pub(super) fn read(&mut self, file: &dyn HasXattrs) -> Result<Xattrs, Errno> {
        let names = match file.list(&mut self.0) {
            // The filesystem does not support any, or the file has none.
            Err(Errno::NOTSUP | Errno::NOSYS) | Ok(0) => return Ok(Xattrs::default()),
            len => self.0[..len?].to_vec(),
        };
        let mut xattrs = Xattrs::default();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let text = CString::new(name).expect("split at each NUL");
            match file.get(&text, &mut self.0) {
                // Removed since it was listed, or not permitted.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
                Err(error) => xattrs.unread.push((name.to_vec(), error)),
                Ok(len) => xattrs.found.push((name.to_vec(), self.0[..len].to_vec())),
            }
        }
        Ok(xattrs)
    }
}

/// A file with extended attributes.
pub(super) trait HasXattrs {
    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno>;
    fn get(&self, name: &CString, buffer: &mut [u8]) -> Result<usize, Errno>;
}

/// A file or directory that is open.
pub(super) struct OpenFile<'a>(pub(super) BorrowedFd<'a>);

impl HasXattrs for OpenFile<'_> {
    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        fs::flistxattr(self.0, buffer)
    }

    fn get(&self, name: &CString, buffer: &mut [u8]) -> Result<usize, Errno> {
        fs::fgetxattr(self.0, name, buffer)
    }
}

/// A link or a special file, by its path: no xattr call takes a directory and a name.
pub(super) struct NamedFile(Vec<u8>);

impl NamedFile {
    pub(super) fn new(dir: BorrowedFd<'_>, at: &CString) -> Self {
        let is_of_dir = dir.as_raw_fd() != CWD.as_raw_fd();
        let prefix = is_of_dir.then(|| format!("/proc/self/fd/{}/", dir.as_raw_fd()));
        Self([prefix.unwrap_or_default().as_bytes(), at.as_bytes()].concat())
    }
}

impl HasXattrs for NamedFile {
    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        fs::llistxattr(&*self.0, buffer)
    }

    fn get(&self, name: &CString, buffer: &mut [u8]) -> Result<usize, Errno> {
        fs::lgetxattr(&*self.0, name, buffer)
    }
}
