//! Contents of files: reads, writes, and other operations on ranges.
//!
//! 1. Cached bytes are sent from the cache at once, without a copy; the others are read in
//!    `may_sleep`.
//! 2. A write is answered when all its bytes are in memory. A direct write with O_SYNC or O_DSYNC
//!    is durable by then; for a cached one the kernel sends an FSYNC afterwards.
//! 3. The kernel knows the modification time of a file, since it caches writes, and sets it by
//!    separate requests. Operations on contents leave the times as they are.
//! 4. The kernel caches writes before it sends them: before a search for holes or data, it is made
//!    to send them.
//! 5. Set-id bits are cleared if the kernel asks for it, since the kernel knows which process
//!    changes the file. It removes the capabilities, which are an extended attribute, by itself.
//! 6. The first write to a file makes the attributes stale that the kernel caches forever. They are
//!    invalidated after the answer, since the kernel may need the answer to release the file.
//!    Attributes that it gets from then until a moment after the last write are valid for a moment
//!    only: see `recent_writes`.
//! 7. The kernel would go on to show data that could not be written: after the answer it is told to
//!    drop that data. The writer gets the error from a later call: see `unreported_errors`.

use std::io::IoSlice;

use userbtrfs_engine::api::{Allocate, File, Slice};
use userbtrfs_fuse::{
    Bytes, Copied, CopyFileRange, Errno, Fallocate, FallocateFlags, Invalidation, Lseek, NodeId,
    OFlags, Position, Read, Reply, Request, Whence, Write, Written, may_sleep, may_wait,
};

use crate::context::Context;
use crate::errno;
use crate::rights;
use crate::set_id::drop_set_id;

/// The most bytes that one request copies: a caller may ask for a whole file, and must stay
/// interruptible while it waits.
const COPY_MAX: u64 = 16 << 20;
/// The most bytes that one request shares with another file.
const SHARE_MAX: u64 = 1 << 30;

/// READ, WRITE, FALLOCATE, LSEEK and COPY_FILE_RANGE.
pub(crate) struct FileOps<'a> {
    pub(crate) context: &'a Context,
}

/// The bytes of a read: slices of the cache, followed by a copy of the bytes that were not cached.
struct Found {
    slices: Vec<Slice>,
    rest: Vec<u8>,
}

