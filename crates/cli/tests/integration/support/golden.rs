//! Golden images, unpacked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use userbtrfs::device::{Device, FileDevice, FileOptions};
use userbtrfs_image_builder::ImageEditor;
use userbtrfs_testkit::golden::Golden;

/// A golden image in a file of its own, which is removed when this is dropped.
pub(crate) struct Unpacked {
    folder: TempDir,
}

impl Unpacked {
    /// Unpacks the image of this name.
    pub(crate) fn new(name: &str) -> Self {
        Self::of(&Golden::named(name))
    }

    /// Unpacks an image.
    pub(crate) fn of(golden: &Golden) -> Self {
        let unpacked = Self { folder: tempfile::tempdir().expect("there is room") };
        golden.unpack(&unpacked.path()).expect("golden images are whole");
        unpacked
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Returns a path in the same folder.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Opens the file as a writable device.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        Arc::new(device(&self.path()))
    }

    /// Returns an editor of the file.
    pub(crate) fn editor(&self) -> ImageEditor {
        ImageEditor::over(self.device()).expect("golden images are sound")
    }
}

fn device(path: &Path) -> FileDevice {
    let options = FileOptions { writable: true, ..FileOptions::default() };
    FileDevice::open(path, options).expect("it was just unpacked")
}
