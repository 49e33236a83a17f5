//! The effects of a sync, and their trace.

use userbtrfs_format::{InodeItem, ItemKind, Key, TreeId};
use userbtrfs_sync::{Class, Mutex};
use userbtrfs_transaction::HandleKind;

use super::*;
use crate::inode::dir;

const LARGE: SyncOutcome = SyncOutcome::Committed(FullCommitReason::LargeItem);

/// A filesystem whose syncs are traced.
struct Traced {
    lab: Lab,
    records: Arc<Mutex<Vec<SyncRecord>>>,
}

impl Traced {
    fn new() -> Self {
        Self::of(Lab::new())
    }

    fn of(lab: Lab) -> Self {
        lab.fs.commit().unwrap();
        let records = Arc::new(Mutex::new(Class::CacheShard, Vec::new()));
        let told = Arc::clone(&records);
        lab.fs.trace_syncs(move |record| told.lock().push(*record));
        Self { lab, records }
    }

    /// Returns the outcomes of the syncs since the last call.
    fn told(&self) -> Vec<SyncOutcome> {
        let records = std::mem::take(&mut *self.records.lock());
        records.iter().map(|record| record.how).collect()
    }

    /// Opens what a crash would leave.
    fn crashed(self) -> Lab {
        let Lab { device, memory, fs } = self.lab;
        fs.abandon();
        let copy = Arc::new(MemoryDevice::from_bytes(device.snapshot()));
        Lab::open(copy, memory)
    }
}

#[test]
fn changed_inode_is_logged_and_unchanged_one_is_not() {
    let traced = Traced::new();
    let file = traced.lab.create("file");
    file.write_at(&pattern(3, 100_000), 0).unwrap();
    file.sync_all().unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged, SyncOutcome::Unchanged]);
    file.write_at(&[1], 50_000).unwrap();
    file.sync_data().unwrap();
    traced.lab.fs.root().sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged; 2]);
    traced.lab.fs.commit().unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Unchanged]);
    let stats = traced.lab.fs.stats().log;
    assert!(FullCommitReason::ALL.iter().all(|reason| stats.commits(*reason) == 0), "{stats:?}");
    drop(file);
    traced.lab.close();
}

#[test]
fn fsync_of_renamed_subvolume_keeps_its_new_name() {
    let traced = Traced::new();
    let fs = &traced.lab.fs;
    fs.root().create_subvolume(b"old", 0o755).unwrap();
    fs.commit().unwrap();
    let subvolume = fs.open_dir("old").unwrap();
    subvolume.sync_all().unwrap();
    fs.rename("old", "new").unwrap();
    subvolume.sync_all().unwrap();
    subvolume.sync_all().unwrap();
    drop(subvolume);
    let committed = SyncOutcome::Committed(FullCommitReason::Subvolume);
    assert_eq!(traced.told(), [SyncOutcome::Unchanged, committed, SyncOutcome::Unchanged]);
    let lab = traced.crashed();
    assert!(lab.fs.open_dir("new").is_ok());
    assert!(matches!(lab.fs.lookup("old"), Err(PathError { error: Error::NotFound, .. })));
    lab.close();
}

/// Makes the subvolumes `old` and `other`, durably, logs `old`, changes the names, and returns the
/// filesystem that a crash leaves after another sync of the subvolume that was `old`.
fn crashed_after_naming(change: impl FnOnce(&Filesystem)) -> Lab {
    let traced = Traced::new();
    let fs = &traced.lab.fs;
    for name in [b"old".as_slice(), b"other"] {
        fs.root().create_subvolume(name, 0o755).unwrap();
    }
    fs.commit().unwrap();
    let subvolume = fs.open_dir("old").unwrap();
    subvolume.create(b"file", 0o644).unwrap();
    subvolume.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged]);
    change(fs);
    subvolume.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Committed(FullCommitReason::Subvolume)]);
    drop(subvolume);
    traced.crashed()
}

