//! The state of a mount that its operations share, and the inodes of its nodes.

use std::path::PathBuf;

use userbtrfs_engine::api::{Dir, File, Filesystem, Inode};
use userbtrfs_fuse::{Errno, InitFlags, Invalidation, Negotiated, NodeId, Notifier};
use userbtrfs_sync::OnceLock;

use crate::errno;
use crate::group::Member;
use crate::listing_ends::ListingEnds;
use crate::lookup_counts::LookupCounts;
use crate::node_ids::NodeIds;
use crate::recent_writes::RecentWrites;
use crate::unreported_errors::UnreportedErrors;

/// The state of a mount. The operations on it are in the files of their kinds.
pub(crate) struct Context {
    pub(crate) filesystem: Filesystem,
    /// The path of the device or the image, as shown to programs.
    pub(crate) device: PathBuf,
    /// The mount among those of the filesystem.
    pub(crate) member: Member,
    /// The device number that stat(2) shows for inodes of the mount, if it is known.
    pub(crate) number: Option<u64>,
    /// Whether users without rights may delete subvolumes by ioctl, if they own them.
    pub(crate) users_delete_subvolumes: bool,
    /// Whether it was opened for writing.
    pub(crate) is_writable: bool,
    pub(crate) ids: NodeIds,
    pub(crate) lookup_counts: LookupCounts,
    pub(crate) recent_writes: RecentWrites,
    pub(crate) listing_ends: ListingEnds,
    pub(crate) unreported_errors: UnreportedErrors,
    notifier: OnceLock<Notifier>,
    /// Whether the kernel checks the rights of a caller that sets the flags of an inode.
    checks_flags: OnceLock<bool>,
}

/// The parts of a mount that its caller knows.
pub(crate) struct Settings {
    pub(crate) device: PathBuf,
    pub(crate) member: Member,
    pub(crate) number: Option<u64>,
    pub(crate) users_delete_subvolumes: bool,
}

impl Context {
    pub(crate) fn new(filesystem: Filesystem, settings: Settings) -> Self {
        let Settings { device, member, number, users_delete_subvolumes } = settings;
        Self {
            device,
            member,
            number,
            users_delete_subvolumes,
            is_writable: filesystem.is_writable(),
            ids: NodeIds::new(filesystem.root().inode().id()),
            filesystem,
            lookup_counts: LookupCounts::default(),
            recent_writes: RecentWrites::default(),
            listing_ends: ListingEnds::default(),
            unreported_errors: UnreportedErrors::default(),
            notifier: OnceLock::new(),
            checks_flags: OnceLock::new(),
        }
    }

    /// Records the agreement with the kernel, before the first request.
    pub(crate) fn init(&self, agreement: &Negotiated, notifier: Notifier) {
        assert!(self.notifier.set(notifier).is_ok(), "a mount begins once");
        // SETXATTR_EXT and the check both came with Linux 5.13.
        let checks_flags = agreement.offered.contains(InitFlags::SETXATTR_EXT);
        assert!(self.checks_flags.set(checks_flags).is_ok(), "a mount begins once");
    }

    /// Returns the inode of a node.
    pub(crate) fn inode(&self, node: NodeId) -> Inode {
        self.filesystem.inode(self.ids.inode(node))
    }

    /// Returns the directory of a node.
    pub(crate) fn dir(&self, node: NodeId) -> Result<Dir, Errno> {
        self.inode(node).open_dir().map_err(errno)
    }

    /// Returns the file of a node.
    pub(crate) fn file(&self, node: NodeId) -> Result<File, Errno> {
        self.inode(node).open().map_err(errno)
    }

    /// Returns the sender of invalidations to the kernel.
    pub(crate) fn notifier(&self) -> &Notifier {
        self.notifier.get().expect("set before the first request")
    }

    /// Returns whether the kernel checks which flags of an inode a caller may set.
    pub(crate) fn kernel_checks_flags(&self) -> bool {
        self.checks_flags.get().is_some_and(|checks| *checks)
    }

    /// Makes the kernel write back all data that it caches, and waits for that. A thread that
    /// serves requests must call it in `may_wait`.
    pub(crate) fn write_back(&self) {
        if !self.is_writable {
            return;
        }
        let all = Invalidation::Contents { offset: 0, length: None };
        for node in self.lookup_counts.nodes() {
            // A failed write is reported to its writer.
            let _ = self.notifier().invalidate_inode(node, all);
        }
    }
}
