//! The data that files of the host share, which their copies share, too.
//!
//! 1. Two ranges hold the same bytes if they have the same address on the host, and if neither file
//!    changed since the copy began: a filesystem does not overwrite an extent that several files
//!    share. A file is unchanged if its ctime is older than the beginning of the copy.
//! 2. An extent is known only after the file that has it was read to its end, unchanged.
//! 3. The number of extents that are known is bounded; the data of all others is copied.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::Stat;
use rustix::io::{pread, retry_on_intr};
use rustix::time::{ClockId, clock_gettime};
use userbtrfs_device::{SharedExtent, shared_extents};
use userbtrfs_engine::api::InodeId;

use super::error::{CopyError, host_error};
use super::origin::Origin;

/// The maximum number of extents that are known, and of those of one file.
const EXTENTS_MAX: usize = 1 << 17;

/// Only whole sectors can be shared, and the end of a file with that of another.
const SECTOR: u64 = 4096;

/// The files of the host that were copied and share data, and their copies.
pub(super) struct SharedFiles {
    /// The time when the copy began: seconds and nanoseconds.
    began: (i64, i64),
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The extents that are known, by the device of their filesystem and their address.
    extents: BTreeMap<(u64, u64), Known>,
    /// The copies of their files.
    copies: HashMap<Origin, InodeId>,
}

/// An extent of a file that was read.
#[derive(Clone, Copy)]
struct Known {
    origin: Origin,
    offset: u64,
    len: u64,
    /// The size of the file.
    size: u64,
}

/// The shared extents of a file that is being read.
pub(super) struct FileExtents {
    files: Arc<SharedFiles>,
    device: u64,
    extents: Vec<SharedExtent>,
}

/// A range of a file whose bytes were copied before, with another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedRange {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The other file.
    pub(super) origin: Origin,
    /// The offset in it.
    pub(super) from: u64,
}

/// A shared range that is to be copied, and its file, from which it is read if it cannot be shared.
pub(super) struct SharedData {
    pub(super) range: SharedRange,
    pub(super) file: Arc<OwnedFd>,
    pub(super) path: PathBuf,
}

impl SharedFiles {
    pub(super) fn new() -> Self {
        // As inodes are stamped: a file changed in the present tick is not older.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self { began: (now.tv_sec, now.tv_nsec), state: Mutex::default() }
    }

    /// Returns the shared extents of a file; `None` if it has none, or if it changed since the copy
    /// began.
    pub(super) fn extents_of(self: &Arc<Self>, file: &OwnedFd, stat: &Stat) -> Option<FileExtents> {
        if !self.is_unchanged(stat) {
            return None;
        }
        // An error means that the filesystem does not report extents.
        let extents = shared_extents(file, EXTENTS_MAX).ok().filter(|found| !found.is_empty())?;
        Some(FileExtents { files: Arc::clone(self), device: stat.st_dev, extents })
    }

    fn is_unchanged(&self, stat: &Stat) -> bool {
        (stat.st_ctime, stat.st_ctime_nsec) < self.began
    }

    /// Records the copy of a file whose extents are known.
    pub(super) fn add_copy(&self, origin: Origin, copy: InodeId) {
        self.state().copies.insert(origin, copy);
    }

    /// Returns the copy of a file, if it is complete.
    pub(super) fn copy_of(&self, origin: Origin) -> Option<InodeId> {
        self.state().copies.get(&origin).copied()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no one panics with it")
    }
}

impl FileExtents {
    /// Returns the ranges of the file that were copied with other files, by ascending offset.
    pub(super) fn known_ranges(&self, size: u64) -> Vec<SharedRange> {
        let state = self.files.state();
        let mut ranges = Vec::new();
        for extent in &self.extents {
            let mut done = 0;
            let len = extent.len.min(size.saturating_sub(extent.offset));
            while done < len {
                let rest = SharedExtent {
                    offset: extent.offset.saturating_add(done),
                    address: extent.address.saturating_add(done),
                    len: len - done,
                };
                let Some(range) = state.first_range(self.device, &rest, size) else { break };
                done = (range.offset - extent.offset).saturating_add(range.len);
                ranges.push(range);
            }
        }
        ranges
    }

    /// Makes the extents known if the file, which was read to its end, did not change. Returns true
    /// if there are any that were not known before.
    pub(super) fn add(&self, stat: &Stat) -> bool {
        if !self.files.is_unchanged(stat) {
            return false;
        }
        let origin = Origin::Host(stat.st_dev, stat.st_ino);
        let size = stat.st_size.cast_unsigned();
        let mut state = self.files.state();
        let known_before = state.extents.len();
        for &SharedExtent { offset, address, len } in &self.extents {
            if state.extents.len() >= EXTENTS_MAX {
                break;
            }
            let known = Known { origin, offset, len: len.min(size.saturating_sub(offset)), size };
            state.extents.entry((self.device, address)).or_insert(known);
        }
        state.extents.len() > known_before
    }
}

