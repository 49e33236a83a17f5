//! Opening a path as a device: what it is, how long it is, whether its I/O is direct.
//!
//! 1. Only regular files and block devices are opened; the check repeats on the open descriptor.
//! 2. The length is taken once, at open.
//! 3. The alignment of a direct file divides its length, so that rounding a request outwards never
//!    leaves the file.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, ioctl_blksszget};
use userbtrfs_sync::{Class, Mutex};

use crate::error::DeviceError;

/// Alignment of direct I/O on regular files, in bytes: enough for every file system we know.
const FILE_ALIGNMENT: u64 = 4096;

/// Whether I/O goes past the kernel's page cache (O_DIRECT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Direct on block devices that take it; regular files go through the page cache.
    #[default]
    Auto,
    /// Direct, or the open fails.
    On,
    /// Through the page cache.
    Off,
}

/// Whether I/O is submitted by io_uring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// Where the process may use it; plain calls elsewhere.
    #[default]
    Auto,
    /// By io_uring, or the open fails.
    On,
    /// Plain calls.
    Off,
}

/// How to open a [`FileDevice`](crate::FileDevice). The default reads, with both modes `Auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Open for writes and discards too.
    pub writable: bool,
    /// Past the page cache?
    pub direct: Direct,
    /// By io_uring?
    pub io_uring: IoUring,
    /// Most requests a thread has in flight, 1 to 4096 (others are brought into that range). A
    /// thread has one ring for all devices: the device it submits to first sets its depth.
    pub queue_depth: u32,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            writable: false,
            direct: Direct::Auto,
            io_uring: IoUring::Auto,
            queue_depth: 64,
        }
    }
}

/// An open file and the facts about it that requests need.
pub(crate) struct OpenFile {
    pub(crate) name: Box<str>,
    pub(crate) file: File,
    pub(crate) len: u64,
    pub(crate) writable: bool,
    /// What offset and length of a call must divide by; 1 when the file is not direct.
    alignment: u64,
    /// What the ends of a discard are rounded inwards to. A discard of part of a sector is a write
    /// of zeroes, and would have to take turns with the unaligned writes.
    discard_unit: u64,
    /// Held over the read, change and write of one that is not aligned.
    pub(crate) unaligned_write: Mutex<()>,
}

/// A request rounded outwards to the alignment of its file.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) len: usize,
    /// Where in the span the request begins.
    skip: usize,
    asked: usize,
}

impl Span {
    /// The bytes of the span that the request asked for.
    pub(crate) fn within(&self) -> Range<usize> {
        self.skip..self.skip + self.asked
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.len == self.asked
    }
}

impl OpenFile {
    pub(crate) fn open(path: &Path, options: FileOptions) -> Result<OpenFile, DeviceError> {
        let name = path.display().to_string().into_boxed_str();
        let failed = |source| DeviceError::Open { device: name.clone(), source };
        refuse_other_kinds(&name, &path.metadata().map_err(failed)?)?;
        let mut file = open_buffered(path, options.writable).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        refuse_other_kinds(&name, &metadata)?;
        let len = file.seek(SeekFrom::End(0)).map_err(failed)?;

        let is_block_device = metadata.file_type().is_block_device();
        let sector = if is_block_device { sector_size(&file).map_err(failed)? } else { 1 };
        let unit = if is_block_device { sector } else { FILE_ALIGNMENT };
        let mut alignment = 1;
        if options.direct == Direct::On || options.direct == Direct::Auto && is_block_device {
            match open_direct(path, options.writable, len, unit) {
                Ok(direct) => (file, alignment) = (direct, unit),
                Err(source) if options.direct == Direct::On => {
                    return Err(DeviceError::DirectRefused { device: name, source });
                }
                Err(_) => {}
            }
        }
        Ok(OpenFile {
            name,
            file,
            len,
            writable: options.writable,
            alignment,
            discard_unit: sector.max(alignment),
            unaligned_write: Mutex::new(Class::DeviceQueue, ()),
        })
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.alignment > 1
    }

    /// Whether a call may begin or end at `offset`.
    pub(crate) fn is_aligned(&self, offset: u64) -> bool {
        offset.is_multiple_of(self.alignment)
    }

    /// Rounds a request that lies on the device outwards.
    pub(crate) fn span(&self, offset: u64, len: usize) -> Span {
        let skip = offset % self.alignment;
        let whole = (skip + len as u64).next_multiple_of(self.alignment);
        let fits = "shorter than the request and one alignment";
        Span {
            start: offset - skip,
            len: usize::try_from(whole).expect(fits),
            skip: usize::try_from(skip).expect(fits),
            asked: len,
        }
    }

    /// The part of a discard that the device takes: all of it, or its whole sectors.
    pub(crate) fn whole_sectors(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset + len;
        offset.next_multiple_of(self.discard_unit)..end - end % self.discard_unit
    }
}

fn refuse_other_kinds(name: &str, metadata: &Metadata) -> Result<(), DeviceError> {
    let file_type = metadata.file_type();
    let kind = match () {
        () if file_type.is_file() || file_type.is_block_device() => return Ok(()),
        () if file_type.is_dir() => "directory",
        () if file_type.is_char_device() => "character device",
        () if file_type.is_fifo() => "pipe",
        () if file_type.is_socket() => "socket",
        () => "file of an unknown kind",
    };
    Err(DeviceError::NotADevice { device: name.into(), kind })
}

fn open_buffered(path: &Path, writable: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(writable).open(path)
}

/// Opens for direct I/O in units of `alignment` bytes, if the file has whole ones.
fn open_direct(path: &Path, writable: bool, len: u64, alignment: u64) -> io::Result<File> {
    if !len.is_multiple_of(alignment) {
        return Err(io::Error::other(format!("its length is not a multiple of {alignment}")));
    }
    let flags = OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().read(true).write(writable).custom_flags(flags).open(path)
}

/// The logical sector of a block device, in bytes.
fn sector_size(file: &File) -> io::Result<u64> {
    let size = ioctl_blksszget(file)?;
    if !size.is_power_of_two() {
        return Err(io::Error::other(format!("its sectors are of {size} bytes")));
    }
    Ok(size.into())
}
