//! Listings of directories.

use std::borrow::Cow;

use pyo3::prelude::*;
use userbtrfs::FileKind;

use crate::failure::run;

/// The number of entries that one call returns, about.
const ENTRIES: usize = 512;

/// A name, the number of its inode, and the type bits of `st_mode`, 0 if unknown.
type Entry = (Cow<'static, [u8]>, u64, u32);

/// An open directory.
#[pyclass(frozen, module = "userbtrfs._native")]
pub(crate) struct Dir {
    dir: userbtrfs::Dir,
    path: Vec<u8>,
}

impl Dir {
    pub(crate) fn new(dir: userbtrfs::Dir, path: Vec<u8>) -> Self {
        Self { dir, path }
    }
}

#[pymethods]
impl Dir {
    /// Returns some entries from a position on, and the position after them, or None after the
    /// last.
    fn list(&self, py: Python<'_>, position: u64) -> PyResult<(Vec<Entry>, Option<u64>)> {
        let (entries, next) = run(py, &self.path, || self.dir.list(position, ENTRIES))?;
        let entry = |entry: &userbtrfs::DirEntry| {
            let kind = entry.kind().map_or(0, FileKind::to_mode);
            (Cow::Owned(entry.name().to_vec()), entry.target().number, kind)
        };
        Ok((entries.iter().map(entry).collect(), next))
    }
}
