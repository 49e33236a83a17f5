//! A filesystem in memory, mounted in earnest and used through the kernel.
//!
//! What needs root or /dev/fuse is skipped, with the reason, where these are not there.

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
