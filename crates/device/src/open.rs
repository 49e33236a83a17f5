//! Opening a path as a device: checks its kind, measures it, selects direct or buffered I/O, and
//! locks it against other writers.
//!
//! 1. Only regular files and block devices are opened; the check repeats on the open descriptor.
//! 2. The device is a region of the file, by default all of it. It is found once, at open, with the
//!    file locked; its partition table is not looked at again.
//! 3. The alignment of a direct file divides its length and the start of the region, so that
//!    rounding a request outwards never leaves the file, nor the region at its start.
//! 4. A file open for writing, or for reading with writers excluded (`exclude_writers`), is locked
//!    ([`ImageLock`]) before it is measured, and unlocked after its last request; the file that is
//!    used is the one that is locked.
//! 5. A file whose large requests bypass the page cache is not read ahead: the page cache holds
//!    pages of small requests only, and so never of a range that is being written past it.
//! 6. A block device open for writing is also claimed from the kernel (`O_EXCL`), which refuses a
//!    mounted one, and then refuses to mount it, unless the caller has it claimed otherwise. A
//!    file that is mounted through a loop device is refused, too. A claim ends when the last
//!    descriptor is closed, and a process that was just forked has a copy until it calls `exec`: a
//!    device that is claimed is tried again for a moment.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise, ioctl_blksszget, major, minor};
use rustix::io::{Errno, pread};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::buffer::Buffer;
use crate::error::DeviceError;
use crate::lock::{ImageLock, LockKind, wait_while_closing};
use crate::loop_device;
use crate::partition::Partition;
use crate::partition_table::read_partitions;
use crate::request::Request;

/// Alignment of direct I/O on regular files, in bytes: enough for every known file system.
const FILE_ALIGNMENT: u64 = 4096;

/// How long a device that is claimed is tried again: longer than a process takes from `fork` to
/// `exec`, even on a busy machine.
const CLAIM_PATIENCE: Duration = Duration::from_millis(500);

/// The pause between two attempts to claim a device.
const CLAIM_PAUSE: Duration = Duration::from_millis(2);

/// The length of the read that tests whether a file can be read directly, in bytes.
const PROBE: usize = 4096;

/// The length from which a request is large, in bytes: usually more than a tree node.
const LARGE: usize = 64 << 10;

/// Whether I/O bypasses the kernel's page cache (O_DIRECT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Direct on block devices that support it. Regular files use the page cache, except for reads
    /// and writes of 64 KiB and more by io_uring on a file that is open for writing.
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
    /// By io_uring if the process may use it, and a batch gains by it; else by plain calls.
    #[default]
    Auto,
    /// Like `Auto`, but the open fails if the process may not use io_uring.
    On,
    /// Plain calls.
    Off,
}

/// The bytes of a file that are the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Region {
    /// All of it.
    #[default]
    Whole,
    /// From this byte on.
    From(u64),
    /// The partition of this number, of a GPT or an MBR. Logical partitions count from 5. Needs the
    /// feature `partitions`.
    Partition(u32),
}

/// The options for opening a [`FileDevice`](crate::FileDevice). The default opens for reading, with
/// both modes `Auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct FileOptions {
    /// The bytes that are the device. The lock is of the whole file all the same.
    pub region: Region,
    /// Open for writes and discards too. Only one writer may have the device open: a second is
    /// refused while the first is open, and waits while it is
    /// [closing](crate::Device::mark_closing). A plain reader is not refused, and waits likewise.
    pub writable: bool,
    /// Take a shared lock when opening for reading: opening fails while a writer has the device,
    /// and a writer cannot open it until this is closed. Other readers are not affected. No effect
    /// if the file cannot be locked.
    pub exclude_writers: bool,
    /// Lock the file where these options ask for that? Without a lock the caller sees to it that
    /// nobody else has the file open; it is for filesystems that have no locks.
    pub lock: bool,
    /// Whether I/O bypasses the page cache.
    pub direct: Direct,
    /// Whether I/O is submitted by io_uring.
    pub io_uring: IoUring,
    /// Claim a block device that is open for writing (`O_EXCL`). Must be off if the opener has the
    /// kernel mount the device, since that mount claims it as well.
    pub claim: bool,
    /// The maximum number of requests a thread has in flight, clamped to 1..=4096. A thread has
    /// one ring for all devices: the device it submits to first sets its depth.
    pub queue_depth: u32,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            region: Region::Whole,
            writable: false,
            exclude_writers: false,
            lock: true,
            direct: Direct::Auto,
            io_uring: IoUring::Auto,
            claim: true,
            queue_depth: 64,
        }
    }
}

