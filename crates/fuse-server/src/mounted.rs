//! The lifetime of a mount.
//!
//! 1. When a mount ends, for whatever reason, everything is made durable: for a block device that
//!    is mounted as such, by the kernel's last request, which umount(8) waits for; otherwise by
//!    [`Mounted::end`], after the kernel has released the mount. From then on, an opener of the
//!    image waits until the filesystem is closed.
//! 2. After a crash of the server, the image holds what was synced.
//! 3. After a shutdown of the filesystem, the end writes nothing, and is no error.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;
use userbtrfs_engine::api::{self, Filesystem};
use userbtrfs_fuse::{Config, InitFlags, Mount, MountError, NodeId, Opcode, Session, SessionError};
use userbtrfs_sync::Arc;

use crate::context::Settings;
use crate::group::MountGroup;
use crate::server::FuseServer;
use crate::subvolumes::SubvolumeOps;

/// The options for serving a filesystem.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The number of threads that receive requests; by default the number of processors.
    pub threads: Option<usize>,
    /// The path of the device or the image file, as shown to programs.
    pub device: PathBuf,
    /// The mounts that share the filesystem.
    pub group: MountGroup,
    /// Whether users without rights may delete subvolumes by ioctl, if they own them (Linux:
    /// `user_subvol_rm_allowed`).
    pub users_delete_subvolumes: bool,
}

/// A filesystem that is mounted and served.
pub struct Mounted {
    /// Declared before `served`, to which it has a reference, so that it is dropped first.
    session: Arc<Session>,
    served: Arc<FuseServer>,
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted").finish_non_exhaustive()
    }
}

/// A handle that ends a mount, from any thread except those that serve it. It must be dropped
/// before [`Mounted::end`], which otherwise leaves the filesystem open, though durable.
#[derive(Clone)]
pub struct UnmountHandle {
    session: Arc<Session>,
    served: Arc<FuseServer>,
}

impl fmt::Debug for UnmountHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnmountHandle").finish_non_exhaustive()
    }
}

/// A handle that reads the state of a mount while it is served. It must be dropped before
/// [`Mounted::end`], like an [`UnmountHandle`].
#[derive(Clone)]
pub struct StatsHandle {
    session: Arc<Session>,
    served: Arc<FuseServer>,
}

impl fmt::Debug for StatsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsHandle").finish_non_exhaustive()
    }
}

/// An error at the start of a mount.
#[derive(Debug, Error)]
pub enum StartError {
    /// The last mount of the group has ended: the filesystem is closing.
    #[error("is being unmounted")]
    Closing,
    /// The filesystem could not be served.
    #[error(transparent)]
    Session(#[from] userbtrfs_fuse::StartError),
}

impl StartError {
    /// Returns the error number for a caller that reports numbers.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Closing => Errno::BUSY,
            Self::Session(_) => Errno::IO,
        };
        errno.raw_os_error()
    }
}

/// An error at the end of a mount.
#[derive(Debug, Error)]
pub enum EndError {
    /// The filesystem could not be made durable, or not all of it.
    #[error(transparent)]
    Filesystem(#[from] api::Error),
    /// The filesystem could not be served to the end. It is durable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl EndError {
    /// Returns the error number for a caller that reports numbers.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Filesystem(error) => error.errno(),
            Self::Session(_) => Errno::IO.raw_os_error(),
        }
    }
}

impl Mounted {
    /// Starts to serve a filesystem. When this returns, it can be used.
    pub fn start(
        mount: Mount,
        filesystem: Filesystem,
        options: &Options,
    ) -> Result<Self, StartError> {
        let member = options.group.join().ok_or(StartError::Closing)?;
        let settings = Settings {
            device: options.device.clone(),
            member,
            number: mount.number(),
            users_delete_subvolumes: options.users_delete_subvolumes,
        };
        let served = Arc::new(FuseServer::new(filesystem, settings));
        let mut config = Config { flags: InitFlags::LOCAL_DISK, ..Config::default() };
        config.threads = options.threads.unwrap_or(config.threads);
        let server = Arc::clone(&served);
        let session = Arc::new(Session::start(mount, server, &config)?);
        Ok(Self { session, served })
    }

    /// Returns the mount point.
    pub fn point(&self) -> &Path {
        self.session.point()
    }

    /// Returns the device number of the mount, as stat(2) shows it; `None` if it could not be
    /// found.
    pub fn number(&self) -> Option<u64> {
        self.session.number()
    }

    /// Returns the number of requests of a kind.
    pub fn requests(&self, opcode: Opcode) -> u64 {
        self.session.requests(opcode)
    }

    /// Returns a handle that reads the state of the mount.
    pub fn stats_handle(&self) -> StatsHandle {
        StatsHandle { session: Arc::clone(&self.session), served: Arc::clone(&self.served) }
    }

    /// Returns a handle that ends the mount.
    pub fn unmount_handle(&self) -> UnmountHandle {
        UnmountHandle { session: Arc::clone(&self.session), served: Arc::clone(&self.served) }
    }

