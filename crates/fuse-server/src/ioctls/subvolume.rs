//! Creates and deletes subvolumes, makes snapshots, sets the default subvolume, and reads and sets
//! the read-only flag.
//!
//! `struct btrfs_ioctl_vol_args` and `btrfs_ioctl_vol_args_v2` of `linux/btrfs.h`.
//!
//! 1. The kernel checks no permission for an ioctl: all that Linux's btrfs checks is checked here,
//!    in its order, since that decides which error a caller gets.
//! 2. A snapshot's source is a descriptor of the caller. It is looked up in `/proc`, and must be in
//!    the same mount. A server that may not look there refuses with EPERM.
//! 3. Quota groups are not supported: their argument is not passed on by FUSE.

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use userbtrfs_engine::api::{Dir, Error, Inode, InodeId, SubvolumeInfo, TreeId};
use userbtrfs_fuse::{Caller, Errno, NodeId, STATX_DONT_SYNC};

use super::record::Reader;
use crate::context::Context;
use crate::errno;
use crate::permissions::{self, SEARCH, WRITE};
use crate::rights;
use crate::subvolumes::SubvolumeOps;

/// `BTRFS_SUBVOL_RDONLY`, `_SPEC_BY_ID`.
const READ_ONLY: u64 = 1 << 1;
const BY_ID: u64 = 1 << 4;

/// The permissions that are requested for a new subvolume, without the umask.
const MODE: u32 = 0o777;

/// The first id of a subvolume other than the top level.
const FIRST_ID: u64 = 256;

/// The bytes of a new version's arguments that only quota groups use.
const QUOTA_BYTES: usize = 32;

/// The changes of subvolumes in a directory, or of the subvolume with this root directory.
pub(super) struct SubvolumeIoctls<'a> {
    pub(super) context: &'a Context,
    pub(super) caller: &'a Caller,
    pub(super) inode: &'a Inode,
}

/// The new version of the arguments.
struct Arguments<'a> {
    descriptor: u64,
    flags: u64,
    /// The bytes of the name, or the id.
    subject: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// Parses arguments, of which `known` are the flags.
    fn parse(input: &'a [u8], known: u64) -> Result<Self, Errno> {
        let mut reader = Reader(input);
        let descriptor = reader.u64()?;
        let _transaction = reader.u64()?;
        let flags = reader.u64()?;
        let _quota = reader.array::<QUOTA_BYTES>()?;
        let arguments = Self { descriptor, flags, subject: reader.0 };
        if flags & BY_ID == 0 {
            terminated(arguments.subject)?;
        }
        if flags & !known == 0 { Ok(arguments) } else { Err(Errno::OPNOTSUPP) }
    }
}

/// Returns the text before the first NUL.
fn terminated(field: &[u8]) -> Result<&[u8], Errno> {
    let end = field.iter().position(|byte| *byte == 0).ok_or(Errno::NAMETOOLONG)?;
    Ok(&field[..end])
}

