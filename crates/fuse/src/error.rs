//! The errors of a session.

use rustix::io::Errno;
use thiserror::Error;

use crate::negotiate::HandshakeError;

/// Why a session did not begin.
#[derive(Debug, Error)]
pub enum StartError {
    /// The handshake failed.
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