#[test]
fn fsync_of_logged_subvolume_keeps_its_new_name() {
    let lab = crashed_after_naming(|fs| fs.rename("old", "new").unwrap());
    assert!(lab.fs.lookup("new/file").is_ok());
    assert!(matches!(lab.fs.lookup("old"), Err(PathError { error: Error::NotFound, .. })));
    lab.close();
}

#[test]
fn fsync_of_logged_subvolume_keeps_the_exchange_of_names() {
    let exchange = |fs: &Filesystem| fs.rename_with("old", "other", RenameMode::Exchange).unwrap();
    let lab = crashed_after_naming(exchange);
    assert!(lab.fs.lookup("other/file").is_ok());
    assert!(matches!(lab.fs.lookup("old/file"), Err(PathError { error: Error::NotFound, .. })));
    lab.close();
}

#[test]
fn fsync_of_logged_subvolume_keeps_its_rename_over_an_empty_directory() {
    let lab = crashed_after_naming(|fs| {
        fs.create_dir("dir", 0o755).unwrap();
        fs.rename("old", "dir").unwrap();
    });
    assert!(lab.fs.lookup("dir/file").is_ok());
    assert!(matches!(lab.fs.lookup("old"), Err(PathError { error: Error::NotFound, .. })));
    lab.close();
}

#[test]
fn fsync_of_logged_subvolume_keeps_its_rename_to_the_name_of_a_deleted_one() {
    let lab = crashed_after_naming(|fs| {
        fs.root().delete_subvolume(b"other").unwrap();
        fs.rename("old", "other").unwrap();
        fs.root().create_subvolume(b"old", 0o755).unwrap();
    });
    assert!(lab.fs.lookup("other/file").is_ok());
    assert!(matches!(lab.fs.lookup("old/file"), Err(PathError { error: Error::NotFound, .. })));
    lab.close();
}

/// A change of an inode is recorded just after it is made. If the inode is logged in between, the
/// change may be in memory, but not in the log.
#[test]
fn change_recorded_after_logging_is_logged_again() {
    let traced = Traced::new();
    let file = traced.lab.create("file");
    file.write_at(&[1], 0).unwrap();
    let nodes = &traced.lab.fs.inner.nodes;
    let id = file.inode().id();
    let running = traced.lab.fs.inner.transactions.as_ref().unwrap().generation();
    file.sync_all().unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged, SyncOutcome::Unchanged]);
    nodes.log_tracker().xattrs_changed(running, id);
    file.sync_all().unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged, SyncOutcome::Unchanged]);
    nodes.log_tracker().named(running, id);
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged]);
}

#[test]
fn inode_with_too_high_link_count_causes_full_commit() {
    let traced = Traced::new();
    let file = traced.lab.create("file");
    file.write_at(&[1], 0).unwrap();
    dir::miscount(&traced.lab.fs.inner.nodes, file.inode().id());
    traced.lab.fs.root().remove_file(b"file").unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Committed(FullCommitReason::Failed)]);
}

#[test]
fn sync_record_counts_what_was_logged() {
    let traced = Traced::new();
    let dir = traced.lab.fs.root().create_dir(b"dir", 0o755).unwrap();
    let file = dir.create(b"file", 0o644).unwrap();
    file.set_xattr(b"user.long", &[b'x'; 1000], XattrMode::Create).unwrap();
    file.sync_all().unwrap();
    file.sync_all().unwrap();
    let records = std::mem::take(&mut *traced.records.lock());
    let amounts = |record: &SyncRecord| (record.inodes, record.items, record.bytes);
    let [logged, unchanged] = &records[..] else { panic!("{records:?}") };
    // The file and its directory, which is new, too.
    assert_eq!(logged.inodes, 2, "{logged:?}");
    assert!(logged.items > 3 && logged.bytes > 1000 && logged.bytes < 2000, "{logged:?}");
    assert_eq!(amounts(unchanged), (0, 0, 0));
}

