//! A FUSE filesystem that does almost nothing: it measures the cost of the transport, the answers
//! and the caches alone.
//!
//! 1. It keeps names, attributes and sizes; data is dropped, and read as zeros. An fsync is
//!    answered at once.
//! 2. The negotiated flags and the validity of answers are those of our mount: without OPEN and
//!    FLUSH, and with all answers cached for ever.
//! 3. A node is in one of many shards, under the lock of its shard; only one shard is locked at a
//!    time. The kernel holds its own lock of a directory while names in it change, so a node found
//!    by a name still exists when its shard is locked.
//! 4. With a [`Disk`], synced data is written there and made durable, and nothing else changes:
//!    this is the minimum cost of an fsync.
//! 5. Only the operations that the measured programs need are implemented: no links, no special
//!    files, no extended attributes.

mod disk;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use userbtrfs_fuse::{
    Attributes, Bytes, Changes, Config, Create, Created, DirectoryEntry, Entries, Entry, Errno,
    ExtendedStat, FOREVER, FileType, Fsync, Getxattr, Handle, InitFlags, Mkdir, Mount, Name, Names,
    NewTime, NodeId, Opened, OpenedFlags, Read, Rename, RenameFlags, Reply, Request, Server,
    Session, Stat, Statistics, Statx, Timestamp, Value, Write, Written, may_sleep,
};
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use self::disk::{BLOCK, Disk};

const SHARDS: usize = 64;

/// The contents of all files, as much as fits into one message.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// File types, as bits of a mode.
const DIRECTORY: u32 = 0o040_000;
const KIND: u32 = 0o170_000;
/// The offset of the first name of a directory, after `.` and `..`.
const FIRST_NAME: u64 = 3;
/// The minimum size of a line of a listing, in bytes.
const LINE_BYTES: u32 = 32;
/// The number of blocks reported by statfs(2): 1 TiB.
const BLOCKS: u64 = 1 << 28;
const NAME_MAX: u32 = 255;

/// Serves the filesystem on a mount; synced data is made durable in the file `disk`, if given.
pub(crate) fn serve(mount: Mount, disk: Option<&Path>) -> Result<Session> {
    let flags = InitFlags::LOCAL_DISK.difference(InitFlags::EXPORT_SUPPORT);
    let config = Config { flags, ..Config::default() };
    let disk = disk.map(Disk::open).transpose()?;
    Ok(Session::start(mount, Arc::new(Nothing::new(disk)), &config)?)
}

struct Nothing {
    shards: [Shard; SHARDS],
    next_node: AtomicU64,
    disk: Option<Disk>,
}

/// Nodes by number.
struct Shard(Mutex<HashMap<u64, Node>>);

struct Node {
    attributes: Attributes,
    /// The number of the kernel's references.
    lookups: u64,
    directory: Option<Directory>,
    /// The number of bytes written since the last sync.
    unsynced: u64,
}

/// Names, and their offsets in a listing.
struct Directory {
    places: HashMap<Arc<[u8]>, u64>,
    lines: BTreeMap<u64, Line>,
    next_place: u64,
}

/// A line of a listing.
#[derive(Clone)]
struct Line {
    node: NodeId,
    kind: FileType,
    name: Arc<[u8]>,
}

impl Nothing {
    fn new(disk: Option<Disk>) -> Self {
        let new = Self {
            disk,
            shards: std::array::from_fn(|_| Shard(Mutex::new(Class::FuseSession, HashMap::new()))),
            next_node: AtomicU64::new(NodeId::ROOT.0),
        };
        let owner = rustix::process::geteuid().as_raw();
        new.add(NodeId::ROOT, DIRECTORY | 0o755, owner, 0);
        new
    }

    fn shard(&self, node: NodeId) -> &Mutex<HashMap<u64, Node>> {
        &self.shards[usize::try_from(node.0).expect("nodes are counted") % SHARDS].0
    }

    fn with<R>(&self, node: NodeId, work: impl FnOnce(&mut Node) -> R) -> Result<R, Errno> {
        self.shard(node).lock().get_mut(&node.0).map(work).ok_or(Errno::STALE)
    }

    fn in_directory<R>(
        &self,
        node: NodeId,
        work: impl FnOnce(&mut Directory) -> R,
    ) -> Result<R, Errno> {
        self.with(node, |node| node.directory.as_mut().map(work))?.ok_or(Errno::NOTDIR)
    }

