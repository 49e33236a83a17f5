//! The effects of the experiments of docs/seeds.md, and that none has those of another.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use userbtrfs_testkit::devices::PausedDevice;

use super::*;

/// The last time that a thread that should be blocked is looked at.
const LONG: Duration = Duration::from_millis(100);

/// The address of the primary superblock.
const SUPERBLOCK: u64 = 64 << 10;

/// All experiments, and none.
fn all() -> impl Iterator<Item = Option<Experiment>> {
    Experiment::ALL.into_iter().map(Some).chain([None])
}

fn open_in(experiment: Option<Experiment>, device: Arc<dyn Device>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).commit_seconds(0);
    if let Some(experiment) = experiment {
        options.experiment(experiment);
    }
    options.open_devices(vec![device]).unwrap()
}

fn made() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(128 << 20));
    userbtrfs_mkfs::make(&*device, &Options::default()).unwrap();
    device
}

fn create(fs: &Filesystem, name: &str) -> File {
    fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap()
}

/// Returns the syncs of a filesystem from now on.
fn syncs(fs: &Filesystem) -> Receiver<SyncRecord> {
    let (told, syncs) = channel();
    fs.trace_syncs(move |record| {
        let _gone = told.send(*record);
    });
    syncs
}

/// While the superblock of a commit is being written, the nodes of a log can be.
#[test]
fn fsync_beside_a_commit_writes_its_log_but_in_s0() {
    for experiment in all() {
        let held = Arc::new(PausedDevice::new(made() as _));
        let fs = open_in(experiment, held.clone());
        create(&fs, "committed");
        held.hold_write_of(SUPERBLOCK);
        std::thread::scope(|scope| {
            scope.spawn(|| fs.commit().unwrap());
            while held.waiting() < 1 {
                std::thread::yield_now();
            }
            let file = create(&fs, "logged");
            let synced = scope.spawn(move || file.sync_all().unwrap());
            let log_of = |fs: &Filesystem| {
                let transactions = fs.inner.transactions.as_ref().unwrap();
                let file = fs.inner.nodes.log_tracker();
                let id = fs.metadata("/logged").unwrap().id;
                file.logged(transactions.generation(), id).is_some()
            };
            if experiment == Some(Experiment::S0) {
                std::thread::sleep(LONG);
                assert!(!log_of(&fs), "it began to log");
            } else {
                while !log_of(&fs) {
                    std::thread::yield_now();
                }
            }
            held.release();
            synced.join().unwrap();
        });
        fs.close().unwrap();
    }
}

#[test]
fn rename_and_link_of_logged_inodes_write_the_log_in_s1_alone() {
    for experiment in all() {
        let fs = open_in(experiment, made());
        fs.commit().unwrap();
        let root = fs.root();
        let [file, other] = ["a", "b"].map(|name| create(&fs, name));
        let dir = root.create_dir(b"d", 0o755).unwrap();
        root.rename(b"a", &dir, b"a", RenameMode::Replace).unwrap();
        let log_commits = || fs.stats().log.log_commits;
        assert_eq!(log_commits(), 0, "nothing is logged");
        file.sync_all().unwrap();
        let before = log_commits();
        dir.rename(b"a", &root, b"c", RenameMode::Replace).unwrap();
        root.link(b"d2", file.inode()).unwrap();
        let written = log_commits() - before;
        assert_eq!(written, if experiment == Some(Experiment::S1) { 2 } else { 0 });
        drop((file, other));
        fs.close().unwrap();
    }
}

#[test]
fn name_of_a_rename_in_s1_is_durable_at_its_return() {
    let device = made();
    let fs = open_in(Some(Experiment::S1), device.clone());
    fs.commit().unwrap();
    create(&fs, "a").sync_all().unwrap();
    let root = fs.root();
    root.rename(b"a", &root, b"b", RenameMode::Replace).unwrap();
    fs.abandon();
    let copy = Arc::new(MemoryDevice::from_bytes(device.snapshot()));
    let left = open_in(None, copy);
    assert!(matches!(left.metadata("/a"), Err(PathError { error: Error::NotFound, .. })));
    assert!(left.metadata("/b").is_ok());
    left.close().unwrap();
}

/// Of an append to a file that is in the log, the log needs the inode item, the extent, and the
/// checksum.
#[test]
fn second_fsync_of_a_file_logs_all_of_its_leaf_in_s3_alone() {
    for experiment in all() {
        let fs = open_in(experiment, made());
        let file = create(&fs, "file");
        file.inode().set_xattr(b"user.a", b"value", XattrMode::Either).unwrap();
        let syncs = syncs(&fs);
        let mut items = Vec::new();
        for block in 0..4 {
            file.write_at(&pattern(block, 4096), block * 8192).unwrap();
            file.sync_all().unwrap();
            items.push(syncs.recv().unwrap().items);
        }
        if experiment == Some(Experiment::S3) {
            assert!(items.is_sorted_by(|a, b| a < b), "{items:?}");
        } else {
            assert!(items[1..].iter().all(|count| *count < items[0]), "{items:?}");
        }
        fs.close().unwrap();
    }
}

/// Two files share new extents: both log the checksums of these.
#[test]
fn data_synced_in_each_experiment_is_read_back_after_a_crash() {
    for experiment in all() {
        let device = made();
        let fs = open_in(experiment, device.clone());
        fs.commit().unwrap();
        let [first, second] = ["first", "second"].map(|name| create(&fs, name));
        let mut whole = pattern(1, 256 << 10);
        first.write_at(&whole, 0).unwrap();
        first.sync_all().unwrap();
        second.clone_range(&first, 64 << 10, 64 << 10, 0).unwrap();
        second.sync_all().unwrap();
        let more = pattern(2, 4096);
        for at in [0, 68 << 10, 100 << 10] {
            first.write_at(&more, at).unwrap();
            first.sync_all().unwrap();
            let at = usize::try_from(at).unwrap();
            whole[at..at + more.len()].copy_from_slice(&more);
        }
        second.write_at(&more, 8192).unwrap();
        second.sync_all().unwrap();
        fs.abandon();
        let copy = Arc::new(MemoryDevice::from_bytes(device.snapshot()));
        let left = open_in(experiment, copy.clone());
        assert_eq!(left.read("/first").unwrap(), whole);
        let of_second = left.read("/second").unwrap();
        let original = pattern(1, 256 << 10);
        assert_eq!(of_second[..8192], original[64 << 10..][..8192]);
        assert_eq!(of_second[8192..][..4096], more);
        left.close().unwrap();
        check(&copy);
    }
}
