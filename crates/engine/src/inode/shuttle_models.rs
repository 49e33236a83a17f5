//! Models of inodes and names under shuttle: threads create, move, remove, keep open and list
//! shared names, with a cache that keeps nothing, during flushes and commits.
//!
//! 1. Shuttle chooses, by its seed, which threads run when, and what they do.
//! 2. A change succeeds, or is refused for a reason that the state of the names allows: no thread
//!    sees half a change.
//! 3. At the end names, inodes and link counts agree in memory, opened again after a commit, and
//!    opened again as the last commit during the changes left it.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test -p userbtrfs-engine --release --lib shuttle_models
//! ```
//!
//! A run that fails prints its seed; `SHUTTLE_RANDOM_SEED` starts from it again.

use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_format::{FileKind, InodeFlags, TreeId};
use userbtrfs_sync::{Arc, thread};
use userbtrfs_transaction::{TransactionHooks, TransactionManager, TransactionOptions};
use userbtrfs_volume::Volume;

use super::exploring::{JOINED, explore, kept, runs};
use super::*;
use crate::error::{Error, InodeId, Result};
use crate::inode::dir::lookup::{list, lookup, names};
use crate::inode::ops::create::create;
use crate::inode::ops::link::link;
use crate::inode::ops::orphan::open;
use crate::inode::ops::rename::rename;
use crate::inode::ops::unlink::{rmdir, unlink};
use crate::inode::testing::item_of;

const TOP: InodeId = InodeId { subvolume: TreeId::FS, number: ROOT_DIR };
const ACL: DefaultAcl = DefaultAcl::Inherited { umask: 0 };
const FILE: NewInode<'static> =
    NewInode { kind: NewKind::File, mode: 0o644, default_acl: ACL, uid: 0, gid: 0, xattrs: &[] };
const DIR: NewInode<'static> = NewInode {
    kind: NewKind::Directory,
    mode: 0o755,
    default_acl: ACL,
    uid: 0,
    gid: 0,
    xattrs: &[],
};
/// Directories that are not removed.
const DIRS: [&[u8]; 2] = [b"left", b"rite"];
/// The names that all threads change.
const NAMES: [&[u8]; 2] = [b"a", b"b"];
/// Changes of one thread in one run.
const STEPS: usize = 6;

/// A filesystem that is open for writing, and the directories in it.
struct World {
    device: Arc<MemoryDevice>,
    transactions: Arc<TransactionManager>,
    namespace: Arc<Namespace>,
    nodes: Arc<Inodes>,
    dirs: Vec<InodeId>,
}

impl World {
    fn open(image: Vec<u8>) -> Self {
        let device = Arc::new(MemoryDevice::from_bytes(image));
        let volume = Volume::open_for_writing(vec![Arc::clone(&device) as Arc<dyn Device>]);
        let tree_roots = Arc::new(TreeRoots::new(Arc::new(volume.unwrap()), 1 << 20));
        let options = TransactionOptions { commit_seconds: 0, ..TransactionOptions::default() };
        let transactions = TransactionManager::open(tree_roots, options).unwrap();
        // Keep no unused inodes, and let the worker be asked to flush early.
        let options = InodesOptions {
            inodes_max: 0,
            pending_max: 64 << 10,
            names_max: 128 << 10,
            late_bytes: 1 << 10,
            file_flags: InodeFlags::empty(),
            compression: userbtrfs_codec::Compression::Zlib,
        };
        let nodes = Arc::new(Inodes::writable(Arc::clone(&transactions), options));
        let flusher: Arc<dyn TransactionHooks> =
            Arc::new(DelayedItemsFlusher(Arc::downgrade(&nodes)));
        transactions.register(vec![flusher]).unwrap();
        let namespace = Arc::new(Namespace::new(Arc::clone(&nodes)));
        let mut world = Self { device, transactions, namespace, nodes, dirs: vec![TOP] };
        world.dirs.extend(DIRS.map(|name| world.id(TOP, name)).into_iter().flatten());
        world
    }

    fn id(&self, dir: InodeId, name: &[u8]) -> Option<InodeId> {
        let found = lookup(&self.nodes, dir, name).unwrap()?;
        Some(found.target.resolve(self.nodes.tree_roots(), dir, name).unwrap())
    }

    /// Returns a directory, which may be removed at any time, and a name.
    fn place(&self) -> (InodeId, &'static [u8]) {
        let mut any = thread_rng();
        let mut dir = self.dirs[any.gen_range(1..self.dirs.len())];
        if any.gen_ratio(1, 4) {
            let below = self.id(dir, NAMES[any.gen_range(0..NAMES.len())]);
            dir = below.unwrap_or(dir);
        }
        (dir, NAMES[any.gen_range(0..NAMES.len())])
    }

