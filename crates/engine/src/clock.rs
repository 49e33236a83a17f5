//! The clock that stamps changes.
//!
//! 1. All changes use the coarse clock, with which the kernel stamps what it caches of a mount.
//!    With a finer clock, an earlier write could get the later time.

use rustix::time::{ClockId, clock_gettime};
use userbtrfs_format::Timestamp;

/// Returns the time of a change that is made now.
pub fn now() -> Timestamp {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    let nsec = u32::try_from(time.tv_nsec).expect("less than a second");
    Timestamp { sec: time.tv_sec, nsec }
}
