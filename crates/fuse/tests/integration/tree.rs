//! The nodes of the filesystem in memory.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use userbtrfs_fuse::{
    Attributes, Caller, Changes, DeviceNumber, Entry, Errno, ExtendedStat, FOREVER, FileType, Name,
    NewTime, NodeId, RenameFlags, Stat, Timestamp, XattrFlags,
};

use super::sparse::Sparse;

/// The first cookie of a name in a directory; `.` and `..` precede it.
const FIRST_COOKIE: u64 = 3;

pub(crate) struct Tree {
    nodes: HashMap<u64, Node>,
    next_node: u64,
}

pub(crate) struct Node {
    pub(crate) attributes: Attributes,
    pub(crate) content: Content,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    born: Timestamp,
    lookups: u64,
}

pub(crate) enum Content {
    File(Sparse),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

pub(crate) struct Directory {
    parent: u64,
    names: BTreeMap<Vec<u8>, (u64, u64)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    next_cookie: u64,
}

/// A line of a listing.
pub(crate) struct Line {
    pub(crate) node: u64,
    pub(crate) next: u64,
    pub(crate) kind: FileType,
    pub(crate) name: Vec<u8>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut tree = Self { nodes: HashMap::new(), next_node: 1 };
        let uid = rustix::process::geteuid().as_raw();
        let caller = Caller { uid, gid: 0, pid: 0, group_of_parent: None };
        let root = tree.add(0o040_755, &caller, Content::Directory(Directory::new(1)));
        tree.nodes.get_mut(&root).unwrap().attributes.nlink = 2;
        tree
    }

    pub(crate) fn node(&self, node: NodeId) -> Result<&Node, Errno> {
        self.nodes.get(&node.0).ok_or(Errno::STALE)
    }