impl State {
    /// Returns the first part of an extent, of a file of this size, that is in a known one.
    fn first_range(&self, device: u64, extent: &SharedExtent, size: u64) -> Option<SharedRange> {
        let start = (device, extent.address);
        let end = (device, extent.address.saturating_add(extent.len));
        let before = self.extents.range(..=start).next_back();
        let next = self.extents.range(start..end);
        before.into_iter().chain(next).find_map(|(&(on, address), known)| {
            let is_on_device = on == device;
            is_on_device.then(|| range_in(extent, size, address, known)).flatten()
        })
    }
}

/// Returns the part of an extent that is in a known one, which has this address.
fn range_in(extent: &SharedExtent, size: u64, address: u64, known: &Known) -> Option<SharedRange> {
    let first = address.max(extent.address);
    let last = address.saturating_add(known.len).min(extent.address.saturating_add(extent.len));
    let offset = extent.offset.checked_add(first - extent.address)?;
    let from = known.offset.checked_add(first - address)?;
    let mut len = last.checked_sub(first)?;
    let end = offset.checked_add(len)?;
    let is_end_of_both = end == size && from.checked_add(len)? == known.size;
    if !is_end_of_both {
        len -= len % SECTOR;
    }
    let is_aligned = offset.is_multiple_of(SECTOR) && from.is_multiple_of(SECTOR);
    (is_aligned && len > 0).then_some(SharedRange { offset, len, origin: known.origin, from })
}

impl SharedData {
    /// Reads the bytes of the range from this offset of the file on, and passes them to `write`
    /// with their offset.
    pub(super) fn read(
        &self,
        mut at: u64,
        mut write: impl FnMut(&[u8], u64) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        let end = self.range.offset + self.range.len;
        let mut buffer = vec![0; 256 << 10];
        while at < end {
            let len = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            let read = retry_on_intr(|| pread(&*self.file, &mut buffer[..len], at));
            match read.map_err(host_error(&self.path, "read"))? {
                // It has become shorter; the end of the copy reports that.
                0 => return Ok(()),
                len => {
                    write(&buffer[..len], at)?;
                    at += len as u64;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::thread;
    use std::time::Duration;

    use rustix::fs::fstat;

    use super::*;

    const ORIGIN: Origin = Origin::Host(1, 2);

    /// Returns the part of an extent of a file of this size that is in a known one at address 40
    /// sectors, which is 8 sectors long, begins at sector 3 of its file, and ends with it within
    /// its last sector.
    fn part(offset: u64, address: u64, len: u64, size: u64) -> Option<(u64, u64, u64)> {
        let len_known = 8 * SECTOR - 100;
        let size_known = 3 * SECTOR + len_known;
        let known = Known { origin: ORIGIN, offset: 3 * SECTOR, len: len_known, size: size_known };
        let extent = SharedExtent { offset, address: address * SECTOR, len };
        let range = range_in(&extent, size, 40 * SECTOR, &known)?;
        Some((range.offset, range.len, range.from))
    }

    #[test]
    fn part_of_a_known_extent_is_found_in_whole_sectors() {
        let size = 100 * SECTOR;
        assert_eq!(part(0, 40, 2 * SECTOR, size), Some((0, 2 * SECTOR, 3 * SECTOR)));
        assert_eq!(part(0, 42, 2 * SECTOR, size), Some((0, 2 * SECTOR, 5 * SECTOR)));
        assert_eq!(part(0, 39, 2 * SECTOR, size), Some((SECTOR, SECTOR, 3 * SECTOR)));
        // The known file ends within the last sector, and this one does not.
        assert_eq!(part(0, 46, 2 * SECTOR, size), Some((0, SECTOR, 9 * SECTOR)));
        assert_eq!(part(0, 47, SECTOR, size), None);
        assert_eq!(part(0, 48, SECTOR, size), None);
        assert_eq!(part(0, 38, 2 * SECTOR, size), None);
        assert_eq!(part(512, 40, 2 * SECTOR, size), None);
    }

    #[test]
    fn end_of_a_known_file_is_shared_with_the_end_of_another() {
        let len = SECTOR - 100;
        assert_eq!(
            part(5 * SECTOR, 47, len, 5 * SECTOR + len),
            Some((5 * SECTOR, len, 10 * SECTOR))
        );
        assert_eq!(part(5 * SECTOR, 47, len - 1, 5 * SECTOR + len - 1), None);
    }

    /// Its address says nothing about the bytes that were read from another file before.
    #[test]
    fn file_changed_after_the_beginning_of_the_copy_shares_nothing() {
        let stat = |file: &File| fstat(file).unwrap();
        let before = tempfile::tempfile().unwrap();
        thread::sleep(Duration::from_millis(50));
        let files = SharedFiles::new();
        assert!(files.is_unchanged(&stat(&before)));
        assert!(!files.is_unchanged(&stat(&tempfile::tempfile().unwrap())));
        before.set_len(1).unwrap();
        assert!(!files.is_unchanged(&stat(&before)));
    }
}
