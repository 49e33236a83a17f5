//! A filesystem without space left.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::{FallocateFlags, IFlags, fallocate, ioctl_setflags};
use rustix::io::Errno;

use crate::support::{Site, pattern, shell};

/// The size of an image: small, so that it is full soon.
const IMAGE_BYTES: u64 = 160 << 20;
/// The bytes that the kernel sends in one request; a short write of them must not pass for the
/// whole.
const FILE_BYTES: usize = 800 << 10;
/// The number of copies that fail before the filesystem counts as full.
const FAILED_MAX: usize = 3;

/// Copies a file until that fails. Returns the names of the complete copies, for which `copy`
/// returned true.
fn fill(root: &Path, copy: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut whole = Vec::new();
    let mut failed = 0;
    for number in 0.. {
        let name = number.to_string();
        if copy(&root.join(&name)) {
            whole.push(name);
        } else {
            failed += 1;
        }
        if failed == FAILED_MAX {
            return whole;
        }
    }
    unreachable!("space ends")
}

/// Checks that a file is complete, or that close(2) or fsync(2) reported an error to its writer:
/// also if there is space for only a part of a request.
fn what_is_closed_without_an_error_is_whole(script: &str) {
    let Some(site) = Site::new() else { return };
    site.format_sized(IMAGE_BYTES, &["-m", "single"]);
    let source = site.at("source");
    fs::write(&source, pattern(FILE_BYTES)).unwrap();
    let copy = |to: &Path| {
        let mut command = Command::new("sh");
        let output = command.args(["-ec", script, "sh"]).args([&source, to]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || said.contains("No space left"), "{output:?}");
        output.status.success()
    };
    let whole = site.with_ours(|root| fill(root, copy));
    assert!(whole.len() > 50, "{whole:?}");
    let are_there = |root: &Path| {
        for name in &whole {
            assert!(fs::read(root.join(name)).unwrap() == pattern(FILE_BYTES), "{name}");
        }
    };
    site.with_ours(are_there);
    site.with_linux("ro,noatime", are_there);
    userbtrfs_testkit::linux::btrfs_check(&site.image()).unwrap();
}

#[test]
fn file_closed_without_an_error_is_complete() {
    what_is_closed_without_an_error_is_whole("export LC_ALL=C; cp \"$1\" \"$2\"");
}

#[test]
fn file_synced_without_an_error_is_complete() {
    let script = "export LC_ALL=C; dd if=\"$1\" of=\"$2\" bs=64k conv=fsync";
    what_is_closed_without_an_error_is_whole(script);
}

/// A writer that never calls fsync(2) gets the error from the next write(2), rather than writing
/// lost data forever; it may go on once there is space again.
#[test]
fn writer_that_never_syncs_gets_the_error() {
    let Some(site) = Site::new() else { return };
    site.both_sized(IMAGE_BYTES, &["-m", "single"], |root| {
        let file = File::create_new(root.join("large")).unwrap();
        let zeros = vec![0; 1 << 20];
        let write_all_space = || {
            let mut offset = 0;
            loop {
                // Far more than there is space for, and than the kernel caches.
                assert!(offset < 4 << 30, "it is let write on and on");
                match file.write_at(&zeros, offset) {
                    Ok(written) => offset += u64::try_from(written).unwrap(),
                    Err(error) => break Errno::from_io_error(&error),
                }
            }
        };
        for _ in 0..2 {
            assert_eq!(write_all_space(), Some(Errno::NOSPC));
            // The attributes can be read.
            assert!(file.metadata().unwrap().len() > IMAGE_BYTES / 2);
            file.set_len(0).unwrap();
            // This may still report the earlier error.
            let _ = file.sync_all();
            write_through(&file, &pattern(FILE_BYTES), 0).unwrap();
        }
    });
}

/// The writer gets the error, even if another process reads the file before.
#[test]
fn reader_does_not_take_the_error_of_the_writer() {
    let Some(site) = Site::new() else { return };
    site.format_sized(IMAGE_BYTES, &["-m", "single"]);
    site.with_ours(|root| {
        let file = File::create_new(root.join("large")).unwrap();
        let zeros = vec![0; usize::try_from(2 * IMAGE_BYTES).unwrap()];
        assert_eq!(file.write_at(&zeros, 0).unwrap(), zeros.len());
        // The kernel caches the attributes of a file that was written recently for a second.
        thread::sleep(Duration::from_millis(1500));
        shell(root, "cat large | wc -c; tail -c 1 large | wc -c");
        let told = file.write_at(&zeros[..4096], 0).unwrap_err();
        assert_eq!(Errno::from_io_error(&told), Some(Errno::NOSPC));
    });
}

