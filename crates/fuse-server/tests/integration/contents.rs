//! Contents of files, as programs use them.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate, ftruncate, seek};
use rustix::io::Errno;

use userbtrfs_engine::api;

use crate::support::{Ours, Site, both, pattern, shell};

/// A new file, for reading and writing, with these flags.
fn open_new(path: &Path, flags: OFlags) -> File {
    let flags = i32::try_from(flags.bits()).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(flags);
    options.open(path).unwrap()
}

#[test]
fn written_content_of_any_size_is_read_back() {
    both(|root| {
        for length in [0, 1, 100, 4095, 4096, 5000, 131_072, (3 << 20) + 17] {
            let path = root.join(format!("{length}"));
            fs::write(&path, pattern(length)).unwrap();
            assert!(fs::read(&path).unwrap() == pattern(length), "{length}");
            assert_eq!(fs::metadata(&path).unwrap().len(), length as u64);
        }
        shell(root, "cat 5000 100 >both; cat 1 >>both; test $(stat -c %s both) = 5101");
    });
}

#[test]
fn concurrent_appends_lose_nothing() {
    both(|root| {
        let path = root.join("file");
        File::create(&path).unwrap();
        std::thread::scope(|scope| {
            for letter in b"abcd" {
                let file = OpenOptions::new().append(true).open(&path).unwrap();
                scope.spawn(move || {
                    for _ in 0..200 {
                        (&file).write_all(&[*letter; 50]).unwrap();
                    }
                });
            }
        });
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), 4 * 200 * 50);
        for part in content.chunks(50) {
            assert!(part.iter().all(|byte| *byte == part[0]));
        }
    });
}

#[test]
fn direct_and_buffered_io_see_each_other() {
    both(|root| {
        let path = root.join("file");
        fs::write(&path, pattern(64 << 10)).unwrap();
        let mut options = OpenOptions::new();
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
        let file = options.read(true).write(true).custom_flags(direct).open(&path).unwrap();
        let aligned = |byte: u8| Aligned([byte; 4096]);
        file.write_all_at(&aligned(9).0, 8192).unwrap();
        assert_eq!(fs::read(&path).unwrap()[8192..12288], [9; 4096]);
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[5; 4096], 0).unwrap();
        let mut read = aligned(0);
        file.read_exact_at(&mut read.0, 0).unwrap();
        assert_eq!(read.0, [5; 4096]);
        file.write_all_at(&aligned(3).0, 64 << 10).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), (64 << 10) + 4096);
    });
}

/// A block with the alignment that direct I/O requires.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

/// The kernel keeps no stale page of a file that is read while it is written asynchronously.
#[test]
fn buffered_reads_beside_asynchronous_direct_writes_see_them_afterwards() {
    const LEN: usize = 1 << 20;
    both(|root| {
        let path = root.join("file");
        fs::write(&path, vec![0; LEN]).unwrap();
        for round in 1..=12_u8 {
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut bytes = vec![0; LEN];
                    let file = File::open(&path).unwrap();
                    while !is_over.load(Ordering::Relaxed) {
                        file.read_exact_at(&mut bytes, 0).unwrap();
                    }
                });
                let written = shell(
                    root,
                    &format!(
                        "fio --minimal --name=write --filename=file --rw=randwrite --size=1M \
                         --bs=16k --direct=1 --ioengine=libaio --iodepth=16 \
                         --buffer_pattern=0x{round:02x} --overwrite=1 --fallocate=none"
                    ),
                );
                is_over.store(true, Ordering::Relaxed);
                assert!(!written.is_empty());
            });
            let read = fs::read(&path).unwrap();
            let stale = read.iter().filter(|byte| **byte != round).count();
            assert_eq!((read.len(), stale), (LEN, 0), "round {round}");
        }
    });
}

#[test]
fn sync_and_dsync_writes_succeed() {
    both(|root| {
        for (name, flags) in [
            ("sync", OFlags::SYNC),
            ("dsync", OFlags::DSYNC),
            ("both", OFlags::SYNC | OFlags::DIRECT),
        ] {
            let file = open_new(&root.join(name), flags);
            file.write_all_at(&Aligned([7; 4096]).0, 4096).unwrap();
            file.sync_data().unwrap();
            file.sync_all().unwrap();
        }
        File::open(root).unwrap().sync_all().unwrap();
    });
}

