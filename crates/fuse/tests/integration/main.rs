//! Tests of a filesystem in memory that is mounted and used through the kernel.
//!
//! Tests that need root or /dev/fuse are skipped without them, and print the reason.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod block_device;
mod caches;
mod directories;
mod ends;
mod files;
mod harness;
mod memory;
mod sparse;
mod threads;
mod tree;