/// The error is dropped with the data, but not if the data stays.
#[test]
fn size_change_that_fails_keeps_the_error_of_the_writer() {
    let Some(site) = Site::new() else { return };
    site.format_sized(IMAGE_BYTES, &["-m", "single"]);
    site.with_ours(|root| {
        let file = File::create_new(root.join("large")).unwrap();
        let zeros = vec![0; usize::try_from(2 * IMAGE_BYTES).unwrap()];
        assert_eq!(file.write_at(&zeros, 0).unwrap(), zeros.len());
        thread::sleep(Duration::from_millis(1500));
        ioctl_setflags(&file, IFlags::IMMUTABLE).unwrap();
        let refused = file.set_len(0).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::PERM));
        ioctl_setflags(&file, IFlags::empty()).unwrap();
        let told = file.write_at(&zeros[..4096], 0).unwrap_err();
        assert_eq!(Errno::from_io_error(&told), Some(Errno::NOSPC));
        // After a change that is done there is none left.
        file.set_len(0).unwrap();
        file.write_at(&zeros[..4096], 0).unwrap();
    });
}

/// Direct I/O gets the error, too.
#[test]
fn direct_write_without_an_error_is_complete() {
    let script = "export LC_ALL=C; dd if=\"$1\" of=\"$2\" bs=800k oflag=direct";
    what_is_closed_without_an_error_is_whole(script);
}

/// Writes and syncs.
fn write_through(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)?;
    file.sync_all()
}

/// Writes zeros by direct I/O. Returns whether there was space for all of them.
fn write_zeros(file: &Path, how: &[&str]) -> bool {
    let mut command = Command::new("dd");
    let to = format!("of={}", file.display());
    command.env("LC_ALL", "C").args(["if=/dev/zero", &to]).args(how);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || said.contains("No space left"), "{output:?}");
    output.status.success()
}

/// Writes in place need no space: those to a nodatacow file, and to a preallocated range. All
/// others fail until space is freed.
#[test]
fn full_filesystem_allows_only_nodatacow_and_preallocated_writes() {
    let Some(site) = Site::new() else { return };
    site.both_sized(IMAGE_BYTES, &["-m", "single"], |root| {
        let make = |name: &str| File::create_new(root.join(name)).unwrap();
        let in_place = make("in place");
        let reserved = make("reserved");
        ioctl_setflags(&in_place, IFlags::NOCOW).unwrap();
        write_through(&in_place, &pattern(100_000), 0).unwrap();
        fallocate(&reserved, FallocateFlags::KEEP_SIZE, 0, 100_000).unwrap();
        reserved.sync_all().unwrap();
        let large = root.join("large");
        assert!(!write_zeros(&large, &["bs=1M", "oflag=direct"]));
        assert!(!write_zeros(&large, &["bs=4k", "oflag=direct,append", "conv=notrunc"]));
        assert!(fs::metadata(&large).unwrap().len() > IMAGE_BYTES / 2);

        write_through(&in_place, &vec![1; 50_000], 20_000).unwrap();
        write_through(&reserved, &vec![2; 100_000], 0).unwrap();
        let over = ["bs=64k", "count=1", "oflag=direct", "conv=notrunc"];
        assert!(!write_zeros(&large, &over));
        let beyond =
            write_through(&reserved, &vec![3; 50_000], 200_000).map_err(|error| error.kind());
        assert_eq!(beyond, Err(io::Error::from(Errno::NOSPC).kind()));
        reserved.set_len(100_000).unwrap();

        let opened = File::options().write(true).open(&large).unwrap();
        opened.set_len(1 << 20).unwrap();
        opened.sync_all().unwrap();
        assert!(write_zeros(&large, &over));
        let expected = [&pattern(100_000)[..20_000], &vec![1; 50_000], &pattern(100_000)[70_000..]];
        assert!(fs::read(root.join("in place")).unwrap() == expected.concat());
        assert!(fs::read(root.join("reserved")).unwrap() == vec![2; 100_000]);
    });
}

/// Data that there was no space for is not shown: a read returns what is stored.
#[test]
fn failed_overwrite_is_read_as_stored() {
    let Some(site) = Site::new() else { return };
    site.format_sized(IMAGE_BYTES, &["-m", "single"]);
    let before = pattern(FILE_BYTES);
    let after = vec![7; FILE_BYTES];
    let kept = site.with_ours(|root| {
        let file = File::create_new(root.join("file")).unwrap();
        write_through(&file, &before, 0).unwrap();
        let file = File::options().read(true).write(true).open(root.join("file")).unwrap();
        assert!(!write_zeros(&root.join("large"), &["bs=1M", "oflag=direct"]));
        assert!(!write_zeros(&root.join("small"), &["bs=4k", "oflag=direct"]));
        let refused = write_through(&file, &after, 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        // The stored content; the kernel is told to drop its cache only after it has the answer.
        let stored = read_directly(&root.join("file"));
        assert!(stored != after);
        let is_told = |_| {
            thread::sleep(Duration::from_millis(50));
            fs::read(root.join("file")).unwrap() == stored
        };
        assert!((0..200).any(is_told), "it is shown as if it were there");
        stored
    });
    let are_kept = |root: &Path| assert!(fs::read(root.join("file")).unwrap() == kept);
    site.with_ours(are_kept);
    site.with_linux("ro,noatime", are_kept);
}

/// Reads a file past the kernel's cache.
fn read_directly(file: &Path) -> Vec<u8> {
    let from = format!("if={}", file.display());
    let output = Command::new("dd").args([&from, "iflag=direct", "bs=64k"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}