/// An open file and the facts about it that requests need.
pub(crate) struct OpenFile {
    pub(crate) name: Box<str>,
    pub(crate) file: File,
    /// Where in the file the device begins, in bytes.
    pub(crate) start: u64,
    /// Its length in bytes.
    pub(crate) len: AtomicU64,
    /// The device ends where the file ends.
    is_whole: bool,
    is_block_device: bool,
    pub(crate) is_writable: bool,
    /// The alignment of the offset and length of a call; 1 if the file is not direct.
    alignment: u64,
    /// The unit that the ends of a discard are rounded inwards to. A discard of part of a sector
    /// is a write of zeroes, and would have to be serialized with the unaligned writes.
    discard_unit: u64,
    /// The same file, opened for large requests that bypass the page cache.
    large: Option<Arc<OpenFile>>,
    /// Held over the read, change and write of an unaligned write.
    pub(crate) unaligned_write: Mutex<()>,
    /// Held by both open files of a device, since a request on either may outlive the device. The
    /// last field, so dropped after all others.
    pub(crate) lock: Option<Arc<ImageLock>>,
}

/// A request rounded outwards to the alignment of its file.
#[derive(Clone, Copy)]
pub(crate) struct AlignedSpan {
    pub(crate) start: u64,
    pub(crate) len: usize,
    /// The offset of the request in the span.
    skip: usize,
    asked: usize,
}

impl AlignedSpan {
    /// Returns the range of the span that the request asked for.
    pub(crate) fn within(&self) -> Range<usize> {
        self.skip..self.skip + self.asked
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.len == self.asked
    }
}

impl OpenFile {
    /// Opens a path. Large requests bypass the page cache only if `has_ring`: plain calls would
    /// wait for each.
    pub(crate) fn open(
        path: &Path,
        options: FileOptions,
        has_ring: bool,
    ) -> Result<OpenFile, DeviceError> {
        let name = path.display().to_string().into_boxed_str();
        let failed = |source| failure(&name, source);
        let found = path.metadata().map_err(failed)?;
        refuse_other_kinds(&name, &found)?;
        if options.writable && is_write_protected(&found) {
            return Err(DeviceError::WriteProtected { device: name });
        }
        let mut way =
            ReopenPath { path, writable: options.writable, flags: OFlags::empty(), first: None };
        let first = way.open(OFlags::empty()).map_err(failed)?;
        let metadata = first.metadata().map_err(failed)?;
        refuse_other_kinds(&name, &metadata)?;

        let is_block_device = metadata.file_type().is_block_device();
        let sector = if is_block_device { sector_size(&first).map_err(failed)? } else { 1 };
        let unit = if is_block_device { sector } else { FILE_ALIGNMENT };
        let table = first.try_clone().map_err(failed)?;
        let lock = lock(first, &name, options, &metadata)?.map(Arc::new);
        let known_sector = is_block_device.then_some(sector);
        let region = find_region(&table, &name, options.region, known_sector)?;
        drop(table);
        way.first = Some(metadata);
        if options.writable && options.claim && is_block_device {
            way.flags = OFlags::EXCL;
        }
        let try_direct = match options.direct {
            Direct::Auto => is_block_device,
            other => other == Direct::On,
        };
        let is_auto = options.direct == Direct::Auto;
        let takes_large = is_auto && has_ring && options.writable && !is_block_device;
        let open_direct = || way.open_direct(unit, region.start);
        let (file, alignment) = match try_direct.then(open_direct) {
            Some(Ok(file)) => (file, unit),
            Some(Err(source)) if options.direct == Direct::On && !is_busy(&source) => {
                return Err(DeviceError::DirectRefused { device: name, source });
            }
            _ => (way.open(OFlags::empty()).map_err(failed)?, 1),
        };
        let start = region.start;
        let len = region.end - region.start;
        let opened = |file, alignment| OpenFile {
            start,
            len: AtomicU64::new(len),
            is_whole: options.region == Region::Whole,
            is_block_device,
            is_writable: options.writable,
            name: name.clone(),
            file,
            alignment,
            discard_unit: sector.max(alignment),
            large: None,
            unaligned_write: Mutex::new(Class::DeviceQueue, ()),
            lock: lock.clone(),
        };
        let large = if takes_large { open_direct().ok() } else { None };
        let large = large.filter(|direct| is_read_directly(direct) && is_not_read_ahead(&file));
        let large = large.map(|file| Arc::new(opened(file, unit)));
        Ok(OpenFile { large, ..opened(file, alignment) })
    }