    /// Waits until it is unmounted or stopped; some requests may still be in progress. The caller
    /// then calls [`Mounted::end`], which an opener of the image already waits for if this was the
    /// last mount of its group. Another mount of the group is refused from then on.
    pub fn wait(&self) {
        self.session.wait_over();
        self.served.leave_group();
    }

    /// Waits until it is unmounted or stopped, and makes everything durable: what [`Mounted::end`]
    /// does that takes long, which returns the error of this, too.
    pub fn finish(&self) {
        // `end` returns the same error.
        let _ = self.session.wait();
        self.served.finish();
    }

    /// Waits until it is unmounted or stopped, makes everything durable, and closes.
    pub fn end(self) -> Result<(), EndError> {
        let ended = self.session.wait();
        self.served.finish();
        let finished = self.served.take_failure();
        drop(self.session);
        // Threads may be left that refuse the requests of processes that still have files open.
        if let Some(served) = Arc::into_inner(self.served) {
            let is_shut_down = served.context.filesystem.is_shut_down();
            match served.context.filesystem.close() {
                Err(_) if is_shut_down => {}
                closed => closed?,
            }
        }
        finished?;
        Ok(ended?)
    }
}

impl StatsHandle {
    /// Returns the filesystem.
    pub fn filesystem(&self) -> &Filesystem {
        &self.served.context.filesystem
    }

    /// Returns the path of the device or the image file, as shown to programs.
    pub fn device(&self) -> &Path {
        &self.served.context.device
    }

    /// Returns the handle on the inode with this number in the mount. If it does not exist, the
    /// first use reports that.
    pub fn inode(&self, number: u64) -> api::Inode {
        self.served.context.inode(NodeId(number))
    }

    /// Creates an empty subvolume in the directory with this inode number in the mount.
    pub fn create_subvolume(&self, dir: u64, name: &[u8]) -> api::Result<()> {
        self.subvolumes().create(dir, name)
    }

    /// Makes a snapshot of the subvolume whose root directory has the inode number `source` in the
    /// mount, in the directory `dir`. It has all that programs wrote before the call.
    pub fn snapshot(&self, source: u64, dir: u64, name: &[u8], read_only: bool) -> api::Result<()> {
        self.subvolumes().snapshot(source, dir, name, read_only)
    }

    /// Deletes a subvolume of the directory with this inode number, with its content. Its open
    /// files can still be used. Returns its id.
    pub fn delete_subvolume(&self, dir: u64, name: &[u8]) -> api::Result<api::TreeId> {
        self.subvolumes().delete(dir, name)
    }

    /// Returns the subvolume whose root directory has this inode number in the mount.
    pub fn subvolume_at(&self, number: u64) -> api::Result<api::SubvolumeInfo> {
        self.subvolumes().at(number)
    }

    /// Defragments the file with this inode number in the mount; returns the number of bytes
    /// rewritten. Data that only the kernel has is not rewritten.
    pub fn defragment(&self, number: u64, request: &api::Defragment) -> api::Result<u64> {
        let context = &self.served.context;
        let node = NodeId(number);
        context.inode(node).open()?.defragment(request)
    }

    /// Returns the subvolume that contains the inode with this number in the mount.
    pub fn subvolume_of(&self, number: u64) -> api::Result<api::SubvolumeInfo> {
        self.subvolumes().containing(number)
    }

    /// Deletes the subvolume with this id like [`delete_subvolume`](Self::delete_subvolume), and
    /// returns its path from the top level.
    pub fn delete_subvolume_by_id(&self, id: api::TreeId) -> api::Result<Vec<u8>> {
        self.subvolumes().delete_by_id(id)
    }

    /// Makes the kernel write back all data that programs have written, and waits for that.
    pub fn write_back(&self) {
        self.served.context.write_back();
    }

    fn subvolumes(&self) -> SubvolumeOps<'_> {
        SubvolumeOps { context: &self.served.context }
    }

    /// Returns the number of requests of a kind; all unknown kinds count as one.
    pub fn requests(&self, opcode: Opcode) -> u64 {
        self.session.requests(opcode)
    }
}

impl UnmountHandle {
    /// Ends the mount even if it is in use: data that programs have written is received, the mount
    /// is removed, and later requests fail. If something else is found at the mount point, that
    /// stays.
    pub fn stop(&self) -> Result<(), MountError> {
        if self.session.ends_by_unmount() {
            return Ok(());
        }
        // sync(2) does not wait for data that the kernel is already sending, and may not find the
        // mount.
        self.served.context.write_back();
        self.session.stop()
    }

    /// Unmounts if nobody uses it. Returns whether that ended the mount: it does not if the mount
    /// has another place, by a bind mount or in another namespace.
    pub fn unmount(&self) -> Result<bool, MountError> {
        self.session.unmount()?;
        Ok(!self.session.is_mounted())
    }

    /// Returns the path at which it was mounted.
    pub fn point(&self) -> &Path {
        self.session.point()
    }
}
