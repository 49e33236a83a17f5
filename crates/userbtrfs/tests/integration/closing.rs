//! Closing a filesystem while it has other handles.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use userbtrfs::device::{Device, DeviceError, MemoryDevice, Request, Ticket};
use userbtrfs::{Error, Filesystem, OpenOptions, Shutdown, mkfs};

use super::Image;

#[test]
fn close_with_open_file_makes_its_data_durable() {
    let image = Image::new();
    let fs = image.open();
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    file.write_all_at(b"before", 0).unwrap();
    fs.close().unwrap();
    assert_eq!(image.copy().read("/file").unwrap(), b"before");
    assert!(image.is_locked());

    file.write_all_at(b"after", 0).unwrap();
    assert_eq!(file.read_all().unwrap(), b"aftere");
    file.close().unwrap();
    assert!(!image.is_locked());
    assert_eq!(image.open().read("/file").unwrap(), b"aftere");
}

#[test]
fn close_with_open_directory_keeps_it_usable() {
    let image = Image::new();
    let fs = image.open();
    let dir = fs.create_dir("/dir", 0o755).unwrap();
    fs.close().unwrap();
    assert!(image.copy().open_dir("/dir").is_ok());

    dir.create(b"file", 0o644).unwrap();
    dir.sync_all().unwrap();
    assert!(image.copy().lookup("/dir/file").is_ok());
    dir.rename(b"file", &dir, b"name", userbtrfs::RenameMode::Replace).unwrap();
    assert!(image.is_locked());
    drop(dir);
    assert!(!image.is_locked());
    assert!(image.open().lookup("/dir/name").is_ok());
}

#[test]
fn close_of_one_clone_keeps_the_other_open() {
    let image = Image::new();
    let fs = image.open();
    let clone = fs.clone();
    fs.write("/first", "1").unwrap();
    fs.close().unwrap();
    assert!(image.copy().lookup("/first").is_ok());
    assert!(clone.is_writable() && image.is_locked());
    clone.write("/second", "2").unwrap();
    clone.close().unwrap();
    assert!(!image.is_locked());
    assert_eq!(image.open().read("/second").unwrap(), b"2");
}

#[test]
fn close_during_an_iteration_does_not_end_it() {
    let image = Image::new();
    let fs = image.open();
    for number in 0..2000 {
        fs.write(format!("/{number}"), "").unwrap();
    }
    let mut entries = fs.root().entries();
    let mut walk = fs.walk("/").unwrap();
    entries.next().unwrap().unwrap();
    walk.next().unwrap().unwrap();
    fs.close().unwrap();
    assert!(image.is_locked());
    assert_eq!(entries.map(Result::unwrap).count(), 1999);
    assert_eq!(walk.map(Result::unwrap).count(), 2000);
    assert!(!image.is_locked());
}

#[test]
fn close_with_open_file_without_a_name_keeps_it_until_the_last_handle() {
    let image = Image::new();
    let fs = image.open();
    let inode = fs.root().create(b"file", 0o644).unwrap();
    let id = inode.id();
    let file = inode.open().unwrap();
    drop(inode);
    file.write_all_at(&vec![7; 100_000], 0).unwrap();
    fs.remove_file("/file").unwrap();
    fs.close().unwrap();
    assert!(file.read_all().unwrap() == vec![7; 100_000]);
    // In a crash it remains, until the next run closes.
    let copy = image.copy();
    assert_eq!(copy.inode(id).metadata().unwrap().nlink, 0);
    copy.close().unwrap();
    drop(file);
    assert!(matches!(image.open().inode(id).metadata(), Err(Error::NoInode(_))));
}

#[test]
fn close_in_many_threads_keeps_what_each_wrote() {
    let image = Image::new();
    for round in 0..4 {
        let fs = image.open();
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let fs = fs.clone();
                thread::spawn(move || {
                    let file = fs.root().create(format!("{round}-{number}").as_bytes(), 0o644);
                    let file = file.unwrap().open().unwrap();
                    file.write_all_at(&vec![number; 50_000], 0).unwrap();
                    fs.close().unwrap();
                    file.write_all_at(&vec![number; 50_000], 50_000).unwrap();
                    file.close().unwrap();
                })
            })
            .collect();
        fs.close().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(!image.is_locked());
        let fs = image.open();
        for number in 0..8 {
            let content = fs.read(format!("/{round}-{number}")).unwrap();
            assert!(content == vec![number; 100_000], "{round}-{number}");
        }
    }
}

