//! Inodes and names in a filesystem in memory: as seen before a flush, after it, and when the image
//! is opened again.

mod full;

use userbtrfs_codec::hash::name_hash;
use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_format::{FileKind, IncompatFlags, InodeFlags, TreeId};
use userbtrfs_mkfs::Options;
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{HandleKind, TransactionHooks, TransactionManager, TransactionOptions};
use userbtrfs_volume::Volume;

use super::*;
use crate::error::{Error, InodeId};
use crate::inode::dir::lookup::{find_name, list, list_some, lookup, names};
use crate::inode::ops::create::{create, create_unnamed};
use crate::inode::ops::file_extents::change_file;
use crate::inode::ops::link::link;
use crate::inode::ops::orphan::{delete_inode, open};
use crate::inode::ops::rename::rename;
use crate::inode::ops::set_xattr::{remove_xattr, set_xattr};
use crate::inode::ops::setattr::{set_attributes, set_flags};
use crate::inode::ops::unlink::{rmdir, unlink};
use crate::inode::ops::xattr::{get_xattr, list_xattrs};
use crate::inode::testing::item_of;

const OPTIONS: InodesOptions = InodesOptions {
    inodes_max: 1000,
    pending_max: 64 << 20,
    names_max: 128 << 20,
    late_bytes: 64 << 20,
    file_flags: InodeFlags::empty(),
    compression: userbtrfs_codec::Compression::Zlib,
};
pub(super) const TOP: InodeId = InodeId { subvolume: TreeId::FS, number: ROOT_DIR };
const ACL: DefaultAcl = DefaultAcl::Inherited { umask: 0 };
pub(super) const FILE: NewInode<'static> =
    NewInode { kind: NewKind::File, mode: 0o644, default_acl: ACL, uid: 0, gid: 0, xattrs: &[] };
const DIR: NewInode<'static> = NewInode {
    kind: NewKind::Directory,
    mode: 0o755,
    default_acl: ACL,
    uid: 0,
    gid: 0,
    xattrs: &[],
};

/// A filesystem that is open for writing.
pub(super) struct Lab {
    device: Arc<MemoryDevice>,
    pub(super) transactions: Arc<TransactionManager>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) nodes: Arc<Inodes>,
}

impl Lab {
    pub(super) fn new() -> Self {
        Self::of(&Options::default())
    }

    pub(super) fn of(options: &Options) -> Self {
        let device = Arc::new(MemoryDevice::new(256 << 20));
        userbtrfs_mkfs::make(&*device, options).unwrap();
        Self::open(device)
    }

    /// Creates a filesystem on which holes have items.
    pub(super) fn with_hole_items(options: &Options) -> Self {
        let device = Arc::new(MemoryDevice::new(256 << 20));
        userbtrfs_mkfs::make(&*device, options).unwrap();
        let volume =
            Volume::open_for_writing(vec![Arc::clone(&device) as Arc<dyn Device>]).unwrap();
        let mut superblock = (*volume.superblock()).clone();
        superblock.incompat.remove(IncompatFlags::NO_HOLES);
        volume.write_superblock(&superblock).unwrap();
        volume.mark_closing();
        drop(volume);
        Self::open(device)
    }

    fn open(device: Arc<MemoryDevice>) -> Self {
        Self::open_with(device, OPTIONS)
    }

    fn open_with(device: Arc<MemoryDevice>, nodes: InodesOptions) -> Self {
        Self::open_by(device, nodes, TransactionOptions::default())
    }

    fn open_by(
        device: Arc<MemoryDevice>,
        nodes: InodesOptions,
        mut options: TransactionOptions,
    ) -> Self {
        let volume = Volume::open_for_writing(vec![Arc::clone(&device) as Arc<dyn Device>]);
        let tree_roots = Arc::new(TreeRoots::new(Arc::new(volume.unwrap()), 16 << 20));
        (options.commit_seconds, options.dirty_max) = (0, 128 << 10);
        let transactions = TransactionManager::open(tree_roots, options).unwrap();
        let nodes = Arc::new(Inodes::writable(Arc::clone(&transactions), nodes));
        let flusher: Arc<dyn TransactionHooks> =
            Arc::new(DelayedItemsFlusher(Arc::downgrade(&nodes)));
        transactions.register(vec![flusher]).unwrap();
        let namespace = Arc::new(Namespace::new(Arc::clone(&nodes)));
        Self { device, transactions, namespace, nodes }
    }