    /// Makes a random change.
    fn step(&self) {
        let from = self.place();
        let to = self.place();
        let namespace = &self.namespace;
        let stale = [from.0, to.0];
        match thread_rng().gen_range(0..8) {
            0 => settle(create(namespace, from.0, from.1, &FILE), &stale).map(drop),
            1 => settle(create(namespace, from.0, from.1, &DIR), &stale).map(drop),
            2 => settle(unlink(namespace, from.0, from.1), &stale),
            3 => settle(rmdir(namespace, from.0, from.1), &stale),
            4 | 5 => settle(rename(namespace, from, to, any_kind()), &stale),
            6 => self.keep_open(from).map(drop),
            _ => self.link(from, to),
        };
    }

    /// Keeps a file open while its name is removed.
    fn keep_open(&self, (dir, name): (InodeId, &[u8])) -> Option<()> {
        let id = settle(create(&self.namespace, dir, name, &FILE), &[dir])?;
        let open = settle(open(&self.namespace, id), &[id])?;
        settle(unlink(&self.namespace, dir, name), &[dir]);
        thread::yield_now();
        item_of(&self.nodes, id).unwrap();
        drop(open);
        Some(())
    }

    fn link(&self, (dir, name): (InodeId, &[u8]), to: (InodeId, &[u8])) -> Option<()> {
        let found = settle(lookup(&self.nodes, dir, name), &[dir])??;
        let id = found.target.resolve(self.nodes.tree_roots(), dir, name).unwrap();
        settle(link(&self.namespace, id, to.0, to.1), &[id, to.0])
    }

    /// Checks operations on names that no other thread uses.
    fn own(&self, number: usize) {
        let [name, other] = [format!("own {number}"), format!("other {number}")];
        let left = self.dirs[1];
        let rite = self.dirs[2];
        let name = name.as_bytes();
        let other = other.as_bytes();
        let id = create(&self.namespace, left, name, &FILE).unwrap();
        rename(&self.namespace, (left, name), (rite, other), RenameKind::NoReplace).unwrap();
        assert_eq!((self.id(left, name), self.id(rite, other)), (None, Some(id)));
        link(&self.namespace, id, left, name).unwrap();
        unlink(&self.namespace, rite, other).unwrap();
        assert_eq!((self.id(left, name), self.id(rite, other)), (Some(id), None));
        assert_eq!(item_of(&self.nodes, id).unwrap().nlink, 1);
    }

    /// Flushes and commits; returns the image as the last commit left it.
    fn commit(&self) -> Vec<u8> {
        create(&self.namespace, TOP, b"kept", &FILE).unwrap();
        self.transactions.merge_pending().unwrap();
        thread::yield_now();
        self.transactions.commit().unwrap();
        self.device.snapshot()
    }

    /// Checks that names, inodes and link counts agree; returns all names.
    fn check(&self) -> BTreeMap<(u64, Vec<u8>), u64> {
        let mut names = BTreeMap::new();
        let mut links = BTreeMap::<u64, Vec<Link>>::new();
        let mut dirs = vec![TOP];
        let mut seen = HashSet::new();
        while let Some(dir) = dirs.pop() {
            assert!(seen.insert(dir), "{dir} is in two places");
            let (entries, next) = list(&self.nodes, dir, 0).unwrap();
            assert_eq!(next, None);
            let size: usize = entries.iter().map(|entry| 2 * entry.name.len()).sum();
            assert_eq!(item_of(&self.nodes, dir).unwrap().size, size as u64, "size of {dir}");
            for entry in entries {
                let name = entry.name.to_vec();
                let id = self.id(dir, &name).expect("a listed name is found");
                assert_eq!(entry.target, EntryTarget::Inode(id.number));
                if item_of(&self.nodes, id).unwrap().kind == FileKind::Directory {
                    dirs.push(id);
                }
                let link = Link { dir: dir.number, index: entry.index, name: name.clone() };
                links.entry(id.number).or_default().push(link);
                assert!(names.insert((dir.number, name), id.number).is_none());
            }
        }
        links.into_iter().for_each(|(number, links)| self.check_inode(number, links));
        names
    }

    fn check_inode(&self, number: u64, mut links: Vec<Link>) {
        let id = InodeId { number, ..TOP };
        let mut names = names(&self.nodes, id).unwrap();
        let place = |link: &Link| (link.dir, link.index);
        names.sort_by_key(place);
        links.sort_by_key(place);
        assert_eq!(names, links, "{id}");
        let nlink = item_of(&self.nodes, id).unwrap().nlink;
        assert_eq!(usize::try_from(nlink).unwrap(), links.len(), "{id}");
    }

