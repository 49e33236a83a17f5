//! Ioctls: the flags of inodes in both of Linux's forms, commits, the queries of btrfs tools, the
//! changes of subvolumes, and the shutdown.
//!
//! 1. The kernel first checks an ioctl that changes flags: whether the caller may change them, and
//!    which of them. It recognizes the ioctl by the whole command, direction and size included: any
//!    other command arrives here unchecked, and is not supported. (The kernel converts the commands
//!    of 32-bit programs to these.) Before Linux 5.13 it checked nothing: there, setting flags
//!    fails.
//! 2. Each ioctl of btrfs but SPACE_INFO (`space`) has one form, with the size that
//!    `linux/btrfs.h` defines. FUSE passes that number of bytes, only in the direction that the
//!    command encodes. The rights of its caller are checked here.

mod commits;
mod defragment;
mod info;
mod path;
mod record;
mod resize;
mod roots;
mod search;
mod space;
mod subvolume;

use record::{Answer, Reader};
use subvolume::SubvolumeIoctls;
use userbtrfs_engine::api::{Filesystem, Inode, InodeFlags};
use userbtrfs_fuse::{Caller, Errno, Invalidation, Ioctl, NodeId, Request};
use userbtrfs_sync::atomic::AtomicBool;

use crate::context::Context;
use crate::errno;
use crate::rights::admit;
use crate::shutdown;
use crate::sync::SyncOps;

/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`: declared with a long, of which the lower word is used.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`.
const GET_EXTENDED: u32 = 0x801c_581f;
const SET_EXTENDED: u32 = 0x401c_5820;

/// The ioctls of btrfs: `BTRFS_IOC_SYNC`, `BTRFS_IOC_TREE_SEARCH`, ...
const SYNC: u32 = 0x9408;
const TREE_SEARCH: u32 = 0xd000_9411;
const INO_LOOKUP: u32 = 0xd000_9412;
const DEV_INFO: u32 = 0xd000_941e;
const FS_INFO: u32 = 0x8400_941f;
const GET_SUBVOL_INFO: u32 = 0x81f8_943c;
const GET_SUBVOL_ROOTREF: u32 = 0xd000_943d;
const INO_LOOKUP_USER: u32 = 0xd000_943e;
const RESIZE: u32 = 0x5000_9403;
const DEFRAG: u32 = 0x5000_9402;
const DEFRAG_RANGE: u32 = 0x4030_9410;
const SNAP_CREATE: u32 = 0x5000_9401;
const SUBVOL_CREATE: u32 = 0x5000_940e;
const SNAP_DESTROY: u32 = 0x5000_940f;
const DEFAULT_SUBVOL: u32 = 0x4008_9413;
const WAIT_SYNC: u32 = 0x4008_9416;
const SNAP_CREATE_V2: u32 = 0x5000_9417;
const SUBVOL_CREATE_V2: u32 = 0x5000_9418;
const START_SYNC: u32 = 0x8008_9418;
const SUBVOL_GETFLAGS: u32 = 0x8008_9419;
const SUBVOL_SETFLAGS: u32 = 0x4008_941a;
const SNAP_DESTROY_V2: u32 = 0x5000_943f;
const SUBVOL_SYNC_WAIT: u32 = 0x4010_9441;

/// `FS_IOC_GETFSLABEL`, `FS_IOC_SETFSLABEL`, and the size of their argument.
const GET_LABEL: u32 = 0x8100_9431;
const SET_LABEL: u32 = 0x4100_9432;
const LABEL_BYTES: usize = 256;

/// `FITRIM`, of a start, a length and a minimum length.
const TRIM: u32 = 0xc018_5879;

/// The size of `struct fsxattr`: the flags are first, then fields that btrfs does not use.
const EXTENDED_BYTES: usize = 28;

/// Inode flags, as `FS_*_FL` and, if it exists, as `FS_XFLAG_*` (`linux/fs.h`).
const FLAGS: &[(InodeFlags, u32, u32)] = &[
    (InodeFlags::SYNC, 0x8, 0x20),
    (InodeFlags::IMMUTABLE, 0x10, 0x8),
    (InodeFlags::APPEND, 0x20, 0x10),
    (InodeFlags::NODUMP, 0x40, 0x80),
    (InodeFlags::NOATIME, 0x80, 0x40),
    (InodeFlags::DIRSYNC, 0x1_0000, 0),
    (InodeFlags::NODATACOW, 0x80_0000, 0),
    (InodeFlags::COMPRESS, 0x4, 0),
    (InodeFlags::NOCOMPRESS, 0x400, 0),
];
/// `FS_VERITY_FL`: shown, and never set by a caller.
const VERITY: u32 = 0x10_0000;

/// IOCTL.
pub(crate) struct IoctlOps<'a> {
    pub(crate) context: &'a Context,
}

