//! New filesystems.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use userbtrfs::device::{FileDevice, FileOptions};
use userbtrfs::mkfs::{self as library, MkfsError, Options};

/// Makes a filesystem: with a size in a new file, otherwise in an existing file or device.
#[pyfunction]
#[pyo3(signature = (image, size, label, force))]
pub(crate) fn mkfs(
    py: Python<'_>,
    image: PathBuf,
    size: Option<u64>,
    label: &[u8],
    force: bool,
) -> PyResult<()> {
    let options = Options { label: label.to_vec(), force, ..Options::default() };
    let made = py.detach(|| make(&image, size, &options));
    let fail = |error: MkfsError| {
        PyOSError::new_err((error.errno(), error.to_string(), image.into_os_string()))
    };
    made.map_err(fail)
}

fn make(image: &Path, size: Option<u64>, options: &Options) -> Result<(), MkfsError> {
    if let Some(size) = size {
        library::make_image(image, size, options)?;
        return Ok(());
    }
    let writable = FileOptions { writable: true, ..FileOptions::default() };
    let device = FileDevice::open(image, writable)?;
    library::make(&device, options)?;
    Ok(())
}