impl SubvolumeIoctls<'_> {
    /// Creates a subvolume in the directory.
    pub(super) fn create(&self, input: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut reader = Reader(input);
        let _descriptor = reader.u64()?;
        self.create_at(terminated(reader.0)?)
    }

    /// Creates a subvolume in the directory, by the new version of the arguments. As in Linux, the
    /// read-only flag has no effect.
    pub(super) fn create_v2(&self, input: &[u8]) -> Result<Vec<u8>, Errno> {
        self.dir()?;
        self.create_at(terminated(Arguments::parse(input, READ_ONLY)?.subject)?)
    }

    fn create_at(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let dir = self.dir()?;
        self.check_new(&dir, name)?;
        let Caller { uid, gid, .. } = *self.caller;
        let dir = dir.for_owner(uid, gid).with_umask(rights::umask(self.caller));
        self.ops().create_in(&dir, name, MODE).map_err(errno)?;
        Ok(Vec::new())
    }

    /// Makes a snapshot in the directory.
    pub(super) fn snapshot(&self, input: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut reader = Reader(input);
        let descriptor = reader.u64()?;
        self.snapshot_at(descriptor, terminated(reader.0)?, false)
    }

    /// Makes a snapshot in the directory, by the new version of the arguments.
    pub(super) fn snapshot_v2(&self, input: &[u8]) -> Result<Vec<u8>, Errno> {
        self.dir()?;
        let arguments = Arguments::parse(input, READ_ONLY)?;
        let name = terminated(arguments.subject)?;
        self.snapshot_at(arguments.descriptor, name, arguments.flags & READ_ONLY != 0)
    }

    fn snapshot_at(&self, descriptor: u64, name: &[u8], read_only: bool) -> Result<Vec<u8>, Errno> {
        let dir = self.dir()?;
        self.check_writable()?;
        check_name(name)?;
        let source = self.opened(descriptor)?;
        if !rights::owns(self.caller, source.metadata().map_err(errno)?.uid) {
            return Err(Errno::PERM);
        }
        let subvolume = self.subvolume_at(&source)?;
        self.check_new(&dir, name)?;
        self.ops().snapshot_in(&dir, name, subvolume.id, read_only).map_err(errno)?;
        Ok(Vec::new())
    }

    /// Deletes a subvolume of the directory.
    pub(super) fn delete(&self, input: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut reader = Reader(input);
        let _descriptor = reader.u64()?;
        self.delete_named(terminated(reader.0)?)
    }

    /// Deletes a subvolume of the directory, or the one with an id, by the new version of the
    /// arguments.
    pub(super) fn delete_v2(&self, input: &[u8]) -> Result<Vec<u8>, Errno> {
        let arguments = Arguments::parse(input, BY_ID)?;
        if arguments.flags & BY_ID == 0 {
            return self.delete_named(terminated(arguments.subject)?);
        }
        let id = Reader(arguments.subject).u64()?;
        if id < FIRST_ID {
            return Err(Errno::INVAL);
        }
        self.check_writable()?;
        let found = self.context.filesystem.subvolume(TreeId(id)).map_err(errno)?;
        let (Some(subvolume), Some(number)) = (found.parent, found.dir) else {
            return Err(Errno::INVAL);
        };
        let dir = self.context.filesystem.inode(InodeId { subvolume, number });
        self.delete_at(&dir.open_dir().map_err(errno)?, &found.name)
    }

    fn delete_named(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.check_writable()?;
        if name == b".." || name.contains(&b'/') {
            return Err(Errno::INVAL);
        }
        self.delete_at(&self.dir()?, name)
    }

    fn delete_at(&self, dir: &Dir, name: &[u8]) -> Result<Vec<u8>, Errno> {
        permissions::check(self.caller, dir.inode(), SEARCH)?;
        if matches!(name, b"" | b".") {
            return Err(Errno::ACCESS);
        }
        let child = dir.lookup(name).map_err(errno)?;
        self.check_deletion(dir, &child)?;
        match self.ops().delete_in(dir, name) {
            Err(Error::NoSubvolume) => Err(Errno::INVAL),
            deleted => deleted.map(|_| Vec::new()).map_err(errno),
        }
    }

    /// Fails unless the caller may delete what is in a directory as a subvolume: with all rights,
    /// or, if the mount permits that, with those to change both directories.
    fn check_deletion(&self, dir: &Dir, child: &Inode) -> Result<(), Errno> {
        if !rights::has_all(self.caller) {
            if !self.context.users_delete_subvolumes {
                return Err(Errno::PERM);
            }
            if child.id().subvolume == self.inode.id().subvolume {
                return Err(Errno::INVAL);
            }
            permissions::check(self.caller, child, WRITE | SEARCH)?;
        }
        permissions::check_removal(self.caller, dir.inode(), child)?;
        child.open_dir().map(drop).map_err(errno)
    }

    /// Sets the default subvolume; 0 is the top level.
    pub(super) fn set_default(&self, input: &[u8]) -> Result<Vec<u8>, Errno> {
        rights::admit(self.caller)?;
        self.check_writable()?;
        let id = match Reader(input).u64()? {
            0 => TreeId::FS,
            id => TreeId(id),
        };
        self.context.filesystem.set_default_subvolume(id).map_err(errno)?;
        Ok(Vec::new())
    }

    /// Returns the flags of the subvolume whose root directory is the inode.
    pub(super) fn flags(&self) -> Result<Vec<u8>, Errno> {
        let flags = if self.subvolume_at(self.inode)?.is_read_only() { READ_ONLY } else { 0 };
        Ok(flags.to_le_bytes().to_vec())
    }

    /// Sets the flags of the subvolume whose root directory is the inode. Data that the kernel has
    /// is written before the subvolume becomes read-only.
    pub(super) fn set_flags(&self, input: &[u8]) -> Result<Vec<u8>, Errno> {
        if !rights::owns(self.caller, self.inode.metadata().map_err(errno)?.uid) {
            return Err(Errno::PERM);
        }
        self.check_writable()?;
        let subvolume = self.subvolume_at(self.inode)?;
        let flags = Reader(input).u64()?;
        if flags & !READ_ONLY != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let read_only = flags == READ_ONLY;
        if read_only && !subvolume.is_read_only() {
            self.context.write_back();
        }
        let filesystem = &self.context.filesystem;
        filesystem.set_subvolume_read_only(subvolume.id, read_only).map_err(errno)?;
        Ok(Vec::new())
    }

    /// Returns the inode of a descriptor of the caller.
    fn opened(&self, descriptor: u64) -> Result<Inode, Errno> {
        if !rights::knows_processes() {
            return Err(Errno::PERM);
        }
        // A descriptor is an int, which Linux takes from the lower half.
        let [a, b, c, d, ..] = descriptor.to_le_bytes();
        let number = u32::from_le_bytes([a, b, c, d]);
        let path = format!("/proc/{}/fd/{number}", self.caller.pid);
        // The kernel has attributes of an open inode; no request may be necessary for them.
        let flags = AtFlags::NO_AUTOMOUNT | STATX_DONT_SYNC;
        let found = statx(CWD, &path, flags, StatxFlags::INO).map_err(|error| match error {
            Errno::NOENT => Errno::INVAL,
            _ => Errno::PERM,
        })?;
        let device = makedev(found.stx_dev_major, found.stx_dev_minor);
        if self.context.number != Some(device) {
            return Err(Errno::XDEV);
        }
        Ok(self.context.inode(NodeId(found.stx_ino)))
    }

    fn subvolume_at(&self, inode: &Inode) -> Result<SubvolumeInfo, Errno> {
        self.context.filesystem.subvolume_at(inode).map_err(|error| match error {
            Error::NoSubvolume => Errno::INVAL,
            error => errno(error),
        })
    }

    /// Fails unless the caller may add this name to a directory.
    fn check_new(&self, dir: &Dir, name: &[u8]) -> Result<(), Errno> {
        self.check_writable()?;
        check_name(name)?;
        permissions::check(self.caller, dir.inode(), SEARCH)?;
        if name.is_empty() {
            return Err(Errno::ACCESS);
        }
        match dir.target(name) {
            Ok(_) => return Err(Errno::EXIST),
            Err(Error::NotFound) => {}
            Err(error) => return Err(errno(error)),
        }
        permissions::check(self.caller, dir.inode(), WRITE | SEARCH)
    }

    fn check_writable(&self) -> Result<(), Errno> {
        if self.context.filesystem.is_writable() { Ok(()) } else { Err(Errno::ROFS) }
    }

    fn dir(&self) -> Result<Dir, Errno> {
        self.inode.open_dir().map_err(errno)
    }

    fn ops(&self) -> SubvolumeOps<'_> {
        SubvolumeOps { context: self.context }
    }
}

/// Fails if a name cannot be that of a new subvolume.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"." | b".." => Err(Errno::EXIST),
        _ if name.contains(&b'/') => Err(Errno::INVAL),
        _ => Ok(()),
    }
}
