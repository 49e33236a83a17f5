//! What those who mounted a filesystem ask past the kernel: a socket beside the mount, in a
//! directory that is theirs alone.
//!
//! ```text
//!    asker                                     server
//!      |  words, a NUL behind each, an empty one  |
//!      |  --------------------------------------> |
//!      |  <-------- "whole LENGTH\n", bytes       |
//!      |       or   "parts\n", bytes until it ends |
//!      |       or   "error WHY\n"                 |
//! ```
//!
//! 1. Only the user who serves the mount may ask: the directory and the socket are that user's
//!    alone, and each side looks at who the other one is.
//! 2. The socket is found by the number that the kernel gave the mount as a device, which is the
//!    same wherever it can be seen. A file that a dead server left is no obstacle.
//! 3. Nobody waits for an asker: each has a thread of its own, and what comes in parts is dropped
//!    where it is not read. When the service ends, so do all connections, but for those that asked
//!    to be answered when the mount has ended.
//!
//! What is asked and answered is for others to say; nothing here knows it.

mod client;
mod server;
mod socket;

pub use client::{AskError, ask, check, is_mounted};
pub use server::{Answer, Answerer, Control, ReplyStream, Sent, Waiting};

/// The most bytes of a question.
const QUESTION_MAX: u64 = 64 << 10;
