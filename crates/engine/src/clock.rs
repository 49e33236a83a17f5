//! What time it is, for who changes something.
//!
//! 1. All changes are stamped by the clock by which the kernel stamps what it caches of a mount: it
//!    goes by ticks. By a finer one, what is written first could be stamped as the later.

use rustix::time::{ClockId, clock_gettime};
use userbtrfs_format::Timestamp;

/// The time that a change gets which is made now.
pub fn now() -> Timestamp {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    let nsec = u32::try_from(time.tv_nsec).expect("less than a second");
    Timestamp { sec: time.tv_sec, nsec }
}
