//! The size of the filesystem.

use super::sizes::Sizes;
use super::{Model, Outcome};

impl Model {
    /// Sets the size of the device in bytes; the filesystem takes all of it. Without a device it
    /// cannot be resized.
    #[must_use]
    pub fn on_device(self, bytes: u64) -> Self {
        Self { sizes: Some(Sizes::of_device(bytes)), ..self }
    }

    /// Returns the size of the device in bytes, if there is one.
    pub fn device_size(&self) -> Option<u64> {
        self.sizes.map(|sizes| sizes.device)
    }

    /// Returns the size of the filesystem in bytes, if there is a device.
    pub fn size(&self) -> Option<u64> {
        self.sizes.map(|sizes| sizes.filesystem)
    }

    /// Returns the size that the filesystem has after it is resized.
    pub fn resized(&self, bytes: u64) -> Outcome<u64> {
        self.sizes_resized(bytes).map(|sizes| sizes.filesystem)
    }

    pub(super) fn resize(&mut self, bytes: u64) -> Outcome {
        self.sizes = Some(self.sizes_resized(bytes)?);
        Ok(())
    }

    fn sizes_resized(&self, bytes: u64) -> Outcome<Sizes> {
        self.sizes.expect("a filesystem on a device").resized(bytes)
    }
}
