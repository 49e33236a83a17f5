//! Makes an empty filesystem on one device, laid out as `mkfs.btrfs` and Linux would.
//!
//! 1. Nothing is written before the options are judged, the device is found large enough, and no
//!    filesystem is found on it (or the caller said to overwrite it).
//! 2. When [`make`] returns, the filesystem is durable. Its primary superblock is written last;
//!    until then Linux finds no filesystem on the device, neither the old nor the new one.
//! 3. All is written as generation 1: chunks for system, metadata and data side by side from
//!    1 MiB on, each tree in as few blocks as it needs.
//! 4. No tree block lies in the 64 KiB that belong to a copy of the superblock.
//! 5. [`unmake`] takes back what [`make`] made, and nothing else.
//!
//! What it does not do: more than one device, putting files in.

#![forbid(unsafe_code)]

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
pub use unmake::unmake;
pub use userbtrfs_codec::checksum::ChecksumKind;
pub use userbtrfs_format::{Profile, Superblock};
pub use uuid::Uuid;

use userbtrfs_device::Device;

/// Makes a filesystem on all of `device`, and gives its superblock.
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