    /// Checks that no orphan is left in the tree; nothing is delayed.
    fn check_orphans(&self) {
        let tree = self.nodes.tree_roots().tree(TreeId::FS).unwrap();
        assert_eq!(
            crate::inode::tree::ondisk::orphans(self.nodes.tree_roots(), &tree).unwrap(),
            []
        );
    }

    /// Commits and closes.
    fn close(self) -> Vec<u8> {
        self.transactions.close().unwrap();
        self.check_orphans();
        self.device.snapshot()
    }
}

fn any_kind() -> RenameKind {
    use RenameKind::{Exchange, NoReplace, Replace, Whiteout};
    [Replace, NoReplace, Exchange, Exchange, Whiteout((0, 0))][thread_rng().gen_range(0..5)]
}

/// Returns the result of a change; `None` if it was refused for an allowed reason: because of the
/// current names, or since an inode that the caller named by number is deleted.
fn settle<T>(done: Result<T>, stale: &[InodeId]) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(Error::NoInode(id)) if stale.contains(&id) => None,
        Err(
            Error::NotFound
            | Error::Exists
            | Error::NotADirectory
            | Error::IsADirectory
            | Error::IntoItself
            | Error::NotEmpty
            | Error::NotPermitted,
        ) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// Returns an image with the directories and all names in them: files in the first directory,
/// directories in the second.
fn image() -> Vec<u8> {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    kept(&IMAGE, |empty| {
        let world = World::open(empty);
        for (name, new) in DIRS.into_iter().zip([FILE, DIR]) {
            let dir = create(&world.namespace, TOP, name, &DIR).unwrap();
            for name in NAMES {
                create(&world.namespace, dir, name, &new).unwrap();
            }
        }
        world.close()
    })
}

/// Three threads change shared names, one its own names, and one commits.
fn crowd() {
    let world = Arc::new(World::open(image()));
    let start = |number: usize| {
        let world = Arc::clone(&world);
        thread::spawn(move || match number {
            0 => world.own(number),
            _ => (0..STEPS).for_each(|_| world.step()),
        })
    };
    let threads: Vec<_> = (0..4).map(start).collect();
    let committed = world.commit();
    for thread in threads {
        thread.join().expect(JOINED);
    }
    let names = world.check();
    world.transactions.merge_pending().unwrap();
    assert_eq!(world.check(), names);
    assert_eq!((world.nodes.waiting.is_empty(), world.nodes.waiting.bytes()), (true, 0));
    let world = Arc::into_inner(world).expect("all threads ended");
    let world = World::open(world.close());
    assert_eq!(world.check(), names);
    drop(world);
    let crashed = World::open(committed);
    assert!(crashed.check().contains_key(&(ROOT_DIR, b"kept".to_vec())));
    create(&crashed.namespace, TOP, b"late", &FILE).unwrap();
    crashed.check();
    drop(crashed.close());
}

/// A directory moves into one that is being renamed, and back, during evictions and commits.
fn climb() {
    let world = Arc::new(World::open(image()));
    let [left, rite] = [world.dirs[1], world.dirs[2]];
    let above = world.id(rite, b"a").unwrap();
    create(&world.namespace, left, b"dir", &DIR).unwrap();
    let start = |work: fn(&World, InodeId, InodeId), dir| {
        let world = Arc::clone(&world);
        thread::spawn(move || work(&world, dir, above))
    };
    let work = |world: &World, rite, _| {
        for (from, to) in [(b"a", b"x"), (b"x", b"a")].repeat(STEPS) {
            rename(&world.namespace, (rite, from), (rite, to), RenameKind::Replace).unwrap();
        }
    };
    let renames = start(work, rite);
    let work = |world: &World, left, above| {
        for (from, to) in [(left, above), (above, left)].repeat(STEPS / 2) {
            rename(&world.namespace, (from, b"dir"), (to, b"dir"), RenameKind::NoReplace).unwrap();
        }
    };
    let moves = start(work, left);
    let committed = world.commit();
    for thread in [renames, moves] {
        thread.join().expect(JOINED);
    }
    assert_eq!(world.id(rite, b"a"), Some(above));
    let names = world.check();
    let world = Arc::into_inner(world).expect("all threads ended");
    assert_eq!(World::open(world.close()).check(), names);
    World::open(committed).check();
}

#[test]
fn a_crowd_by_random_schedules() {
    explore(RandomScheduler::new(runs(200)), image, crowd);
}

#[test]
fn a_crowd_by_few_preemptions() {
    explore(PctScheduler::new(5, runs(200)), image, crowd);
}

#[test]
fn a_climb_by_random_schedules() {
    explore(RandomScheduler::new(runs(200)), image, climb);
}

#[test]
fn a_climb_by_few_preemptions() {
    explore(PctScheduler::new(3, runs(200)), image, climb);
}