    /// Makes a node with one link, which the caller adds to `parent`.
    fn add(&self, parent: NodeId, mode: u32, uid: u32, gid: u32) -> NodeId {
        let node = NodeId(self.next_node.fetch_add(1, Ordering::Relaxed));
        let now = now();
        let attributes = Attributes {
            ino: node.0,
            atime: now,
            mtime: now,
            ctime: now,
            mode,
            nlink: 1,
            uid,
            gid,
            block_size: BLOCK,
            ..Attributes::default()
        };
        let directory = (mode & KIND == DIRECTORY).then(|| Directory::new(node, parent));
        let new = Node { attributes, lookups: 0, directory, unsynced: 0 };
        self.shard(node).lock().insert(node.0, new);
        node
    }

    fn make(&self, request: &Request, name: Name<'_>, mode: u32) -> Result<Entry, Errno> {
        let caller = &request.caller;
        let node = self.add(request.node, mode, caller.uid, caller.gid);
        let kind = FileType::from_raw_mode(mode);
        self.in_directory(request.node, |directory| directory.put(name.as_bytes(), node, kind))?;
        self.refer(node)
    }

    fn find(&self, parent: NodeId, name: Name<'_>) -> Result<NodeId, Errno> {
        self.in_directory(parent, |directory| directory.find(name))?.ok_or(Errno::NOENT)
    }

    /// Returns the entry of a node, and adds a reference of the kernel to it.
    fn refer(&self, node: NodeId) -> Result<Entry, Errno> {
        self.with(node, |there| {
            there.lookups += 1;
            let attributes = there.attributes;
            let attributes_valid = FOREVER;
            let entry_valid = FOREVER;
            Entry { node, generation: 0, attributes, attributes_valid, entry_valid }
        })
    }

    /// Drops references or a link of a node, and deletes it if it has neither any more.
    fn let_go(&self, node: NodeId, take: impl FnOnce(&mut Node)) {
        let mut nodes = self.shard(node).lock();
        let Some(there) = nodes.get_mut(&node.0) else { return };
        take(there);
        if there.lookups == 0 && there.attributes.nlink == 0 {
            nodes.remove(&node.0);
        }
    }

    fn take(&self, parent: NodeId, name: Name<'_>) -> Result<Line, Errno> {
        self.in_directory(parent, |directory| directory.take(name))?.ok_or(Errno::NOENT)
    }

    fn remove(&self, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        let line = self.take(parent, name)?;
        self.let_go(line.node, |node| node.attributes.nlink -= 1);
        Ok(())
    }

    fn remove_directory(&self, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        let node = self.find(parent, name)?;
        if self.in_directory(node, |directory| directory.places.is_empty())? {
            self.remove(parent, name)
        } else {
            Err(Errno::NOTEMPTY)
        }
    }

    fn move_name(&self, parent: NodeId, rename: &Rename<'_>) -> Result<(), Errno> {
        // The kernel has checked that the new name does not exist.
        if !RenameFlags::NOREPLACE.contains(rename.flags) {
            return Err(Errno::INVAL);
        }
        let to = rename.new_parent;
        let name = rename.new_name;
        match self.find(to, name) {
            Ok(replaced) if self.in_directory(replaced, |_| ()).is_ok() => {
                self.remove_directory(to, name)?;
            }
            Ok(_) => self.remove(to, name)?,
            Err(_) => {}
        }
        let line = self.take(parent, rename.name)?;
        self.in_directory(to, |directory| directory.put(name.as_bytes(), line.node, line.kind))
    }

    fn stat(&self, node: NodeId) -> Result<Stat, Errno> {
        self.with(node, |node| Stat { attributes: node.attributes, valid: FOREVER })
    }

    fn sync(&self, node: NodeId) -> Result<(), Errno> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let unsynced = self.with(node, |node| std::mem::take(&mut node.unsynced))?;
        may_sleep(|| disk.sync(unsynced))
    }

    /// Returns the lines after an offset, as many as may fit.
    fn lines(&self, node: NodeId, read: &Read) -> Result<Vec<(u64, Line)>, Errno> {
        let most = usize::try_from(read.size / LINE_BYTES).expect("a message is short");
        self.in_directory(node, |directory| {
            let behind = directory.lines.range(read.offset.saturating_add(1)..);
            behind.take(most).map(|(place, line)| (*place, line.clone())).collect()
        })
    }

    fn refer_in_listing(&self, place: u64, line: &Line) -> Entry {
        let found = (place >= FIRST_NAME).then(|| self.refer(line.node).ok());
        found.flatten().unwrap_or(Entry::absent(FOREVER))
    }
}

