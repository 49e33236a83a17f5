//! The reasons why a message is malformed.

use thiserror::Error;

/// Why a message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The message is shorter than its header or a structure.
    #[error("{missing} bytes are missing")]
    Short {
        /// The number of missing bytes.
        missing: usize,
    },
    /// The length in the header is not the length of the message.
    #[error("the header says {said} bytes, there are {found}")]
    Length {
        /// The length in the header.
        said: u32,
        /// The length of the message.
        found: usize,
    },
    /// A string has no NUL.
    #[error("a string does not end")]
    Endless,
    /// A name is not valid.
    #[error("a name is empty or has a slash")]
    Name,
    /// A string is empty.
    #[error("a string is empty")]
    Empty,
    /// A field has an invalid value.
    #[error("{field} is {value}")]
    Value {
        /// The name of the field.
        field: &'static str,
        /// The value.
        value: u64,
    },
}
