//! Operations on file contents.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{self, FallocateFlags, FileType, Mode as OpenMode, OFlags};
use rustix::io::Errno;

use crate::linux;
use crate::model::Outcome;
use crate::operation::{AllocateKind, Operation};
use crate::pattern::{self, in_memory};

use super::descriptor::{by_itself, kind, path};

/// The most bytes that Linux is to defragment: it visits each 256 KiB of a hole, too, and so would
/// not end with a sparse file of exbibytes.
const DEFRAGMENTED_MAX: u64 = 64 << 20;

pub(super) fn change(object: BorrowedFd<'_>, operation: &Operation) -> Outcome {
    let is_change = !matches!(operation, Operation::Sync { .. });
    let file = open(object, if is_change { OFlags::RDWR } else { OFlags::RDONLY })?;
    match *operation {
        Operation::Truncate { size, .. } => fs::ftruncate(&file, size),
        Operation::Write { offset, length, seed, .. } => write(&file, offset, length, seed),
        Operation::Append { length, seed, .. } => append(object, &file, length, seed),
        Operation::Replace { length, seed, .. } => {
            fs::ftruncate(&file, 0)?;
            write(&file, 0, length, seed)
        }
        Operation::Allocate { offset, length, kind, .. } => {
            fs::fallocate(&file, flags(kind), offset, length)
        }
        // Never compressed: Linux sets the flag NOCOMPRESS of a file that does not become smaller.
        Operation::Defragment { offset, length, threshold, .. } => {
            let length = if length == 0 { DEFRAGMENTED_MAX } else { length.min(DEFRAGMENTED_MAX) };
            linux::defragment(&path(&file), [offset, length], threshold)
        }
        Operation::Sync { .. } => fs::fsync(&file),
        _ => unreachable!("an operation on the content of a file"),
    }
}

/// Reads a range of a file, up to its end.
pub(super) fn read(object: BorrowedFd<'_>, offset: u64, length: u64) -> Outcome<Vec<u8>> {
    let file = open(object, OFlags::RDONLY)?;
    let mut bytes = vec![0; in_memory(length)];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64).map_err(errno)? {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn open(object: impl AsFd, flags: OFlags) -> Outcome<File> {
    match kind(&object)? {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR),
        _ => return Err(Errno::INVAL),
    }
    fs::open(by_itself(object), flags | OFlags::CLOEXEC, OpenMode::empty()).map(File::from)
}

fn write(file: &File, offset: u64, length: u64, seed: u32) -> Outcome {
    file.write_all_at(&pattern::bytes(seed, offset, in_memory(length)), offset).map_err(errno)
}

fn append(object: BorrowedFd<'_>, file: &File, length: u64, seed: u32) -> Outcome {
    let bytes = pattern::bytes(seed, file.metadata().map_err(errno)?.len(), in_memory(length));
    let mut at_end = open(object, OFlags::WRONLY | OFlags::APPEND)?;
    io::Write::write_all(&mut at_end, &bytes).map_err(errno)
}

fn flags(kind: AllocateKind) -> FallocateFlags {
    match kind {
        AllocateKind::Reserve => FallocateFlags::empty(),
        AllocateKind::ReserveKeepSize => FallocateFlags::KEEP_SIZE,
        AllocateKind::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        AllocateKind::Zero => FallocateFlags::ZERO_RANGE,
        AllocateKind::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).expect("an error of the system")
}
