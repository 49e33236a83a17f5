//! The extents that a file of the host shares with others, as the ioctl FIEMAP reports them.
//!
//! 1. Only extents whose bytes are stored as they are read, at a known address, are returned: none
//!    that is compressed, encrypted, inline, preallocated or not written yet.
//! 2. The file is written to its device first, so that the addresses are those of its content.
#![expect(unsafe_code, reason = "rustix has no call for this ioctl")]

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// The extents that one call returns at most.
const EXTENTS: usize = 128;

/// `FS_IOC_FIEMAP`, `_IOWR('f', 11, struct fiemap)`; the size in it is that of the fields before
/// the extents.
const FIEMAP: Opcode = opcode::read_write::<Header>(b'f', 11);

/// `FIEMAP_FLAG_SYNC`: writes the file first.
const SYNC: u32 = 1;

/// `FIEMAP_EXTENT_LAST`, `_MERGED` and `_SHARED`.
const LAST: u32 = 1;
const MERGED: u32 = 0x1000;
const SHARED: u32 = 0x2000;

/// An extent that a file of the host shares with another range of it, or with another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExtent {
    /// The offset in the file.
    pub offset: u64,
    /// The address in the filesystem of the file.
    pub address: u64,
    /// The length in bytes; the last extent may extend beyond the end of the file.
    pub len: u64,
}

/// The fields of `struct fiemap` before the extents.
#[repr(C)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap`.
#[repr(C)]
struct Request {
    header: Header,
    extents: [Extent; EXTENTS],
}

/// Returns the first `max` shared extents of a file, by ascending offset.
pub fn shared_extents(file: impl AsFd, max: usize) -> io::Result<Vec<SharedExtent>> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut flags = SYNC;
    while found.len() < max {
        let extents = extents_from(&file, start, flags)?;
        let shared = extents.iter().filter(|extent| extent.flags & !(LAST | MERGED) == SHARED);
        found.extend(shared.map(|extent| SharedExtent {
            offset: extent.logical,
            address: extent.physical,
            len: extent.length,
        }));
        let Some(last) = extents.last().filter(|last| last.flags & LAST == 0) else { break };
        match last.logical.checked_add(last.length) {
            Some(end) if end > start => start = end,
            _ => break,
        }
        flags = 0;
    }
    found.truncate(max);
    Ok(found)
}

/// Returns the first extents at or after an offset.
fn extents_from(file: &impl AsFd, start: u64, flags: u32) -> Result<Vec<Extent>, Errno> {
    let count = u32::try_from(EXTENTS).expect("a small number");
    let header = Header { start, length: u64::MAX - start, flags, mapped: 0, count, reserved: 0 };
    let mut request = Request { header, extents: [Extent::default(); EXTENTS] };
    // SAFETY: the kernel reads the header, and writes it and at most `count` extents after it; the
    // request has the layout of `struct fiemap` with space for them.
    unsafe {
        let updater = Updater::<FIEMAP, Request>::new(&mut request);
        ioctl(file, updater)?;
    }
    let mapped = usize::try_from(request.header.mapped).map_or(EXTENTS, |found| found.min(EXTENTS));
    Ok(request.extents[..mapped].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is that of the kernel.
    #[test]
    fn request_has_the_size_of_the_kernel() {
        assert_eq!(size_of::<Header>(), 32);
        assert_eq!(size_of::<Extent>(), 56);
        assert_eq!(size_of::<Request>(), 32 + 56 * EXTENTS);
    }

    #[test]
    fn file_that_was_just_written_shares_nothing() {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 10_000], 0).unwrap();
        match shared_extents(&file, 10) {
            Ok(found) => assert_eq!(found, []),
            // The filesystem of temporary files does not support FIEMAP.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        }
    }
}