impl IoctlOps<'_> {
    /// Returns whether an ioctl may wait so long that its caller may want to interrupt it.
    pub(crate) fn may_take_long(it: &Ioctl<'_>) -> bool {
        it.command == SUBVOL_SYNC_WAIT
    }

    /// Returns the answer. A long wait ends when `is_interrupted` is set.
    pub(crate) fn ioctl(
        &self,
        request: &Request,
        it: &Ioctl<'_>,
        is_interrupted: &AtomicBool,
    ) -> Result<Answer, Errno> {
        let inode = self.context.inode(request.node);
        let filesystem = &self.context.filesystem;
        match it.command {
            GET_SUBVOL_ROOTREF => roots::get_subvol_rootref(filesystem, &inode, it.input),
            SUBVOL_SYNC_WAIT => {
                commits::wait_for_deleted(filesystem, it.input, is_interrupted).map(Answer::from)
            }
            _ => self.of_inode(request, &inode, it).map(Answer::from),
        }
    }

    /// Answers the ioctls that other filesystems have too, and the commit.
    fn of_inode(&self, request: &Request, inode: &Inode, it: &Ioctl<'_>) -> Result<Vec<u8>, Errno> {
        match it.command {
            shutdown::COMMAND => shutdown::shut_down(self.context, &request.caller, it.argument),
            GET_FLAGS => Ok(shown(flags(inode)?).to_le_bytes().to_vec()),
            SET_FLAGS | SET_EXTENDED if !self.context.kernel_checks_flags() => Err(Errno::NOTTY),
            SET_FLAGS => {
                let flags = of_shown(inode, first_word(it.input)?)?;
                self.set_flags(request.node, inode, InodeFlags::all(), flags)
            }
            GET_EXTENDED => {
                let mut bytes = extended(flags(inode)?).to_le_bytes().to_vec();
                bytes.resize(EXTENDED_BYTES, 0);
                Ok(bytes)
            }
            SET_EXTENDED => {
                let (which, flags) = of_extended(it.input)?;
                self.set_flags(request.node, inode, which, flags)
            }
            SYNC => SyncOps { context: self.context }.sync_all().map(|()| Vec::new()),
            _ => self.of_btrfs(request, inode, it),
        }
    }

    /// Sets the flags in `which` to their values in `new`.
    fn set_flags(
        &self,
        node: NodeId,
        inode: &Inode,
        which: InodeFlags,
        new: InodeFlags,
    ) -> Result<Vec<u8>, Errno> {
        let added = new.difference(flags(inode)?);
        if added.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            // Data that was written before the flags forbid it is sent now. The kernel holds the
            // lock of the inode, so that nothing is written meanwhile.
            let all = Invalidation::Contents { offset: 0, length: None };
            self.context.notifier().invalidate_inode(node, all)?;
        }
        inode.set_some_flags(which, new).map_err(errno)?;
        // The ctime has changed, which the kernel itself keeps only for files.
        self.context.notifier().invalidate_inode(node, Invalidation::Attributes)?;
        Ok(Vec::new())
    }

    /// Answers the ioctls that only btrfs has.
    fn of_btrfs(&self, request: &Request, inode: &Inode, it: &Ioctl<'_>) -> Result<Vec<u8>, Errno> {
        let Context { filesystem, device, .. } = self.context;
        let subvolumes = SubvolumeIoctls { context: self.context, caller: &request.caller, inode };
        match it.command {
            SNAP_CREATE => subvolumes.snapshot(it.input),
            SNAP_CREATE_V2 => subvolumes.snapshot_v2(it.input),
            SUBVOL_CREATE => subvolumes.create(it.input),
            SUBVOL_CREATE_V2 => subvolumes.create_v2(it.input),
            SNAP_DESTROY => subvolumes.delete(it.input),
            SNAP_DESTROY_V2 => subvolumes.delete_v2(it.input),
            DEFAULT_SUBVOL => subvolumes.set_default(it.input),
            SUBVOL_GETFLAGS => subvolumes.flags(),
            SUBVOL_SETFLAGS => subvolumes.set_flags(it.input),
            START_SYNC => commits::start_sync(filesystem),
            WAIT_SYNC => commits::wait_sync(filesystem, it.input),
            INO_LOOKUP_USER => roots::ino_lookup_user(filesystem, &request.caller, inode, it.input),
            TREE_SEARCH => search::tree_search(filesystem, &request.caller, inode, it.input),
            INO_LOOKUP => search::ino_lookup(filesystem, &request.caller, inode, it.input),
            _ if space::is_space_info(it.command) => space::space_info(filesystem, it.input),
            DEV_INFO => info::dev_info(filesystem, device, it.input),
            FS_INFO => info::fs_info(filesystem),
            GET_SUBVOL_INFO => info::get_subvol_info(filesystem, inode),
            GET_LABEL => {
                let mut label = filesystem.superblock().label.clone();
                label.resize(LABEL_BYTES, 0);
                Ok(label)
            }
            RESIZE => resize::resize(filesystem, &request.caller, it.input),
            DEFRAG => defragment::defragment(self.context, &request.caller, inode, None),
            DEFRAG_RANGE => {
                defragment::defragment(self.context, &request.caller, inode, Some(it.input))
            }
            TRIM => trim(filesystem, &request.caller, it.input),
            SET_LABEL => set_label(filesystem, &request.caller, it.input),
            _ => Err(Errno::NOTTY),
        }
    }
}

