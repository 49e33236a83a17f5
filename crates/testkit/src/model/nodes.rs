//! The inodes of a model, whatever their names are.

use std::collections::BTreeMap;

use crate::manifest::{Bytes, Kind, Mode, Time};
use crate::operation::{Object, join};

use super::inode::Node;
use super::{Content, Id, Model, ROOT};

/// An inode of a model, by a number that is never used twice there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Id);

/// The root directory.
pub const ROOT_NODE: NodeId = NodeId(ROOT);

/// A directory, and a name in it.
pub type Name = (NodeId, Vec<u8>);

/// What an inode says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
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
    /// Where a symbolic link points.
    pub target: Option<Bytes>,
}

impl Model {
    /// All inodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.inodes.keys().copied().map(NodeId)
    }

    /// What an object is.
    pub fn node(&self, object: &Object) -> Option<NodeId> {
        self.object(object).ok().map(NodeId)
    }

    /// All names.
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

    /// The paths of all that has a name, the root first.
    pub fn paths(&self) -> Vec<(Vec<u8>, NodeId)> {
        let (mut paths, mut pending) = (Vec::new(), vec![(Vec::new(), ROOT)]);
        while let Some((path, id)) = pending.pop() {
            let entries = self[id].node.entries().into_iter().flatten();
            pending.extend(entries.map(|(name, id)| (join(&path, name), *id)));
            paths.push((path, NodeId(id)));
        }
        paths
    }

    /// What an inode that is there says of itself.
    pub fn facts(&self, NodeId(id): NodeId) -> Facts {
        let inode = &self[id];
        let (mut rdev, mut target) = (None, None);
        match &inode.node {
            Node::Special(Kind::Block | Kind::Char, numbers) => rdev = Some(*numbers),
            Node::Symlink(to) => target = Some(to.clone()),
            _ => {}
        }
        let (kind, mode, flags) = (inode.node.kind(), inode.mode, inode.flags);
        Facts { kind, mode, uid: inode.uid, gid: inode.gid, flags, rdev, target }
    }

    /// When the content of an inode that is there last changed, if that is known.
    pub fn modified(&self, NodeId(id): NodeId) -> Option<Time> {
        self[id].mtime
    }

    /// The xattrs of an inode that is there.
    pub fn xattrs_of(&self, NodeId(id): NodeId) -> &BTreeMap<Bytes, Bytes> {
        &self[id].xattrs
    }

    /// The content of an inode that is there, if it is a file.
    pub fn content_of_node(&self, NodeId(id): NodeId) -> Option<&Content> {
        match &self[id].node {
            Node::File(content) => Some(content),
            _ => None,
        }
    }
}
