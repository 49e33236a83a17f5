//! A filesystem in memory, as a server.
//!
//! Options: whether OPEN is served, and how long DESTROY takes. An fsync of the file `held` is
//! answered by the test, or with EINTR; a lookup of `panic` panics; an fsync of `slow...`, and a
//! change of its xattrs, sleeps on its thread until the test sets `sleepers_may_go`.

use rustix::fs::FallocateFlags;
use userbtrfs_fuse::{
    Bytes, Changes, Copied, CopyFileRange, Create, Created, DirectoryEntry, Entries, Entry, Errno,
    ExtendedStat, FOREVER, Fallocate, FileType, Fsync, Getxattr, Handle, Invalidation, Ioctl,
    IoctlData, Link, Lseek, Mkdir, Mknod, Name, Names, Negotiated, NodeId, Notifier, OFlags, Open,
    Opened, OpenedFlags, Position, Read, Rename, Reply, Request, Server, Setxattr, Stat,
    Statistics, Statx, Symlink, Tmpfile, Value, Whence, Write, Written, may_sleep, may_wait,
};
use userbtrfs_sync::{Arc, Class, Condvar, Mutex, OnceLock};

use super::sparse::Sparse;
use super::tree::{Content, Directory, Tree};

/// The filesystem.
pub(crate) struct Memory {
    tree: Mutex<Tree>,
    pub(crate) behavior: Behavior,
    pub(crate) seen: Arc<Seen>,
    notifier: OnceLock<Notifier>,
}

/// The options of the server.
#[derive(Clone, Copy, Default)]
pub(crate) struct Behavior {
    /// OPEN and OPENDIR are served.
    pub(crate) opens: bool,
    /// The time that DESTROY takes, in milliseconds.
    pub(crate) destroy_takes: u64,
}

/// The requests that the server has seen, and those that it holds back.
pub(crate) struct Seen {
    state: Mutex<State>,
    changed: Condvar,
    /// Notified when sleepers may go. Only sleepers wait for it, as they are many.
    may_go: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) opens: usize,
    pub(crate) largest_read: u32,
    pub(crate) syncs: usize,
    pub(crate) destroyed: bool,
    pub(crate) interrupts: usize,
    pub(crate) held: Option<Reply<()>>,
    pub(crate) sleepers: usize,
    pub(crate) sleepers_may_go: bool,
}

impl Seen {
    fn new() -> Self {
        let state = Mutex::new(Class::TransactionState, State::default());
        Self { state, changed: Condvar::new(), may_go: Condvar::new() }
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.changed.notify_all();
        if state.sleepers_may_go {
            self.may_go.notify_all();
        }
        result
    }

    /// Waits until the condition is true.
    pub(crate) fn until(&self, mut so: impl FnMut(&mut State) -> bool) {
        self.changed.wait_while(&mut self.state.lock(), |state| !so(state));
    }
}

impl Memory {
    pub(crate) fn new(behavior: Behavior) -> Self {
        let tree = Mutex::new(Class::InodeState, Tree::new());
        Self { tree, behavior, seen: Arc::new(Seen::new()), notifier: OnceLock::new() }
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Tree) -> R) -> R {
        work(&mut self.tree.lock())
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        self.notifier.get().unwrap()
    }

    fn name_of(&self, node: NodeId) -> Option<Vec<u8>> {
        let lines = self.with(|tree| tree.list(NodeId::ROOT, 2)).unwrap();
        lines.into_iter().find(|line| line.node == node.0).map(|line| line.name)
    }

    fn make(
        &self,
        request: &Request,
        name: Name<'_>,
        mode: u32,
        content: Content,
    ) -> Result<Entry, Errno> {
        self.with(|tree| {
            let node = tree.make(request.node, name, mode, &request.caller, content)?;
            tree.refer(node)
        })
    }

    /// Holds a request until it is interrupted or the test answers it.
    fn hold(&self, reply: Reply<()>) {
        let seen = self.seen.clone();
        reply.on_interrupt(move || {
            let held = seen.change(|state| {
                state.interrupts += 1;
                state.held.take()
            });
            if let Some(reply) = held {
                reply.fail(Errno::INTR);
            }
        });
        self.seen.change(|state| state.held = Some(reply));
    }

    fn sleep(&self) {
        self.seen.change(|state| state.sleepers += 1);
        let mut state = self.seen.state.lock();
        self.seen.may_go.wait_while(&mut state, |state| !state.sleepers_may_go);
    }
}

