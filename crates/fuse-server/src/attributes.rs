//! Reads and sets attributes.
//!
//! 1. The kernel may cache attributes forever, except those of a file with data that is not on disk
//!    or that was written recently: the space that it takes is not known yet. The first write to a
//!    file invalidates its attributes. While a file may have an unreported write error, none are
//!    cached.
//! 2. Data that the kernel caches and has not written back is not known here, and is not counted in
//!    the blocks of a file. Some programs take a file without blocks for one hole, so on a writable
//!    filesystem a file shows at least one block.
//! 3. Times that the kernel does not send are taken from the server's coarse clock, as the kernel
//!    does for the writes that it caches.

use std::time::Duration;

use userbtrfs_engine::acl::{self, Acl};
use userbtrfs_engine::api::{self, Error, Inode, InodeFlags, InodeId, Metadata};
use userbtrfs_fuse::{
    Attributes, Caller, Changes, DeviceNumber, Entry, Errno, ExtendedStat, FOREVER, NewTime,
    NodeId, Request, Stat, Timestamp, may_sleep,
};

use crate::context::Context;
use crate::errno;
use crate::recent_writes::SOON;
use crate::rights;
use crate::set_id::membership;

const PERMISSIONS: u32 = 0o7777;
const SET_ID: u32 = 0o6000;

/// The preferred size of I/O, and the unit in which files take space.
const SECTOR: u32 = 4096;
/// The unit in which blocks are shown.
const BLOCK: u64 = 512;

/// GETATTR, STATX and SETATTR, and the attributes of other answers.
pub(crate) struct AttributeOps<'a> {
    pub(crate) context: &'a Context,
}

impl AttributeOps<'_> {
    /// Returns the attributes of an inode, requested for an open file if `has_handle`.
    pub(crate) fn getattr(&self, request: &Request, has_handle: bool) -> Result<Stat, Errno> {
        let id = self.context.ids.inode(request.node);
        if has_handle
            && self.context.unreported_errors.may_have(id)
            && let Some(reason) = may_sleep(|| self.unreported_error(&request.caller, id))
        {
            return Err(reason);
        }
        let at_once = self.context.filesystem.metadata_at_once(id);
        match at_once {
            Some(metadata) => self.stat(&metadata),
            None => may_sleep(|| self.stat_of(&self.context.inode(request.node))),
        }
    }

    /// Returns the attributes of an inode and the time of its birth.
    pub(crate) fn statx(&self, node: NodeId) -> Result<ExtendedStat, Errno> {
        let metadata = self.context.inode(node).metadata().map_err(errno)?;
        Ok(ExtendedStat { stat: self.stat(&metadata)?, born: Some(shown_time(metadata.created)) })
    }

    /// Returns the unreported write error of a file if the caller is writing to it.
    fn unreported_error(&self, caller: &Caller, file: InodeId) -> Option<Errno> {
        let is_writer = rights::is_writing(caller, self.context.ids.shown(file).ok()?);
        if is_writer { self.context.unreported_errors.take(file) } else { None }
    }

    fn stat_of(&self, inode: &Inode) -> Result<Stat, Errno> {
        self.stat(&inode.metadata().map_err(errno)?)
    }

    fn stat(&self, metadata: &Metadata) -> Result<Stat, Errno> {
        Ok(Stat { attributes: self.attributes(metadata)?, valid: self.validity(metadata) })
    }

    /// Returns the answer for a name of the inode with this metadata and node. Does not count a
    /// reference.
    pub(crate) fn entry(&self, metadata: &Metadata, node: NodeId) -> Result<Entry, Errno> {
        Ok(Entry {
            node,
            generation: metadata.generation,
            attributes: self.attributes(metadata)?,
            attributes_valid: self.validity(metadata),
            entry_valid: FOREVER,
        })
    }

    /// Returns how long the kernel may cache the attributes.
    fn validity(&self, metadata: &Metadata) -> Duration {
        let changes = || metadata.unfinished > 0 || self.context.recent_writes.has(metadata.id);
        match metadata.is_file() {
            true if self.context.unreported_errors.may_have(metadata.id) => Duration::ZERO,
            true if changes() => SOON,
            _ => FOREVER,
        }
    }

    fn attributes(&self, metadata: &Metadata) -> Result<Attributes, Errno> {
        let (major, minor) = metadata.device;
        Ok(Attributes {
            ino: self.context.ids.shown(metadata.id)?,
            size: metadata.size,
            blocks: blocks(metadata, self.context.is_writable),
            atime: shown_time(metadata.accessed),
            mtime: shown_time(metadata.modified),
            ctime: shown_time(metadata.changed),
            mode: metadata.mode,
            nlink: metadata.nlink,
            uid: metadata.uid,
            gid: metadata.gid,
            rdev: DeviceNumber { major, minor },
            block_size: SECTOR,
        })
    }

    /// Sets attributes.
    pub(crate) fn setattr(&self, request: &Request, changes: &Changes) -> Result<Stat, Errno> {
        let caller = &request.caller;
        let inode = self.context.inode(request.node);
        let says_nothing = Changes { ctime: None, handle: None, lock_owner: None, ..*changes }
            == Changes::default();
        if changes.kill_suid_sgid || says_nothing {
            let metadata = inode.metadata().map_err(errno)?;
            if says_nothing {
                check_may_say_nothing(&metadata, caller, changes)?;
            } else {
                check_mutable(&metadata)?;
            }
            // A write removes the capability of a file by an empty request; its caller may keep the
            // set-id bits if it has CAP_FSETID.
            let is_write = says_nothing && changes.ctime.is_none() && metadata.is_file();
            if !is_write || !rights::may_keep_set_id(caller) {
                inode.drop_set_id(membership(caller, &metadata)).map_err(errno)?;
            }
        }
        if let Some(modified) = touched(changes, &inode.metadata().map_err(errno)?) {
            inode.touch(api::now(), modified).map_err(errno)?;
            return self.stat_of(&inode);
        }
        let list = match changes.mode {
            Some(mode) => list_after(&inode, mode).map_err(errno)?,
            None => None,
        };
        let set = match list {
            Some(list) => inode.set_attributes_with(&wanted(changes), (acl::ACCESS, Some(&list))),
            None => inode.set_attributes(&wanted(changes)),
        };
        set.map_err(errno)?;
        if changes.size.is_some() {
            self.context.unreported_errors.forget(inode.id());
        }
        self.stat_of(&inode)
    }
}

