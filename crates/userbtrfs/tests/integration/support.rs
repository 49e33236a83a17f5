//! Helpers of the tests: images, damage to them, and the content of an image.

pub(crate) mod command;
pub(crate) mod forging;
pub(crate) mod golden;
pub(crate) mod made;
pub(crate) mod nobody;
pub(crate) mod shown;
pub(crate) mod site;
pub(crate) mod synced;
pub(crate) mod terminal;

use std::sync::Arc;

use userbtrfs::device::MemoryDevice;
use userbtrfs::{Error, Filesystem, InodeId, OpenOptions, TreeId};
use userbtrfs_image_builder::{ImageEditor, small_image};

/// Returns an editor of the small forged image, which is still sound.
pub(crate) fn small() -> ImageEditor {
    ImageEditor::from_bytes(small_image()).expect("the small image is sound")
}

/// Opens the current image of an editor.
pub(crate) fn open(editor: &ImageEditor) -> Result<Filesystem, Error> {
    OpenOptions::new().open_devices(vec![Arc::clone(editor.device())])
}

/// Opens an image in memory.
pub(crate) fn open_bytes(image: Vec<u8>) -> Result<Filesystem, Error> {
    OpenOptions::new().open_devices(vec![Arc::new(MemoryDevice::from_bytes(image))])
}

/// Returns the error of an image that does not open.
pub(crate) fn refusal(opened: Result<Filesystem, Error>) -> Error {
    opened.err().expect("the image must not open")
}

/// Returns pseudo-random bytes, which are always the same.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let mut state = len as u64 + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// Returns the id of an inode of the top-level subvolume.
pub(crate) fn top_level(number: u64) -> InodeId {
    InodeId { subvolume: TreeId::FS, number }
}

/// Asserts that a message holds each of these parts.
pub(crate) fn assert_says(message: &impl ToString, parts: &[&str]) {
    let message = message.to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}