impl Server for Memory {
    fn init(&self, _: &Negotiated, notifier: Notifier) {
        assert!(self.notifier.set(notifier).is_ok(), "a mount begins once");
    }

    fn destroy(&self, _: &Request, reply: Reply<()>) {
        std::thread::sleep(std::time::Duration::from_millis(self.behavior.destroy_takes));
        self.seen.change(|state| state.destroyed = true);
        reply.succeed(&());
    }

    fn lookup(&self, request: &Request, name: Name<'_>, reply: Reply<Entry>) {
        assert_ne!(name.as_bytes(), b"panic", "as the test wants it");
        reply.send(self.with(|tree| tree.lookup(request.node, name)));
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        if node != NodeId::ROOT {
            self.with(|tree| tree.forget(node, lookups));
        }
    }

    fn getattr(&self, request: &Request, _: Option<Handle>, reply: Reply<Stat>) {
        reply.send(self.with(|tree| tree.stat(request.node)));
    }

    fn statx(&self, request: &Request, _: &Statx, reply: Reply<ExtendedStat>) {
        reply.send(self.with(|tree| tree.statx(request.node)));
    }

    fn setattr(&self, request: &Request, changes: &Changes, reply: Reply<Stat>) {
        reply.send(self.with(|tree| tree.change(request.node, changes)));
    }

    fn readlink(&self, request: &Request, reply: Reply<Bytes>) {
        self.with(|tree| match tree.node(request.node).map(|node| &node.content) {
            Ok(Content::Symlink(target)) => reply.send(Ok(target)),
            _ => reply.fail(Errno::INVAL),
        });
    }

    fn symlink(&self, request: &Request, symlink: &Symlink<'_>, reply: Reply<Entry>) {
        let content = Content::Symlink(symlink.target.to_vec());
        reply.send(self.make(request, symlink.name, 0o120_777, content));
    }

    fn mknod(&self, request: &Request, mknod: &Mknod<'_>, reply: Reply<Entry>) {
        let is_file = FileType::from_raw_mode(mknod.mode) == FileType::RegularFile;
        let content = if is_file { Content::File(Sparse::default()) } else { Content::Special };
        let made = self.make(request, mknod.name, mknod.mode & !mknod.umask, content);
        reply.send(made.map(|mut entry| {
            self.with(|tree| tree.set_device(entry.node, mknod.device));
            entry.attributes.rdev = mknod.device;
            entry
        }));
    }

    fn mkdir(&self, request: &Request, mkdir: &Mkdir<'_>, reply: Reply<Entry>) {
        let content = Content::Directory(Directory::new(request.node.0));
        let mode = 0o040_000 | (mkdir.mode & !mkdir.umask);
        reply.send(self.make(request, mkdir.name, mode, content));
    }

    fn unlink(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.send(self.with(|tree| tree.remove(request.node, name, false)));
    }

    fn rmdir(&self, request: &Request, name: Name<'_>, reply: Reply<()>) {
        reply.send(self.with(|tree| tree.remove(request.node, name, true)));
    }

    fn rename(&self, request: &Request, rename: &Rename<'_>, reply: Reply<()>) {
        let from = (request.node, rename.name);
        let to = (rename.new_parent, rename.new_name);
        reply.send(self.with(|tree| tree.rename(from, to, rename.flags)));
    }

    fn link(&self, request: &Request, link: &Link<'_>, reply: Reply<Entry>) {
        reply.send(self.with(|tree| tree.link(link.target, request.node, link.name)));
    }

