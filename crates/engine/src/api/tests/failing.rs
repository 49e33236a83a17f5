//! Devices that fail.

use userbtrfs_device::{DeviceError, Request, Ticket};
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Mutex};

use super::*;

/// A device that can be told to fail what is written to data.
struct Failing {
    memory: MemoryDevice,
    fails: AtomicBool,
}

impl Failing {
    fn new() -> Arc<Self> {
        let memory = MemoryDevice::new(128 << 20);
        userbtrfs_mkfs::make(&memory, &Options::default()).unwrap();
        Arc::new(Self { memory, fails: AtomicBool::new(false) })
    }

    fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }
}

impl Device for Failing {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn name(&self) -> &'static str {
        "failing"
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let fails = self.fails.load(Ordering::SeqCst);
        let run = |request: Request| match request {
            Request::Write { ref buffer, .. } if fails && buffer.starts_with(b"!!!!!!!!") => {
                let (device, access) = ("failing".into(), request.access());
                request.complete(Err(DeviceError::Short { device, access, done: 0 }))
            }
            request => self.memory.run(request),
        };
        Ticket::completed(batch.into_iter().map(run).collect())
    }
}

#[test]
fn what_cannot_be_written_is_told_once_and_the_old_data_stays() {
    let device = Failing::new();
    let fs = open(Arc::clone(&device) as Arc<dyn Device>, 32 << 20);
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    let other = fs.root().create(b"other", 0o644).unwrap().open().unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    file.sync_all().unwrap();
    device.fail(true);
    file.write_at(&[b'!'; 4096], 4096).unwrap();
    file.write_at(&[b'!'; 4096], 16384).unwrap();
    other.write_at(&[2; 8192], 0).unwrap();
    let told = file.sync_all().unwrap_err();
    assert!(matches!(told, Error::Unwritten(_)));
    let words = told.to_string();
    assert_eq!(words.matches("inode").count(), 1, "{words}");
    assert_eq!(words.matches("offset 4096").count(), 1, "{words}");
    file.sync_all().unwrap();
    other.sync_all().unwrap();
    let expected = [&[1; 8192][..], &[0; 12288]].concat();
    assert!(file.read_all().unwrap() == expected);
    file.write_at(&[b'!'; 4096], 0).unwrap();
    let committed = fs.commit();
    assert!(matches!(committed, Err(Error::Unwritten(_))), "{committed:?}");
    assert!(matches!(file.close(), Err(Error::Unwritten(_))));
    device.fail(false);
    drop(other);
    fs.close().unwrap();
    check(&device.memory);
    let fs = open(Arc::clone(&device) as Arc<dyn Device>, 32 << 20);
    assert!(fs.read("file").unwrap() == expected);
    assert!(fs.read("other").unwrap() == [2; 8192]);
    fs.close().unwrap();
}

#[test]
fn a_sync_that_fails_is_traced_as_one() {
    let device = Failing::new();
    let fs = open(Arc::clone(&device) as Arc<dyn Device>, 32 << 20);
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    let told = Arc::new(Mutex::new(Class::CacheShard, Vec::new()));
    let heard = Arc::clone(&told);
    fs.trace_syncs(move |record| heard.lock().push(record.how));
    device.fail(true);
    file.write_at(&[b'!'; 4096], 0).unwrap();
    file.sync_all().unwrap_err();
    assert_eq!(*told.lock(), [SyncHow::Failed]);
    file.sync_all().unwrap();
    assert_ne!(told.lock()[1], SyncHow::Failed);
    device.fail(false);
    file.close().unwrap();
    fs.close().unwrap();
    check(&device.memory);
}

#[test]
fn after_an_abort_nothing_is_written_and_everything_says_so() {
    let lab = Lab::new();
    let file = lab.create("file");
    file.write_at(&[1; 10_000], 0).unwrap();
    lab.fs.commit().unwrap();
    file.write_at(&[2; 10_000], 0).unwrap();
    lab.fs.clone().abandon();
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.set_len(0).is_err());
    assert!(file.append(b"x").is_err());
    assert!(file.sync_all().is_err());
    drop(file);
    let Lab { device, memory, fs } = lab;
    drop(fs);
    check(&device);
    let lab = Lab::open(device, memory);
    assert!(lab.fs.read("file").unwrap() == [1; 10_000]);
    lab.close();
}
