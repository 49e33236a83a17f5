//! Parsing of requests.
//!
//! 1. No bytes make this panic; an invalid message returns [`Malformed`].
//! 2. The length in the header must be the length of the message.
//! 3. Trailing bytes are ignored: later kernels may extend structures.

mod body;
mod fault;
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
pub use fault::Fault;

/// A message that is not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed request {opcode:?}: {fault}")]
pub struct Malformed {
    /// The number of the request, if it could be read: then it can be answered.
    pub unique: Option<u64>,
    /// The kind, if it could be read.
    pub opcode: Option<Opcode>,
    /// The fault.
    #[source]
    pub fault: Fault,
}

/// Parses one message of the kernel. `agreed` are the flags of the mount.
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
