//! Tests of mounts, as programs use them.
//!
//! 1. A behaviour is tested in a mount by Linux, too: a test that fails there is wrong.
//! 2. After each test the mount is ended in order. Then `btrfs check` must find no error, and a
//!    mount of the image by Linux must show what this mount showed.
//! 3. Without FUSE, or without Linux's btrfs to compare with, a test prints SKIPPED; in CI it
//!    panics.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod attributes;
mod block_device;
mod contents;
mod defragment;
mod direct;
mod ends;
mod full;
mod handles;
mod ioctls;
mod limits;
mod listing;
mod locks;
mod model;
mod names;
mod programs;
mod resize;
mod shutdown;
mod space_info;
mod subvolume_ioctls;
mod subvolumes;
mod suites;
mod support;
mod xattrs;
