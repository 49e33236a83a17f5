//! The visible state of the model.

use crate::manifest::{Difference, Entry, Kind, Manifest, SubvolumeId, diff};

use super::inode::{Inode, Node};
use super::{Content, Id, Model, ROOT};

impl Model {
    /// Returns the visible state. Inode numbers are invented; unknown times are 0.
    pub fn manifest(&self) -> Manifest {
        self.manifest_beside(None)
    }

    /// Returns the differences between the model (left) and the visible state of a filesystem,
    /// except what a model cannot know: inode numbers, times that were not set, the times of
    /// creation and of the last change, and the location of holes. `shown` may be the part below a
    /// directory ([`Manifest::below`]).
    pub fn differences(&self, shown: &Manifest) -> Vec<Difference> {
        diff(&self.manifest_beside(Some(shown)), shown, &["inode", "subvolume", "ctime", "btime"])
    }

    /// Returns the visible state; unknown times, and holes, are taken from `shown` if they are
    /// possible.
    fn manifest_beside(&self, shown: Option<&Manifest>) -> Manifest {
        let mut met = Vec::new();
        let mut pending = vec![(Vec::new(), ROOT)];
        while let Some((path, id)) = pending.pop() {
            let children = self[id].node.entries().into_iter().flatten();
            pending.extend(children.map(|(name, id)| ([&path, &b"/"[..], name].concat(), *id)));
            let path = if path.is_empty() { b"/".to_vec() } else { path };
            let beside = shown.and_then(|shown| shown.get(&path));
            met.push((SubvolumeId(0), self.entry(path, id, beside)));
        }
        Manifest::new(met)
    }

    fn entry(&self, path: Vec<u8>, id: Id, beside: Option<&Entry>) -> Entry {
        let mut entry = entry(path, id, &self[id], beside);
        entry.subvolume = self.is_subvolume_root(id);
        if let Some(beside) = beside.filter(|_| self[id].is_stub) {
            // Linux invents these when it looks the directory up.
            entry.mode = beside.mode;
            entry.uid = beside.uid;
            entry.gid = beside.gid;
        }
        entry
    }
}

fn entry(path: Vec<u8>, id: Id, inode: &Inode, beside: Option<&Entry>) -> Entry {
    let kind = inode.node.kind();
    let mut entry = Entry {
        path: path.into(),
        kind,
        inode: id.0,
        subvolume: false,
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink,
        size: size(&inode.node),
        rdev: None,
        mtime: inode.mtime.or(beside.map(|entry| entry.mtime)).unwrap_or_default(),
        ctime: beside.map(|entry| entry.ctime).unwrap_or_default(),
        atime: inode.atime.or(beside.map(|entry| entry.atime)).unwrap_or_default(),
        btime: None,
        flags: inode.flags,
        target: None,
        xattrs: inode.xattrs.clone(),
        link: None,
        segments: Vec::new(),
        content: None,
    };
    match &inode.node {
        Node::Dir(_) => {}
        Node::File(content) => show_content(content, &mut entry, beside),
        Node::Symlink(target) => entry.target = Some(target.clone()),
        Node::Special(_, rdev) => {
            entry.rdev = matches!(kind, Kind::Block | Kind::Char).then_some(*rdev);
        }
    }
    entry
}

/// Returns the size; a directory counts each byte of its names twice, once per kind of entry.
fn size(node: &Node) -> u64 {
    match node {
        Node::Dir(entries) => 2 * entries.keys().map(|name| name.len() as u64).sum::<u64>(),
        Node::File(content) => content.size(),
        Node::Symlink(target) => target.as_slice().len() as u64,
        Node::Special(..) => 0,
    }
}

fn show_content(content: &Content, entry: &mut Entry, beside: Option<&Entry>) {
    let may_be = beside.filter(|beside| content.may_be_in(&beside.segments));
    entry.segments = may_be.map_or_else(|| content.segments(), |beside| beside.segments.clone());
    entry.content = Some(content.digest());
}
