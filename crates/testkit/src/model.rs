//! A simple model of a filesystem: the result of each operation, and the state after it.
//!
//! 1. It behaves as Linux does on btrfs for the superuser with an empty umask: it returns the same
//!    error if an operation has more than one reason to fail. [`crate::operation`] has rules that
//!    take precedence over those of Linux.
//! 2. A failed operation changes nothing.
//! 3. It never runs out of space, whatever its size, and does not support ACLs or properties.
//! 4. Times are known if they were set and nothing changed them since.

mod attributes;
mod content;
mod data;
mod inode;
mod naming;
mod nodes;
mod outcome;
mod resizing;
mod sharing;
mod shown;
mod sizes;
mod subvolumes;

use std::collections::{BTreeMap, HashMap};
use std::ops::Index;

use rustix::io::Errno;

use crate::manifest::{Bytes, Kind, Mode};
use crate::operation::{Object, Operation, join, names, split};

pub use content::Content;
use inode::{Id, Inode, Node, ROOT};
pub use nodes::{Facts, Name, NodeId, ROOT_NODE};
pub use outcome::{Answer, End, Outcome};
pub(crate) use sizes::SIZE_MIN;
use sizes::Sizes;

/// The bytes of a leaf that are not data of its single item: the headers of leaf and item.
const LEAF_OVERHEAD: u32 = 101 + 25;
/// The header of an inline extent, in bytes.
const INLINE_HEADER: u32 = 21;
/// The header of an xattr, in bytes.
const XATTR_HEADER: u32 = 30;
/// The maximum length of a symlink target with any node size, in bytes: `PATH_MAX` without the NUL.
const TARGET_MAX: usize = 4095;

/// The number of a file of a model, which is never reused there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(Id);

/// The state of the filesystem.
#[derive(Clone, Debug)]
pub struct Model {
    node_size: u32,
    inodes: HashMap<Id, Inode>,
    handles: BTreeMap<u8, Id>,
    next: Id,
    /// The root directory of each subvolume, and whether that is read-only.
    subvolumes: BTreeMap<Id, bool>,
    /// `None` if it is not resized.
    sizes: Option<Sizes>,
}

impl Model {
    /// Creates an empty filesystem with this node size in bytes.
    pub fn new(node_size: u32) -> Self {
        let mut root = Inode::new(Node::dir(), Mode::new(0o755));
        root.nlink = 1;
        root.parent = Some(ROOT);
        let inodes = [(ROOT, root)].into();
        let next = Id(ROOT.0 + 1);
        let subvolumes = [(ROOT, false)].into();
        let handles = BTreeMap::new();
        Self { node_size, inodes, handles, next, subvolumes, sizes: None }
    }

    /// Returns the maximum length of a symlink target in bytes: its inline extent fits in a leaf,
    /// and is shorter than a sector of 4096 bytes.
    pub fn symlink_max(node_size: u32) -> usize {
        item_max(node_size, INLINE_HEADER).min(TARGET_MAX)
    }

    /// Returns the maximum length of name and value of an xattr in bytes: its item fits in a leaf.
    pub fn xattr_max(node_size: u32) -> usize {
        item_max(node_size, XATTR_HEADER)
    }

    /// Executes an operation.
    pub fn apply(&mut self, operation: &Operation) -> End {
        match operation {
            Operation::Read { object, offset, length } => {
                self.read(object, *offset, *length).map(Answer)
            }
            Operation::Clone { .. } | Operation::Dedupe { .. } => self.share(operation),
            change => self.change(change).map(|()| Answer::default()),
        }
    }