/// Unlinked inodes that had the name before add nothing to the log.
#[test]
fn often_reused_name_is_logged_without_its_previous_owners() {
    let traced = Traced::new();
    for _ in 0..20 {
        let file = traced.lab.create("file");
        file.write_at(&[1], 0).unwrap();
        file.sync_all().unwrap();
        traced.lab.fs.root().remove_file(b"file").unwrap();
    }
    let records = std::mem::take(&mut *traced.records.lock());
    assert!(records.iter().all(|record| record.how == SyncOutcome::Logged && record.inodes <= 2));
    traced.lab.create("file").sync_all().unwrap();
    assert_eq!(traced.crashed().fs.metadata("/file").unwrap().size, 0);
}

#[test]
fn xattr_too_large_for_linux_replay_causes_full_commit() {
    let traced = Traced::new();
    let file = traced.lab.create("file");
    traced.lab.fs.commit().unwrap();
    let large = vec![b'x'; 8200];
    for (len, how) in [(8000, SyncOutcome::Logged), (8200, LARGE), (100, SyncOutcome::Logged)] {
        file.inode().set_xattr(b"user.long", &large[..len], XattrMode::Either).unwrap();
        file.sync_all().unwrap();
        assert_eq!(traced.told(), [how], "{len}");
    }
}

#[test]
fn names_too_large_for_linux_replay_cause_full_commit() {
    let traced = Traced::new();
    let root = traced.lab.fs.root();
    let file = root.create(b"file", 0o644).unwrap();
    let link = |number: u32| root.link(format!("{number:0240}").as_bytes(), &file).unwrap();
    (0..31).for_each(link);
    traced.lab.fs.commit().unwrap();
    link(31);
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged], "twice as much fits into a leaf");
    link(32);
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [LARGE], "from memory");
    link(33);
    let transactions = traced.lab.fs.inner.transactions.as_ref().unwrap();
    transactions.merge_pending().unwrap();
    root.sync_all().unwrap();
    assert_eq!(traced.told(), [LARGE], "from the tree");
}

#[test]
fn crash_keeps_synced_file_and_loses_unsynced_one() {
    let traced = Traced::new();
    let bytes = pattern(5, 300_000);
    let dir = traced.lab.fs.root().create_dir(b"dir", 0o755).unwrap();
    let file = dir.create(b"synced", 0o640).unwrap().open().unwrap();
    file.write_at(&bytes, 10_000).unwrap();
    file.sync_all().unwrap();
    dir.create(b"other", 0o644).unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged]);
    drop((file, dir));
    let lab = traced.crashed();
    assert_eq!(lab.fs.read("/dir/synced").unwrap()[10_000..], bytes);
    assert!(lab.fs.lookup("/dir/other").is_err());
    lab.close();
}

#[test]
fn sync_without_tree_log_is_a_counted_commit() {
    let device = Arc::new(MemoryDevice::new(128 << 20));
    userbtrfs_mkfs::make(&*device, &Options::default()).unwrap();
    let mut options = OpenOptions::new();
    options.write(true).tree_log(false);
    let fs = options.open_devices(vec![Arc::clone(&device) as Arc<dyn Device>]).unwrap();
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    file.write_at(b"content", 0).unwrap();
    let before = fs.superblock().generation;
    file.sync_all().unwrap();
    assert_eq!(fs.superblock().generation, before + 1);
    assert_eq!(fs.stats().log.commits(FullCommitReason::Disabled), 1);
}

#[test]
fn unlinked_file_is_not_logged() {
    let traced = Traced::new();
    let root = traced.lab.fs.root();
    let file = root.create(b"gone", 0o600).unwrap().open().unwrap();
    root.remove_file(b"gone").unwrap();
    traced.lab.fs.commit().unwrap();
    file.write_at(&[7; 9000], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Unchanged]);
}

#[test]
fn file_created_without_a_name_is_logged() {
    let traced = Traced::new();
    let root = traced.lab.fs.root();
    let file = root.create_unnamed(0o600).unwrap().open().unwrap();
    file.write_at(&[7; 9000], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged]);
    root.link(b"named", file.inode()).unwrap();
    root.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncOutcome::Logged]);
    drop((file, root));
    let lab = traced.crashed();
    assert_eq!(lab.fs.read("/named").unwrap(), [7; 9000]);
    lab.close();
}

