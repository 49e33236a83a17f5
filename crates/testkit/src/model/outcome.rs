//! The results of operations.

use std::fmt;

use rustix::io::Errno;

/// The result of an operation, or its error.
pub type Outcome<T = ()> = Result<T, Errno>;

/// The end of an operation: its answer or its error.
pub type End = Outcome<Answer>;

/// The answer of an operation: the bytes of a read, empty for all others.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Answer(pub Vec<u8>);

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
