//! Mounts by FUSE.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use userbtrfs::mount::{self as library, EndError, MountOptions, Mounted};

use crate::failure::Handle;

/// A mount, which threads of the process serve until it is unmounted.
#[pyclass(frozen, module = "userbtrfs._native")]
pub(crate) struct Mount {
    handle: Handle<Arc<Mounted>>,
    point: PathBuf,
}

impl Mount {
    /// Mounts a filesystem; programs see `image` as the source.
    pub(crate) fn start(
        py: Python<'_>,
        filesystem: userbtrfs::Filesystem,
        image: &Path,
        point: PathBuf,
    ) -> PyResult<Self> {
        let mounted = py.detach(|| {
            let source = image.into();
            let subtype = library::KIND.to_owned();
            let options = MountOptions { source, subtype, ..MountOptions::default() };
            let mount = library::Mount::new(&point, &options)
                .map_err(|error| os_error(error.errno(), &error, &point))?;
            let options = library::Options { device: image.into(), ..library::Options::default() };
            Mounted::start(mount, filesystem, &options)
                .map_err(|error| os_error(error.errno(), &error, &point))
        })?;
        Ok(Self { handle: Handle::new(Arc::new(mounted)), point })
    }

    fn end(&self, ended: Result<(), EndError>) -> PyResult<()> {
        ended.map_err(|error| os_error(error.errno(), &error, &self.point))
    }
}

#[pymethods]
impl Mount {
    /// Unmounts; does nothing if it was unmounted before.
    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        let mounted = self.handle.get()?;
        let unmounted = py.detach(|| {
            let unmounted = mounted.unmount_handle().unmount();
            drop(mounted);
            unmounted
        });
        unmounted.map(drop).map_err(|error| os_error(error.errno(), &error, &self.point))
    }

    /// Waits until it is unmounted.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let mounted = self.handle.get()?;
        let ended = py.detach(|| wait(mounted));
        self.end(ended)
    }

    /// Waits until it is unmounted, and makes all changes durable; does nothing if it was closed
    /// before.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mounted) = self.handle.take() else { return Ok(()) };
        let ended = py.detach(|| wait(mounted));
        self.end(ended)
    }
}

/// Waits until it is unmounted; ends it if this is the last reference, which is that of a call
/// during which it was closed, or of the closing call.
fn wait(mounted: Arc<Mounted>) -> Result<(), EndError> {
    mounted.wait();
    Arc::into_inner(mounted).map_or(Ok(()), Mounted::end)
}

fn os_error(errno: i32, error: &dyn Display, point: &Path) -> PyErr {
    PyOSError::new_err((errno, error.to_string(), point.as_os_str().to_os_string()))
}