    fn open(&self, request: &Request, open: &Open, reply: Reply<Opened>) {
        self.seen.change(|state| state.opens += 1);
        if !self.behavior.opens {
            return reply.fail(Errno::NOSYS);
        }
        if open.flags.contains(OFlags::TRUNC) {
            self.with(|tree| tree.file_mut(request.node).map(|file| file.set_size(0))).unwrap();
        }
        reply.succeed(&Opened { handle: Handle(5), flags: OpenedFlags::KEEP_CACHE });
    }

    fn opendir(&self, _: &Request, _: &Open, reply: Reply<Opened>) {
        self.seen.change(|state| state.opens += 1);
        if !self.behavior.opens {
            return reply.fail(Errno::NOSYS);
        }
        reply.succeed(&Opened { handle: Handle(6), flags: OpenedFlags::empty() });
    }

    fn create(&self, request: &Request, create: &Create<'_>, reply: Reply<Created>) {
        let content = Content::File(Sparse::default());
        let made = self.make(request, create.name, create.mode & !create.umask, content);
        let opened = Opened { handle: Handle(5), flags: OpenedFlags::KEEP_CACHE };
        reply.send(made.map(|entry| Created { entry, opened }));
    }

    fn tmpfile(&self, request: &Request, tmpfile: &Tmpfile, reply: Reply<Created>) {
        let content = Content::File(Sparse::default());
        let mode = tmpfile.mode & !tmpfile.umask;
        let made = self.with(|tree| {
            let node = tree.add(mode, &request.caller, content);
            tree.refer(NodeId(node))
        });
        reply.send(made.map(|entry| Created { entry, opened: Opened::default() }));
    }

    fn read(&self, request: &Request, read: &Read, reply: Reply<Bytes>) {
        self.seen.change(|state| state.largest_read = state.largest_read.max(read.size));
        self.with(|tree| match tree.file(request.node) {
            Ok(file) => reply.send(Ok(&file.read(read.offset, u64::from(read.size)))),
            Err(error) => reply.fail(error),
        });
    }

    fn write(&self, request: &Request, write: &Write<'_>, reply: Reply<Written>) {
        let taken = Written(u32::try_from(write.data.len()).unwrap());
        reply.send(self.with(|tree| {
            tree.file_mut(request.node)?.write(write.offset, write.data);
            Ok(taken)
        }));
    }

    fn fsync(&self, request: &Request, _: &Fsync, reply: Reply<()>) {
        match self.name_of(request.node).as_deref() {
            Some(b"held") => self.hold(reply),
            Some(name) if name.starts_with(b"slow") => {
                may_sleep(|| self.sleep());
                reply.succeed(&());
            }
            _ => reply.succeed(&()),
        }
    }

    fn readdir(&self, request: &Request, read: &Read, reply: Reply<Names>) {
        self.with(|tree| {
            let lines = match tree.list(request.node, read.offset) {
                Ok(lines) => lines,
                Err(error) => return reply.fail(error),
            };
            let mut list = reply.begin();
            let all = lines.iter().map(entry_of);
            all.take_while(|entry| list.add(entry)).for_each(drop);
            list.send();
        });
    }

    fn readdirplus(&self, request: &Request, read: &Read, reply: Reply<Entries>) {
        self.with(|tree| {
            let lines = match tree.list(request.node, read.offset) {
                Ok(lines) => lines,
                Err(error) => return reply.fail(error),
            };
            let mut list = reply.begin();
            for line in &lines {
                let is_dot = line.next < 3;
                let found = if is_dot {
                    Entry::absent(FOREVER)
                } else {
                    tree.refer(NodeId(line.node)).unwrap()
                };
                if !list.add(&entry_of(line), &found) {
                    if !is_dot {
                        tree.forget(NodeId(line.node), 1);
                    }
                    break;
                }
            }
            list.send();
        });
    }

    fn syncfs(&self, _: &Request, reply: Reply<()>) {
        self.seen.change(|state| state.syncs += 1);
        reply.succeed(&());
    }

