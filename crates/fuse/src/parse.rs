//! From bytes to requests.
//!
//! 1. No bytes make this panic, whatever they are; what does not fit is [`Malformed`].
//! 2. The length that the header gives is the length of the message.
//! 3. Bytes after what a request needs are let be: later kernels may add to structures.

mod body;
mod operations;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::flags::InitFlags;
use crate::opcode::Opcode;
use crate::operation::{Operation, Request};
use crate::values::{Caller, NodeId};
use crate::wire;
use body::Body;

/// Why a message is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Fewer bytes than a header or a structure has.
    #[error("{missing} bytes are missing")]
    Short {
        /// How many more there should be.
        missing: usize,
    },
    /// The header gives another length than the message has.
    #[error("the header says {said} bytes, there are {found}")]
    Length {
        /// What the header says.
        said: u32,
        /// What came.
        found: usize,
    },
    /// A string without its NUL.
    #[error("a string does not end")]
    Endless,
    /// What should be a name is none.
    #[error("a name is empty or has a slash")]
    Name,
    /// A string that must not be empty is.
    #[error("a string is empty")]
    Empty,
    /// A field has a value that it cannot have.
    #[error("{field} is {value}")]
    Value {
        /// Which field.
        field: &'static str,
        /// What it says.
        value: u64,
    },
}

/// A message that is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed request {opcode:?}: {fault}")]
pub struct Malformed {
    /// Its number, if so much could be read: then it can be answered.
    pub unique: Option<u64>,
    /// Its kind, if so much could be read.
    pub opcode: Option<Opcode>,
    /// What is wrong.
    #[source]
    pub fault: Fault,
}

/// Reads one message, as it came from the kernel. `agreed` are the flags of the mount.
pub fn parse(message: &[u8], agreed: InitFlags) -> Result<(Request, Operation<'_>), Malformed> {
    let mut body = Body::new(message);
    let header: wire::InHeader =
        body.take().map_err(|fault| Malformed { unique: None, opcode: None, fault })?;
    let opcode = Opcode::new(header.opcode);
    parse_body(&header, opcode, body, agreed).map_err(|fault| Malformed {
        unique: Some(header.unique),
        opcode: Some(opcode),
        fault,
    })
}

fn parse_body<'a>(
    header: &wire::InHeader,
    opcode: Opcode,
    mut body: Body<'a>,
    agreed: InitFlags,
) -> Result<(Request, Operation<'a>), Fault> {
    let found = size_of::<wire::InHeader>() + body.len();
    if usize::try_from(header.len) != Ok(found) {
        return Err(Fault::Length { said: header.len, found });
    }
    let extensions = body.split_off_end(usize::from(header.extensions) * 8)?;
    let caller = Caller {
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        group_of_parent: body::group_of(extensions)?,
    };
    let request = Request { unique: header.unique, opcode, node: NodeId(header.nodeid), caller };
    let operation = operations::operation(&request, body, agreed)?;
    Ok((request, operation))
}
