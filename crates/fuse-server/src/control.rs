//! The control socket of a mount, by which its owner queries the server without the kernel: it is
//! in a directory that only the owner can access.
//!
//! ```text
//!    client                                    server
//!      |  a number, and as many words, each with  |
//!      |  a NUL behind it                         |
//!      |  --------------------------------------> |
//!      |  <---------- "progress DONE LEFT\n" ... |
//!      |  a byte for each of these -------------> |
//!      |  <-------- "whole LENGTH\n", bytes       |
//!      |       or   "parts\n", bytes until it ends |
//!      |       or   "error WHY\n"                 |
//! ```
//!
//! 1. Only the user that serves the mount may ask: the directory and the socket are private to that
//!    user, and each side checks the user of the other one.
//! 2. The socket is found by the device number of the mount, which is the same wherever the mount
//!    is visible. A file that a dead server left is no obstacle.
//! 3. The server never waits for a client: each connection has a thread of its own, and a part that
//!    is sent while the client does not read is dropped. When the service ends, so do all
//!    connections, but for those that asked to be answered when the mount has ended. These may get
//!    the progress of that, also while the filesystem is closed.
//!
//! The contents of questions and answers are defined by the callers; this module does not interpret
//! them.

mod client;
mod progress;
mod send;
mod server;
mod socket;

pub use client::{
    AskError, ask, ask_device, ask_watched, check, device_at, is_mounted, mount_point,
};
pub use progress::{Progress, Remaining};
pub use send::{ReplyStream, Sent};
pub use server::{Answer, Answerer, Control, Waiting};

/// The most bytes of a question.
const QUESTION_MAX: u64 = 64 << 10;
