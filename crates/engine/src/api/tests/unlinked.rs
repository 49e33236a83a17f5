//! Inodes that are deleted while they are logged.

use std::thread;

use userbtrfs_device::Operation;
use userbtrfs_format::{ItemKind, Key};

use super::device::{Failing, Which};
use super::*;

/// Files between the inodes under test, two of which fill a leaf: reading one of the inodes does
/// not read ahead the leaf of the other.
const BETWEEN: u32 = 300;

struct World {
    device: Arc<Failing>,
    fs: Filesystem,
}

impl World {
    /// Creates `/dir` and `/file`, far from each other and from all others.
    fn new() -> Self {
        let device = Failing::new(128);
        let fs = device.open(32 << 20);
        let root = fs.root();
        let others = root.create_dir(b"others", 0o755).unwrap();
        let make_others = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                let inode = others.create(number.to_string().as_bytes(), 0o644).unwrap();
                inode.set_xattr(b"user.x", &[b'x'; 1500], XattrMode::Create).unwrap();
            }
        };
        make_others(0..BETWEEN);
        root.create_dir(b"dir", 0o755).unwrap();
        make_others(BETWEEN..2 * BETWEEN);
        root.create(b"file", 0o644).unwrap();
        make_others(2 * BETWEEN..3 * BETWEEN);
        drop((root, others));
        fs.close().unwrap();
        // After that no delayed items are run in the background.
        let fs = device.open(32 << 20);
        Self { device, fs }
    }

    /// Syncs a directory, and runs `meanwhile` while a thread reads the leaf of an inode. Returns
    /// what a crash leaves after that sync.
    fn sync_and_crash(self, dir: &Dir, inode: InodeId, meanwhile: impl FnOnce()) -> Filesystem {
        let Self { device, fs } = &self;
        let tree_roots = fs.inner.nodes.tree_roots();
        let tree = tree_roots.tree(inode.subvolume).unwrap();
        let key = Key::new(inode.number, ItemKind::INODE_ITEM, 0);
        let leaf = tree.search(tree_roots.store(), &key).unwrap().leaf.header().logical;
        let place = tree_roots.store().volume().map(leaf, 4096).unwrap().copies().next().unwrap();
        // It is unchanged since it was written.
        tree_roots.store().discard(leaf);
        device.hold(Operation::Read, Which::At(place.0));
        thread::scope(|scope| {
            let syncing = scope.spawn(|| dir.sync_all());
            device.wait_until_held();
            meanwhile();
            device.release();
            syncing.join().unwrap().unwrap();
        });
        let stats = fs.stats().log;
        let commits = FullCommitReason::ALL.map(|reason| (reason, stats.commits(reason)));
        assert!(commits.iter().all(|(_, count)| *count == 0), "{commits:?}");
        let copy = MemoryDevice::from_bytes(device.memory.snapshot());
        let left = open(Arc::new(copy), 32 << 20);
        assert!(left.replayed().is_some());
        left
    }
}

#[test]
fn file_deleted_while_it_is_logged_is_not_in_the_log() {
    let world = World::new();
    let root = world.fs.root();
    let dir = world.fs.open_dir("/dir").unwrap();
    let file = root.lookup(b"file").unwrap().id();
    root.rename(b"file", &dir, b"moved", RenameMode::NoReplace).unwrap();
    let left = world.sync_and_crash(&dir, file, || dir.remove_file(b"moved").unwrap());
    assert!(left.lookup("/file").is_err() && left.lookup("/dir/moved").is_err());
    left.close().unwrap();
}

#[test]
fn directory_deleted_while_it_is_logged_is_not_in_the_log() {
    let world = World::new();
    let root = world.fs.root();
    let dir = world.fs.open_dir("/dir").unwrap();
    let transactions = Arc::clone(world.fs.inner.transactions.as_ref().unwrap());
    dir.inode().set_xattr(b"user.x", b"value", XattrMode::Create).unwrap();
    let left = world.sync_and_crash(&dir, dir.inode().id(), || {
        root.remove_dir(b"dir").unwrap();
        // Afterwards no leaf has its name.
        transactions.merge_pending().unwrap();
    });
    assert!(left.lookup("/dir").is_err());
    left.close().unwrap();
}

/// The removal happens between the lookup of the name and that of the inode.
#[test]
fn lookup_and_create_racing_with_removal_find_the_inode_or_nothing() {
    let lab = Lab::new();
    let root = lab.fs.root();
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            for _ in 0..3000 {
                let dir = root.create_dir(b"dir", 0o755).unwrap();
                dir.create(b"name", 0o644).unwrap();
                dir.remove_file(b"name").unwrap();
                root.remove_dir(b"dir").unwrap();
                // It may be removed right after its creation.
                let other = root.create(b"other", 0o644);
                drop(other.map(|other| other.metadata().unwrap()));
            }
        });
        scope.spawn(|| {
            for _ in 0..6000 {
                let _was_there = root.remove_file(b"other");
            }
        });
        while !changing.is_finished() {
            let by_path = ["dir", "dir/name"].map(|path| lab.fs.find(path.as_bytes()));
            for found in by_path.into_iter().chain([root.lookup(b"dir")]) {
                match found {
                    Ok(inode) => drop(inode.metadata().unwrap()),
                    Err(error) => assert!(matches!(error, Error::NotFound), "{error}"),
                }
            }
        }
    });
    drop(root);
    lab.close();
}
