//! What a sync does, and what is told of it.

use userbtrfs_sync::{Class, Mutex};

use super::*;

/// A filesystem whose syncs are told of.
struct Traced {
    lab: Lab,
    records: Arc<Mutex<Vec<SyncRecord>>>,
}

impl Traced {
    fn new() -> Self {
        let lab = Lab::new();
        lab.fs.commit().unwrap();
        let records = Arc::new(Mutex::new(Class::CacheShard, Vec::new()));
        let told = Arc::clone(&records);
        lab.fs.trace_syncs(move |record| told.lock().push(*record));
        Self { lab, records }
    }

    /// How the syncs went since this was last asked.
    fn told(&self) -> Vec<SyncHow> {
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
fn what_changed_is_logged_and_what_did_not_is_not() {
    let traced = Traced::new();
    let file = traced.lab.create("file");
    file.write_at(&pattern(3, 100_000), 0).unwrap();
    file.sync_all().unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncHow::Logged, SyncHow::Unchanged]);
    file.write_at(&[1], 50_000).unwrap();
    file.sync_data().unwrap();
    traced.lab.fs.root().sync_all().unwrap();
    assert_eq!(traced.told(), [SyncHow::Logged; 2]);
    traced.lab.fs.commit().unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncHow::Unchanged]);
    let stats = traced.lab.fs.stats().log;
    assert!(CommitReason::ALL.iter().all(|reason| stats.commits(*reason) == 0), "{stats:?}");
    drop(file);
    traced.lab.close();
}

#[test]
fn what_was_synced_is_there_after_a_crash_and_what_was_not_is_not() {
    let traced = Traced::new();
    let bytes = pattern(5, 300_000);
    let dir = traced.lab.fs.root().create_dir(b"dir", 0o755).unwrap();
    let file = dir.create(b"synced", 0o640).unwrap().open().unwrap();
    file.write_at(&bytes, 10_000).unwrap();
    file.sync_all().unwrap();
    dir.create(b"other", 0o644).unwrap();
    assert_eq!(traced.told(), [SyncHow::Logged]);
    drop((file, dir));
    let lab = traced.crashed();
    assert_eq!(lab.fs.read("/dir/synced").unwrap()[10_000..], bytes);
    assert!(lab.fs.lookup("/dir/other").is_err());
    lab.close();
}

#[test]
fn who_wants_no_logs_commits_and_is_told_why() {
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
    assert_eq!(fs.stats().log.commits(CommitReason::Disabled), 1);
}

#[test]
fn a_file_that_nobody_could_find_is_not_logged() {
    let traced = Traced::new();
    let root = traced.lab.fs.root();
    let file = root.create_unnamed(0o600).unwrap().open().unwrap();
    file.write_at(&[7; 9000], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncHow::Unchanged]);
    root.link(b"named", file.inode()).unwrap();
    file.sync_all().unwrap();
    assert_eq!(traced.told(), [SyncHow::Logged]);
    drop((file, root));
    let lab = traced.crashed();
    assert_eq!(lab.fs.read("/named").unwrap(), [7; 9000]);
    lab.close();
}