    /// Returns the open file to use for a request, which lies on the device.
    pub(crate) fn way_of<'a>(self: &'a Arc<Self>, request: &Request) -> &'a Arc<Self> {
        let (offset, len) = match request {
            Request::Read { offset, buffer } => (*offset, buffer.len()),
            Request::Write { offset, buffer, .. } => (*offset, buffer.len()),
            Request::Flush | Request::Discard { .. } => return self,
        };
        match &self.large {
            Some(large) if len >= LARGE && large.span(offset, len).is_exact() => large,
            _ => self,
        }
    }

    /// Measures the file again if the device ends where it does; returns the length of the device.
    pub(crate) fn measure_again(&self) -> Result<u64, DeviceError> {
        if self.is_whole {
            let len = measure(&self.file).map_err(|source| failure(&self.name, source))?;
            self.len.store(len, Ordering::SeqCst);
        }
        Ok(self.len.load(Ordering::SeqCst))
    }

    /// Sets the length of the file; returns false if the device is not all of a file.
    pub(crate) fn set_len(&self, len: u64) -> Result<bool, DeviceError> {
        if !self.is_whole || self.is_block_device || !self.is_writable {
            return Ok(false);
        }
        self.file.set_len(len).map_err(|source| failure(&self.name, source))?;
        self.len.store(len, Ordering::SeqCst);
        Ok(true)
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.alignment > 1
    }

    /// Returns whether a call may begin or end at `offset`.
    pub(crate) fn is_aligned(&self, offset: u64) -> bool {
        offset.is_multiple_of(self.alignment)
    }

    /// Rounds a request that lies on the device outwards.
    pub(crate) fn span(&self, offset: u64, len: usize) -> AlignedSpan {
        let skip = offset % self.alignment;
        let whole = (skip + len as u64).next_multiple_of(self.alignment);
        let fits = "shorter than the request and one alignment";
        AlignedSpan {
            start: offset - skip,
            len: usize::try_from(whole).expect(fits),
            skip: usize::try_from(skip).expect(fits),
            asked: len,
        }
    }

    /// Returns the part of a discard that is passed to the device: its whole sectors.
    pub(crate) fn whole_sectors(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset + len;
        offset.next_multiple_of(self.discard_unit)..end - end % self.discard_unit
    }
}

/// Locks the file against other writers, and fails if the kernel has it mounted. A plain reader
/// takes no lock, and only waits for a holder that is closing.
fn lock(
    file: File,
    name: &str,
    options: FileOptions,
    metadata: &Metadata,
) -> Result<Option<ImageLock>, DeviceError> {
    if !options.lock {
        return Ok(None);
    }
    let kind = match (options.writable, options.exclude_writers) {
        (true, _) => LockKind::Exclusive,
        (false, true) => LockKind::Shared,
        (false, false) => {
            wait_while_closing(&file);
            return Ok(None);
        }
    };
    let lock = match ImageLock::take(file, name, kind) {
        Err(DeviceError::NoLocks { .. }) if kind == LockKind::Shared => return Ok(None),
        taken => taken?,
    };
    let other_paths = loop_device::other_paths(metadata);
    if lock.conflicts_elsewhere(&other_paths) {
        return Err(DeviceError::Locked { device: name.into() });
    }
    if options.writable && metadata.is_file() && loop_device::is_mounted(&other_paths) {
        Err(DeviceError::InUse { device: name.into() })
    } else {
        Ok(Some(lock))
    }
}

/// Returns the bytes of the file that are the device. `sector` is the logical sector of a block
/// device.
fn find_region(
    file: &File,
    name: &str,
    region: Region,
    sector: Option<u64>,
) -> Result<Range<u64>, DeviceError> {
    let device_len = measure(file).map_err(|source| failure(name, source))?;
    let (start, len) = match region {
        Region::Whole => return Ok(0..device_len),
        Region::From(start) => (start, device_len.saturating_sub(start)),
        Region::Partition(number) => {
            let table = read_partitions(file, sector);
            let table =
                table.map_err(|why| DeviceError::PartitionTable { device: name.into(), why })?;
            let found = table.iter().flatten().find(|partition| partition.number == number);
            let none = || DeviceError::NoPartition { device: name.into(), number };
            found.map(|it| (it.start, it.len)).ok_or_else(none)?
        }
    };
    match start.checked_add(len) {
        Some(end) if start < device_len && end <= device_len => Ok(start..end),
        _ => Err(DeviceError::RegionOutside { device: name.into(), start, len, device_len }),
    }
}