    /// Commits, and opens the image again.
    pub(super) fn reopened(self) -> Self {
        Self::open(Arc::new(MemoryDevice::from_bytes(self.closed())))
    }

    /// Opens the image as the last commit left it.
    pub(super) fn crashed(&self) -> Self {
        Self::open(Arc::new(MemoryDevice::from_bytes(self.device.snapshot())))
    }

    /// Commits, and returns the image.
    pub(super) fn closed(self) -> Vec<u8> {
        self.transactions.close().unwrap();
        self.device.snapshot()
    }

    fn id(&self, dir: InodeId, name: &[u8]) -> Option<InodeId> {
        let found = lookup(&self.nodes, dir, name).unwrap()?;
        Some(found.target.resolve(self.nodes.tree_roots(), dir, name).unwrap())
    }

    fn names(&self, dir: InodeId) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let mut next = Some(0);
        while let Some(position) = next {
            let (listed, after) = list(&self.nodes, dir, position).unwrap();
            names.extend(listed.iter().map(|entry| entry.name.to_vec()));
            next = after;
        }
        names
    }

    /// Replaces the content of a file.
    fn write_inline(&self, id: InodeId, bytes: &[u8]) {
        let inode = self.nodes.inode(id).unwrap();
        let reservation = self.nodes.reserve(2).unwrap();
        let kind = HandleKind::Operation;
        let len = bytes.len() as u64;
        let more = len.cast_signed() - inode.item().nbytes.cast_signed();
        let put = |file: &mut FileChange<'_>| {
            file.put(0, 4096, ExtentMapKind::Inline(InlineData::plain(bytes)), false);
            file.add_bytes(more);
            file.set_size(len);
            file.set_disk_size(len);
        };
        change_file(&self.nodes, &inode, kind, Some(reservation), put).unwrap();
    }

    /// Returns the pending content at the start of a file.
    fn content(&self, id: InodeId) -> Option<ExtentMapKind> {
        let inode = self.nodes.inode(id).unwrap();
        inode.pending_extents(0, 1, 1).0.pop().map(|extent| extent.kind)
    }

    /// Calls `look` on the filesystem as it is, with only deferred names left, fully flushed, and
    /// opened again.
    fn each_way(self, look: impl Fn(&Self)) -> Self {
        look(&self);
        self.transactions.merge_most().unwrap();
        look(&self);
        self.transactions.merge_pending().unwrap();
        for waiting in [&self.nodes.waiting, &self.nodes.late] {
            assert!(waiting.is_empty() && waiting.bytes() == 0);
        }
        look(&self);
        let lab = self.reopened();
        look(&lab);
        lab
    }
}

fn name(number: u32) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

