//! A mount, from its beginning to its end.
//!
//! 1. When it ends, however it ends, everything is made durable: by the kernel's last request,
//!    which umount(8) waits for, where a block device is mounted as such; otherwise by
//!    [`Mounted::end`], after the kernel let go of it. An opener waits from then on until it is
//!    closed.
//! 2. What a crash of the server leaves is what was synced.
//! 3. Where the filesystem was shut down, its end writes nothing, and is no error.

use std::path::{Path, PathBuf};

use thiserror::Error;
use userbtrfs_engine::api::{self, Filesystem};
use userbtrfs_fuse::{
    Config, InitFlags, Mount, MountError, Opcode, Session, SessionError, StartError,
};
use userbtrfs_sync::Arc;

use crate::server::FuseServer;

/// How a filesystem is served.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How many threads receive requests; as many as there are processors where it is not said.
    pub threads: Option<usize>,
    /// The device or the image file, as programs are told when they ask for it.
    pub device: PathBuf,
}

/// A filesystem that is mounted and served.
pub struct Mounted {
    /// Before what it serves, which it lets go of.
    session: Arc<Session>,
    served: Arc<FuseServer>,
}

/// Ends a mount from any thread but those that serve. To be dropped before [`Mounted::end`], which
/// otherwise leaves the filesystem open, though durable.
#[derive(Clone)]
pub struct UnmountHandle {
    session: Arc<Session>,
    served: Arc<FuseServer>,
}

/// What can be seen of a mount while it is served. To be dropped before [`Mounted::end`], as a
/// [`UnmountHandle`].
#[derive(Clone)]
pub struct StatsHandle {
    session: Arc<Session>,
    served: Arc<FuseServer>,
}

/// How a mount ended badly.
#[derive(Debug, Error)]
pub enum EndError {
    /// The filesystem could not be made durable, or not all of it.
    #[error(transparent)]
    Filesystem(#[from] api::Error),
    /// It could not be served to the end. It is durable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Mounted {
    /// Begins to serve a filesystem. When this returns, it can be used.
    pub fn start(
        mount: Mount,
        filesystem: Filesystem,
        options: &Options,
    ) -> Result<Self, StartError> {
        let served = Arc::new(FuseServer::new(filesystem, options.device.clone()));
        let mut config = Config {
            // A node that the kernel has forgotten is not to be found by its number again: what it
            // led to may have gone.
            flags: InitFlags::LOCAL_DISK.difference(InitFlags::EXPORT_SUPPORT),
            ..Config::default()
        };
        config.threads = options.threads.unwrap_or(config.threads);
        let server = Arc::clone(&served);
        let session = Arc::new(Session::start(mount, server, &config)?);
        Ok(Self { session, served })
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        self.session.point()
    }

    /// Its number as a device, as stat(2) shows it, where that could be found.
    pub fn number(&self) -> Option<u64> {
        self.session.number()
    }

    /// How many requests of a kind there were.
    pub fn requests(&self, opcode: Opcode) -> u64 {
        self.session.requests(opcode)
    }

    /// What shows how it is.
    pub fn stats_handle(&self) -> StatsHandle {
        StatsHandle { session: Arc::clone(&self.session), served: Arc::clone(&self.served) }
    }

    /// What ends it.
    pub fn unmount_handle(&self) -> UnmountHandle {
        UnmountHandle { session: Arc::clone(&self.session), served: Arc::clone(&self.served) }
    }

    /// Waits until it is unmounted, or stopped; some requests may still be worked on. Then
    /// [`Mounted::end`] is called, for which an opener of the image waits already.
    pub fn wait(&self) {
        self.session.wait_over();
        self.served.filesystem.closing();
    }

    /// Waits until it is unmounted or stopped, makes everything durable, and closes.
    pub fn end(self) -> Result<(), EndError> {
        let ended = self.session.wait();
        self.served.settle();
        let settled = self.served.take_failure();
        drop(self.session);
        // Threads may be left that refuse what is asked for by those who still have files open.
        if let Some(served) = Arc::into_inner(self.served) {
            let is_wanted = served.filesystem.is_shut_down();
            match served.filesystem.close() {
                Err(_) if is_wanted => {}
                closed => closed?,
            }
        }
        settled?;
        Ok(ended?)
    }
}

impl StatsHandle {
    /// The filesystem.
    pub fn filesystem(&self) -> &Filesystem {
        &self.served.filesystem
    }

    /// How many requests of a kind there were; all kinds that are not known count as one.
    pub fn requests(&self, opcode: Opcode) -> u64 {
        self.session.requests(opcode)
    }
}

impl UnmountHandle {
    /// Ends the mount, whoever uses it: what programs have written is taken, the mount goes, and
    /// what is asked from then on fails. Where something else is found at its place, that stays.
    pub fn stop(&self) -> Result<(), MountError> {
        if self.session.ends_by_unmount() {
            return Ok(());
        }
        // sync(2) does not wait for what the kernel is sending, and may not find the mount.
        self.served.collect();
        self.session.stop()
    }

    /// Unmounts if nobody uses it. Returns whether that ended the mount: it does not if the mount
    /// has another place, by a bind mount or in another namespace.
    pub fn unmount(&self) -> Result<bool, MountError> {
        self.session.unmount()?;
        Ok(!self.session.is_mounted())
    }

    /// The path at which it was mounted.
    pub fn point(&self) -> &Path {
        self.session.point()
    }
}
