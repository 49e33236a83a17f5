//! A mount that is being served.
//!
//! 1. A session ends when any process unmounts the filesystem, or after [`Session::stop`].
//! 2. When [`Session::wait`] returns, no method of the server runs for a request and none will;
//!    later answers from threads of the server are discarded.
//! 3. Dropping a session unmounts it; later requests fail.

use std::fs::File;
use std::path::Path;

use userbtrfs_sync::Arc;

use crate::channel::Channel;
use crate::error::{SessionError, StartError};
use crate::mount::{Mount, MountError};
use crate::negotiate::{Config, Negotiated, handshake};
use crate::notify::Notifier;
use crate::opcode::Opcode;
use crate::readahead;
use crate::server::Server;
use crate::worker_pool::WorkerPool;

/// A mount with threads that serve it.
#[derive(Debug)]
pub struct Session {
    worker_pool: Arc<WorkerPool>,
    mount: Mount,
}

impl Session {
    /// Answers the kernel's INIT and starts the threads. When this returns the filesystem can be
    /// used.
    pub fn start(
        mount: Mount,
        server: Arc<dyn Server>,
        config: &Config,
    ) -> Result<Self, StartError> {
        let device = mount.device().try_clone()?;
        let channel = Arc::new(Channel::new(device));
        let agreement = handshake(&channel, config)?;
        server.init(&agreement, Notifier::new(channel.clone()));
        let worker_pool = WorkerPool::start(server, channel, agreement, config)?;
        readahead::raise(mount.point(), config.max_readahead);
        Ok(Self { worker_pool, mount })
    }

    /// Returns the abilities and limits that kernel and server agreed on.
    pub fn agreement(&self) -> &Negotiated {
        self.worker_pool.agreement()
    }

    /// Returns the mount point.
    pub fn point(&self) -> &Path {
        self.mount.point()
    }

    /// Returns the device number of the mount: see [`Mount::number`].
    pub fn number(&self) -> Option<u64> {
        self.mount.number()
    }

    /// Returns a sender of notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.worker_pool.channel().clone())
    }

    /// Returns the number of threads, including those that sleep.
    pub fn threads(&self) -> usize {
        self.worker_pool.threads()
    }

    /// Returns the number of requests of this kind; all unknown kinds count as one.
    pub fn requests(&self, opcode: Opcode) -> u64 {
        self.worker_pool.count(opcode)
    }

    /// Unmounts if the filesystem is not in use, which ends the session.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.mount.unmount()
    }

    /// Returns whether it is mounted anywhere.
    pub fn is_mounted(&self) -> bool {
        self.mount.is_alive()
    }

    /// Unmounts if the filesystem is not in use; returns whether that ended the session. It does
    /// not if the filesystem is also mounted elsewhere, by a bind mount or in another namespace.
    pub fn ends_by_unmount(&self) -> bool {
        self.mount.unmount().is_ok() && !self.mount.is_alive()
    }

    /// Ends the session even if the filesystem is in use: dirty data is written back, the mount is
    /// detached, and later requests fail with ENOTCONN. Requests in flight are finished.
    ///
    /// Data is written back as far as syncfs(2) waits for it, which it does not with newer kernels:
    /// a server that knows its nodes should invalidate their contents first.
    ///
    /// If a user other than root stops a mount in use, or the mount is not found at its mount point
    /// any more, some threads remain to refuse requests until the last open file is closed. A
    /// filesystem that is mounted there instead is not touched.
    ///
    /// Must not be called by a thread that serves.
    pub fn stop(&self) -> Result<(), MountError> {
        if self.ends_by_unmount() {
            return Ok(());
        }
        self.write_back();
        self.worker_pool.stop();
        match self.mount.abort() {
            Err(error) if error.is_elsewhere() => Ok(()),
            done => done,
        }
    }

    /// Waits until no more requests can come, or the session is stopped. Some may be in flight.
    pub fn wait_over(&self) {
        self.worker_pool.wait_over();
    }

    /// Waits until the session is unmounted, or stopped and idle.
    pub fn wait(&self) -> Result<(), SessionError> {
        self.worker_pool.wait()
    }

    /// Has the kernel write back dirty data. Errors are ignored: they are the server's own.
    fn write_back(&self) {
        if self.mount.is_in_place()
            && let Ok(root) = File::open(self.mount.point())
        {
            let _ = rustix::fs::syncfs(&root);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.worker_pool.stop();
        // Errors cannot be returned here.
        let _ = self.mount.abort();
        let _ = if self.mount.is_alive() {
            self.worker_pool.wait()
        } else {
            self.worker_pool.wait_ended()
        };
    }
}
