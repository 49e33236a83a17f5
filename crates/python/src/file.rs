//! Open files.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::{Handle, os_error, run};
use crate::stat::{Stat, stat};

/// An open file, read and written at an offset.
#[pyclass(frozen, module = "userbtrfs._native")]
pub(crate) struct File {
    handle: Handle<Arc<userbtrfs::File>>,
    path: Vec<u8>,
}

impl File {
    pub(crate) fn new(file: userbtrfs::File, path: Vec<u8>) -> Self {
        Self { handle: Handle::new(Arc::new(file)), path }
    }
}

#[pymethods]
impl File {
    /// Reads bytes from an offset on: fewer than `len` only at the end of the file.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        len: u64,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.handle.get()?;
        let left = file.len().saturating_sub(offset).min(len);
        let len = usize::try_from(left)?;
        let mut read = 0;
        let bytes = PyBytes::new_with(py, len, |target| {
            read = run(py, &self.path, || file.read_at(target, offset))?;
            Ok(())
        })?;
        // Another thread truncated the file since.
        Ok(if read < len { PyBytes::new(py, &bytes.as_bytes()[..read]) } else { bytes })
    }

    /// Writes bytes at an offset, and returns how many.
    fn write_at(&self, py: Python<'_>, bytes: &[u8], offset: u64) -> PyResult<usize> {
        let file = self.handle.get()?;
        run(py, &self.path, || file.write_at(bytes, offset))
    }

    /// Appends bytes, all or none, and returns their offset.
    fn append(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<u64> {
        let file = self.handle.get()?;
        run(py, &self.path, || file.append(bytes))
    }

    /// Returns the size in bytes.
    fn size(&self) -> PyResult<u64> {
        Ok(self.handle.get()?.len())
    }

    /// Sets the size.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let file = self.handle.get()?;
        run(py, &self.path, || file.set_len(size))
    }

    /// Makes the file durable; with `data_only` not its times, as fdatasync(2).
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        let file = self.handle.get()?;
        run(py, &self.path, || if data_only { file.sync_data() } else { file.sync_all() })
    }

    /// Returns the attributes.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        let file = self.handle.get()?;
        run(py, &self.path, || file.inode().metadata().map(|found| stat(&found)))
    }

    /// Closes the file; raises an error if data could not be written, which no call raised so far.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(file) = self.handle.take() else { return Ok(()) };
        // A call of another thread that has not returned closes it later.
        let close = || Arc::into_inner(file).map_or(Ok(()), userbtrfs::File::close);
        py.detach(close).map_err(|error| os_error(&error, &self.path))
    }
}
