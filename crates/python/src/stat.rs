//! Attributes of an inode for `os.stat_result`.

use userbtrfs::{Metadata, Timestamp};

/// The size of a sector.
const SECTOR: u64 = 4096;

/// A time in seconds and nanoseconds.
type Time = (i64, u32);

/// The mode, inode, subvolume, links, owner and group; the size, the bytes that are allocated, and
/// the numbers of a device; the times of access, modification, change and creation.
pub(crate) type Stat = ((u32, u64, u64, u32, u32, u32), (u64, u64, u32, u32), [Time; 4]);

/// Returns the attributes as a tuple.
pub(crate) fn stat(metadata: &Metadata) -> Stat {
    let time = |time: Timestamp| (time.sec, time.nsec);
    let id = metadata.id;
    // With the data that is not on disk yet, as far as it does not replace other data.
    let new = metadata.allocated.saturating_add(metadata.unfinished);
    let allocated = metadata.allocated.max(new.min(metadata.size.next_multiple_of(SECTOR)));
    (
        (metadata.mode, id.number, id.subvolume.0, metadata.nlink, metadata.uid, metadata.gid),
        (metadata.size, allocated, metadata.device.0, metadata.device.1),
        [metadata.accessed, metadata.modified, metadata.changed, metadata.created].map(time),
    )
}