    pub(crate) fn node_mut(&mut self, node: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&node.0).ok_or(Errno::STALE)
    }

    pub(crate) fn file(&self, node: NodeId) -> Result<&Sparse, Errno> {
        match &self.node(node)?.content {
            Content::File(file) => Ok(file),
            _ => Err(Errno::INVAL),
        }
    }

    /// Returns the contents, for a change.
    pub(crate) fn file_mut(&mut self, node: NodeId) -> Result<&mut Sparse, Errno> {
        match &mut self.node_mut(node)?.content {
            Content::File(file) => Ok(file),
            _ => Err(Errno::INVAL),
        }
    }

    fn directory(&self, node: NodeId) -> Result<&Directory, Errno> {
        match &self.node(node)?.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn directory_mut(&mut self, node: NodeId) -> Result<&mut Directory, Errno> {
        match &mut self.node_mut(node)?.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn child(&self, parent: NodeId, name: Name<'_>) -> Result<NodeId, Errno> {
        let directory = self.directory(parent)?;
        match name.as_bytes() {
            b"." => Ok(parent),
            b".." => Ok(NodeId(directory.parent)),
            bytes => directory.names.get(bytes).map(|it| NodeId(it.0)).ok_or(Errno::NOENT),
        }
    }

    /// Makes a node without a name.
    pub(crate) fn add(&mut self, mode: u32, caller: &Caller, content: Content) -> u64 {
        let number = self.next_node;
        self.next_node += 1;
        let now = now();
        let attributes = Attributes {
            ino: number,
            atime: now,
            mtime: now,
            ctime: now,
            mode,
            uid: caller.uid,
            gid: caller.gid,
            ..Attributes::default()
        };
        let xattrs = BTreeMap::new();
        self.nodes.insert(number, Node { attributes, content, xattrs, born: now, lookups: 0 });
        number
    }

    /// Makes a node with a name.
    pub(crate) fn make(
        &mut self,
        parent: NodeId,
        name: Name<'_>,
        mode: u32,
        caller: &Caller,
        content: Content,
    ) -> Result<NodeId, Errno> {
        if self.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let node = NodeId(self.add(mode, caller, content));
        self.put(parent, name, node)?;
        Ok(node)
    }

    pub(crate) fn set_device(&mut self, node: NodeId, device: DeviceNumber) {
        self.nodes.get_mut(&node.0).unwrap().attributes.rdev = device;
    }

    /// Adds an unused name to a node.
    fn put(&mut self, parent: NodeId, name: Name<'_>, node: NodeId) -> Result<(), Errno> {
        let links = self.links_of_name(node)?;
        let is_directory = links == 2;
        self.directory_mut(parent)?.put(name, node.0);
        self.node_mut(parent)?.attributes.nlink += u32::from(is_directory);
        self.node_mut(node)?.attributes.nlink += links;
        if is_directory {
            self.directory_mut(node)?.parent = parent.0;
        }
        Ok(())
    }

    /// Removes a name from its directory and its node.
    fn take(&mut self, parent: NodeId, name: Name<'_>) -> Result<NodeId, Errno> {
        let node = NodeId(self.directory_mut(parent)?.take(name).ok_or(Errno::NOENT)?);
        let links = self.links_of_name(node)?;
        self.node_mut(parent)?.attributes.nlink -= u32::from(links == 2);
        self.node_mut(node)?.attributes.nlink -= links;
        Ok(node)
    }

    /// Returns the number of links that a name adds: two for a directory, whose `.` is one.
    fn links_of_name(&self, node: NodeId) -> Result<u32, Errno> {
        Ok(if self.node(node)?.is_directory() { 2 } else { 1 })
    }

    /// Returns the entry of a node, for an answer, and counts a reference to it.
    pub(crate) fn refer(&mut self, node: NodeId) -> Result<Entry, Errno> {
        self.node_mut(node)?.lookups += 1;
        Ok(Entry {
            node,
            generation: 0,
            attributes: self.node(node)?.attributes(),
            attributes_valid: FOREVER,
            entry_valid: FOREVER,
        })
    }

    pub(crate) fn lookup(&mut self, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        match self.child(parent, name) {
            Ok(node) => self.refer(node),
            Err(Errno::NOENT) => Ok(Entry::absent(FOREVER)),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn forget(&mut self, node: NodeId, lookups: u64) {
        let known = self.nodes.get_mut(&node.0).expect("a node that is referred to is there");
        known.lookups = known.lookups.checked_sub(lookups).expect("references are counted");
        self.drop_if_unused(node);
    }

    /// Deletes a node without references and names.
    pub(crate) fn drop_if_unused(&mut self, node: NodeId) {
        let unused = |node: &Node| node.lookups == 0 && node.attributes.nlink == 0;
        if self.nodes.get(&node.0).is_some_and(unused) {
            self.nodes.remove(&node.0);
        }
    }

    /// Returns the number of the kernel's references to nodes other than the root, and the number
    /// of these nodes.
    pub(crate) fn counts(&self) -> (u64, usize) {
        let others = self.nodes.iter().filter(|(number, _)| **number != 1);
        (others.map(|(_, node)| node.lookups).sum(), self.nodes.len() - 1)
    }

    pub(crate) fn stat(&self, node: NodeId) -> Result<Stat, Errno> {
        Ok(Stat { attributes: self.node(node)?.attributes(), valid: FOREVER })
    }

    pub(crate) fn statx(&self, node: NodeId) -> Result<ExtendedStat, Errno> {
        Ok(ExtendedStat { stat: self.stat(node)?, born: Some(self.node(node)?.born) })
    }

    pub(crate) fn change(&mut self, node: NodeId, changes: &Changes) -> Result<Stat, Errno> {
        if let Some(size) = changes.size {
            self.file_mut(node)?.set_size(size);
        }
        let attributes = &mut self.node_mut(node)?.attributes;
        let time = |new| match new {
            NewTime::Now => now(),
            NewTime::At(time) => time,
        };
        let kept = attributes.mode & 0o170_000;
        attributes.mode = changes.mode.map_or(attributes.mode, |mode| kept | (mode & 0o7777));
        attributes.uid = changes.uid.unwrap_or(attributes.uid);
        attributes.gid = changes.gid.unwrap_or(attributes.gid);
        attributes.atime = changes.atime.map_or(attributes.atime, time);
        attributes.mtime = changes.mtime.map_or(attributes.mtime, time);
        attributes.ctime = changes.ctime.unwrap_or_else(now);
        self.stat(node)
    }

    pub(crate) fn link(&mut self, to: NodeId, at: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        if self.child(at, name).is_ok() {
            return Err(Errno::EXIST);
        }
        self.put(at, name, to)?;
        self.refer(to)
    }

    pub(crate) fn remove(
        &mut self,
        parent: NodeId,
        name: Name<'_>,
        directory: bool,
    ) -> Result<(), Errno> {
        let node = self.child(parent, name)?;
        match self.directory(node) {
            Ok(_) if !directory => return Err(Errno::ISDIR),
            Err(_) if directory => return Err(Errno::NOTDIR),
            Ok(found) if !found.names.is_empty() => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        self.take(parent, name)?;
        self.drop_if_unused(node);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        from: (NodeId, Name<'_>),
        to: (NodeId, Name<'_>),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let (parent, name) = from;
        let (new_parent, new_name) = to;
        let node = self.child(parent, name)?;
        let other = self.child(new_parent, new_name).ok();
        if flags.contains(RenameFlags::NOREPLACE) && other.is_some() {
            return Err(Errno::EXIST);
        }
        self.take(parent, name)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            let other = other.ok_or(Errno::NOENT)?;
            self.take(new_parent, new_name)?;
            self.put(parent, name, other)?;
        } else if let Some(other) = other {
            let is_directory = self.node(other)?.is_directory();
            self.remove(new_parent, new_name, is_directory)?;
        }
        self.put(new_parent, new_name, node)
    }

    /// Lists a directory after this cookie.
    pub(crate) fn list(&self, node: NodeId, after: u64) -> Result<Vec<Line>, Errno> {
        let directory = self.directory(node)?;
        let dots = [(1, &b"."[..], node.0), (2, b"..", directory.parent)];
        let dots = dots.into_iter().map(|(next, name, node)| (next, name.to_vec(), node));
        let names = directory.by_cookie.range(after.saturating_add(1)..);
        let names = names.map(|(&next, name)| (next, name.clone(), directory.names[name].0));
        let lines = dots.filter(|line| line.0 > after).chain(names);
        lines.map(|(next, name, node)| self.line(next, name, node)).collect()
    }

    fn line(&self, next: u64, name: Vec<u8>, node: u64) -> Result<Line, Errno> {
        let kind = FileType::from_raw_mode(self.node(NodeId(node))?.attributes.mode);
        Ok(Line { node, next, kind, name })
    }

    pub(crate) fn set_xattr(
        &mut self,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let xattrs = &mut self.node_mut(node)?.xattrs;
        match xattrs.contains_key(name) {
            true if flags.contains(XattrFlags::CREATE) => return Err(Errno::EXIST),
            false if flags.contains(XattrFlags::REPLACE) => return Err(Errno::NODATA),
            _ => {}
        }
        xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }
}

impl Node {
    fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory(_))
    }

    fn attributes(&self) -> Attributes {
        let (size, blocks) = match &self.content {
            Content::File(file) => (file.size(), file.blocks()),
            Content::Directory(directory) => (directory.names.len() as u64, 0),
            Content::Symlink(target) => (target.len() as u64, 0),
            Content::Special => (0, 0),
        };
        Attributes { size, blocks, ..self.attributes }
    }
}

impl Directory {
    pub(crate) fn new(parent: u64) -> Self {
        let names = BTreeMap::new();
        let by_cookie = BTreeMap::new();
        Self { parent, names, by_cookie, next_cookie: FIRST_COOKIE }
    }

    fn put(&mut self, name: Name<'_>, node: u64) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.names.insert(name.as_bytes().to_vec(), (node, cookie));
        self.by_cookie.insert(cookie, name.as_bytes().to_vec());
    }

    fn take(&mut self, name: Name<'_>) -> Option<u64> {
        let (node, cookie) = self.names.remove(name.as_bytes())?;
        self.by_cookie.remove(&cookie);
        Some(node)
    }
}

pub(crate) fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::new(i64::try_from(now.as_secs()).unwrap(), now.subsec_nanos()).unwrap()
}
