//! A mount that is being served.
//!
//! 1. A session ends when the filesystem is unmounted, by whomever, or after [`Session::stop`].
//! 2. When [`Session::wait`] returns, no method of the server runs for a request and none will;
//!    what the server answers later from threads of its own goes nowhere.
//! 3. A session that is dropped is unmounted, and what is asked of it fails.

use std::fs::File;
use std::path::Path;

use rustix::io::Errno;
use thiserror::Error;
use userbtrfs_sync::Arc;

use crate::channel::Channel;
use crate::mount::{Mount, MountError};
use crate::negotiate::{Config, HandshakeError, Negotiated, handshake};
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

/// Why a session did not begin.
#[derive(Debug, Error)]
pub enum StartError {
    /// Kernel and server found no common ground.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// No descriptors, or no threads.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Why a session ended badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SessionError {
    /// Requests could no longer be received.
    #[error("reading from /dev/fuse: {0}")]
    Device(Errno),
    /// A method of the server panicked; its request failed with EIO.
    #[error("a request made the server panic")]
    Panicked,
}

impl Session {
    /// Answers the first request of the kernel, and starts the threads. When this returns the
    /// filesystem can be used.
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

    /// What kernel and server agreed on.
    pub fn agreement(&self) -> &Negotiated {
        self.worker_pool.agreement()
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        self.mount.point()
    }

    /// Its number as a device: see [`Mount::number`].
    pub fn number(&self) -> Option<u64> {
        self.mount.number()
    }

    /// Sends notices to the kernel.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.worker_pool.channel().clone())
    }

    /// How many threads there are, those that sleep included.
    pub fn threads(&self) -> usize {
        self.worker_pool.threads()
    }

    /// How many requests of this kind there were; all kinds that are not known count as one.
    pub fn requests(&self, opcode: Opcode) -> u64 {
        self.worker_pool.count(opcode)
    }

    /// Unmounts if nobody uses it, which ends the session.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.mount.unmount()
    }

    /// Returns whether it is mounted anywhere.
    pub fn is_mounted(&self) -> bool {
        self.mount.is_alive()
    }

    /// Unmounts if nobody uses it; says whether that ended the session. It does not where the mount
    /// has been given a second place, by a bind mount or in another namespace.
    pub fn ends_by_unmount(&self) -> bool {
        self.mount.unmount().is_ok() && !self.mount.is_alive()
    }

    /// Ends the session, whoever uses the filesystem: what programs have written is given to the
    /// server, the mount is taken out of the tree of names, and what is asked from then on fails
    /// with ENOTCONN. Requests that are being worked on are finished.
    ///
    /// What was written is given as far as sync(2) waits for that, which newer kernels do not: who
    /// knows its nodes calls their contents stale before.
    ///
    /// Where it is not root who stops a mount in use, or the mount is not found at its place any
    /// more, threads remain that wait for requests, to refuse them, until the last user has closed
    /// what is open. What is at its place instead stays as it is.
    ///
    /// Not to be called by a thread that serves.
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

    /// Waits until no request comes any more, or the session is stopped: some may be worked on.
    pub fn wait_over(&self) {
        self.worker_pool.wait_over();
    }

    /// Waits for the end: until it is unmounted, or stopped and idle.
    pub fn wait(&self) -> Result<(), SessionError> {
        self.worker_pool.wait()
    }

    /// Has the kernel write back what it keeps of files. It fails where the server does, who then
    /// knows.
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
        // Nobody is left to hear of an error.
        let _ = self.mount.abort();
        let _ = self.worker_pool.wait();
    }
}
