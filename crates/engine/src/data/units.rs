//! Units of this room: sizes and offsets of files, and the effect of a change on their times.
//!
//! Everything in this room may use this file, which uses nothing of the room.

use std::ops::Range;

use userbtrfs_format::Timestamp;

use crate::clock;
use crate::error::{Error, Result};
use crate::inode::FileChange;
use crate::units::SECTOR;

/// The most bytes of a block of the cache, which are copied while the blocks of a file are locked.
pub(in crate::data) const BLOCK: usize = 128 << 10;

/// The largest extent, in bytes, as Linux makes them; also the longest run that is written back.
pub(in crate::data) const EXTENT_MAX: u64 = 128 << 20;

/// The largest size of a file: the largest signed offset.
pub(in crate::data) const SIZE_MAX: u64 = i64::MAX as u64;

/// Returns the sectors that a range of bytes touches.
pub(in crate::data) fn sectors(start: u64, end: u64) -> Range<u64> {
    start / SECTOR..end.div_ceil(SECTOR)
}

/// Checks that a range ends within the largest file size; returns its end.
pub(in crate::data) fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Error::FileTooLarge)
}

/// The effect of a change of content on the times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// Set to now.
    Now,
    /// Left alone: the content was changed earlier, and the caller sets the times.
    Kept,
}

impl Times {
    /// Returns the time of a change that is made now; `None` if the times are left alone.
    pub(in crate::data) fn now(self) -> Option<Timestamp> {
        (self == Self::Now).then(clock::now)
    }

    /// Applies this to a file whose content changes in a transaction.
    pub(in crate::data) fn touch(self, change: &mut FileChange<'_>) {
        match self {
            Self::Now => change.touch(),
            Self::Kept => change.touch_untimed(),
        }
    }
}