#[test]
fn created_inodes_are_seen_at_once_after_flush_and_reopen() {
    let lab = Lab::new();
    let dir = create(&lab.namespace, TOP, b"dir", &DIR).unwrap();
    let file = create(&lab.namespace, dir, b"file", &NewInode { uid: 7, gid: 8, ..FILE }).unwrap();
    let link = NewInode { kind: NewKind::Symlink(b"dir/file"), ..FILE };
    let link = create(&lab.namespace, TOP, b"link", &link).unwrap();
    let device = NewInode { kind: NewKind::Special(FileKind::BlockDevice, 8 << 20 | 1), ..FILE };
    let device = create(&lab.namespace, dir, b"disk", &device).unwrap();
    lab.write_inline(file, b"hello");
    lab.each_way(|lab| {
        assert_eq!(lab.names(TOP), [b"dir".to_vec(), b"link".to_vec()]);
        assert_eq!(lab.names(dir), [b"file".to_vec(), b"disk".to_vec()]);
        assert_eq!(lab.id(dir, b"file"), Some(file));
        assert_eq!(lab.id(dir, b"nothing"), None);
        let item = item_of(&lab.nodes, file).unwrap();
        assert_eq!((item.mode, item.uid, item.gid, item.nlink), (0o100_644, 7, 8, 1));
        assert_eq!((item.size, item.nbytes), (5, 5));
        assert_eq!(item_of(&lab.nodes, dir).unwrap().size, 16);
        assert_eq!(item_of(&lab.nodes, TOP).unwrap().size, 14);
        assert_eq!(item_of(&lab.nodes, link).unwrap().size, 8);
        assert_eq!(item_of(&lab.nodes, device).unwrap().device(), (8, 1));
        let names = names(&lab.nodes, file).unwrap();
        assert_eq!(names, [Link { dir: dir.number, index: 2, name: b"file".to_vec() }]);
    });
}

#[test]
fn pending_content_overrides_tree() {
    let lab = Lab::new();
    let file = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
    lab.write_inline(file, b"one");
    lab.transactions.merge_pending().unwrap();
    assert_eq!(lab.content(file), None);
    lab.write_inline(file, b"second");
    assert_eq!(lab.content(file), Some(ExtentMapKind::Inline(InlineData::plain(*b"second"))));
    lab.each_way(|lab| {
        let item = item_of(&lab.nodes, file).unwrap();
        assert_eq!((item.size, item.nbytes), (6, 6));
    });
}

#[test]
fn existing_and_invalid_names_are_refused() {
    let lab = Lab::new();
    let file = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
    let errno = |dir, name: &[u8]| create(&lab.namespace, dir, name, &FILE).unwrap_err().errno();
    assert_eq!(errno(TOP, b"file"), 17);
    assert_eq!(errno(TOP, &[b'x'; 256]), 36);
    assert_eq!(errno(file, b"x"), 20);
    assert!(matches!(create(&lab.namespace, TOP, b"a/b", &FILE), Err(Error::BadName(_))));
    assert_eq!(unlink(&lab.namespace, TOP, b"nothing").unwrap_err().errno(), 2);
    assert_eq!(rmdir(&lab.namespace, TOP, b"file").unwrap_err().errno(), 20);
    let dir = create(&lab.namespace, TOP, b"dir", &DIR).unwrap();
    create(&lab.namespace, dir, b"x", &FILE).unwrap();
    assert_eq!(unlink(&lab.namespace, TOP, b"dir").unwrap_err().errno(), 21);
    assert_eq!(rmdir(&lab.namespace, TOP, b"dir").unwrap_err().errno(), 39);
    assert_eq!(link(&lab.namespace, dir, TOP, b"again").unwrap_err().errno(), 1);
}

#[test]
fn unlinked_inode_is_deleted_and_its_number_not_reused() {
    let lab = Lab::new();
    let old = create(&lab.namespace, TOP, b"old", &FILE).unwrap();
    set_xattr(&lab.namespace, old, b"user.a", b"value", XattrKind::Any).unwrap();
    lab.transactions.merge_pending().unwrap();
    let new = create(&lab.namespace, TOP, b"new", &FILE).unwrap();
    let dir = create(&lab.namespace, TOP, b"dir", &DIR).unwrap();
    unlink(&lab.namespace, TOP, b"old").unwrap();
    unlink(&lab.namespace, TOP, b"new").unwrap();
    rmdir(&lab.namespace, TOP, b"dir").unwrap();
    let again = create(&lab.namespace, TOP, b"old", &FILE).unwrap();
    lab.each_way(|lab| {
        for gone in [old, new, dir] {
            assert!(matches!(item_of(&lab.nodes, gone), Err(Error::NoInode(_))), "{gone}");
        }
        assert_eq!(lab.names(TOP), [b"old".to_vec()]);
        assert_eq!(lab.id(TOP, b"old"), Some(again));
        assert_eq!(item_of(&lab.nodes, TOP).unwrap().size, 6);
        assert!(list_xattrs(&lab.nodes, again).unwrap().is_empty());
    });
}

