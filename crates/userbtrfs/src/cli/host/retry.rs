//! Waiting for an image that somebody else has open, who may be about to let it go; and for what is
//! about to begin.
//!
//! The end of a mount is known to umount(8) before its server knows, and only from then on does the
//! server say that it is closing. So who is refused tries again, for a short while; and who reads,
//! and is never refused, waits likewise where the mount that an image is served as is gone.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use userbtrfs::Error;
use userbtrfs::device::{DeviceError, FileDevice, mount_of_holder};
use userbtrfs::mount::control::is_mounted;

use crate::cli::host::image::ImageArgs;

/// How long it is tried, and how often.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// Tries until it succeeds, fails in another way, or has taken too long.
pub(in crate::cli) fn patiently<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_busy: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && Instant::now() < deadline => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// Waits until a server of an image whose mount is gone has noticed that; from then on every
/// opener waits for its end. Where the mount only cannot be seen from here, that is in vain, and
/// not for long.
pub(in crate::cli) fn until_noticed(image: &Path) {
    let is_late = || mount_of_holder(image).is_some_and(|mount| !is_mounted(mount));
    let _ = patiently(|| if is_late() { Err(()) } else { Ok(()) }, |()| true);
}

/// Opens an image for reading, as its last server leaves it.
pub(in crate::cli) fn device_to_read(image: &ImageArgs) -> Result<FileDevice, DeviceError> {
    until_noticed(&image.image);
    FileDevice::open(&image.image, image.file_options())
}

/// Whether somebody else has the image open for writing, or mounted.
pub(in crate::cli) fn is_in_use(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Locked { .. } | DeviceError::InUse { .. })
}

/// The same of an error of opening the filesystem.
pub(in crate::cli) fn is_open_elsewhere(error: &Error) -> bool {
    matches!(error, Error::Device(device) if is_in_use(device))
}
