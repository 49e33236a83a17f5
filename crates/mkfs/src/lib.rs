//! Creates an empty filesystem on one device, with the layout that `mkfs.btrfs` uses.
//!
//! 1. Nothing is written before the options and the size of the device are checked, and no existing
//!    content is found on it (unless the caller set `force`).
//! 2. When [`make`] returns, the filesystem is durable. Its primary superblock is written last;
//!    until then Linux finds no filesystem on the device, neither the old nor the new one.
//! 3. Everything has generation 1. The system, metadata and data chunks are adjacent from 1 MiB
//!    on, and each tree has as few blocks as possible.
//! 4. No tree block lies in the 64 KiB reserved for a copy of the superblock.
//! 5. [`unmake`] removes the filesystem that [`make`] created, and no other.
//!
//! Multiple devices and copying files into the filesystem are not supported.

#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod draft;
mod error;
mod items;
mod layout;
mod options;
mod pack;
mod probe;
mod unmake;
mod write;

pub use error::MkfsError;
pub use options::Options;
pub use probe::BTRFS;
pub use unmake::unmake;
pub use userbtrfs_codec::checksum::ChecksumKind;
pub use userbtrfs_format::{Profile, Superblock};
pub use uuid::Uuid;

use std::fs;
use std::path::Path;

use userbtrfs_device::{Device, FileDevice};

/// Fails if no filesystem with these options can be made on a device of `len` bytes.
pub fn check(options: &Options, len: u64) -> Result<(), MkfsError> {
    options.check()?;
    draft::Draft::new(options, len).map(drop)
}

/// Returns a description of the existing content of a device, such as "an XFS filesystem"; `None`
/// if there is no known signature.
pub fn content(device: &dyn Device) -> Result<Option<&'static str>, MkfsError> {
    probe::content(device)
}

/// Creates a sparse image file of `len` bytes with a filesystem, and returns its superblock.
///
/// Nothing may exist at `path`. If this fails, no new file is left.
///
/// # Errors
/// [`MkfsError::Device`] if the file cannot be created, and all of [`make`].
pub fn make_image(
    path: impl AsRef<Path>,
    len: u64,
    options: &Options,
) -> Result<Superblock, MkfsError> {
    check(options, len)?;
    let path = path.as_ref();
    let device = FileDevice::create_new(path, len)?;
    // The error that is returned says more than one of the removal.
    make(&device, options).inspect_err(|_| drop(fs::remove_file(path)))
}

/// Creates a filesystem on all of `device`, and returns its superblock.
pub fn make(device: &dyn Device, options: &Options) -> Result<Superblock, MkfsError> {
    options.check()?;
    let draft = draft::Draft::new(options, device.len())?;
    if !options.force {
        probe::refuse_content(device)?;
    }
    if options.discard {
        write::discard(device)?;
    }
    write::write(device, &draft)
}