#[test]
fn deleted_directory_still_held_is_empty() {
    let lab = Lab::new();
    let dir = create(&lab.namespace, TOP, b"dir", &DIR).unwrap();
    create(&lab.namespace, dir, b"file", &FILE).unwrap();
    let lab = lab.reopened();
    let held = lab.nodes.inode(dir).unwrap();
    unlink(&lab.namespace, dir, b"file").unwrap();
    rmdir(&lab.namespace, TOP, b"dir").unwrap();
    assert!(find_name(&lab.nodes, &held, b"file").unwrap().is_none());
    assert!(matches!(list_some(&lab.nodes, &held, 0, 9), Err(Error::NoInode(_))));
    assert!(held.living().is_err());
}

#[test]
fn lookup_of_unused_number_does_not_block_its_creation() {
    let lab = Lab::new();
    let first = create(&lab.namespace, TOP, b"first", &FILE).unwrap();
    let next = InodeId { number: first.number + 1, ..first };
    assert!(matches!(item_of(&lab.nodes, next), Err(Error::NoInode(_))));
    let held = lab.nodes.table.get(next);
    assert_eq!(create(&lab.namespace, TOP, b"next", &FILE).unwrap(), next);
    let lab = lab.each_way(|lab| assert_eq!(item_of(&lab.nodes, next).unwrap().nlink, 1));
    drop((held, lab));
}

#[test]
fn index_of_removed_last_name_is_not_reused() {
    let lab = Lab::new();
    let dir = create(&lab.namespace, TOP, b"dir", &DIR).unwrap();
    for name in [b"one", b"two"] {
        create(&lab.namespace, dir, name, &FILE).unwrap();
    }
    let remove: [fn(&Lab, InodeId); 2] = [
        |lab, dir| unlink(&lab.namespace, dir, b"two").unwrap(),
        |lab, dir| {
            rename(&lab.namespace, (dir, b"new"), (TOP, b"out"), RenameKind::Replace).unwrap();
        },
    ];
    let mut lab = lab;
    for (index, remove) in remove.into_iter().enumerate() {
        lab = lab.reopened();
        remove(&lab, dir);
        lab.transactions.merge_pending().unwrap();
        create(&lab.namespace, dir, b"new", &FILE).unwrap();
        let (listed, _) = list(&lab.nodes, dir, 0).unwrap();
        assert_eq!(listed.last().unwrap().index, 4 + index as u64);
    }
}

#[test]
fn two_last_users_delete_file_once() {
    let lab = Lab::new();
    let file = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
    let opened = open(&lab.namespace, file).unwrap();
    let inode = Arc::clone(opened.inode());
    unlink(&lab.namespace, TOP, b"file").unwrap();
    drop(opened);
    delete_inode(&lab.namespace, &inode).unwrap();
    assert!(inode.state().running.is_none());
    let lab = lab.reopened();
    assert!(matches!(item_of(&lab.nodes, file), Err(Error::NoInode(_))));
}

#[test]
fn inode_lives_until_last_link_is_removed() {
    let lab = Lab::new();
    let dir = create(&lab.namespace, TOP, b"dir", &DIR).unwrap();
    let file = create(&lab.namespace, TOP, b"a", &FILE).unwrap();
    link(&lab.namespace, file, TOP, b"b").unwrap();
    link(&lab.namespace, file, dir, b"c").unwrap();
    let lab = lab.each_way(|lab| {
        assert_eq!(item_of(&lab.nodes, file).unwrap().nlink, 3);
        assert_eq!(names(&lab.nodes, file).unwrap().len(), 3);
    });
    unlink(&lab.namespace, TOP, b"a").unwrap();
    unlink(&lab.namespace, dir, b"c").unwrap();
    lab.each_way(|lab| {
        assert_eq!(item_of(&lab.nodes, file).unwrap().nlink, 1);
        let names = names(&lab.nodes, file).unwrap();
        assert_eq!(names.iter().map(|link| &*link.name).collect::<Vec<_>>(), [b"b"]);
        assert_eq!(lab.id(TOP, b"b"), Some(file));
        assert_eq!(lab.id(dir, b"c"), None);
    });
}