#[test]
fn close_while_another_thread_writes_does_not_disturb_it() {
    let image = Image::new();
    let fs = image.open();
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    let stops = Arc::new(AtomicBool::new(false));
    let is_stopped = Arc::clone(&stops);
    let writer = thread::spawn(move || {
        let mut offset = 0;
        while !is_stopped.load(Ordering::Relaxed) || offset == 0 {
            file.write_all_at(&[9; 4096], offset).unwrap();
            offset += 4096;
        }
        file.close().unwrap();
        offset
    });
    fs.close().unwrap();
    stops.store(true, Ordering::Relaxed);
    let len = writer.join().unwrap();
    let content = image.open().read("/file").unwrap();
    assert!(content.len() as u64 == len && content.iter().all(|byte| *byte == 9));
}

#[test]
fn shutdown_before_close_ends_the_changes_of_all_handles() {
    let image = Image::new();
    let fs = image.open();
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    let dir = fs.root();
    file.write_all_at(b"before", 0).unwrap();
    fs.shutdown(Shutdown::Sync).unwrap();
    assert!(fs.is_shut_down());
    drop(fs);
    let errors = [
        file.write_at(b"after", 0).unwrap_err(),
        file.set_len(0).unwrap_err(),
        file.sync_all().unwrap_err(),
        dir.create(b"new", 0o644).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Transaction(_)) && error.errno() == 5, "{error:?}");
    }
    assert_eq!(file.read_all().unwrap(), b"before");
    drop((file, dir));
    assert_eq!(image.open().read("/file").unwrap(), b"before");
}

#[test]
fn listener_of_syncs_that_owns_a_handle_keeps_the_image_open_until_it_is_removed() {
    let image = Image::new();
    let fs = image.open();
    let owned = fs.clone();
    fs.trace_syncs(move |_| assert!(owned.is_writable()));
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    file.sync_all().unwrap();
    let inode = file.inode().clone();
    drop(file);
    fs.close().unwrap();
    assert!(image.is_locked());
    inode.filesystem().stop_trace();
    drop(inode);
    assert!(!image.is_locked());
}

#[test]
fn close_of_a_filesystem_that_is_only_read_keeps_files_readable() {
    let image = Image::new();
    let fs = image.open();
    fs.write("/file", "content").unwrap();
    fs.close().unwrap();
    let fs = Filesystem::open(image.path()).unwrap();
    let file = fs.open_file("/file").unwrap();
    fs.close().unwrap();
    assert_eq!(file.read_all().unwrap(), b"content");
    assert!(matches!(file.write_at(b"x", 0), Err(Error::ReadOnly)));
    file.close().unwrap();
}

/// A device whose flushes fail on request.
struct Unflushable {
    memory: MemoryDevice,
    fails: AtomicBool,
}

impl Unflushable {
    fn new() -> Arc<Self> {
        let memory = MemoryDevice::new(128 << 20);
        mkfs::make(&memory, &mkfs::Options::default()).unwrap();
        Arc::new(Self { memory, fails: AtomicBool::new(false) })
    }

    fn open(self: &Arc<Self>) -> Filesystem {
        let device = Arc::clone(self) as Arc<dyn Device>;
        OpenOptions::new().write(true).open_devices(vec![device]).unwrap()
    }

    fn fail(&self) {
        self.fails.store(true, Ordering::SeqCst);
    }
}

impl Device for Unflushable {
    fn name(&self) -> &'static str {
        "unflushable"
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let complete = |request: Request| {
            if !matches!(request, Request::Flush) || !self.fails.load(Ordering::SeqCst) {
                return self.memory.run(request);
            }
            let source = io::Error::from_raw_os_error(5);
            let error =
                DeviceError::Io { device: "unflushable".into(), access: request.access(), source };
            request.complete(Err(error))
        };
        Ticket::completed(batch.into_iter().map(complete).collect())
    }
}

#[test]
fn close_that_fails_returns_the_error_and_so_does_each_later_change() {
    let device = Unflushable::new();
    let fs = device.open();
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    device.fail();
    assert_eq!(fs.close().unwrap_err().errno(), 5);
    // As on Linux after an aborted transaction: EROFS.
    let error = file.write_at(b"after", 0).unwrap_err();
    assert!(matches!(error, Error::Transaction(_)) && error.errno() == 30, "{error:?}");
    assert_eq!(file.close().unwrap_err().errno(), 30);
}

#[test]
fn close_of_the_last_file_returns_the_error_of_closing_the_filesystem() {
    let device = Unflushable::new();
    let fs = device.open();
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    let other = fs.open_file("/file").unwrap();
    fs.close().unwrap();
    file.write_all_at(b"after", 0).unwrap();
    device.fail();
    other.close().unwrap();
    assert_eq!(file.close().unwrap_err().errno(), 5);
}
