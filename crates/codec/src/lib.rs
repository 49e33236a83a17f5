//! Checksums, name hashes and compression of btrfs: bytes in, bytes out.
//!
//! 1. Calls no other crate of ours, does no I/O and keeps no state a caller can see; compression
//!    contexts are kept per thread and only save time.
//! 2. No input makes a function panic, hang or allocate more than its output's bound.
//! 3. What is compressed here is read by Linux; what Linux compresses is read here.

#![forbid(unsafe_code)]

pub mod checksum;
pub mod compress;
pub mod hash;

pub use checksum::{Checksum, ChecksumKind, UnknownChecksum};
pub use compress::{CompressError, Compression, DecompressError, MAX_CONTENT};
