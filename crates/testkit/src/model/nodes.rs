//! The inodes of a model, independent of their names.

use std::collections::BTreeMap;

use crate::manifest::{Bytes, Kind, Mode, Time};
use crate::operation::{Object, join};

use super::inode::Node;
use super::{Content, Id, Model, ROOT};

/// The number of an inode of a model, which is never reused there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Id);

impl NodeId {
    pub(super) fn id(self) -> Id {
        self.0
    }
}

/// The root directory.
pub const ROOT_NODE: NodeId = NodeId(ROOT);

/// A directory and a name in it.
pub type Name = (NodeId, Vec<u8>);

/// The attributes of an inode that a sync preserves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The file type.
    pub kind: Kind,
    /// Permissions.
    pub mode: Mode,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// As `FS_*_FL` bits.
    pub flags: u32,
    /// Major and minor number of a device.
    pub rdev: Option<(u32, u32)>,
    /// The target of a symbolic link.
    pub target: Option<Bytes>,
}

impl Model {
    /// Returns all inodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.inodes.keys().copied().map(NodeId)
    }

    /// Returns the inode of an object, if it exists.
    pub fn node(&self, object: &Object) -> Option<NodeId> {
        self.object(object).ok().map(NodeId)
    }

    /// Returns all names.
    pub fn names(&self) -> BTreeMap<Name, NodeId> {
        let entries =
            self.inodes.iter().filter_map(|(id, inode)| Some((id, inode.node.entries()?)));
        let of = |(dir, entries): (&Id, &BTreeMap<Vec<u8>, Id>)| {
            let dir = NodeId(*dir);
            let named = entries.iter().map(|(name, id)| ((dir, name.clone()), NodeId(*id)));
            named.collect::<Vec<_>>()
        };
        entries.flat_map(of).collect()
    }

    /// Returns the paths of all inodes that have a name, the root first.
    pub fn paths(&self) -> Vec<(Vec<u8>, NodeId)> {
        let mut paths = Vec::new();
        let mut pending = vec![(Vec::new(), ROOT)];
        while let Some((path, id)) = pending.pop() {
            let entries = self[id].node.entries().into_iter().flatten();
            pending.extend(entries.map(|(name, id)| (join(&path, name), *id)));
            paths.push((path, NodeId(id)));
        }
        paths
    }

    /// Returns the attributes of an existing inode.
    pub fn facts(&self, NodeId(id): NodeId) -> Facts {
        let inode = &self[id];
        let mut rdev = None;
        let mut target = None;
        match &inode.node {
            Node::Special(Kind::Block | Kind::Char, numbers) => rdev = Some(*numbers),
            Node::Symlink(to) => target = Some(to.clone()),
            _ => {}
        }
        let kind = inode.node.kind();
        let mode = inode.mode;
        let flags = inode.flags;
        Facts { kind, mode, uid: inode.uid, gid: inode.gid, flags, rdev, target }
    }

    /// Returns when the content of an existing inode last changed, if known.
    pub fn modified(&self, NodeId(id): NodeId) -> Option<Time> {
        self[id].mtime
    }

    /// Returns the xattrs of an existing inode.
    pub fn xattrs_of(&self, NodeId(id): NodeId) -> &BTreeMap<Bytes, Bytes> {
        &self[id].xattrs
    }

    /// Returns the content of an existing inode, if it is a file.
    pub fn content_of_node(&self, NodeId(id): NodeId) -> Option<&Content> {
        match &self[id].node {
            Node::File(content) => Some(content),
            _ => None,
        }
    }
}
