//! The state of one request on a file: its next system call, and how the outcome is handled.
//!
//! 1. A transfer owns the bytes of its request; they do not move while it lives.
//! 2. `next` and `advance` alternate. `advance` returns when the transfer has ended; then `finish`.
//! 3. On a direct file every call is aligned: an unaligned read uses a buffer of aligned size (a
//!    bounce buffer), an unaligned write never becomes a transfer.
//! 4. Writes that follow a write on the device may be merged into it (its followers): its result
//!    is theirs.
//! 5. An interrupted call is repeated; a short one is continued; one that moves nothing, or stops
//!    at an unaligned offset of a direct file, has met the end of the file.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use userbtrfs_sync::Arc;

use crate::buffer::Buffer;
use crate::error::{Access, DeviceError, Operation};
use crate::open::{AlignedSpan, OpenFile};
use crate::request::{Completion, Request};
use crate::slice::Slice;

/// The mode of `fallocate` that discards.
pub(crate) const PUNCH_HOLE: FallocateFlags =
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// The maximum number of bytes of one call; below the limit of the kernel, and aligned.
const MAX_CALL: usize = 1 << 30;

/// One system call.
pub(crate) enum Call<'a> {
    Read { offset: u64, target: &'a mut [u8] },
    Write { offset: u64, bytes: Vec<IoSlice<'a>>, fua: bool },
    Flush,
    Discard { offset: u64, len: u64 },
}

/// A request that an engine carries out.
pub(crate) struct Transfer {
    file: Arc<OpenFile>,
    /// The request as the caller made it, for errors.
    access: Access,
    work: Work,
    /// Bytes moved.
    done: usize,
    /// The writes merged into it, in their order on the device.
    followers: Vec<MergedWrite>,
}

/// A write that was merged into another.
struct MergedWrite {
    /// Its index in the batch.
    index: usize,
    access: Access,
    bytes: Slice,
}

enum Work {
    Read { offset: u64, buffer: Buffer },
    Bounce { span: AlignedSpan, bounce: Buffer, target: Buffer },
    Write { offset: u64, buffer: Slice, fua: bool },
    Flush,
    Discard(Range<u64>),
}

impl Transfer {
    /// Creates the transfer of `request`, which lies on the device; a write also fits the
    /// alignment of the file.
    pub(crate) fn new(file: &Arc<OpenFile>, request: Request) -> Transfer {
        let access = request.access();
        let work = match request {
            Request::Read { offset, buffer } => read(file, offset, buffer),
            Request::Write { offset, buffer, fua } => {
                Work::Write { offset, buffer: in_place(file, buffer), fua }
            }
            Request::Flush => Work::Flush,
            Request::Discard { offset, len } => Work::Discard(file.whole_sectors(offset, len)),
        };
        Transfer { file: Arc::clone(file), access, work, done: 0, followers: Vec::new() }
    }

    pub(crate) fn is_read(&self) -> bool {
        self.access.operation == Operation::Read
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// Returns the next system call, and the file to make it on.
    pub(crate) fn next(&mut self) -> (&File, Call<'_>) {
        let done = self.done;
        let call = match &mut self.work {
            Work::Read { offset, buffer } => read_call(*offset, buffer, done),
            Work::Bounce { span, bounce, .. } => read_call(span.start, bounce, done),
            Work::Write { offset, buffer, fua } => {
                let all =
                    std::iter::once(&*buffer).chain(self.followers.iter().map(|it| &it.bytes));
                let bytes = pieces(all, done);
                Call::Write { offset: *offset + done as u64, bytes, fua: *fua }
            }
            Work::Flush => Call::Flush,
            Work::Discard(part) => Call::Discard { offset: part.start, len: part.end - part.start },
        };
        (&self.file.file, call)
    }

    /// Takes the outcome of the last call: the bytes it moved, or its error. Returns the result of
    /// the transfer, or `None` if it is not done yet.
    pub(crate) fn advance(
        &mut self,
        outcome: Result<usize, Errno>,
    ) -> Option<Result<(), DeviceError>> {
        let moved = match outcome {
            Ok(moved) => moved,
            Err(Errno::INTR) => return None,
            Err(errno) => return Some(Err(self.failure(errno))),
        };
        self.done += moved;
        if self.done >= self.goal() {
            return Some(Ok(()));
        }
        let at_end = moved == 0 || !self.file.is_aligned(self.done as u64);
        at_end.then(|| Err(self.short()))
    }

    /// Returns the completion, with the buffer of a read.
    pub(crate) fn finish(self, result: Result<(), DeviceError>) -> Completion {
        let buffer = match self.work {
            Work::Read { buffer, .. } => Some(buffer),
            Work::Bounce { span, bounce, mut target } => {
                target.copy_from_slice(&bounce[span.within()]);
                Some(target)
            }
            Work::Write { .. } | Work::Flush | Work::Discard(_) => None,
        };
        Completion { result, buffer }
    }

    /// Returns the number of bytes to move in all.
    fn goal(&self) -> usize {
        match &self.work {
            Work::Read { buffer, .. } => buffer.len(),
            Work::Bounce { span, .. } => span.within().end,
            Work::Write { buffer, .. } => {
                buffer.len() + self.followers.iter().map(|it| it.bytes.len()).sum::<usize>()
            }
            Work::Flush | Work::Discard(_) => 0,
        }
    }

    /// Returns the range of the device that a write covers, unless it has `fua` set.
    pub(crate) fn written(&self) -> Option<Range<u64>> {
        match &self.work {
            Work::Write { offset, fua: false, .. } => Some(*offset..*offset + self.goal() as u64),
            _ => None,
        }
    }

    /// Returns the range of the device that a write copies into the kernel's page cache.
    pub(crate) fn copied(&self) -> Option<Range<u64>> {
        self.written().filter(|_| !self.is_direct())
    }

    /// Merges a write into this one that begins on the device where this one ends; `index` is its
    /// index in the batch.
    pub(crate) fn take_over(&mut self, index: usize, other: Transfer) {
        let Work::Write { buffer: bytes, .. } = other.work else {
            unreachable!("a write takes over writes")
        };
        self.followers.push(MergedWrite { index, access: other.access, bytes });
    }

    /// Returns the completions of the writes that were merged into this one, with their indices in
    /// the batch.
    pub(crate) fn follow(&mut self, result: &Result<(), DeviceError>) -> Vec<(usize, Completion)> {
        let followers = std::mem::take(&mut self.followers);
        let follow = |MergedWrite { index, access, .. }| {
            let result = result.as_ref().copied().map_err(|error| self.failure_of(access, error));
            (index, Completion { result, buffer: None })
        };
        followers.into_iter().map(follow).collect()
    }

    /// Returns the error of a write that was merged into this one.
    fn failure_of(&self, access: Access, error: &DeviceError) -> DeviceError {
        let device = self.file.name.clone();
        match error {
            DeviceError::Io { source, .. } => {
                let errno = Errno::from_io_error(source).unwrap_or(Errno::IO);
                DeviceError::Io { device, access, source: io::Error::from(errno) }
            }
            _ => DeviceError::Short { device, access, done: 0 },
        }
    }

    fn failure(&self, errno: Errno) -> DeviceError {
        let device = self.file.name.clone();
        let access = self.access;
        let unsupported = matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV);
        if unsupported && access.operation == Operation::Discard {
            return DeviceError::Unsupported { device, access };
        }
        DeviceError::Io { device, access, source: errno.into() }
    }

    fn short(&self) -> DeviceError {
        let before = match &self.work {
            Work::Bounce { span, .. } => span.within().start,
            _ => 0,
        };
        let done = self.done.saturating_sub(before) as u64;
        DeviceError::Short { device: self.file.name.clone(), access: self.access, done }
    }
}

/// Returns the rest of slices after their first `done` bytes, at most as much as one call moves.
fn pieces<'a>(slices: impl Iterator<Item = &'a Slice>, done: usize) -> Vec<IoSlice<'a>> {
    let mut skip = done;
    let mut room = MAX_CALL;
    let piece = |slice: &'a Slice| {
        let start = skip.min(slice.len());
        let len = (slice.len() - start).min(room);
        skip -= start;
        room -= len;
        &slice[start..start + len]
    };
    slices.map(piece).filter(|piece| !piece.is_empty()).map(IoSlice::new).collect()
}