#[test]
fn names_beyond_inode_ref_use_extref_and_are_removed() {
    let lab = Lab::new();
    let file = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
    let long = |number: u32| format!("{number:0>200}").into_bytes();
    for number in 0..200 {
        link(&lab.namespace, file, TOP, &long(number)).unwrap();
        if number % 70 == 0 {
            lab.transactions.merge_pending().unwrap();
        }
    }
    let lab = lab.each_way(|lab| {
        assert_eq!(item_of(&lab.nodes, file).unwrap().nlink, 201);
        assert_eq!(names(&lab.nodes, file).unwrap().len(), 201);
    });
    for number in 0..200 {
        unlink(&lab.namespace, TOP, &long(number)).unwrap();
    }
    lab.each_way(|lab| {
        let names = names(&lab.nodes, file).unwrap();
        assert_eq!(names.len(), 1);
        assert_eq!(lab.names(TOP), [b"file".to_vec()]);
    });
}

#[test]
fn rename_moves_replaces_and_exchanges() {
    let lab = Lab::new();
    let a = create(&lab.namespace, TOP, b"a", &DIR).unwrap();
    let b = create(&lab.namespace, TOP, b"b", &DIR).unwrap();
    let one = create(&lab.namespace, a, b"one", &FILE).unwrap();
    let two = create(&lab.namespace, b, b"two", &FILE).unwrap();
    let rename = |lab: &Lab, from, to, kind| rename(&lab.namespace, from, to, kind);
    let plain = RenameKind::Replace;
    assert_eq!(rename(&lab, (TOP, b"a"), (a, b"x"), plain).unwrap_err().errno(), 22);
    assert_eq!(rename(&lab, (a, b"one"), (TOP, b"a"), plain).unwrap_err().errno(), 39);
    assert_eq!(rename(&lab, (TOP, b"a"), (TOP, b"b"), plain).unwrap_err().errno(), 39);
    let keep = RenameKind::NoReplace;
    assert_eq!(rename(&lab, (a, b"one"), (b, b"two"), keep).unwrap_err().errno(), 17);
    let exchange = RenameKind::Exchange;
    assert_eq!(rename(&lab, (a, b"one"), (b, b"no"), exchange).unwrap_err().errno(), 2);
    rename(&lab, (a, b"one"), (b, b"two"), exchange).unwrap();
    let lab = lab.each_way(|lab| {
        assert_eq!((lab.id(a, b"one"), lab.id(b, b"two")), (Some(two), Some(one)));
        assert_eq!(names(&lab.nodes, one).unwrap()[0].dir, b.number);
    });
    rename(&lab, (a, b"one"), (b, b"two"), plain).unwrap();
    rename(&lab, (TOP, b"b"), (a, b"inner"), plain).unwrap();
    let lab = lab.each_way(|lab| {
        assert!(matches!(item_of(&lab.nodes, one), Err(Error::NoInode(_))));
        assert_eq!(lab.names(TOP), [b"a".to_vec()]);
        assert_eq!((lab.id(a, b"inner"), lab.id(b, b"two")), (Some(b), Some(two)));
        assert_eq!(lab.names(a), [b"inner".to_vec()]);
    });
    rename(&lab, (b, b"two"), (b, b"three"), RenameKind::Whiteout((7, 8))).unwrap();
    lab.each_way(|lab| {
        let whiteout = item_of(&lab.nodes, lab.id(b, b"two").unwrap()).unwrap();
        assert_eq!((whiteout.kind, whiteout.rdev), (FileKind::CharDevice, 0));
        assert_eq!((whiteout.uid, whiteout.gid), (7, 8));
        assert_eq!(lab.id(b, b"three"), Some(two));
    });
}

