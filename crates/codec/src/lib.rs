//! Checksums, name hashes and compression of btrfs: bytes in, bytes out.
//!
//! 1. The crate uses no other crate of the workspace, does no I/O and keeps no state visible to
//!    callers; compression contexts are cached per thread to save time.
//! 2. No input makes a function panic, hang or allocate more than the bound of its output.
//! 3. Linux can read the streams compressed here, and this crate those compressed by Linux.

#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

pub mod checksum;
pub mod compress;
pub mod hash;

pub use checksum::{Checksum, ChecksumKind, UnknownChecksum};
pub use compress::{
    CompressError, Compression, CompressionMethod, DecompressError, MAX_CONTENT, MethodError,
};
