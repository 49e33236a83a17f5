//! Retries: opening an image that another process is about to close, and requests to a server that
//! is about to start.
//!
//! umount(8) returns before the server learns that its mount has ended, and marks the image as
//! `closing`. A refused opener therefore retries for a short time. A reader is never refused; it
//! waits as long if the mount of the image's server does not exist any more.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use userbtrfs::device::{DeviceError, FileDevice, mount_of_holder};
use userbtrfs::mount::control::is_mounted;
use userbtrfs::{Error, Filesystem, OpenOptions};

use crate::cli::host::image::ImageArgs;

/// The time for which an attempt is repeated.
const RETRY_TIME: Duration = Duration::from_secs(1);
/// The pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Repeats `attempt` until it succeeds, fails with an error that is not busy, or the time is over.
pub(in crate::cli) fn retry<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_busy: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let deadline = Instant::now() + RETRY_TIME;
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                thread::sleep(RETRY_INTERVAL);
            }
            done => return done,
        }
    }
}

/// Waits until the server of an image whose mount has ended marks the image as closing; from then
/// on every opener waits for the end of the server. If the mount exists, but in another namespace,
/// this waits in vain, for the time of [`retry`].
pub(in crate::cli) fn wait_until_closing(image: &Path) {
    let is_late = || mount_of_holder(image).is_some_and(|mount| !is_mounted(mount));
    let _ = retry(|| if is_late() { Err(()) } else { Ok(()) }, |()| true);
}

/// Opens an image for reading, after a server whose mount has ended has closed it.
pub(in crate::cli) fn device_to_read(image: &ImageArgs) -> Result<FileDevice, DeviceError> {
    wait_until_closing(&image.image);
    FileDevice::open(&image.image, image.file_options())
}

/// Returns true if another opener has the image open for writing, or mounted.
pub(in crate::cli) fn is_in_use(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Locked { .. } | DeviceError::InUse { .. })
}

/// Opens the filesystem in an image; retries while another opener has it open. The error does not
/// name the image.
pub(in crate::cli) fn open_when_free(
    image: &Path,
    options: &OpenOptions,
) -> Result<Filesystem, Error> {
    let is_busy = |error: &Error| matches!(error, Error::Device(device) if is_in_use(device));
    retry(|| options.open(image).map_err(|failed| failed.error), is_busy)
}
