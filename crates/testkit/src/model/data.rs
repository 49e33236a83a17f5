//! Operations on file contents.

use rustix::io::Errno;

use crate::operation::{AllocateKind, FILE_MAX, Object, Operation};

use super::inode::Node;
use super::{Content, Model, Outcome};

impl Model {
    pub(super) fn apply_to_content(&mut self, object: &Object, operation: &Operation) -> Outcome {
        let id = self.object(object)?;
        let is_read_only = self.is_read_only(id);
        let inode = self.get(id);
        let content = match &mut inode.node {
            Node::File(content) => content,
            Node::Dir(_) => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        };
        if let Operation::Sync { .. } = operation {
            return Ok(());
        }
        if is_read_only {
            return Err(Errno::ROFS);
        }
        if let Operation::Defragment { offset, .. } = operation {
            return check_start(content, *offset);
        }
        change(content, operation)?;
        inode.mtime = None;
        Ok(())
    }

    /// Reads a range of a file, up to its end.
    pub fn read(&self, object: &Object, offset: u64, length: u64) -> Outcome<Vec<u8>> {
        match &self[self.object(object)?].node {
            Node::File(content) => Ok(content.read(offset, offset.saturating_add(length))),
            Node::Dir(_) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }
}

/// Checks the start of a defragmentation: it is in the file, unless that is empty.
fn check_start(content: &Content, offset: u64) -> Outcome {
    if content.size() == 0 || offset < content.size() { Ok(()) } else { Err(Errno::INVAL) }
}

fn change(content: &mut Content, operation: &Operation) -> Outcome {
    match *operation {
        Operation::Truncate { size, .. } => content.set_size(size),
        Operation::Write { offset, length, seed, .. } => write(content, offset, length, seed)?,
        Operation::Append { length, seed, .. } => {
            write(content, content.size(), length, seed).map_err(|_| Errno::FBIG)?;
        }
        Operation::Replace { length, seed, .. } => {
            content.set_size(0);
            write(content, 0, length, seed)?;
        }
        Operation::Allocate { offset, length, kind, .. } => {
            return allocate(content, offset, length, kind);
        }
        _ => unreachable!("an operation on the content of a file"),
    }
    Ok(())
}

fn write(content: &mut Content, offset: u64, length: u64, seed: u32) -> Outcome {
    end(offset, length).ok_or(Errno::INVAL)?;
    content.write(offset, length, seed);
    Ok(())
}

/// Returns the end of a range, `None` if it exceeds the maximum file size.
fn end(offset: u64, length: u64) -> Option<u64> {
    offset.checked_add(length).filter(|end| *end <= FILE_MAX)
}

fn allocate(content: &mut Content, offset: u64, length: u64, kind: AllocateKind) -> Outcome {
    if length == 0 || length > FILE_MAX {
        return Err(Errno::INVAL);
    }
    let end = end(offset, length).ok_or(Errno::FBIG)?;
    match kind {
        AllocateKind::Reserve | AllocateKind::ReserveKeepSize => {}
        AllocateKind::Punch | AllocateKind::Zero | AllocateKind::ZeroKeepSize => {
            content.clear(offset, end);
        }
    }
    if matches!(kind, AllocateKind::Reserve | AllocateKind::Zero) && end > content.size() {
        content.set_size(end);
    }
    Ok(())
}