#[test]
fn unlinked_open_inode_lives_until_closed() {
    let lab = Lab::new();
    let file = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
    let open = open(&lab.namespace, file).unwrap();
    unlink(&lab.namespace, TOP, b"file").unwrap();
    lab.transactions.commit().unwrap();
    assert_eq!(item_of(&lab.nodes, file).unwrap().nlink, 0);
    assert_eq!(link(&lab.namespace, file, TOP, b"again").unwrap_err().errno(), 2);
    let crashed = lab.crashed();
    assert_eq!(item_of(&crashed.nodes, file).unwrap().nlink, 0);
    create(&crashed.namespace, TOP, b"any", &FILE).unwrap();
    let crashed = crashed.each_way(|lab| assert!(item_of(&lab.nodes, file).is_err()));
    let tree = crashed.nodes.tree_roots().tree(TreeId::FS).unwrap();
    assert_eq!(
        crate::inode::tree::ondisk::orphans(crashed.nodes.tree_roots(), &tree).unwrap(),
        [0; 0]
    );
    drop(open);
    let lab = lab.each_way(|lab| {
        assert!(matches!(item_of(&lab.nodes, file), Err(Error::NoInode(_))));
    });
    let tree = lab.nodes.tree_roots().tree(TreeId::FS).unwrap();
    assert_eq!(crate::inode::tree::ondisk::orphans(lab.nodes.tree_roots(), &tree).unwrap(), [0; 0]);
}

#[test]
fn unnamed_file_is_linked_or_deleted() {
    let lab = Lab::new();
    let gone = create_unnamed(&lab.namespace, TOP, &FILE).unwrap();
    let kept = create_unnamed(&lab.namespace, TOP, &FILE).unwrap();
    lab.transactions.merge_pending().unwrap();
    let both = (gone.inode().id(), kept.inode().id());
    link(&lab.namespace, both.1, TOP, b"kept").unwrap();
    drop((gone, kept));
    lab.each_way(|lab| {
        assert!(item_of(&lab.nodes, both.0).is_err());
        assert_eq!(item_of(&lab.nodes, both.1).unwrap().nlink, 1);
        assert_eq!(lab.id(TOP, b"kept"), Some(both.1));
    });
}

#[test]
fn attributes_are_set_separately_with_nanoseconds() {
    let lab = Lab::new();
    let file = create(&lab.namespace, TOP, b"file", &NewInode { mode: 0o6755, ..FILE }).unwrap();
    let time = |sec| userbtrfs_format::Timestamp { sec, nsec: 123_456_789 };
    let set = SetAttributes {
        uid: Some(5),
        atime: Some(time(-1)),
        mtime: Some(time(2)),
        otime: Some(time(3)),
        ..SetAttributes::default()
    };
    set_attributes(&lab.namespace, file, &set, None).unwrap();
    set_flags(&lab.namespace, file, InodeFlags::all(), InodeFlags::NOATIME | InodeFlags::NODATACOW)
        .unwrap();
    lab.each_way(|lab| {
        let item = item_of(&lab.nodes, file).unwrap();
        assert_eq!((item.mode, item.uid, item.gid), (0o100_755, 5, 0));
        assert_eq!((item.atime, item.mtime, item.otime), (time(-1), time(2), time(3)));
        let flags = InodeFlags::NOATIME | InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        assert_eq!(item.flags, flags);
    });
}