impl FileOps<'_> {
    pub(crate) fn read(&self, node: NodeId, read: &Read, reply: Reply<Bytes>) {
        let file = may_sleep(|| self.context.file(node));
        match file.and_then(|file| found(&file, read.offset, read.size)) {
            Ok(Found { slices, rest }) => {
                let parts = slices.iter().map(|slice| &slice[..]).chain([&rest[..]]);
                reply.send_slices(&parts.map(IoSlice::new).collect::<Vec<_>>());
            }
            Err(error) => reply.fail(error),
        }
    }

    pub(crate) fn write(&self, request: &Request, write: &Write<'_>, reply: Reply<Written>) {
        let written = may_sleep(|| self.write_to_file(request, write));
        let count = u32::try_from(write.data.len()).expect("a message is short");
        let stale = match written {
            Ok(true) => Some(Invalidation::Attributes),
            Ok(false) => None,
            Err(reason) => {
                if write.from_cache {
                    let file = self.context.ids.inode(request.node);
                    self.context.unreported_errors.note(file, reason);
                }
                Some(Invalidation::Contents {
                    offset: write.offset,
                    length: Some(u64::from(count)),
                })
            }
        };
        reply.send(written.map(|_| Written(count)));
        if let Some(stale) = stale {
            // The error is ignored: after the mount has ended, nothing is cached.
            let _ = may_wait(|| self.context.notifier().invalidate_inode(request.node, stale));
        }
    }

    /// Writes all the bytes. Returns whether the attributes that the kernel caches are stale.
    fn write_to_file(&self, request: &Request, write: &Write<'_>) -> Result<bool, Errno> {
        let file = self.context.file(request.node)?;
        let lost_bits = write.kill_suid_sgid && drop_set_id(file.inode(), &request.caller)?;
        write_all(&file, write.data, write.offset)?;
        if !write.from_cache && write.flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
            file.sync_all().map_err(errno)?;
        }
        Ok(self.context.recent_writes.note(file.inode().id()) || lost_bits)
    }

    pub(crate) fn fallocate(&self, node: NodeId, fallocate: &Fallocate) -> Result<(), Errno> {
        let what = allocation(fallocate.mode)?;
        let file = self.context.file(node)?.keeping_times();
        let offset = fallocate.offset;
        let length = fallocate.length;
        file.allocate(offset, length, what).map_err(|error| {
            // A failed request may have been done in part, which the kernel does not expect. The
            // error is ignored: after the mount has ended, nothing is cached.
            let stale = Invalidation::Contents { offset, length: Some(length) };
            let _ = self.context.notifier().invalidate_inode(node, stale);
            errno(error)
        })
    }

    pub(crate) fn lseek(&self, node: NodeId, lseek: &Lseek) -> Result<Position, Errno> {
        let offset = u64::try_from(lseek.offset).map_err(|_| Errno::NXIO)?;
        if self.context.is_writable {
            let rest = Invalidation::Contents { offset, length: None };
            self.context.notifier().invalidate_inode(node, rest)?;
        }
        let file = self.context.file(node)?;
        let found = match lseek.whence {
            Whence::Data => file.seek_data(offset),
            Whence::Hole => file.seek_hole(offset),
        };
        found.map(Position).map_err(errno)
    }

    pub(crate) fn copy_file_range(
        &self,
        request: &Request,
        copy: &CopyFileRange,
    ) -> Result<Copied, Errno> {
        if copy.flags != 0 {
            return Err(Errno::INVAL);
        }
        let source = self.context.file(request.node)?;
        let target = self.context.file(copy.target)?.keeping_times();
        let copied = copied(&source, &target, copy).map_err(errno)?;
        // The request does not hold the flags of the open file.
        let number = self.context.ids.shown(target.inode().id())?;
        if rights::writes_durably(&request.caller, number) {
            target.sync_all().map_err(errno)?;
        }
        Ok(Copied(copied))
    }
}

/// Shares the first bytes of a range if that is possible, else copies them; returns how many. The
/// caller asks again for the rest.
fn copied(
    source: &File,
    target: &File,
    copy: &CopyFileRange,
) -> userbtrfs_engine::api::Result<u64> {
    let from = copy.offset;
    let to = copy.target_offset;
    match target.share_from(source, from, to, copy.length.min(SHARE_MAX))? {
        0 => target.copy_from(source, from, to, copy.length.min(COPY_MAX)),
        shared => Ok(shared),
    }
}

/// Writes all bytes. Fails if there is space for only the first of them: the kernel takes any other
/// answer to a write of cached data for complete success, and the loss would go unreported.
fn write_all(file: &File, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = file.write_back_at(bytes, offset).map_err(errno)?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Returns the bytes of a range, up to the end of the file.
fn found(file: &File, offset: u64, size: u32) -> Result<Found, Errno> {
    let mut slices = Vec::new();
    let mut at = offset;
    let end = offset + u64::from(size);
    while at < end {
        let Some(slice) = file.held(at) else { break };
        let slice = slice.first(end - at);
        at += slice.len() as u64;
        slices.push(slice);
    }
    let mut rest = Vec::new();
    if at < end && at < file.len() {
        let left = file.len().saturating_sub(at).min(end - at);
        rest.resize(usize::try_from(left).expect("no more than is asked for"), 0);
        let read = may_sleep(|| file.read_at(&mut rest, at)).map_err(errno)?;
        rest.truncate(read);
    }
    Ok(Found { slices, rest })
}

fn allocation(mode: FallocateFlags) -> Result<Allocate, Errno> {
    let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
    let what = mode.difference(FallocateFlags::KEEP_SIZE);
    match what {
        _ if what.is_empty() => Ok(Allocate::Reserve { keep_size }),
        FallocateFlags::ZERO_RANGE => Ok(Allocate::ZeroRange { keep_size }),
        FallocateFlags::PUNCH_HOLE if keep_size => Ok(Allocate::PunchHole),
        _ => Err(Errno::OPNOTSUPP),
    }
}