#[test]
fn file_without_a_name_has_one_link_in_the_log() {
    let traced = Traced::new();
    let fs = &traced.lab.fs;
    let file = fs.root().create_unnamed(0o600).unwrap().open().unwrap();
    file.write_at(&[7; 9000], 0).unwrap();
    file.sync_all().unwrap();
    let transactions = fs.inner.transactions.as_ref().unwrap();
    let handle = transactions.start(HandleKind::Operation).unwrap();
    let writer = transactions.logs(&handle).unwrap();
    let log = writer.tree(TreeId::FS).unwrap();
    let key = Key::new(file.inode().id().number, ItemKind::INODE_ITEM, 0);
    let found = log.search(transactions.tree_roots().store(), &key).unwrap();
    assert!(found.exact);
    let logged = InodeItem::parse(found.leaf.item(found.slot).data).unwrap();
    assert_eq!((logged.nlink, file.inode().metadata().unwrap().nlink), (1, 0));
}

/// Returns the entries in and below a directory.
fn listing(dir: &Dir) -> Vec<String> {
    let mut found = Vec::new();
    for entry in dir.entries() {
        let entry = entry.unwrap();
        let inode = dir.follow(&entry).unwrap();
        let metadata = inode.metadata().unwrap();
        let Metadata { nlink, mode, .. } = metadata;
        let name = String::from_utf8_lossy(entry.name());
        let xattrs = inode.xattrs().unwrap();
        let target = metadata.is_symlink().then(|| inode.read_link().unwrap());
        let number = inode.id().number;
        found.push(format!("{name} {number} {nlink} {mode:o} {xattrs:?} {target:?}"));
        if metadata.is_dir() {
            let below = listing(&dir.enter(&entry).unwrap()).into_iter();
            found.extend(below.map(|line| format!("{name}/{line}")));
        }
    }
    found.sort();
    found
}

/// Creates a new entry of a directory, usually a file, and sometimes changes another directory.
fn make_one(old: &Dir, dir: &Dir, number: u32) {
    let name = format!("new-{number}");
    let name = name.as_bytes();
    match number % 16 {
        0 => drop(dir.symlink(name, b"where it leads").unwrap()),
        1 => dir.create_dir(name, 0o750).unwrap().create(b"below", 0o600).map(drop).unwrap(),
        2 => {
            let gone = format!("old-{number}");
            old.rename(gone.as_bytes(), dir, name, RenameMode::NoReplace).unwrap();
        }
        3 => dir
            .create(name, 0o604)
            .unwrap()
            .set_xattr(b"user.x", b"value", XattrMode::Create)
            .unwrap(),
        4 => {
            let file = dir.create(name, 0o640).unwrap();
            // Sometimes more names than fit into one item.
            let links = if number % 320 == 4 { 100 } else { 1 };
            for link in 0..links {
                let name = format!("{number}-{link:0200}");
                old.link(name.as_bytes(), &file).unwrap();
            }
        }
        5 => {
            dir.create(name, 0o600).unwrap();
            dir.remove_file(name).unwrap();
        }
        _ => drop(dir.create(name, 0o644).unwrap()),
    }
}

#[test]
fn inodes_of_new_entries_survive_sync_of_their_directory() {
    let traced = Traced::of(Lab::of(128 << 20, &Options::default(), 4 << 20));
    let make = |name: &str| traced.lab.fs.root().create_dir(name.as_bytes(), 0o755).unwrap();
    let old = make("old");
    let dir = make("dir");
    for number in 0..3000 {
        old.create(format!("old-{number}").as_bytes(), 0o644).unwrap();
    }
    traced.lab.fs.commit().unwrap();
    for number in 0..3000 {
        make_one(&old, &dir, number);
    }
    dir.sync_all().unwrap();
    // A sync of `old`, from which names moved to another directory, would be a commit, as in Linux.
    assert_eq!(traced.told(), [SyncOutcome::Logged]);
    let there = listing(&dir);
    drop((old, dir));
    let lab = traced.crashed();
    assert!(lab.fs.replayed().is_some());
    assert_eq!(listing(&lab.fs.open_dir("/dir").unwrap()), there);
    lab.close();
}
