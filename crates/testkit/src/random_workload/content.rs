//! Changes to the content of files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, IFlags, copy_file_range, ioctl_ficlone, ioctl_getflags};
use rustix::fs::{fallocate, ioctl_setflags};
use userbtrfs_format::SECTOR;

use super::tree::{Tree, nothing};

/// Ranges changed at once have at most one bit more than this.
const RANGE_BITS: u64 = 18;

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Returns a file, and a range that starts in it or shortly after its end.
fn file_and_range(tree: &mut Tree) -> io::Result<(File, u64, u64)> {
    let file = open(&tree.file()?)?;
    let start = tree.random.below(file.metadata()?.len().min(1 << 30) + 2 * SECTOR);
    let start = if tree.random.one_in(2) { start / SECTOR * SECTOR } else { start };
    Ok((file, start, tree.random.length(RANGE_BITS)))
}

pub(super) fn overwrite(tree: &mut Tree) -> io::Result<()> {
    let (file, start, length) = file_and_range(tree)?;
    file.write_all_at(&tree.random.bytes(length), start)
}

pub(super) fn truncate(tree: &mut Tree) -> io::Result<()> {
    let file = open(&tree.file()?)?;
    file.set_len(tree.random.below(2 * file.metadata()?.len() + SECTOR))
}

pub(super) fn punch(tree: &mut Tree) -> io::Result<()> {
    let (file, start, length) = file_and_range(tree)?;
    Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, length)?)
}

pub(super) fn zero(tree: &mut Tree) -> io::Result<()> {
    let (file, start, length) = file_and_range(tree)?;
    Ok(fallocate(file, FallocateFlags::ZERO_RANGE, start, length)?)
}

pub(super) fn preallocate(tree: &mut Tree) -> io::Result<()> {
    let (file, start, length) = file_and_range(tree)?;
    let keep = tree.random.one_in(2);
    let flags = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    Ok(fallocate(file, flags, start, length)?)
}

/// Copies whole sectors; btrfs then shares the extents.
pub(super) fn share_range(tree: &mut Tree) -> io::Result<()> {
    let (from, start, length) = file_and_range(tree)?;
    let (to, target, _) = file_and_range(tree)?;
    let start = start / SECTOR * SECTOR;
    let length = length.next_multiple_of(SECTOR);
    let length = length.min(from.metadata()?.len().saturating_sub(start) / SECTOR * SECTOR);
    if length == 0 {
        return Err(nothing());
    }
    let mut start = start;
    let mut target = target / SECTOR * SECTOR;
    let length = usize::try_from(length).expect("a length in memory");
    copy_file_range(from, Some(&mut start), to, Some(&mut target), length)?;
    Ok(())
}

pub(super) fn share_all(tree: &mut Tree) -> io::Result<()> {
    let from = File::open(tree.file()?)?;
    let path = tree.new_path()?;
    ioctl_ficlone(File::create_new(&path)?, from)?;
    tree.files.push(path);
    Ok(())
}

/// Writes far past the end, so that a long hole precedes the data.
pub(super) fn write_far(tree: &mut Tree) -> io::Result<()> {
    let path = tree.new_path()?;
    let far = 1 << (20 + tree.random.below(23));
    let length = tree.random.length(RANGE_BITS);
    File::create_new(&path)?.write_all_at(&tree.random.bytes(length), far)?;
    tree.files.push(path);
    Ok(())
}

/// Sets the nocow flag, which is only possible for an empty file.
pub(super) fn nocow(tree: &mut Tree) -> io::Result<()> {
    let path = tree.new_path()?;
    let file = File::create_new(&path)?;
    ioctl_setflags(&file, ioctl_getflags(&file)? | IFlags::NOCOW)?;
    let length = tree.random.length(RANGE_BITS);
    file.write_all_at(&tree.random.bytes(length), 0)?;
    tree.files.push(path);
    Ok(())
}

pub(super) fn wish_compression(tree: &mut Tree) -> io::Result<()> {
    let path = tree.file()?;
    let file = File::open(&path)?;
    ioctl_setflags(&file, ioctl_getflags(&file)? ^ IFlags::COMPRESSED)?;
    // Data written from now on uses the other kind of extent.
    let length = tree.random.length(RANGE_BITS);
    fs::write(path, tree.random.bytes(length))
}

pub(super) fn fsync(tree: &mut Tree) -> io::Result<()> {
    overwrite(tree)?;
    File::open(tree.file()?)?.sync_all()
}