/// Discards free space, and returns the request with the number of bytes as its length.
fn trim(filesystem: &Filesystem, caller: &Caller, input: &[u8]) -> Result<Vec<u8>, Errno> {
    admit(caller)?;
    let mut reader = Reader(input);
    let start = reader.u64()?;
    let len = reader.u64()?;
    let len_min = reader.u64()?;
    let range = start..start.saturating_add(len);
    let bytes = filesystem.trim(range, len_min).map_err(errno)?;
    let words = [start, bytes, len_min].map(u64::to_le_bytes);
    Ok(words.concat())
}

/// Sets the label, durably. It is the text before the first NUL, of which there is one.
fn set_label(filesystem: &Filesystem, caller: &Caller, input: &[u8]) -> Result<Vec<u8>, Errno> {
    admit(caller)?;
    let label = input.split(|byte| *byte == 0).next().unwrap_or_default();
    if label.len() == input.len() {
        return Err(Errno::INVAL);
    }
    filesystem.set_label(label).map_err(errno)?;
    Ok(Vec::new())
}

fn first_word(input: &[u8]) -> Result<u32, Errno> {
    let word = input.first_chunk().ok_or(Errno::INVAL)?;
    Ok(u32::from_le_bytes(*word))
}

fn flags(inode: &Inode) -> Result<InodeFlags, Errno> {
    Ok(inode.metadata().map_err(errno)?.flags)
}

fn shown(flags: InodeFlags) -> u32 {
    let set = FLAGS.iter().filter(|(flag, ..)| flags.contains(*flag)).map(|(_, shown, _)| shown);
    let verity = if flags.contains(InodeFlags::VERITY) { VERITY } else { 0 };
    let all = set.fold(verity, |all, shown| all | shown);
    // Linux shows only one of the two.
    let compress = 0x4;
    let no_compress = 0x400;
    if all & no_compress != 0 { all & !compress } else { all }
}

fn extended(flags: InodeFlags) -> u32 {
    let set = FLAGS.iter().filter(|(flag, ..)| flags.contains(*flag));
    set.fold(0, |all, (_, _, extended)| all | extended)
}

/// Returns the flags that an inode gets if these `FS_*_FL` are requested.
fn of_shown(inode: &Inode, wanted: u32) -> Result<InodeFlags, Errno> {
    let known = FLAGS.iter().fold(VERITY, |all, (_, shown, _)| all | shown);
    if wanted & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let set = FLAGS.iter().filter(|(_, shown, _)| wanted & shown != 0);
    let mut flags = set.fold(InodeFlags::empty(), |all, (flag, ..)| all | *flag);
    let metadata = inode.metadata().map_err(errno)?;
    if metadata.is_file() && metadata.size > 0 {
        let compression = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS;
        let is_compressed = (flags | metadata.flags).intersects(compression);
        if flags.contains(InodeFlags::NODATACOW) && is_compressed {
            return Err(Errno::INVAL);
        }
        // NODATACOW of a file can be changed only while it is empty; Linux ignores it silently.
        flags.set(InodeFlags::NODATACOW, metadata.flags.contains(InodeFlags::NODATACOW));
    }
    Ok(flags)
}

/// Returns the flags that a `struct fsxattr` can express, and those of them that it sets.
fn of_extended(input: &[u8]) -> Result<(InodeFlags, InodeFlags), Errno> {
    let mut reader = Reader(input);
    let wanted = reader.u32()?;
    let extent_size = reader.u32()?;
    let _extents = reader.u32()?;
    // The project id, and the extent size hint of cloned extents.
    if [extent_size, reader.u32()?, reader.u32()?] != [0; 3] {
        return Err(Errno::OPNOTSUPP);
    }
    let with_form = FLAGS.iter().filter(|(.., extended)| *extended != 0);
    let known = with_form.clone().fold(0, |all, (.., extended)| all | extended);
    if wanted & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let mut which = InodeFlags::empty();
    let mut flags = InodeFlags::empty();
    for (flag, _, extended) in with_form {
        which |= *flag;
        flags.set(*flag, wanted & extended != 0);
    }
    Ok((which, flags))
}