    fn change(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create { .. }
            | Operation::Mkdir { .. }
            | Operation::Mknod { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. } => self.apply_to_names(operation),
            Operation::Setattr { object, .. }
            | Operation::SetFlags { object, .. }
            | Operation::SetXattr { object, .. }
            | Operation::RemoveXattr { object, .. } => self.apply_to_object(object, operation),
            Operation::Truncate { object, .. }
            | Operation::Write { object, .. }
            | Operation::Append { object, .. }
            | Operation::Replace { object, .. }
            | Operation::Allocate { object, .. }
            | Operation::Defragment { object, .. }
            | Operation::Sync { object } => self.apply_to_content(object, operation),
            Operation::Read { .. } | Operation::Clone { .. } | Operation::Dedupe { .. } => {
                unreachable!("it was handled before")
            }
            Operation::Tmpfile { dir, handle, mode } => {
                self.tmpfile(dir.as_slice(), *handle, *mode)
            }
            Operation::Subvolume { .. }
            | Operation::Snapshot { .. }
            | Operation::SetReadOnly { .. }
            | Operation::DeleteSubvolume { .. } => self.apply_to_subvolumes(operation),
            Operation::Open { path, handle } => self.open(path.as_slice(), *handle),
            Operation::Close { handle } => self.close(*handle),
            Operation::Resize { bytes } => self.resize(*bytes),
            Operation::Commit => Ok(()),
            Operation::Reopen => {
                self.close_all();
                Ok(())
            }
        }
    }

    /// Returns the number of inodes, including those without a name.
    pub fn inodes(&self) -> usize {
        self.inodes.len()
    }

    /// Returns the names in a directory, sorted by their bytes, with their types; `None` if the
    /// path does not resolve to a directory.
    pub fn list(&self, dir: &[u8]) -> Option<impl Iterator<Item = (&[u8], Kind)>> {
        let entries = self[self.resolve_dir(dir).ok()?].node.entries()?;
        Some(entries.iter().map(|(name, id)| (name.as_slice(), self[*id].node.kind())))
    }

    /// Returns the content of a file; `None` if the object is not a file.
    pub fn content(&self, object: &Object) -> Option<&Content> {
        match &self[self.object(object).ok()?].node {
            Node::File(content) => Some(content),
            _ => None,
        }
    }

    /// Returns the id of a file; `None` if the object is not a file.
    pub fn file_id(&self, object: &Object) -> Option<FileId> {
        let id = self.object(object).ok()?;
        matches!(self[id].node, Node::File(_)).then_some(FileId(id))
    }

    /// Gives no new file an id that `other` has given: those of an operation that failed halfway
    /// may be met later.
    pub fn skip_ids_of(&mut self, other: &Self) {
        self.next = self.next.max(other.next);
    }

    /// Returns the content of an existing file.
    pub fn content_of(&self, file: FileId) -> &Content {
        match &self[file.0].node {
            Node::File(content) => content,
            _ => unreachable!("a file"),
        }
    }

    /// Returns the paths of all files that have a name.
    pub fn files(&self) -> Vec<(Vec<u8>, FileId)> {
        let mut files = Vec::new();
        let mut pending = vec![(Vec::new(), ROOT)];
        while let Some((path, id)) = pending.pop() {
            match &self[id].node {
                Node::Dir(entries) => {
                    pending.extend(entries.iter().map(|(name, id)| (join(&path, name), *id)));
                }
                Node::File(_) => files.push((path, FileId(id))),
                _ => {}
            }
        }
        files
    }

    /// Returns all files, including those without a name, with their contents.
    pub fn contents(&self) -> impl Iterator<Item = (FileId, &Content)> {
        self.inodes.iter().filter_map(|(id, inode)| match &inode.node {
            Node::File(content) => Some((FileId(*id), content)),
            _ => None,
        })
    }

    /// Returns the number of non-zero bytes in all files.
    pub fn filled(&self) -> u64 {
        let filled = self.inodes.values().map(|inode| match &inode.node {
            Node::File(content) => content.filled(),
            _ => 0,
        });
        filled.sum()
    }

    /// Returns the names of an object's xattrs, sorted; `None` if the object does not exist.
    pub fn xattrs(&self, object: &Object) -> Option<impl Iterator<Item = &Bytes>> {
        Some(self[self.object(object).ok()?].xattrs.keys())
    }

    fn tmpfile(&mut self, dir: &[u8], handle: u8, mode: Mode) -> Outcome {
        let dir = self.resolve_dir(dir)?;
        self.check_writable(dir)?;
        let mut inode = Inode::new(Node::file(), mode);
        inode.is_linkable = true;
        let id = self.add(dir, inode);
        self.hold(handle, id);
        Ok(())
    }

    fn open(&mut self, path: &[u8], handle: u8) -> Outcome {
        let id = self.resolve(path)?;
        self[id].node.check_opening()?;
        self.hold(handle, id);
        Ok(())
    }

    fn hold(&mut self, handle: u8, id: Id) {
        if let Some(before) = self.handles.insert(handle, id) {
            self.forget_if_unused(before);
        }
    }

    fn close(&mut self, handle: u8) -> Outcome {
        let id = self.handles.remove(&handle).ok_or(Errno::BADF)?;
        self.forget_if_unused(id);
        Ok(())
    }

    fn close_all(&mut self) {
        for id in std::mem::take(&mut self.handles).into_values() {
            self.forget_if_unused(id);
        }
    }

    /// Adds an inode created in a directory; it has no name yet.
    fn add(&mut self, dir: Id, mut inode: Inode) -> Id {
        inode.inherit(&self[dir]);
        let id = self.new_id();
        self.inodes.insert(id, inode);
        id
    }

    fn new_id(&mut self) -> Id {
        let id = self.next;
        self.next = Id(id.0 + 1);
        id
    }

    /// Removes the inode if it has no names and handles; two handles may refer to it, so it may be
    /// removed already.
    fn forget_if_unused(&mut self, id: Id) {
        let has_name = self.inodes.get(&id).is_some_and(|inode| inode.nlink > 0);
        if !has_name && !self.handles.values().any(|held| *held == id) {
            self.inodes.remove(&id);
        }
    }

    fn object(&self, object: &Object) -> Outcome<Id> {
        match object {
            Object::Path(path) => self.resolve(path.as_slice()),
            Object::Handle(handle) => self.handles.get(handle).copied().ok_or(Errno::BADF),
        }
    }

    fn resolve(&self, path: &[u8]) -> Outcome<Id> {
        match split(path) {
            Some((dir, name)) => self.look_up(self.resolve_dir(dir)?, name),
            None => Ok(ROOT),
        }
    }

    fn resolve_dir(&self, path: &[u8]) -> Outcome<Id> {
        names(path).try_fold(ROOT, |dir, name| {
            let child = self.look_up(dir, name)?;
            self[child].is_dir().then_some(child).ok_or(Errno::NOTDIR)
        })
    }

    /// Returns the parent directory and the name of a path that is created or removed.
    fn parent<'a>(&self, path: &'a [u8]) -> Outcome<(Id, &'a [u8])> {
        let (dir, name) = split(path).ok_or(Errno::INVAL)?;
        Ok((self.resolve_dir(dir)?, name))
    }

    fn look_up(&self, dir: Id, name: &[u8]) -> Outcome<Id> {
        self.find((dir, name))?.ok_or(Errno::NOENT)
    }

    /// Returns the inode of a name in a directory, if it exists.
    fn find(&self, (dir, name): (Id, &[u8])) -> Outcome<Option<Id>> {
        if name.len() > inode::NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(self.entries(dir).get(name).copied())
    }

    fn get(&mut self, id: Id) -> &mut Inode {
        self.inodes.get_mut(&id).expect("an inode in use")
    }
}

impl Index<Id> for Model {
    type Output = Inode;

    fn index(&self, id: Id) -> &Inode {
        &self.inodes[&id]
    }
}

/// Returns the maximum number of bytes in an item after a header of its own.
fn item_max(node_size: u32, header: u32) -> usize {
    usize::try_from(node_size - LEAF_OVERHEAD - header).expect("the length of a leaf")
}

#[cfg(test)]
mod tests;
