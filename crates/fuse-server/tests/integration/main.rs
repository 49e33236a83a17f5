//! What programs find in a mount.
//!
//! 1. A behaviour is tested in a filesystem that Linux has mounted, too: a test that Linux would
//!    fail is wrong.
//! 2. After each the mount ends in order. Then `btrfs check` finds nothing, and Linux, which mounts
//!    the image, shows what the mount showed.
//! 3. Where there is no FUSE, or Linux cannot be asked, a line says SKIPPED; in CI that is a panic.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod attributes;
mod block_device;
mod contents;
mod direct;
mod ends;
mod full;
mod ioctls;
mod limits;
mod listing;
mod locks;
mod model;
mod names;
mod programs;
mod shutdown;
mod subvolumes;
mod suites;
mod support;
mod xattrs;