/// Returns the time of modification if the request is that of touch(1) for an append-only inode:
/// both times, that of now, and nothing else.
///
/// The kernel itself keeps the time of modification of a file, and sends it.
fn touched(changes: &Changes, metadata: &Metadata) -> Option<api::Timestamp> {
    if !metadata.flags.contains(InodeFlags::APPEND) {
        return None;
    }
    let rest = Changes {
        atime: None,
        mtime: None,
        ctime: None,
        handle: None,
        lock_owner: None,
        ..*changes
    };
    let Some(NewTime::Now) = changes.atime else { return None };
    match changes.mtime? {
        _ if rest != Changes::default() => None,
        NewTime::Now => Some(api::now()),
        NewTime::At(at) => metadata.is_file().then(|| time(at)),
    }
}

/// Fails if the flags forbid a change of the owner or the size; called before the bits are cleared.
fn check_mutable(metadata: &Metadata) -> Result<(), Errno> {
    if metadata.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        Err(Errno::PERM)
    } else {
        Ok(())
    }
}

/// Fails if an empty change is a chown(2) that would clear set-id bits for a caller other than the
/// owner.
///
/// A chown(2) without a user and a group changes no attribute, but clears the set-id bits. Only the
/// owner may do that, which the kernel does not check. An empty change may also be part of a change
/// of the content that the kernel permitted: then the inode is a file, and there is no ctime, which
/// a chown of a file has.
fn check_may_say_nothing(
    metadata: &Metadata,
    caller: &Caller,
    changes: &Changes,
) -> Result<(), Errno> {
    let is_chown = changes.ctime.is_some() || !metadata.is_file();
    let has_set_id = !metadata.is_dir() && metadata.mode & SET_ID != 0;
    if is_chown && has_set_id && !rights::owns(caller, metadata.uid) {
        Err(Errno::PERM)
    } else {
        Ok(())
    }
}

/// Returns the access list that an inode gets with this mode; `None` if it has no valid one.
fn list_after(inode: &Inode, mode: u32) -> api::Result<Option<Vec<u8>>> {
    let list = match inode.xattr(acl::ACCESS) {
        Err(Error::NoAttribute) => return Ok(None),
        found => found?,
    };
    Ok(Acl::parse(&list).map(|acl| acl.with_mode(mode).to_bytes()))
}

fn wanted(changes: &Changes) -> api::Attributes {
    api::Attributes {
        mode: changes.mode.map(|mode| mode & PERMISSIONS),
        uid: changes.uid,
        gid: changes.gid,
        size: changes.size,
        accessed: changes.atime.map(new_time),
        modified: changes.mtime.map(new_time),
        changed: changes.ctime.map(time),
        created: None,
    }
}

fn blocks(metadata: &Metadata, is_writable: bool) -> u64 {
    let sector = u64::from(SECTOR);
    let whole = |bytes: u64| bytes.div_ceil(sector).saturating_mul(sector);
    let with_waiting = metadata.allocated.saturating_add(metadata.unfinished);
    let bytes = metadata.allocated.max(with_waiting.min(whole(metadata.size)));
    let least = u64::from(is_writable && metadata.is_file());
    (whole(bytes) / BLOCK).max(least)
}

fn new_time(new: NewTime) -> api::Timestamp {
    match new {
        NewTime::Now => api::now(),
        NewTime::At(at) => time(at),
    }
}

fn time(time: Timestamp) -> api::Timestamp {
    api::Timestamp { sec: time.seconds(), nsec: time.nanoseconds() }
}

/// Converts a time from the disk; invalid nanoseconds become zero.
fn shown_time(time: api::Timestamp) -> Timestamp {
    let whole = || Timestamp::new(time.sec, 0).expect("no nanoseconds");
    Timestamp::new(time.sec, time.nsec).unwrap_or_else(whole)
}