/// Returns the partitions that the partition table of an image or a block device lists, in the
/// order of their numbers, or `None` if it has no table. The file is neither locked nor waited for.
/// Fails without the feature `partitions`.
pub fn partitions(path: impl AsRef<Path>) -> Result<Option<Vec<Partition>>, DeviceError> {
    let name = path.as_ref().display().to_string();
    let failed = |source| failure(&name, source);
    refuse_other_kinds(&name, &path.as_ref().metadata().map_err(failed)?)?;
    let file = File::open(path).map_err(failed)?;
    let is_block_device = file.metadata().map_err(failed)?.file_type().is_block_device();
    let sector = is_block_device.then(|| sector_size(&file)).transpose().map_err(failed)?;
    let table = read_partitions(&file, sector);
    table.map_err(|why| DeviceError::PartitionTable { device: name.clone().into(), why })
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

/// Opens a path more than once, and checks that it is the same file each time.
struct ReopenPath<'a> {
    path: &'a Path,
    writable: bool,
    flags: OFlags,
    /// The metadata of the first open, whose identity later opens must match.
    first: Option<Metadata>,
}

impl ReopenPath<'_> {
    fn open(&self, more: OFlags) -> io::Result<File> {
        let flags = (self.flags | more).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).write(self.writable).custom_flags(flags);
        let file = self.open_once_unclaimed(&options)?;
        let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        match &self.first {
            Some(first) if identity(first) != identity(&file.metadata()?) => {
                Err(io::Error::other("it was replaced while it was opened"))
            }
            _ => Ok(file),
        }
    }

    /// Opens with the options. While another descriptor claims the device, tries again until
    /// `CLAIM_PATIENCE` has passed.
    fn open_once_unclaimed(&self, options: &OpenOptions) -> io::Result<File> {
        let give_up = Instant::now() + CLAIM_PATIENCE;
        loop {
            match options.open(self.path) {
                Err(error) if is_busy(&error) && Instant::now() < give_up => {
                    thread::sleep(CLAIM_PAUSE);
                }
                opened => return opened,
            }
        }
    }

    /// Opens for direct I/O; fails if the length, or the start of the region, is not a multiple of
    /// `alignment`.
    fn open_direct(&self, alignment: u64, start: u64) -> io::Result<File> {
        let file = self.open(OFlags::DIRECT)?;
        if !measure(&file)?.is_multiple_of(alignment) {
            return Err(io::Error::other(format!("its length is not a multiple of {alignment}")));
        }
        if !start.is_multiple_of(alignment) {
            return Err(io::Error::other(format!("the region is not aligned to {alignment}")));
        }
        Ok(file)
    }
}

/// Turns the kernel's read-ahead of the file off; returns whether that succeeded.
fn is_not_read_ahead(file: &File) -> bool {
    fadvise(file, 0, None, Advice::Random).is_ok()
}

/// Returns whether the file can be read as it was opened: some filesystems refuse direct I/O only
/// at the first read.
fn is_read_directly(file: &File) -> bool {
    pread(file, &mut Buffer::zeroed(PROBE)[..], 0).is_ok()
}

fn measure(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

fn failure(device: &str, source: io::Error) -> DeviceError {
    let device = device.into();
    match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => DeviceError::InUse { device },
        Some(Errno::ROFS) => DeviceError::WriteProtected { device },
        _ => DeviceError::Open { device, source },
    }
}

/// Returns whether a block device is set read-only, as `blockdev --setro` and `losetup -r` do. Such
/// a device can be opened for writing all the same; its writes fail.
fn is_write_protected(metadata: &Metadata) -> bool {
    let number = metadata.rdev();
    let path = format!("/sys/dev/block/{}:{}/ro", major(number), minor(number));
    metadata.file_type().is_block_device()
        && std::fs::read_to_string(path).is_ok_and(|ro| ro.trim() == "1")
}

/// Returns whether the kernel reports the device as in use.
fn is_busy(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BUSY)
}

/// Returns the logical sector size of a block device, in bytes.
fn sector_size(file: &File) -> io::Result<u64> {
    let size = ioctl_blksszget(file)?;
    if !size.is_power_of_two() {
        return Err(io::Error::other(format!("its sectors are of {size} bytes")));
    }
    Ok(size.into())
}