    fn statfs(&self, _: &Request, reply: Reply<Statistics>) {
        reply.succeed(&Statistics {
            blocks: 1000,
            blocks_free: 600,
            blocks_available: 500,
            files: 0,
            files_free: 0,
            block_size: 4096,
            name_max: 255,
            fragment_size: 4096,
        });
    }

    fn setxattr(&self, request: &Request, it: &Setxattr<'_>, reply: Reply<()>) {
        let done = self.with(|tree| tree.set_xattr(request.node, it.name, it.value, it.flags));
        if self.name_of(request.node).is_some_and(|name| name.starts_with(b"slow")) {
            may_sleep(|| self.sleep());
        }
        reply.send(done);
    }

    fn getxattr(&self, request: &Request, it: &Getxattr<'_>, reply: Reply<Value>) {
        self.with(|tree| {
            let xattrs = tree.node(request.node).map(|node| &node.xattrs);
            let value = xattrs.and_then(|all| all.get(it.name).ok_or(Errno::NODATA));
            reply.send(value.map(Vec::as_slice));
        });
    }

    fn listxattr(&self, request: &Request, reply: Reply<Value>) {
        self.with(|tree| {
            let names = tree.node(request.node).map(|node| {
                node.xattrs.keys().flat_map(|name| [name, &b"\0"[..]].concat()).collect::<Vec<_>>()
            });
            reply.send(names.as_deref().map_err(|error| *error));
        });
    }

    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<()>) {
        reply.send(self.with(|tree| {
            let removed = tree.node_mut(request.node)?.xattrs.remove(name);
            removed.map(drop).ok_or(Errno::NODATA)
        }));
    }

    fn ioctl(&self, _: &Request, ioctl: &Ioctl<'_>, reply: Reply<IoctlData>) {
        let flags = 0x10_u32.to_le_bytes();
        match ioctl.command & 0xffff {
            // FS_IOC_GETFLAGS
            0x6601 => reply.send(Ok((0, &flags))),
            _ => reply.fail(Errno::NOTTY),
        }
    }

    fn fallocate(&self, request: &Request, it: &Fallocate, reply: Reply<()>) {
        let punches = it.mode.contains(FallocateFlags::PUNCH_HOLE);
        reply.send(self.with(|tree| {
            let file = tree.file_mut(request.node)?;
            let size = file.size();
            if punches {
                file.punch(it.offset, it.length);
            } else {
                file.allocate(it.offset, it.length);
            }
            if !it.mode.contains(FallocateFlags::KEEP_SIZE) {
                file.set_size(size.max(it.offset + it.length));
            }
            Ok(())
        }));
    }

    fn lseek(&self, request: &Request, lseek: &Lseek, reply: Reply<Position>) {
        // Dirty data that the kernel has not written back must not be reported as a hole.
        let all = Invalidation::Contents { offset: 0, length: None };
        may_wait(|| self.notifier().invalidate_inode(request.node, all)).unwrap();
        let offset = u64::try_from(lseek.offset).map_err(|_| Errno::NXIO);
        reply.send(self.with(|tree| {
            let file = tree.file(request.node)?;
            let found = match lseek.whence {
                Whence::Data => file.next_data(offset?),
                Whence::Hole => file.next_hole(offset?),
            };
            found.map(Position).ok_or(Errno::NXIO)
        }));
    }

    fn copy_file_range(&self, request: &Request, copy: &CopyFileRange, reply: Reply<Copied>) {
        reply.send(self.with(|tree| {
            let bytes = tree.file(request.node)?.read(copy.offset, copy.length);
            tree.file_mut(copy.target)?.write(copy.target_offset, &bytes);
            Ok(Copied(bytes.len() as u64))
        }));
    }
}

fn entry_of(line: &super::tree::Line) -> DirectoryEntry<'_> {
    let name = Name::new(&line.name).unwrap();
    DirectoryEntry { ino: line.node, next: line.next, kind: line.kind, name }
}