impl Node {
    fn set_size(&mut self, size: u64) {
        self.attributes.size = size;
        self.attributes.blocks = size.div_ceil(512);
    }

    fn change(&mut self, changes: &Changes) {
        if let Some(size) = changes.size {
            self.set_size(size);
        }
        let time = |new| match new {
            NewTime::Now => now(),
            NewTime::At(time) => time,
        };
        let it = &mut self.attributes;
        it.mode = changes.mode.map_or(it.mode, |mode| it.mode & KIND | mode & !KIND);
        it.uid = changes.uid.unwrap_or(it.uid);
        it.gid = changes.gid.unwrap_or(it.gid);
        it.atime = changes.atime.map_or(it.atime, time);
        it.mtime = changes.mtime.map_or(it.mtime, time);
        it.ctime = changes.ctime.unwrap_or_else(now);
    }
}

impl Directory {
    fn new(node: NodeId, parent: NodeId) -> Self {
        let dot = |node, name: &[u8]| Line { node, kind: FileType::Directory, name: name.into() };
        let lines = BTreeMap::from([(1, dot(node, b".")), (2, dot(parent, b".."))]);
        Self { places: HashMap::new(), lines, next_place: FIRST_NAME }
    }

    fn find(&self, name: Name<'_>) -> Option<NodeId> {
        Some(self.lines[self.places.get(name.as_bytes())?].node)
    }

    /// Adds a name that does not exist yet.
    fn put(&mut self, name: &[u8], node: NodeId, kind: FileType) {
        let name: Arc<[u8]> = name.into();
        self.places.insert(name.clone(), self.next_place);
        self.lines.insert(self.next_place, Line { node, kind, name });
        self.next_place += 1;
    }

    fn take(&mut self, name: Name<'_>) -> Option<Line> {
        self.lines.remove(&self.places.remove(name.as_bytes())?)
    }
}

impl Line {
    fn shown(&self, place: u64) -> DirectoryEntry<'_> {
        let name = Name::new(&self.name).expect("it came as a name");
        DirectoryEntry { ino: self.node.0, next: place, kind: self.kind, name }
    }
}

impl Server for Nothing {
    fn lookup(&self, request: &Request, name: Name<'_>, reply: Reply<Entry>) {
        reply.send(match self.find(request.node, name) {
            Ok(node) => self.refer(node),
            Err(Errno::NOENT) => Ok(Entry::absent(FOREVER)),
            Err(error) => Err(error),
        });
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.let_go(node, |node| node.lookups = node.lookups.saturating_sub(lookups));
    }

    fn getattr(&self, request: &Request, _: Option<Handle>, reply: Reply<Stat>) {
        reply.send(self.stat(request.node));
    }

    fn statx(&self, request: &Request, _: &Statx, reply: Reply<ExtendedStat>) {
        reply.send(self.stat(request.node).map(|stat| ExtendedStat { stat, born: None }));
    }

    fn setattr(&self, request: &Request, changes: &Changes, reply: Reply<Stat>) {
        reply.send(self.with(request.node, |node| {
            node.change(changes);
            Stat { attributes: node.attributes, valid: FOREVER }
        }));
    }

    fn mkdir(&self, request: &Request, mkdir: &Mkdir<'_>, reply: Reply<Entry>) {
        reply.send(self.make(request, mkdir.name, DIRECTORY | mkdir.mode & !mkdir.umask));
    }

    fn create(&self, request: &Request, create: &Create<'_>, reply: Reply<Created>) {
        let entry = self.make(request, create.name, create.mode & !create.umask);
        let opened = Opened { flags: OpenedFlags::KEEP_CACHE, ..Opened::default() };
        reply.send(entry.map(|entry| Created { entry, opened }));
    }

    fn unlink(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.send(self.remove(request.node, name));
    }

    fn rmdir(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.send(self.remove_directory(request.node, name));
    }

    fn rename(&self, request: &Request, rename: &Rename<'_>, reply: Reply<()>) {
        reply.send(self.move_name(request.node, rename));
    }

