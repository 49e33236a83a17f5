//! Files that share bytes: clone and dedupe.

use rustix::io::Errno;
use userbtrfs_format::SECTOR;

use crate::operation::{FILE_MAX, Object, Operation};

use super::inode::{Id, NOCOW, Node};
use super::outcome::{Answer, End};
use super::{Content, Model, Outcome};

/// A range of one file, and its place in another one.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    length: u64,
    at: u64,
}

impl Model {
    /// Executes a clone or a dedupe.
    pub(super) fn share(&mut self, operation: &Operation) -> End {
        match operation {
            Operation::Clone { source, offset, length, object, at } => {
                let range = Range { offset: *offset, length: *length, at: *at };
                self.clone_range(source, object, range).map(|()| Answer::default())
            }
            Operation::Dedupe { source, offset, length, object, at } => {
                let range = Range { offset: *offset, length: *length, at: *at };
                self.dedupe(source, object, range).map(|same| Answer(vec![u8::from(same)]))
            }
            other => unreachable!("{other} shares nothing"),
        }
    }

    fn clone_range(&mut self, source: &Object, object: &Object, range: Range) -> Outcome {
        let (from, to) = self.both_files(source, object)?;
        let ours = self.bytes_of(from).clone();
        let theirs = self.bytes_of(to);
        let Range { offset, length, at } = range;
        check_ends(offset, length, at)?;
        self.check_checksums(from, to)?;
        let left = ours.size().checked_sub(offset).ok_or(Errno::INVAL)?;
        let length = if length == 0 { left } else { length };
        if length == 0 {
            return Ok(());
        }
        let end = at.checked_add(length).filter(|end| *end <= FILE_MAX).ok_or(Errno::INVAL)?;
        let is_end = length == left && end >= theirs.size();
        if length > left || !(length.is_multiple_of(SECTOR) || is_end) {
            return Err(Errno::INVAL);
        }
        check_place(from == to, offset, length, at)?;
        let inode = self.get(to);
        let Node::File(content) = &mut inode.node else { unreachable!("it is a file") };
        content.clone_from(at, &ours, offset, length);
        inode.mtime = None;
        Ok(())
    }

    /// Returns whether both ranges hold the same bytes.
    fn dedupe(&self, source: &Object, object: &Object, range: Range) -> Outcome<bool> {
        let (from, to) = self.both_files(source, object)?;
        let ours = self.bytes_of(from);
        let theirs = self.bytes_of(to);
        let Range { offset, length, at } = range;
        check_ends(offset, length, at)?;
        let left = |content: &Content, start: u64| {
            content.size().checked_sub(start).filter(|left| *left >= length).ok_or(Errno::INVAL)
        };
        let left_of_source = left(ours, offset)?;
        if length == 0 {
            return Ok(true);
        }
        self.check_checksums(from, to)?;
        let left_of_target = left(theirs, at)?;
        let is_end = left_of_source == length && left_of_target == length;
        let length = if is_end { length } else { length / SECTOR * SECTOR };
        check_place(from == to, offset, length, at)?;
        Ok(ours.read(offset, offset + length) == theirs.read(at, at + length))
    }

    /// Returns two files; fails if one of the objects is none.
    fn both_files(&self, source: &Object, object: &Object) -> Outcome<(Id, Id)> {
        let ids = (self.object(source)?, self.object(object)?);
        let nodes = [&self[ids.0].node, &self[ids.1].node];
        if nodes.iter().any(|node| matches!(node, Node::Dir(_))) {
            return Err(Errno::ISDIR);
        }
        let are_files = nodes.iter().all(|node| matches!(node, Node::File(_)));
        if !are_files {
            return Err(Errno::INVAL);
        }
        self.check_writable(ids.1)?;
        Ok(ids)
    }

    fn bytes_of(&self, file: Id) -> &Content {
        match &self[file].node {
            Node::File(content) => content,
            _ => unreachable!("it is a file"),
        }
    }

    fn check_checksums(&self, from: Id, to: Id) -> Outcome {
        let is_nocow = |file: Id| self[file].flags & NOCOW;
        if is_nocow(from) == is_nocow(to) { Ok(()) } else { Err(Errno::INVAL) }
    }
}

/// Checks that both ranges end within the largest offset.
fn check_ends(offset: u64, length: u64, at: u64) -> Outcome {
    let fits = |start: u64| start.checked_add(length).is_some_and(|end| end <= FILE_MAX);
    if fits(offset) && fits(at) { Ok(()) } else { Err(Errno::INVAL) }
}

/// Checks that both ranges start at a sector, and do not overlap within one file.
fn check_place(is_one_file: bool, offset: u64, length: u64, at: u64) -> Outcome {
    let is_aligned = offset.is_multiple_of(SECTOR) && at.is_multiple_of(SECTOR);
    let overlaps = is_one_file && offset.abs_diff(at) < length.next_multiple_of(SECTOR);
    if is_aligned && !overlaps { Ok(()) } else { Err(Errno::INVAL) }
}
