//! New filesystems.

use std::fs;
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
        // A size that is impossible leaves no file.
        library::check(options, size).map_err(of_mkfs)?;
        let file = fs::File::create_new(image).map_err(|error| of_io(&error))?;
        file.set_len(size).map_err(|error| of_io(&error))?;
    }
    let writable = FileOptions { writable: true, ..FileOptions::default() };
    let device = FileDevice::open(image, writable).map_err(Error::from).map_err(|e| of(&e))?;
    library::make(&device, options).map_err(of_mkfs)?;
    Ok(())
}

fn of(error: &Error) -> (i32, String) {
    (error.errno(), error.to_string())
}

fn of_io(error: &std::io::Error) -> (i32, String) {
    let text = error.to_string();
    // Python shows the number itself.
    let text = text.split_once(" (os error ").map_or(text.as_str(), |(text, _)| text);
    (error.raw_os_error().unwrap_or(EINVAL), text.to_owned())
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