#[test]
fn xattrs_are_set_replaced_and_removed() {
    let lab = Lab::new();
    let file = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
    let set = |name: &[u8], value: &[u8], kind| set_xattr(&lab.namespace, file, name, value, kind);
    set(b"user.a", b"1", XattrKind::Create).unwrap();
    lab.transactions.merge_pending().unwrap();
    assert_eq!(set(b"user.a", b"2", XattrKind::Create).unwrap_err().errno(), 17);
    assert_eq!(set(b"user.b", b"2", XattrKind::Replace).unwrap_err().errno(), 61);
    set(b"user.a", b"2", XattrKind::Replace).unwrap();
    set(b"user.b", b"", XattrKind::Any).unwrap();
    let most = lab.nodes.item_max() - 30 - 6;
    set(b"user.c", &vec![7; most], XattrKind::Any).unwrap();
    set(b"user.c", &vec![8; most], XattrKind::Any).unwrap();
    assert_eq!(set(b"user.d", &vec![7; most + 1], XattrKind::Any).unwrap_err().errno(), 28);
    let lab = lab.each_way(|lab| {
        let mut xattrs = list_xattrs(&lab.nodes, file).unwrap();
        xattrs.sort();
        let names: Vec<_> = xattrs.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, [b"user.a", b"user.b", b"user.c"]);
        assert_eq!(get_xattr(&lab.nodes, file, b"user.a").unwrap(), Some(b"2".to_vec()));
        assert_eq!(get_xattr(&lab.nodes, file, b"user.c").unwrap(), Some(vec![8; most]));
    });
    set_xattr(&lab.namespace, file, b"user.c", &vec![9; most], XattrKind::Any).unwrap();
    remove_xattr(&lab.namespace, file, b"user.a").unwrap();
    assert_eq!(remove_xattr(&lab.namespace, file, b"user.a").unwrap_err().errno(), 61);
    lab.each_way(|lab| {
        assert_eq!(get_xattr(&lab.nodes, file, b"user.a").unwrap(), None);
        assert_eq!(list_xattrs(&lab.nodes, file).unwrap().len(), 2);
    });
}

#[test]
fn xattrs_of_one_hash_share_item() {
    let lab = Lab::new();
    let file = create(&lab.namespace, TOP, b"f", &FILE).unwrap();
    let short = b"user.short".to_vec();
    let mut long = [b"user.".as_slice(), &[b'x'; 246]].concat();
    let end = testing::ending_alike(&long, name_hash(&short));
    long.extend(end);
    assert_eq!((long.len(), name_hash(&long)), (255, name_hash(&short)));
    let set = |name: &[u8], len: usize| {
        set_xattr(&lab.namespace, file, name, &vec![7; len], XattrKind::Any)
    };
    // The length that is left for the values of both.
    let most = lab.nodes.item_max() - (30 + long.len()) - (30 + short.len());
    set(&long, most - 100).unwrap();
    assert_eq!(set(&short, 101).unwrap_err().errno(), 28);
    set(&short, 100).unwrap();
    lab.each_way(|lab| assert_eq!(list_xattrs(&lab.nodes, file).unwrap().len(), 2));
}

#[test]
fn list_positions_are_stable_while_directory_changes() {
    let lab = Lab::new();
    let dir = create(&lab.namespace, TOP, b"dir", &DIR).unwrap();
    for number in 0..10_000 {
        create(&lab.namespace, dir, &name(number), &FILE).unwrap();
        if number == 3000 {
            lab.transactions.merge_pending().unwrap();
        }
    }
    let (first, next) = list(&lab.nodes, dir, 0).unwrap();
    let last = first.last().unwrap().index;
    let next = next.unwrap();
    for number in (0..10_000).step_by(2) {
        unlink(&lab.namespace, dir, &name(number)).unwrap();
    }
    create(&lab.namespace, dir, b"late", &FILE).unwrap();
    let (rest, _) = list(&lab.nodes, dir, next).unwrap();
    assert!(rest.iter().all(|entry| entry.index > last));
    lab.each_way(|lab| {
        let expected = (0..10_000).filter(|number| number % 2 == 1).map(name);
        let expected: Vec<_> = expected.chain([b"late".to_vec()]).collect();
        assert_eq!(lab.names(dir), expected);
        let size: usize = expected.iter().map(|name| 2 * name.len()).sum();
        assert_eq!(item_of(&lab.nodes, dir).unwrap().size, size as u64);
    });
}

