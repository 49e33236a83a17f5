//! Subvolumes and snapshots.

use std::collections::{BTreeMap, HashMap};

use rustix::io::Errno;

use crate::manifest::{Bytes, Mode};
use crate::operation::{Object, Operation};

use super::inode::{Inode, Node, ROOT};
use super::naming::Place;
use super::{Id, Model, Name, NodeId, Outcome};

/// The mode of the directory that a snapshot has in place of a subvolume.
const STUB_MODE: u32 = 0o755;

impl Model {
    pub(super) fn apply_to_subvolumes(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Subvolume { path } => self.create_subvolume(path),
            Operation::Snapshot { source, path, read_only } => {
                self.snapshot(source, path, *read_only)
            }
            Operation::SetReadOnly { path, read_only } => self.set_read_only(path, *read_only),
            Operation::DeleteSubvolume { path } => self.delete_subvolume(path),
            _ => unreachable!("an operation on subvolumes"),
        }
    }

    /// Returns the paths of all subvolumes, the root's too.
    pub fn subvolumes(&self) -> Vec<Vec<u8>> {
        let paths = self.paths().into_iter();
        paths.filter(|(_, node)| self.subvolumes.contains_key(&node.id())).map(|it| it.0).collect()
    }

    /// Returns all subvolumes below the root, with their names.
    pub fn named_subvolumes(&self) -> BTreeMap<Name, NodeId> {
        let mut names = self.names();
        names.retain(|_, node| self.is_subvolume_root(node.id()));
        names
    }

    /// Returns whether a subvolume is read-only; `None` if the inode is not the root of one.
    pub fn read_only(&self, node: NodeId) -> Option<bool> {
        self.subvolumes.get(&node.id()).copied()
    }

    /// Returns whether the subvolume of a path has open files without a name.
    pub fn has_deleted_files(&self, path: &[u8]) -> bool {
        let Ok(id) = self.resolve(path) else { return false };
        let subvolume = self[id].subvolume;
        self.handles
            .values()
            .map(|id| &self[*id])
            .any(|it| it.nlink == 0 && it.subvolume == subvolume)
    }

    /// Returns whether there is a subvolume at a path.
    pub fn is_subvolume(&self, path: &[u8]) -> bool {
        self.resolve(path).is_ok_and(|id| self.subvolumes.contains_key(&id))
    }

    /// Returns whether an object is in another subvolume than the parent of a path.
    pub fn is_in_other_subvolume(&self, object: &Object, path: &[u8]) -> bool {
        let Ok(id) = self.object(object) else { return false };
        self.parent(path).is_ok_and(|(dir, _)| self[dir].subvolume != self[id].subvolume)
    }

    /// Returns whether the parent directories of two paths are in different subvolumes.
    pub fn are_in_different_subvolumes(&self, path: &[u8], other: &[u8]) -> bool {
        let subvolume = |path: &[u8]| self.parent(path).ok().map(|(dir, _)| self[dir].subvolume);
        subvolume(path).zip(subvolume(other)).is_some_and(|(one, other)| one != other)
    }

    /// Returns whether a path is that of the empty directory that a snapshot has in place of a
    /// subvolume.
    pub fn is_stub(&self, path: &[u8]) -> bool {
        self.resolve(path).is_ok_and(|id| self[id].is_stub)
    }

    /// Returns whether a path leads into a read-only subvolume.
    pub fn is_read_only_at(&self, path: &[u8]) -> bool {
        self.resolve(path).is_ok_and(|id| self.is_read_only(id))
    }

    /// Returns whether the parent directory of a path is in a read-only subvolume.
    pub fn is_place_read_only(&self, path: &[u8]) -> bool {
        self.parent(path).is_ok_and(|(dir, _)| self.is_read_only(dir))
    }

    /// Returns whether an object is in a read-only subvolume.
    pub fn is_object_read_only(&self, object: &Object) -> bool {
        self.object(object).is_ok_and(|id| self.is_read_only(id))
    }

    /// Returns what a snapshot of the root subvolume shows.
    #[must_use]
    pub fn snapshot_of_root(&self) -> Self {
        let mut model = self.clone();
        let root = model.copy_subvolume(ROOT);
        model.inodes.retain(|_, inode| inode.subvolume == root);
        let mut inode = model.inodes.remove(&root).expect("the copy");
        inode.nlink = 1;
        inode.parent = Some(ROOT);
        model.inodes.insert(ROOT, inode);
        for inode in model.inodes.values_mut() {
            inode.subvolume = ROOT;
            if inode.parent == Some(root) {
                inode.parent = Some(ROOT);
            }
        }
        model.subvolumes = [(ROOT, false)].into();
        model.handles.clear();
        model
    }

    /// Fails if the inode is in a read-only subvolume.
    pub(super) fn check_writable(&self, id: Id) -> Outcome {
        if self.is_read_only(id) { Err(Errno::ROFS) } else { Ok(()) }
    }

    pub(super) fn is_read_only(&self, id: Id) -> bool {
        self.subvolumes[&self[id].subvolume]
    }

    pub(super) fn is_subvolume_root(&self, id: Id) -> bool {
        self.subvolumes.contains_key(&id)
    }

    fn create_subvolume(&mut self, path: &Bytes) -> Outcome {
        let place = self.free_place(path)?;
        let inode = Inode::new(Node::dir(), Mode::new(0o777));
        let id = self.add_subvolume(inode, false);
        self.enter(place, id);
        Ok(())
    }

    fn add_subvolume(&mut self, mut inode: Inode, is_read_only: bool) -> Id {
        let id = self.new_id();
        inode.subvolume = id;
        self.inodes.insert(id, inode);
        self.subvolumes.insert(id, is_read_only);
        id
    }

    fn snapshot(&mut self, source: &Bytes, path: &Bytes, is_read_only: bool) -> Outcome {
        let source = self.resolve(source.as_slice())?;
        let place = self.parent(path.as_slice())?;
        if !self.is_subvolume_root(source) {
            return Err(Errno::INVAL);
        }
        self.check_free(place)?;
        let copy = self.copy_subvolume(source);
        self.subvolumes.insert(copy, is_read_only);
        self.enter(place, copy);
        Ok(())
    }

    fn set_read_only(&mut self, path: &Bytes, is_read_only: bool) -> Outcome {
        let id = self.resolve(path.as_slice())?;
        let known = self.subvolumes.get_mut(&id).ok_or(Errno::INVAL)?;
        *known = is_read_only;
        Ok(())
    }

    /// Copies everything that has a name in a subvolume; returns the new root, which has no name.
    fn copy_subvolume(&mut self, source: Id) -> Id {
        let mut root = self[source].clone();
        root.nlink = 0;
        let copy = self.add_subvolume(root, false);
        let mut copies = HashMap::from([(source, copy)]);
        let mut pending = vec![copy];
        while let Some(dir) = pending.pop() {
            let mut entries = self.entries(dir).clone();
            for id in entries.values_mut() {
                let known = copies.get(id).copied();
                let new = known.unwrap_or_else(|| self.copy_inode(*id, (copy, dir)));
                copies.insert(*id, new);
                if known.is_none() && self[new].is_dir() {
                    pending.push(new);
                }
                *id = new;
            }
            self.get(dir).node = Node::Dir(entries);
        }
        copy
    }

    fn copy_inode(&mut self, id: Id, (subvolume, dir): (Id, Id)) -> Id {
        if self.is_subvolume_root(id) {
            return self.add_stub(subvolume, dir);
        }
        let mut inode = self[id].clone();
        inode.subvolume = subvolume;
        inode.parent = inode.is_dir().then_some(dir);
        let id = self.new_id();
        self.inodes.insert(id, inode);
        id
    }

    /// Adds the directory that a snapshot has in place of a subvolume; it has no name yet.
    fn add_stub(&mut self, subvolume: Id, dir: Id) -> Id {
        let mut inode = Inode::new(Node::dir(), Mode::new(STUB_MODE));
        inode.nlink = 1;
        inode.is_stub = true;
        inode.subvolume = subvolume;
        inode.parent = Some(dir);
        let id = self.new_id();
        self.inodes.insert(id, inode);
        id
    }

    fn delete_subvolume(&mut self, path: &Bytes) -> Outcome {
        let place = self.parent(path.as_slice())?;
        let id = self.look_up(place.0, place.1)?;
        self.check_writable(place.0)?;
        if !self[id].is_dir() {
            return Err(Errno::NOTDIR);
        }
        if !self.is_subvolume_root(id) {
            return Err(Errno::INVAL);
        }
        if self.is_parent(id) {
            return Err(Errno::NOTEMPTY);
        }
        self.remove_subvolume(place, id);
        Ok(())
    }

    /// Returns whether a subvolume contains others.
    fn is_parent(&self, subvolume: Id) -> bool {
        let mut others = self.subvolumes.keys().filter(|id| **id != subvolume && **id != ROOT);
        others.any(|id| self[*id].parent.is_some_and(|dir| self[dir].subvolume == subvolume))
    }

    /// Removes a subvolume with everything in it, and closes the handles of that.
    pub(super) fn remove_subvolume(&mut self, (dir, name): Place, subvolume: Id) {
        self.entries_mut(dir).remove(name).expect("a name that was found");
        let inodes = &self.inodes;
        self.handles.retain(|_, id| inodes[id].subvolume != subvolume);
        self.inodes.retain(|_, inode| inode.subvolume != subvolume);
        self.subvolumes.remove(&subvolume);
    }
}
