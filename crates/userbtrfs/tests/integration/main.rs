//! Tests of the library as its users call it, without Linux and without privilege.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod closing;
mod errors;
mod opening;

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use userbtrfs::{Error, Filesystem, OpenOptions, PathResult, mkfs};

/// An image file with a filesystem, which is removed when dropped.
struct Image {
    folder: TempDir,
}

impl Image {
    fn new() -> Self {
        let image = Self { folder: tempfile::tempdir().unwrap() };
        mkfs::make_image(image.path(), 128 << 20, &mkfs::Options::default()).unwrap();
        image
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn open(&self) -> Filesystem {
        open(&self.path()).unwrap()
    }

    /// Opens a copy of the image as it is now: it has what is durable.
    fn copy(&self) -> Filesystem {
        let path = self.folder.path().join("copy");
        std::fs::copy(self.path(), &path).unwrap();
        open(&path).unwrap()
    }

    /// Returns true if the image is locked: something has it open for writing.
    fn is_locked(&self) -> bool {
        use userbtrfs::device::DeviceError;
        match open(&self.path()).map_err(|failed| failed.error) {
            Ok(_) => false,
            Err(Error::Device(DeviceError::Locked { .. } | DeviceError::InUse { .. })) => true,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns why a call by path failed.
fn reason<T>(failed: PathResult<T>) -> Error {
    failed.err().expect("the call must fail").error
}

fn open(path: &Path) -> PathResult<Filesystem> {
    OpenOptions::new().write(true).open(path)
}
