//! Changes to the content of files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, IFlags, copy_file_range, ioctl_ficlone, ioctl_getflags};
use rustix::fs::{fallocate, ioctl_setflags};

use super::RandomWorkload;

const SECTOR: u64 = 4096;
/// Ranges changed at once have at most one bit more than this.
const RANGE_BITS: u64 = 18;

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Returns a file, and a range that starts in it or shortly after its end.
fn file_and_range(churn: &mut RandomWorkload) -> io::Result<(File, u64, u64)> {
    let file = open(&churn.file()?)?;
    let start = churn.random.below(file.metadata()?.len().min(1 << 30) + 2 * SECTOR);
    let start = if churn.random.one_in(2) { start / SECTOR * SECTOR } else { start };
    Ok((file, start, churn.random.length(RANGE_BITS)))
}

pub(super) fn overwrite(churn: &mut RandomWorkload) -> io::Result<()> {
    let (file, start, length) = file_and_range(churn)?;
    file.write_all_at(&churn.random.bytes(length), start)
}

pub(super) fn truncate(churn: &mut RandomWorkload) -> io::Result<()> {
    let file = open(&churn.file()?)?;
    file.set_len(churn.random.below(2 * file.metadata()?.len() + SECTOR))
}

pub(super) fn punch(churn: &mut RandomWorkload) -> io::Result<()> {
    let (file, start, length) = file_and_range(churn)?;
    Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, length)?)
}

pub(super) fn zero(churn: &mut RandomWorkload) -> io::Result<()> {
    let (file, start, length) = file_and_range(churn)?;
    Ok(fallocate(file, FallocateFlags::ZERO_RANGE, start, length)?)
}

pub(super) fn preallocate(churn: &mut RandomWorkload) -> io::Result<()> {
    let (file, start, length) = file_and_range(churn)?;
    let keep = churn.random.one_in(2);
    let flags = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    Ok(fallocate(file, flags, start, length)?)
}

/// Copies whole sectors; btrfs then shares the extents.
pub(super) fn share_range(churn: &mut RandomWorkload) -> io::Result<()> {
    let (from, start, length) = file_and_range(churn)?;
    let (to, target, _) = file_and_range(churn)?;
    let (start, length) = (start / SECTOR * SECTOR, length.next_multiple_of(SECTOR));
    let length = length.min(from.metadata()?.len().saturating_sub(start) / SECTOR * SECTOR);
    if length == 0 {
        return Err(super::nothing());
    }
    let (mut start, mut target) = (start, target / SECTOR * SECTOR);
    let length = usize::try_from(length).expect("a length in memory");
    copy_file_range(from, Some(&mut start), to, Some(&mut target), length)?;
    Ok(())
}

pub(super) fn share_all(churn: &mut RandomWorkload) -> io::Result<()> {
    let from = File::open(churn.file()?)?;
    let path = churn.new_path()?;
    ioctl_ficlone(File::create_new(&path)?, from)?;
    churn.files.push(path);
    Ok(())
}

/// Writes far past the end, so that a long hole precedes the data.
pub(super) fn write_far(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.new_path()?;
    let far = 1 << (20 + churn.random.below(23));
    let length = churn.random.length(RANGE_BITS);
    File::create_new(&path)?.write_all_at(&churn.random.bytes(length), far)?;
    churn.files.push(path);
    Ok(())
}

/// Sets the nocow flag, which is only possible for an empty file.
pub(super) fn nocow(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.new_path()?;
    let file = File::create_new(&path)?;
    ioctl_setflags(&file, ioctl_getflags(&file)? | IFlags::NOCOW)?;
    let length = churn.random.length(RANGE_BITS);
    file.write_all_at(&churn.random.bytes(length), 0)?;
    churn.files.push(path);
    Ok(())
}

pub(super) fn wish_compression(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.file()?;
    let file = File::open(&path)?;
    ioctl_setflags(&file, ioctl_getflags(&file)? ^ IFlags::COMPRESSED)?;
    // Data written from now on uses the other kind of extent.
    let length = churn.random.length(RANGE_BITS);
    fs::write(path, churn.random.bytes(length))
}

pub(super) fn fsync(churn: &mut RandomWorkload) -> io::Result<()> {
    overwrite(churn)?;
    File::open(churn.file()?)?.sync_all()
}
