//! Tests of volumes that are opened for writing, and of their writes.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod data;
mod opening;
mod superblocks;
mod support;
mod writing;
