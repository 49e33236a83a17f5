//! The positions of readers and writers.

use std::io::SeekFrom;

use crate::error::{Error, Result};

/// Returns the position after a seek in `len` bytes from `position` on. As with lseek(2), it may be
/// past the end.
///
/// # Errors
/// [`Error::Invalid`] if it would be before the start, or does not fit into 64 bits.
pub(super) fn position_after(to: SeekFrom, position: u64, len: u64) -> Result<u64> {
    let (from, by) = match to {
        SeekFrom::Start(offset) => (offset, 0),
        SeekFrom::Current(by) => (position, by),
        SeekFrom::End(by) => (len, by),
    };
    from.checked_add_signed(by).ok_or(Error::Invalid("a place before the start"))
}
