//! The options of a mount.

use std::ffi::{OsStr, OsString};

use bitflags::bitflags;
use rustix::mount::MountFlags as SystemFlags;

bitflags! {
    /// Mount flags, as in mount(8).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        /// Read-only.
        const READ_ONLY = 1 << 0;
        /// Set-user-id and capabilities of files are ignored. Always set by the helper.
        const NO_SUID = 1 << 1;
        /// Device nodes cannot be opened. Always set by the helper.
        const NO_DEV = 1 << 2;
        /// Programs cannot be executed.
        const NO_EXEC = 1 << 3;
        /// Reading does not update the time of access.
        const NO_ATIME = 1 << 4;
        /// Writes are synchronous.
        const SYNCHRONOUS = 1 << 5;
        /// Users other than the mounting one have access.
        const ALLOW_OTHER = 1 << 6;
        /// The kernel checks permissions by the attributes.
        const DEFAULT_PERMISSIONS = 1 << 7;
        /// Symbolic links are not followed. The helper may not know it.
        const NO_SYMLINK_FOLLOW = 1 << 8;
        /// Times are written with other changes of the inode. The helper may not know it.
        const LAZY_TIME = 1 << 9;
    }
}

impl MountFlags {
    /// Returns the flags of mount(2); those that only FUSE knows are left out.
    pub fn to_system(self) -> SystemFlags {
        let pairs = [
            (Self::READ_ONLY, SystemFlags::RDONLY),
            (Self::NO_SUID, SystemFlags::NOSUID),
            (Self::NO_DEV, SystemFlags::NODEV),
            (Self::NO_EXEC, SystemFlags::NOEXEC),
            (Self::NO_ATIME, SystemFlags::NOATIME),
            (Self::SYNCHRONOUS, SystemFlags::SYNCHRONOUS),
            (Self::NO_SYMLINK_FOLLOW, SystemFlags::NOSYMFOLLOW),
            (Self::LAZY_TIME, SystemFlags::LAZYTIME),
        ];
        pairs
            .into_iter()
            .filter(|(ours, _)| self.contains(*ours))
            .fold(SystemFlags::empty(), |all, (_, system)| all | system)
    }
}

/// How to mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MountMethod {
    /// Root mounts directly, other users through the helper.
    #[default]
    Auto,
    /// By mount(2), which requires root.
    Direct,
    /// By `fusermount3`.
    Helper,
}

/// Options of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// The source that the mount table shows: any text, or the path of the block device if
    /// `block_size` is given. If empty, the mount table shows the subtype.
    pub source: OsString,
    /// The type of filesystem: the mount table shows it as `fuse.SUBTYPE`. May be empty.
    pub subtype: String,
    /// Mounts the block device `source` as `fuseblk`, with this block size in bytes: a power of
    /// two between the block size of the device and the page size.
    pub block_size: Option<u32>,
    /// The mount flags.
    pub flags: MountFlags,
    /// The maximum size of a read in bytes, if lower than the limit of messages.
    pub max_read: Option<u32>,
    /// How to mount.
    pub method: MountMethod,
    /// Unmounts when this process ends, however it does: the helper mounts, and watches it. Not
    /// for block devices.
    pub auto_unmount: bool,
    /// Options of a security module, such as `context=`, which the kernel reads. The helper refuses
    /// them.
    pub security: Vec<String>,
}

impl MountOptions {
    /// Returns the source that the mount table shows. The kernel rejects an empty one.
    pub(super) fn shown_source(&self) -> &OsStr {
        match (self.source.as_os_str(), self.subtype.as_str()) {
            (source, "") if source.is_empty() => OsStr::new("fuse"),
            (source, subtype) if source.is_empty() => OsStr::new(subtype),
            (source, _) => source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_those_of_the_system() {
        let flags = MountFlags::READ_ONLY | MountFlags::NO_ATIME | MountFlags::ALLOW_OTHER;
        assert_eq!(flags.to_system(), SystemFlags::RDONLY | SystemFlags::NOATIME);
    }
}