    fn read(&self, request: &Request, read: &Read, reply: Reply<Bytes>) {
        let bytes = self.with(request.node, |node| {
            let left = node.attributes.size.saturating_sub(read.offset).min(read.size.into());
            &ZEROS[..usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()))]
        });
        reply.send(bytes);
    }

    fn write(&self, request: &Request, write: &Write<'_>, reply: Reply<Written>) {
        let end = write.offset + write.data.len() as u64;
        let count = u32::try_from(write.data.len()).expect("a message is short");
        reply.send(self.with(request.node, |node| {
            if end > node.attributes.size {
                node.set_size(end);
            }
            node.unsynced += u64::from(count);
            Written(count)
        }));
    }

    fn fsync(&self, request: &Request, _: &Fsync, reply: Reply<()>) {
        reply.send(self.sync(request.node));
    }

    fn fsyncdir(&self, request: &Request, _: &Fsync, reply: Reply<()>) {
        reply.send(self.sync(request.node));
    }

    fn readdir(&self, request: &Request, read: &Read, reply: Reply<Names>) {
        let lines = match self.lines(request.node, read) {
            Ok(lines) => lines,
            Err(error) => return reply.fail(error),
        };
        let mut list = reply.begin();
        for (place, line) in &lines {
            if !list.add(&line.shown(*place)) {
                break;
            }
        }
        list.send();
    }

    fn readdirplus(&self, request: &Request, read: &Read, reply: Reply<Entries>) {
        let lines = match self.lines(request.node, read) {
            Ok(lines) => lines,
            Err(error) => return reply.fail(error),
        };
        let mut list = reply.begin();
        for (place, line) in &lines {
            let found = self.refer_in_listing(*place, line);
            if !list.add(&line.shown(*place), &found) {
                self.forget(found.node, 1);
                break;
            }
        }
        list.send();
    }

    fn statfs(&self, _: &Request, reply: Reply<Statistics>) {
        reply.succeed(&Statistics {
            blocks: BLOCKS,
            blocks_free: BLOCKS,
            blocks_available: BLOCKS,
            files: 0,
            files_free: 0,
            block_size: BLOCK,
            name_max: NAME_MAX,
            fragment_size: BLOCK,
        });
    }

    fn getxattr(&self, _: &Request, _: &Getxattr<'_>, reply: Reply<Value>) {
        reply.fail(Errno::NODATA);
    }

    fn listxattr(&self, _: &Request, reply: Reply<Value>) {
        reply.send(Ok(&[]));
    }
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    Timestamp::new(seconds, now.subsec_nanos()).expect("less than a second")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::ErrorKind;

    use rustix::fs::Advice;
    use tempfile::TempDir;
    use userbtrfs_fuse::MountOptions;
    use userbtrfs_testkit::test_env::fuse_or_skip;

    use super::*;

    #[test]
    fn names_and_sizes_are_kept_and_data_is_not() {
        if !fuse_or_skip() {
            return;
        }
        let folder = TempDir::new().unwrap();
        let mount = Mount::new(folder.path(), &MountOptions::default()).unwrap();
        let session = serve(mount, None).unwrap();
        let at = |name: &str| folder.path().join(name);
        let names = |name: &str| {
            let names = fs::read_dir(at(name)).unwrap().map(|name| name.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        fs::create_dir(at("d")).unwrap();
        for number in 100..400 {
            let path = at(&format!("d/{number}"));
            fs::write(&path, vec![1; number]).unwrap();
            File::open(path).unwrap().sync_all().unwrap();
        }
        assert_eq!(names("d"), (100..400).map(|number| number.to_string()).collect::<Vec<_>>());
        assert_eq!(fs::remove_dir(at("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        fs::rename(at("d/100"), at("d/200")).unwrap();
        fs::rename(at("d/300"), at("e")).unwrap();
        (201..300).chain(301..400).for_each(|it| fs::remove_file(at(&format!("d/{it}"))).unwrap());
        assert_eq!((names("").len(), names("d").len()), (2, 100));
        assert_eq!(at("d/200").metadata().unwrap().len(), 100);
        rustix::fs::fadvise(File::open(at("e")).unwrap(), 0, None, Advice::DontNeed).unwrap();
        assert_eq!(fs::read(at("e")).unwrap(), [0; 300]);
        fs::remove_dir_all(at("d")).unwrap();
        assert_eq!(names(""), ["e"]);
        session.stop().unwrap();
        session.wait().unwrap();
    }
}