/// Returns the bytes at the alignment in memory that the file needs; copies them if necessary.
fn in_place(file: &OpenFile, bytes: Slice) -> Slice {
    if file.is_aligned(bytes.misalignment()) { bytes } else { Buffer::from(&bytes[..]).into() }
}

fn read(file: &OpenFile, offset: u64, buffer: Buffer) -> Work {
    let span = file.span(offset, buffer.len());
    if span.is_exact() {
        return Work::Read { offset, buffer };
    }
    Work::Bounce { bounce: Buffer::zeroed(span.len), span, target: buffer }
}

fn read_call(offset: u64, buffer: &mut Buffer, done: usize) -> Call<'_> {
    let end = buffer.len().min(done + MAX_CALL);
    Call::Read { offset: offset + done as u64, target: &mut buffer[done..end] }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::open::FileOptions;

    fn open() -> Arc<OpenFile> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[0; 8192]).unwrap();
        Arc::new(OpenFile::open(file.path(), FileOptions::default(), false).unwrap())
    }

    fn read_of_100() -> Transfer {
        Transfer::new(&open(), Request::Read { offset: 1000, buffer: Buffer::zeroed(100) })
    }

    #[test]
    fn a_short_read_continues_where_it_stopped() {
        let mut transfer = read_of_100();
        assert!(transfer.advance(Ok(30)).is_none());
        assert!(transfer.advance(Err(Errno::INTR)).is_none());
        let (_, call) = transfer.next();
        assert!(matches!(call, Call::Read { offset: 1030, target } if target.len() == 70));
        assert!(matches!(transfer.advance(Ok(70)), Some(Ok(()))));
    }

    #[test]
    fn a_short_write_continues_where_it_stopped() {
        let bytes: Vec<u8> = (0..100).collect();
        let buffer = Buffer::from(&bytes[..]).into();
        let mut transfer = Transfer::new(&open(), Request::Write { offset: 50, buffer, fua: true });
        assert!(transfer.advance(Ok(99)).is_none());
        let (_, call) = transfer.next();
        let Call::Write { offset: 149, bytes, fua: true } = call else { panic!("another call") };
        assert!(matches!(&bytes[..], [rest] if **rest == [99]));
    }

    #[test]
    fn short_write_continues_within_the_writes_merged_into_it() {
        let file = open();
        let write = |offset, byte| {
            let buffer = Buffer::from(&[byte; 10][..]).into();
            Transfer::new(&file, Request::Write { offset, buffer, fua: false })
        };
        let mut first = write(100, 1);
        first.take_over(5, write(110, 2));
        first.take_over(3, write(120, 3));
        assert_eq!(first.written(), Some(100..130));
        assert!(first.advance(Ok(15)).is_none());
        let (_, call) = first.next();
        let Call::Write { offset: 115, bytes, fua: false } = call else { panic!("another call") };
        assert!(matches!(&bytes[..], [two, three] if **two == [2; 5] && **three == [3; 10]));
        let result = first.advance(Err(Errno::IO)).unwrap();
        let followers = first.follow(&result);
        let texts: Vec<_> = followers
            .into_iter()
            .map(|(index, done)| (index, done.result.unwrap_err().to_string()))
            .collect();
        assert_eq!((texts[0].0, texts[1].0), (5, 3));
        assert!(texts[1].1.contains("write of 10 bytes at 120"), "{}", texts[1].1);
    }

    #[test]
    fn a_read_that_moves_nothing_is_short() {
        let mut transfer = read_of_100();
        assert!(transfer.advance(Ok(30)).is_none());
        let ended = transfer.advance(Ok(0));
        assert!(matches!(ended, Some(Err(DeviceError::Short { done: 30, .. }))));
    }

    #[test]
    fn io_error_names_device_and_access() {
        let mut transfer = read_of_100();
        let error = transfer.advance(Err(Errno::IO)).unwrap().unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&*transfer.file.name), "{text}");
        assert!(text.contains("read of 100 bytes at 1000"), "{text}");
        let DeviceError::Io { source, .. } = error else { panic!("{text}") };
        assert_eq!(source.raw_os_error(), Some(Errno::IO.raw_os_error()));
    }

    #[test]
    fn a_discard_the_device_cannot_do_is_unsupported() {
        let mut transfer = Transfer::new(&open(), Request::Discard { offset: 0, len: 4096 });
        let ended = transfer.advance(Err(Errno::OPNOTSUPP));
        assert!(matches!(ended, Some(Err(DeviceError::Unsupported { .. }))));
    }
}