#[test]
fn copy_file_range_to_a_sync_file_is_durable_on_return() {
    let Some(site) = Site::new() else { return };
    site.format();
    let ours = Ours::new(&site, api::OpenOptions::new().write(true).commit_seconds(0));
    fs::write(ours.path().join("from"), pattern(100_000)).unwrap();
    let from = File::open(ours.path().join("from")).unwrap();
    let stats_handle = ours.mounted.stats_handle();
    let synced = || {
        let stats = stats_handle.filesystem().stats();
        (stats.log.log_commits, stats.commits)
    };
    for (name, flags, is_durable) in [
        ("plain", OFlags::empty(), false),
        ("sync", OFlags::SYNC, true),
        ("dsync", OFlags::DSYNC, true),
    ] {
        let file = open_new(&ours.path().join(name), flags);
        let before = synced();
        let mut at = 0;
        let mut to = 0;
        let copied = copy_file_range(&from, Some(&mut at), &file, Some(&mut to), 100_000);
        assert_eq!(copied, Ok(100_000));
        assert_eq!(synced() != before, is_durable, "{name}");
    }
    drop((from, stats_handle));
    ours.end();
}

#[test]
fn sizes_up_to_the_largest() {
    both(|root| {
        let file = open_new(&root.join("file"), OFlags::empty());
        let last = i64::MAX.cast_unsigned();
        ftruncate(&file, last).unwrap();
        assert_eq!(file.metadata().unwrap().len(), last);
        assert_eq!(rustix::io::pwrite(&file, b"x", last - 1), Ok(1));
        assert_eq!(rustix::io::pwrite(&file, b"x", last), Err(Errno::INVAL));
        let mut byte = [0];
        file.read_exact_at(&mut byte, last - 1).unwrap();
        assert_eq!(&byte, b"x");
        ftruncate(&file, 10).unwrap();
        assert_eq!(fs::read(root.join("file")).unwrap(), [0; 10]);
    });
}

#[test]
fn space_is_allocated_and_taken() {
    both(|root| {
        let path = root.join("file");
        let file = open_new(&path, OFlags::empty());
        let reserve = FallocateFlags::empty();
        fallocate(&file, reserve, 0, 1 << 20).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        assert!(fs::metadata(&path).unwrap().blocks() >= 2048);
        file.write_all_at(&pattern(1 << 20), 0).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 4096, 8192).unwrap();
        fallocate(&file, FallocateFlags::ZERO_RANGE, 100_000, 200).unwrap();
        let mut expected = pattern(1 << 20);
        expected[4096..12288].fill(0);
        expected[100_000..100_200].fill(0);
        assert!(fs::read(&path).unwrap() == expected);
        fallocate(&file, FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapse, Err(Errno::OPNOTSUPP));
    });
}

/// Data that was just written, and not written back yet, is found as data.
#[test]
fn holes_and_data_are_found_in_what_was_just_written() {
    both(|root| {
        let mut file = open_new(&root.join("file"), OFlags::empty());
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 256 << 10).unwrap();
        file.write_all_at(&[1; 100], 512 << 10).unwrap();
        let data = |from| seek(&file, rustix::fs::SeekFrom::Data(from));
        let hole = |from| seek(&file, rustix::fs::SeekFrom::Hole(from));
        assert_eq!((data(0), hole(0)), (Ok(256 << 10), Ok(0)));
        assert_eq!(hole(256 << 10), Ok((256 << 10) + 4096));
        assert_eq!(data((256 << 10) + 4096), Ok(512 << 10));
        assert_eq!(data(600 << 10), Err(Errno::NXIO));
        assert_eq!(hole(600 << 10), Ok(600 << 10));
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 1 << 20);
    });
}

#[test]
fn ranges_are_copied_from_file_to_file() {
    both(|root| {
        let bytes = pattern((20 << 20) + 5);
        fs::write(root.join("from"), &bytes).unwrap();
        let from = File::open(root.join("from")).unwrap();
        let to = open_new(&root.join("to"), OFlags::empty());
        let mut at = 0;
        let mut end = 100;
        while at < bytes.len() as u64 {
            let left = bytes.len() - usize::try_from(at).unwrap();
            assert_ne!(
                copy_file_range(&from, Some(&mut at), &to, Some(&mut end), left).unwrap(),
                0
            );
        }
        let found = fs::read(root.join("to")).unwrap();
        assert!(found[..100] == [0; 100] && found[100..] == bytes);
        shell(root, "cp --reflink=auto from again; cmp from again; cp --sparse=always to sparse");
    });
}

#[test]
fn copy_at_sector_boundaries_takes_no_space() {
    both(|root| {
        let bytes = pattern((20 << 20) + 5);
        fs::write(root.join("from"), &bytes).unwrap();
        // A sync of the filesystem does not reach the server of a FUSE mount.
        File::open(root.join("from")).unwrap().sync_all().unwrap();
        let free = || {
            rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
            let found = rustix::fs::statvfs(root).unwrap();
            found.f_bfree * found.f_frsize
        };
        let before = free();
        let from = File::open(root.join("from")).unwrap();
        let to = open_new(&root.join("to"), OFlags::empty());
        let mut at = 0;
        let mut end = 8192;
        while at < bytes.len() as u64 {
            let left = bytes.len() - usize::try_from(at).unwrap();
            let copied = copy_file_range(&from, Some(&mut at), &to, Some(&mut end), left);
            assert_ne!(copied.unwrap(), 0);
        }
        assert!(before < free() + (4 << 20), "only metadata was written");
        let found = fs::read(root.join("to")).unwrap();
        assert!(found[..8192] == [0; 8192] && found[8192..] == bytes);
        // Each has its own bytes afterwards.
        to.write_all_at(b"new", 8192).unwrap();
        assert!(fs::read(root.join("from")).unwrap() == bytes);
    });
}

