//! Operations on names: create, remove and rename.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::manifest::{Bytes, Kind, Mode};
use crate::operation::{Object, Operation, RenameKind, split};

use super::inode::{Inode, Node};
use super::{Id, Model, Outcome, ROOT, TARGET_MAX};

/// The maximum link count of an inode.
const LINKS_MAX: u32 = 65535;

/// A name in a directory.
type Place<'a> = (Id, &'a [u8]);

impl Model {
    pub(super) fn apply_to_names(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create { path, mode } => self.make(path, Inode::new(Node::file(), *mode)),
            Operation::Mkdir { path, mode } => self.mkdir(path, *mode),
            Operation::Mknod { path, kind, mode, rdev } => self.mknod(path, *kind, *mode, *rdev),
            Operation::Symlink { path, target } => self.symlink(path, target),
            Operation::Link { from, to } => self.link(from, to),
            Operation::Unlink { path } => self.unlink(path),
            Operation::Rmdir { path } => self.rmdir(path),
            Operation::Rename { from, to, kind } => self.rename(from, to, *kind),
            _ => unreachable!("an operation on names"),
        }
    }

    fn make(&mut self, path: &Bytes, inode: Inode) -> Outcome {
        let place = self.free_place(path)?;
        let id = self.add(place.0, inode);
        self.enter(place, id);
        Ok(())
    }

    fn mkdir(&mut self, path: &Bytes, mode: Mode) -> Outcome {
        self.make(path, Inode::new(Node::dir(), Mode::new(mode.bits() & 0o1777)))
    }

    fn mknod(&mut self, path: &Bytes, kind: Kind, mode: Mode, rdev: (u32, u32)) -> Outcome {
        self.parent(path.as_slice())?;
        let node = match kind {
            Kind::File => Node::file(),
            Kind::Dir => return Err(Errno::PERM),
            Kind::Symlink => return Err(Errno::INVAL),
            Kind::Block | Kind::Char => Node::Special(kind, rdev),
            Kind::Fifo | Kind::Socket => Node::Special(kind, (0, 0)),
        };
        self.make(path, Inode::new(node, mode))
    }

    fn symlink(&mut self, path: &Bytes, target: &Bytes) -> Outcome {
        self.parent(path.as_slice())?;
        match target.as_slice().len() {
            0 => return Err(Errno::NOENT),
            length if length > TARGET_MAX => return Err(Errno::NAMETOOLONG),
            _ => {}
        }
        self.free_place(path)?;
        if target.as_slice().len() > Self::symlink_max(self.node_size) {
            return Err(Errno::NAMETOOLONG);
        }
        self.make(path, Inode::new(Node::Symlink(target.clone()), Mode::new(0o777)))
    }

    fn link(&mut self, from: &Object, to: &Bytes) -> Outcome {
        if let Object::Path(path) = from
            && let Some((dir, _)) = split(path.as_slice())
        {
            self.resolve_dir(dir)?;
        }
        let place = self.parent(to.as_slice())?;
        let id = self.object(from)?;
        self.check_free(place)?;
        let inode = &self[id];
        if inode.is_dir() {
            return Err(Errno::PERM);
        }
        if inode.nlink == 0 && !inode.is_linkable {
            return Err(Errno::NOENT);
        }
        if inode.nlink == LINKS_MAX {
            return Err(Errno::MLINK);
        }
        self.enter(place, id);
        Ok(())
    }

    fn unlink(&mut self, path: &Bytes) -> Outcome {
        let place = self.parent(path.as_slice())?;
        let id = self.look_up(place.0, place.1)?;
        if self[id].is_dir() {
            return Err(Errno::ISDIR);
        }
        self.remove(place);
        Ok(())
    }

    fn rmdir(&mut self, path: &Bytes) -> Outcome {
        let place = self.parent(path.as_slice())?;
        match self[self.look_up(place.0, place.1)?].node.entries() {
            None => Err(Errno::NOTDIR),
            Some(entries) if !entries.is_empty() => Err(Errno::NOTEMPTY),
            Some(_) => {
                self.remove(place);
                Ok(())
            }
        }
    }

    fn rename(&mut self, from: &Bytes, to: &Bytes, kind: RenameKind) -> Outcome {
        let old = self.parent(from.as_slice())?;
        let new = self.parent(to.as_slice())?;
        let source = self.look_up(old.0, old.1)?;
        let target = self.find(new)?;
        self.check_rename((old.0, source), (new.0, target), kind)?;
        match target {
            // If both names refer to one inode, both are kept.
            Some(target) if target == source => {}
            Some(target) if kind == RenameKind::Exchange => {
                self.exchange((old, source), (new, target));
            }
            _ => self.move_name(old, new, source, kind),
        }
        Ok(())
    }

    /// Fails if `source` in one directory must not be renamed over `target`, if any, in another.
    fn check_rename(
        &self,
        (old_dir, source): (Id, Id),
        (new_dir, target): (Id, Option<Id>),
        kind: RenameKind,
    ) -> Outcome {
        let is_exchange = kind == RenameKind::Exchange;
        match kind {
            RenameKind::NoReplace | RenameKind::WhiteoutNoReplace if target.is_some() => {
                return Err(Errno::EXIST);
            }
            RenameKind::Exchange if target.is_none() => return Err(Errno::NOENT),
            _ => {}
        }
        if self.is_within(new_dir, source) {
            return Err(Errno::INVAL);
        }
        let Some(target) = target else { return Ok(()) };
        if self.is_within(old_dir, target) {
            return Err(if is_exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if is_exchange || source == target {
            return Ok(());
        }
        match (self[source].is_dir(), self[target].node.entries()) {
            (true, None) => Err(Errno::NOTDIR),
            (false, Some(_)) => Err(Errno::ISDIR),
            (true, Some(entries)) if !entries.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Returns whether a directory is another one, or a descendant of it.
    fn is_within(&self, mut dir: Id, ancestor: Id) -> bool {
        while dir != ancestor && dir != ROOT {
            dir = self[dir].parent.expect("a directory with a name is in one");
        }
        dir == ancestor
    }

    fn exchange(&mut self, (old, source): (Place, Id), (new, target): (Place, Id)) {
        for ((dir, name), id) in [(old, target), (new, source)] {
            self.entries_mut(dir).insert(name.to_vec(), id);
            self.set_parent(id, dir);
        }
    }

    fn move_name(&mut self, old: Place, new: Place, source: Id, kind: RenameKind) {
        // The link count must not become zero, or the inode would be removed.
        self.get(source).nlink += 1;
        self.remove(old);
        if self.entries(new.0).contains_key(new.1) {
            self.remove(new);
        }
        self.enter(new, source);
        self.get(source).nlink -= 1;
        if matches!(kind, RenameKind::Whiteout | RenameKind::WhiteoutNoReplace) {
            let whiteout = Inode::new(Node::Special(Kind::Char, (0, 0)), Mode::new(0));
            let id = self.add(old.0, whiteout);
            self.enter(old, id);
        }
    }

    fn set_parent(&mut self, id: Id, dir: Id) {
        let inode = self.get(id);
        inode.parent = inode.is_dir().then_some(dir);
    }

    fn free_place<'a>(&self, path: &'a Bytes) -> Outcome<Place<'a>> {
        let place = self.parent(path.as_slice())?;
        self.check_free(place)?;
        Ok(place)
    }

    fn check_free(&self, place: Place) -> Outcome {
        self.find(place)?.map_or(Ok(()), |_| Err(Errno::EXIST))
    }

    fn enter(&mut self, (dir, name): Place, id: Id) {
        self.entries_mut(dir).insert(name.to_vec(), id);
        self.set_parent(id, dir);
        let inode = self.get(id);
        inode.nlink += 1;
        inode.is_linkable = false;
    }

    fn remove(&mut self, (dir, name): Place) {
        let id = self.entries_mut(dir).remove(name).expect("a name that was found");
        self.get(id).nlink -= 1;
        self.forget_if_unused(id);
    }

    pub(super) fn entries(&self, dir: Id) -> &BTreeMap<Vec<u8>, Id> {
        self[dir].node.entries().expect("a directory")
    }

    /// Returns the entries of a directory for a change.
    fn entries_mut(&mut self, dir: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        let inode = self.get(dir);
        inode.mtime = None;
        match &mut inode.node {
            Node::Dir(entries) => entries,
            _ => unreachable!("a directory"),
        }
    }
}
