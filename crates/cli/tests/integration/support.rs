//! Helpers of the tests: images, damage to them, and the content of an image.

pub(crate) mod command;
pub(crate) mod forging;
pub(crate) mod golden;
pub(crate) mod held;
pub(crate) mod made;
pub(crate) mod nobody;
pub(crate) mod shown;
pub(crate) mod site;
pub(crate) mod synced;
pub(crate) mod terminal;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use userbtrfs::device::MemoryDevice;
use userbtrfs::{Error, Filesystem, InodeId, ItemKind, OpenOptions, PathResult, TreeId};
use userbtrfs_image_builder::{ImageEditor, ItemPlace, small_image};

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
    opened.expect_err("the image must not open")
}

/// Returns why a call by path failed.
pub(crate) fn reason<T>(failed: PathResult<T>) -> Error {
    failed.err().expect("the call must fail").error
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

/// Returns an ACL that grants one more user read, write and execute permission.
pub(crate) fn access_list() -> Vec<u8> {
    let all = u32::MAX;
    let entries = [(0x01, 7, all), (0x02, 7, 12), (0x04, 5, all), (0x10, 7, all), (0x20, 5, all)];
    let bytes = |(tag, rights, user): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &user.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec()].into_iter().chain(entries.map(bytes)).flatten().collect()
}

/// Damages each leaf that holds only attributes; returns the inodes they belong to.
pub(crate) fn damage_attributes(image: &Path) -> BTreeSet<u64> {
    let mut editor = ImageEditor::open(image).unwrap();
    let items = editor.items(TreeId::FS);
    let is_other = |place: &&ItemPlace| place.key.kind != ItemKind::XATTR_ITEM;
    let others: BTreeSet<_> = items.iter().filter(is_other).map(|place| place.logical).collect();
    let alone = items.iter().filter(|place| !others.contains(&place.logical));
    alone
        .map(|place| {
            // The lengths of its name and of its value.
            editor.edit_item(place, |item| item[25..29].fill(0xff));
            place.key.objectid
        })
        .collect()
}