#[test]
fn lock_held_by_one_file_is_refused_to_another() {
    both(|root| {
        use rustix::fs::{FlockOperation, fcntl_lock, flock};
        let path = root.join("file");
        let one = open_new(&path, OFlags::empty());
        let other = File::open(&path).unwrap();
        flock(&one, FlockOperation::LockExclusive).unwrap();
        let refused = flock(&other, FlockOperation::NonBlockingLockShared);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
        flock(&one, FlockOperation::Unlock).unwrap();
        flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
        fcntl_lock(&one, FlockOperation::LockExclusive).unwrap();
    });
}

/// Writes to mappings, from two processes.
const SCRIPT: &str = r#"
python3 - <<'END'
import mmap, os
with open("file", "w+b") as f:
    f.truncate(20000)
    shared = mmap.mmap(f.fileno(), 20000)
    private = mmap.mmap(f.fileno(), 20000, flags=mmap.MAP_PRIVATE)
    private[0:5] = b"never"
    if os.fork() == 0:
        shared[10000:10006] = b"mapped"
        os._exit(0)
    assert os.wait()[1] == 0
    assert f.read()[10000:10006] == b"mapped"
    shared[19990:20000] = b"at the end"
    shared.flush()
    assert bytes(shared[0:5]) == bytes(5)
END
"#;

/// A shared mapping, of several processes.
#[test]
fn write_to_a_mapping_is_in_the_file() {
    if !userbtrfs_testkit::test_env::has_program("python3") {
        return;
    }
    both(|root| {
        shell(root, SCRIPT);
        let content = fs::read(root.join("file")).unwrap();
        assert_eq!(
            (&content[10000..10006], &content[19990..]),
            (&b"mapped"[..], &b"at the end"[..])
        );
    });
}

/// No file that was written shows as one hole.
#[test]
fn blocks_of_a_written_file_are_shown() {
    both(|root| {
        let path = root.join("file");
        let mut file = open_new(&path, OFlags::empty());
        file.write_all(&pattern(1 << 20)).unwrap();
        assert!(file.metadata().unwrap().blocks() > 0);
        file.sync_all().unwrap();
        // The kernel caches attributes for a second while the file is written and for a second
        // more; those that it requests after that, until the next write.
        for blocks in [2048, 4096] {
            std::thread::sleep(std::time::Duration::from_millis(1100));
            assert_eq!(fs::metadata(&path).unwrap().blocks(), blocks);
            file.write_all(&pattern(1 << 20)).unwrap();
            file.sync_all().unwrap();
        }
    });
}

/// The kernel may send the modification time at any moment, also during another operation on the
/// file.
#[test]
fn mtime_does_not_go_back_during_fallocate_and_copy() {
    let Some(site) = Site::new() else { return };
    site.format();
    let ours = Ours::new(&site, api::OpenOptions::new().write(true));
    let path = ours.path().join("file");
    let file = open_new(&path, OFlags::empty());
    file.write_all_at(&pattern(1 << 20), 0).unwrap();
    let from = open_new(&ours.path().join("from"), OFlags::empty());
    from.write_all_at(&pattern(1 << 20), 0).unwrap();
    let root = File::open(ours.path()).unwrap();
    let stats_handle = ours.mounted.stats_handle();
    for round in 0..60 {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    rustix::fs::syncfs(&root).unwrap();
                }
            });
            // Longer than a step of the kernel's clock.
            std::thread::sleep(Duration::from_millis(15));
            match round % 3 {
                0 => fallocate(&file, FallocateFlags::ZERO_RANGE, 100, 1 << 20).unwrap(),
                1 => fallocate(&file, FallocateFlags::empty(), 0, (2 + round) << 20).unwrap(),
                _ => {
                    let mut at = 0;
                    let mut to = 100;
                    copy_file_range(&from, Some(&mut at), &file, Some(&mut to), 1 << 20).unwrap();
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        rustix::fs::syncfs(&root).unwrap();
        let shown = file.metadata().unwrap();
        let kept = stats_handle.filesystem().metadata("/file");
        let kept = kept.unwrap().modified;
        let shown = (shown.mtime(), shown.mtime_nsec());
        assert_eq!((kept.sec, i64::from(kept.nsec)), shown, "round {round}");
    }
    drop((file, from, root, stats_handle));
    ours.end();
}
