//! Random subvolumes and snapshots.

use rustix::io::Errno;

use crate::model::{End, Model};

use super::choices::{Choices, Draw, is_dir};
use super::drivers::Drivers;
use super::{Operation, RenameKind, split};

/// The kinds of operations, with their weights.
pub(super) const KINDS: [(u64, Draw); 4] =
    [(2, create), (3, snapshot), (2, delete), (1, set_read_only)];

/// With more subvolumes than this, one is deleted instead of another snapshot.
const SUBVOLUMES_MAX: usize = 6;
/// The maximum number of inodes of a filesystem with another snapshot.
const INODES_MAX: usize = 1500;

impl Choices {
    /// Draws the path of a subvolume; sometimes, any path.
    fn subvolume(&mut self) -> Vec<u8> {
        let all = self.model.subvolumes();
        match self.random.pick(&all).cloned() {
            Some(path) if !self.random.one_in(8) => path,
            _ => self.some(is_dir),
        }
    }

    /// Returns whether an operation is left out: one on a directory in place of a subvolume, which
    /// Linux only keeps in memory, except its removal; or one that a driver does not support.
    pub(super) fn avoids(&self, operation: &Operation) -> bool {
        if !self.is_root_subvolume && takes_root_as_subvolume(operation) {
            return true;
        }
        if !self.copies_deleted_files && copies_deleted_files(&self.model, operation) {
            return true;
        }
        let is_unlike = match self.drivers {
            Drivers::Linux => false,
            Drivers::Ours => is_answered_unlike_linux(&self.model, operation),
        };
        is_unlike || self.is_on_stub(operation)
    }

    fn is_on_stub(&self, operation: &Operation) -> bool {
        let is_stub = |path: &[u8]| self.model.is_stub(path);
        let is_in_stub = |path: &[u8]| split(path).is_some_and(|(dir, _)| is_stub(dir));
        let is_removal = matches!(operation, Operation::Rmdir { .. });
        let mut operation = operation.clone();
        let paths = operation.paths();
        let mut paths = paths.iter().map(|path| path.as_slice());
        paths.any(|path| !is_removal && is_stub(path) || is_in_stub(path))
    }
}

fn copies_deleted_files(model: &Model, operation: &Operation) -> bool {
    match operation {
        Operation::Snapshot { source, .. } => model.has_deleted_files(source.as_slice()),
        _ => false,
    }
}

fn takes_root_as_subvolume(operation: &Operation) -> bool {
    match operation {
        Operation::Snapshot { source: path, .. } | Operation::SetReadOnly { path, .. } => {
            path.as_slice().is_empty()
        }
        _ => false,
    }
}

/// Returns whether userbtrfs may answer an operation unlike Linux, as "Differences from Linux" in
/// docs/design/subvolumes.md says: a link or rename to another subvolume that is refused for
/// another reason, too; a rename of a subvolume that is refused, exchanges, leaves a whiteout, or
/// changes nothing; and a change in a read-only subvolume that is refused for another reason, too.
pub fn is_answered_unlike_linux(model: &Model, operation: &Operation) -> bool {
    let is_subvolume = |path: &[u8]| model.is_subvolume(path);
    let is_unlike = match operation {
        Operation::Link { from, to } => {
            model.is_in_other_subvolume(from, to.as_slice())
                && answer(model, operation) != Err(Errno::XDEV)
        }
        Operation::Rename { from, to, kind } => {
            let from = from.as_slice();
            let to = to.as_slice();
            let is_simple = matches!(kind, RenameKind::Plain | RenameKind::NoReplace);
            if is_subvolume(from) || is_subvolume(to) {
                from == to || !is_simple || answer(model, operation).is_err()
            } else {
                model.are_in_different_subvolumes(from, to)
                    && answer(model, operation) != Err(Errno::XDEV)
            }
        }
        _ => false,
    };
    is_unlike || is_in_read_only(model, operation) && answer(model, operation) != Err(Errno::ROFS)
}

/// Returns the result of an operation in the model.
fn answer(model: &Model, operation: &Operation) -> End {
    model.clone().apply(operation)
}

/// Returns whether an operation would change something in a read-only subvolume.
fn is_in_read_only(model: &Model, operation: &Operation) -> bool {
    let is_place = |path: &[u8]| model.is_place_read_only(path);
    match operation {
        Operation::Read { .. }
        | Operation::Sync { .. }
        | Operation::Open { .. }
        | Operation::SetReadOnly { .. } => false,
        Operation::Snapshot { path, .. } => is_place(path.as_slice()),
        Operation::Tmpfile { dir, .. } => model.is_read_only_at(dir.as_slice()),
        Operation::Link { from, to } => model.is_object_read_only(from) || is_place(to.as_slice()),
        other => match other.object() {
            Some(object) => model.is_object_read_only(&object),
            None => other.clone().paths().iter().any(|path| is_place(path.as_slice())),
        },
    }
}

fn create(g: &mut Choices) -> Operation {
    Operation::Subvolume { path: g.place().into() }
}

fn snapshot(g: &mut Choices) -> Operation {
    if g.model.subvolumes().len() > SUBVOLUMES_MAX || g.model.inodes() > INODES_MAX {
        return delete(g);
    }
    let source = g.subvolume().into();
    Operation::Snapshot { source, path: g.place().into(), read_only: g.random.one_in(3) }
}

fn delete(g: &mut Choices) -> Operation {
    Operation::DeleteSubvolume { path: g.subvolume().into() }
}

/// Draws a change of a subvolume, usually of one that is read-only: not much can be done to others.
fn set_read_only(g: &mut Choices) -> Operation {
    let mut all = g.model.subvolumes();
    all.retain(|path| g.model.is_read_only_at(path));
    let path = match g.random.pick(&all).cloned() {
        Some(path) if !g.random.one_in(4) => path,
        _ => g.subvolume(),
    };
    let read_only = !g.model.is_read_only_at(&path);
    // The whole filesystem would be read-only for long.
    let read_only = read_only && !path.is_empty();
    Operation::SetReadOnly { path: path.into(), read_only }
}
