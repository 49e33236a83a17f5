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

use userbtrfs_engine::api::{Allocate, File, Inode, InodeFlags, Membership, Metadata, Slice};
use userbtrfs_fuse::{
    Bytes, Caller, Copied, CopyFileRange, Errno, Fallocate, FallocateFlags, Invalidation, Lseek,
    NodeId, OFlags, Position, Read, Reply, Whence, Write, Written, may_sleep, may_wait,
};

use crate::errno;
use crate::rights;
use crate::server::FuseServer;

/// The most bytes that one request copies: a caller may ask for a whole file, and must stay
/// interruptible while it waits.
const COPY_MAX: u64 = 16 << 20;

const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o0010;

/// The bytes of a read: slices of the cache, followed by a copy of the bytes that were not cached.
struct Found {
    slices: Vec<Slice>,
    rest: Vec<u8>,
}

impl FuseServer {
    pub(crate) fn file(&self, node: NodeId) -> Result<File, Errno> {
        self.inode(node).open().map_err(errno)
    }

    pub(crate) fn read_file(&self, node: NodeId, read: &Read, reply: Reply<Bytes>) {
        let file = may_sleep(|| self.file(node));
        match file.and_then(|file| found(&file, read.offset, read.size)) {
            Ok(Found { slices, rest }) => {
                let parts = slices.iter().map(|slice| &slice[..]).chain([&rest[..]]);
                reply.send_slices(&parts.map(IoSlice::new).collect::<Vec<_>>());
            }
            Err(error) => reply.fail(error),
        }
    }

    pub(crate) fn write_file(
        &self,
        (node, caller): (NodeId, &Caller),
        write: &Write<'_>,
        reply: Reply<Written>,
    ) {
        let written = may_sleep(|| self.written((node, caller), write));
        let count = u32::try_from(write.data.len()).expect("a message is short");
        let stale = match written {
            Ok(true) => Some(Invalidation::Attributes),
            Ok(false) => None,
            Err(reason) => {
                if write.from_cache {
                    self.refused.note(self.ids.inode(node), reason);
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
            let _ = may_wait(|| self.notifier().invalidate_inode(node, stale));
        }
    }

    /// Writes all the bytes. Returns whether the attributes that the kernel caches are stale.
    fn written(&self, (node, caller): (NodeId, &Caller), write: &Write<'_>) -> Result<bool, Errno> {
        let file = self.file(node)?;
        let lost_bits = write.kill_suid_sgid && drop_set_id(file.inode(), caller)?;
        write_all(&file, write.data, write.offset)?;
        if !write.from_cache && write.flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
            file.sync_all().map_err(errno)?;
        }
        Ok(self.recent_writes.note(file.inode().id()) || lost_bits)
    }

    pub(crate) fn allocate(&self, node: NodeId, fallocate: &Fallocate) -> Result<(), Errno> {
        let what = what_to_allocate(fallocate.mode)?;
        let file = self.file(node)?.keeping_times();
        let (offset, length) = (fallocate.offset, fallocate.length);
        file.allocate(offset, length, what).map_err(|error| {
            // A failed request may have been done in part, which the kernel does not expect. The
            // error is ignored: after the mount has ended, nothing is cached.
            let stale = Invalidation::Contents { offset, length: Some(length) };
            let _ = self.notifier().invalidate_inode(node, stale);
            errno(error)
        })
    }

    pub(crate) fn seek(&self, node: NodeId, lseek: &Lseek) -> Result<Position, Errno> {
        let offset = u64::try_from(lseek.offset).map_err(|_| Errno::NXIO)?;
        if self.is_writable {
            self.notifier()
                .invalidate_inode(node, Invalidation::Contents { offset, length: None })?;
        }
        let file = self.file(node)?;
        let found = match lseek.whence {
            Whence::Data => file.seek_data(offset),
            Whence::Hole => file.seek_hole(offset),
        };
        found.map(Position).map_err(errno)
    }

    pub(crate) fn copy(
        &self,
        (node, caller): (NodeId, &Caller),
        copy: &CopyFileRange,
    ) -> Result<Copied, Errno> {
        if copy.flags != 0 {
            return Err(Errno::INVAL);
        }
        let (source, target) = (self.file(node)?, self.file(copy.target)?.keeping_times());
        let length = copy.length.min(COPY_MAX);
        let copied = target.copy_from(&source, copy.offset, copy.target_offset, length);
        let copied = copied.map_err(errno)?;
        // The request does not hold the flags of the open file.
        if rights::writes_durably(caller, self.ids.shown(target.inode().id())?) {
            target.sync_all().map_err(errno)?;
        }
        Ok(Copied(copied))
    }
}

/// Clears the set-id bits of a file, unless it is immutable. Returns whether there were any.
fn drop_set_id(inode: &Inode, caller: &Caller) -> Result<bool, Errno> {
    let metadata = inode.metadata().map_err(errno)?;
    if metadata.flags.contains(InodeFlags::IMMUTABLE) {
        Err(Errno::PERM)
    } else {
        inode.drop_set_id(membership(caller, &metadata)).map_err(errno)
    }
}

/// Returns whether a caller belongs to the group of an inode, as far as its set-id bits depend on
/// that.
pub(crate) fn membership(caller: &Caller, metadata: &Metadata) -> Membership {
    let depends = metadata.mode & (SET_GROUP_ID | GROUP_EXECUTES) == SET_GROUP_ID;
    if depends && !rights::keeps_set_group_id(caller, metadata.gid) {
        Membership::Stranger
    } else {
        Membership::Member
    }
}

/// Writes all bytes. Fails if there is space for only the first of them: the kernel takes any other
/// answer to a write of cached data for complete success, and the loss would go unreported.
fn write_all(file: &File, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = file.write_back_at(bytes, offset).map_err(errno)?;
        (bytes, offset) = (&bytes[written..], offset + written as u64);
    }
    Ok(())
}

/// Returns the bytes of a range, up to the end of the file.
fn found(file: &File, offset: u64, size: u32) -> Result<Found, Errno> {
    let (mut slices, mut at, end) = (Vec::new(), offset, offset + u64::from(size));
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

fn what_to_allocate(mode: FallocateFlags) -> Result<Allocate, Errno> {
    let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
    let what = mode.difference(FallocateFlags::KEEP_SIZE);
    match what {
        _ if what.is_empty() => Ok(Allocate::Reserve { keep_size }),
        FallocateFlags::ZERO_RANGE => Ok(Allocate::ZeroRange { keep_size }),
        FallocateFlags::PUNCH_HOLE if keep_size => Ok(Allocate::PunchHole),
        _ => Err(Errno::OPNOTSUPP),
    }
}
