//! New filesystems.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use userbtrfs::Error;
use userbtrfs::device::{FileDevice, FileOptions};
use userbtrfs::mkfs::{self as library, MkfsError, Options};

/// The numbers of Linux.
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

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
    made.map_err(|(errno, text)| PyOSError::new_err((errno, text, image.into_os_string())))
}

fn make(image: &Path, size: Option<u64>, options: &Options) -> Result<(), (i32, String)> {
    if let Some(size) = size {
        library::make_image(image, size, options).map_err(of_mkfs)?;
        return Ok(());
    }
    let writable = FileOptions { writable: true, ..FileOptions::default() };
    let device = FileDevice::open(image, writable).map_err(Error::from).map_err(|e| of(&e))?;
    library::make(&device, options).map_err(of_mkfs)?;
    Ok(())
}

fn of(error: &Error) -> (i32, String) {
    (error.errno(), error.to_string())
}

fn of_mkfs(error: MkfsError) -> (i32, String) {
    let errno = match error {
        MkfsError::Device(error) => return of(&Error::from(error)),
        MkfsError::NotEmpty { .. } => EEXIST,
        MkfsError::TooSmall { .. } => ENOSPC,
        _ => EINVAL,
    };
    (errno, error.to_string())
}
