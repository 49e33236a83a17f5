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
pub(super) type Place<'a> = (Id, &'a [u8]);

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
        if inode.subvolume != self[place.0].subvolume {
            return Err(Errno::XDEV);
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
        self.check_writable(place.0)?;
        if self[id].is_dir() {
            return Err(Errno::ISDIR);
        }
        self.remove(place);
        Ok(())
    }

    fn rmdir(&mut self, path: &Bytes) -> Outcome {
        let place = self.parent(path.as_slice())?;
        let id = self.look_up(place.0, place.1)?;
        self.check_writable(place.0)?;
        match self[id].node.entries() {
            None => Err(Errno::NOTDIR),
            Some(entries) if !entries.is_empty() => Err(Errno::NOTEMPTY),
            Some(_) if self.is_subvolume_root(id) => {
                self.remove_subvolume(place, id);
                Ok(())
            }
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
        if target.is_some_and(|target| self.is_within(old_dir, target)) {
            return Err(if is_exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if target == Some(source) {
            return Ok(());
        }
        self.check_writable(old_dir)?;
        self.check_writable(new_dir)?;
        let is_dir = |id: Id| self[id].is_dir();
        match target {
            Some(target) if is_dir(source) && !is_dir(target) && !is_exchange => {
                return Err(Errno::NOTDIR);
            }
            Some(target) if !is_dir(source) && is_dir(target) && !is_exchange => {
                return Err(Errno::ISDIR);
            }
            _ => {}
        }
        // A moved directory is changed, too: its parent is.
        let exchanged = target.filter(|_| is_exchange);
        for id in [source].into_iter().chain(exchanged) {
            if old_dir != new_dir && is_dir(id) {
                self.check_writable(id)?;
            }
        }
        self.check_rename_of_subvolumes((old_dir, source), (new_dir, target), is_exchange)
    }

    /// Fails if a rename would move an inode to another subvolume, or replace a subvolume or a
    /// directory that has entries.
    fn check_rename_of_subvolumes(
        &self,
        (old_dir, source): (Id, Id),
        (new_dir, target): (Id, Option<Id>),
        is_exchange: bool,
    ) -> Outcome {
        let exchanged = target.filter(|_| is_exchange);
        let mut moved = [source].into_iter().chain(exchanged);
        let is_same = self[old_dir].subvolume == self[new_dir].subvolume;
        if !is_same && moved.any(|id| !self.is_subvolume_root(id)) {
            return Err(Errno::XDEV);
        }
        let Some(target) = target.filter(|_| !is_exchange) else { return Ok(()) };
        let entries = self[target].node.entries();
        let has_entries = entries.is_some_and(|entries| !entries.is_empty());
        if self.is_subvolume_root(target) || has_entries {
            return Err(Errno::NOTEMPTY);
        }
        Ok(())
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

    pub(super) fn free_place<'a>(&self, path: &'a Bytes) -> Outcome<Place<'a>> {
        let place = self.parent(path.as_slice())?;
        self.check_free(place)?;
        Ok(place)
    }

    pub(super) fn check_free(&self, place: Place) -> Outcome {
        match self.find(place)? {
            Some(_) => Err(Errno::EXIST),
            None => self.check_writable(place.0),
        }
    }

    pub(super) fn enter(&mut self, (dir, name): Place, id: Id) {
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
    pub(super) fn entries_mut(&mut self, dir: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        let inode = self.get(dir);
        inode.mtime = None;
        match &mut inode.node {
            Node::Dir(entries) => entries,
            _ => unreachable!("a directory"),
        }
    }
}