#[test]
fn deferred_names_are_flushed_in_parts_under_memory_pressure() {
    const LATE: usize = 8 << 10;
    let bounds =
        InodesOptions { pending_max: 16 << 10, names_max: 32 << 10, late_bytes: LATE, ..OPTIONS };
    // Nothing is flushed or committed except by the calls here.
    let asked = TransactionOptions { only_asked: true, ..TransactionOptions::default() };
    let device = Arc::new(MemoryDevice::from_bytes(Lab::new().closed()));
    let lab = Lab::open_by(device, bounds, asked);
    let dir = create(&lab.namespace, TOP, b"dir", &DIR).unwrap();
    let mut left = 0;
    for number in 0..2000 {
        create(&lab.namespace, dir, &name(number), &FILE).unwrap();
        if number >= 500 && number % 3 == 0 {
            unlink(&lab.namespace, dir, &name(number - 500)).unwrap();
        }
        if number % 100 == 99 {
            lab.transactions.merge_most().unwrap();
            let late = lab.nodes.late.bytes();
            assert!(late <= LATE, "{late}");
            left += usize::from(late > LATE / 2);
        }
    }
    // Most flushes left some names deferred.
    assert!(left > 15, "{left}");
    let is_left = |number: u32| !(number < 1500 && (number + 500).is_multiple_of(3));
    lab.each_way(|lab| {
        for number in 0..2000 {
            assert_eq!(lab.id(dir, &name(number)).is_some(), is_left(number), "{number}");
        }
        let expected: Vec<_> = (0..2000).filter(|number| is_left(*number)).map(name).collect();
        assert_eq!(lab.names(dir), expected);
    });
}

#[test]
fn names_of_one_hash_share_item() {
    let lab = Lab::of(&Options { nodesize: 4096, ..Options::default() });
    let [one, two] = testing::alike();
    let a = create(&lab.namespace, TOP, &one, &FILE).unwrap();
    let b = create(&lab.namespace, TOP, &two, &FILE).unwrap();
    let lab = lab.each_way(|lab| {
        assert_eq!((lab.id(TOP, &one), lab.id(TOP, &two)), (Some(a), Some(b)));
    });
    unlink(&lab.namespace, TOP, &one).unwrap();
    lab.each_way(|lab| {
        assert_eq!((lab.id(TOP, &one), lab.id(TOP, &two)), (None, Some(b)));
    });
}

#[test]
fn threads_change_directories_during_flush_and_commit() {
    let lab = Lab::new();
    let dirs = [b"left", b"rite"].map(|name| create(&lab.namespace, TOP, name, &DIR).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let lab = &lab;
            let dirs = &dirs;
            scope.spawn(move || {
                for number in 0..300_usize {
                    let from = dirs[number % 2];
                    let to = dirs[(number + 1) % 2];
                    let own = format!("{thread} {number}").into_bytes();
                    let id = create(&lab.namespace, from, &own, &FILE).unwrap();
                    rename(&lab.namespace, (from, &own), (to, &own), RenameKind::Replace).unwrap();
                    if number % 3 == 0 {
                        unlink(&lab.namespace, to, &own).unwrap();
                    } else {
                        link(&lab.namespace, id, from, &own).unwrap();
                    }
                    match number % 50 {
                        7 => lab.transactions.merge_pending().unwrap(),
                        17 => lab.transactions.merge_most().unwrap(),
                        31 => lab.transactions.commit().unwrap(),
                        _ => {}
                    }
                }
            });
        }
    });
    lab.each_way(|lab| {
        for dir in dirs {
            assert_eq!(lab.names(dir).len(), 4 * 200);
        }
    });
}

/// A flush after a failed one would find what that one left half done.
#[test]
fn flush_after_failed_flush_changes_nothing() {
    let lab = Lab::new();
    let file = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
    assert!(lab.nodes.inode(file).unwrap().state().freeze().is_some());
    lab.write_inline(file, b"another set");
    let handle = lab.transactions.start(HandleKind::Operation).unwrap();
    lab.transactions.fail("a merge did");
    let flusher = DelayedItemsFlusher(Arc::downgrade(&lab.nodes));
    assert!(flusher.merge(&handle, userbtrfs_transaction::FlushScope::All).is_err());
    assert!(!lab.nodes.waiting.is_empty());
}
