//! Tests of file operations through the kernel.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{
    CWD, FallocateFlags, Mode, OFlags, RenameFlags, StatxFlags, Timespec, Timestamps, XattrFlags,
    copy_file_range, fallocate, getxattr, getxattr_query, listxattr, open, removexattr,
    renameat_with, setxattr, statvfs, statx, utimensat,
};
use rustix::io::Errno;
use userbtrfs_fuse::Opcode;

use crate::harness::Mounted;

/// Returns bytes with a pattern that differs in each page.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 251).unwrap()).collect()
}

/// Runs a test without OPEN and with it.
fn both(test: impl Fn(&Mounted)) {
    for mounted in [Mounted::new(), Mounted::with_open()].into_iter().flatten() {
        test(&mounted);
    }
}

#[test]
fn written_data_is_read_back() {
    both(|mounted| {
        let bytes = pattern(3 << 20);
        fs::write(mounted.path("file"), &bytes).unwrap();
        assert!(fs::read(mounted.path("file")).unwrap() == bytes);
        assert_eq!(fs::metadata(mounted.path("file")).unwrap().len(), 3 << 20);
        let file = OpenOptions::new().append(true).open(mounted.path("file")).unwrap();
        (&file).write_all(b"more").unwrap();
        file.sync_all().unwrap();
        let there = mounted.bytes_there("file");
        assert_eq!(&there[3 << 20..], b"more", "an fsync hands everything over");
    });
}

#[test]
fn direct_io_bypasses_the_cache() {
    both(|mounted| {
        fs::write(mounted.path("file"), pattern(8192)).unwrap();
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let file = options.open(mounted.path("file")).unwrap();
        file.write_all_at(&[9; 4096], 4096).unwrap();
        let mut bytes = vec![0; 1 << 20];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 8192);
        assert!(bytes[..4096] == pattern(4096) && bytes[4096..8192] == [9; 4096]);
    });
}

#[test]
fn truncation_reaches_the_server_by_open_and_by_size() {
    both(|mounted| {
        let path = mounted.path("file");
        fs::write(&path, pattern(10_000)).unwrap();
        drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
        let size_there = || mounted.bytes_there("file").len();
        assert_eq!((fs::metadata(&path).unwrap().len(), size_there()), (0, 0));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
        assert_eq!(size_there(), 5000);
        assert_eq!(fs::read(&path).unwrap(), [0; 5000]);
    });
}

#[test]
fn times_before_1970_and_after_2038_are_kept() {
    both(|mounted| {
        let path = mounted.path("file");
        File::create(&path).unwrap();
        let times = Timestamps {
            last_access: Timespec { tv_sec: -5, tv_nsec: 999_999_999 },
            last_modification: Timespec { tv_sec: 1 << 34, tv_nsec: 1 },
        };
        utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.atime(), found.atime_nsec()), (-5, 999_999_999));
        assert_eq!((found.mtime(), found.mtime_nsec()), (1 << 34, 1));
        let born = statx(CWD, &path, rustix::fs::AtFlags::empty(), StatxFlags::BTIME).unwrap();
        assert!(born.stx_mask & StatxFlags::BTIME.bits() != 0 && born.stx_btime.tv_sec > 0);
    });
}

#[test]
fn permissions_and_kinds_are_those_that_were_made() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    File::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode(), 0o104_711);
    symlink("to/nowhere", mounted.path("link")).unwrap();
    assert_eq!(fs::read_link(mounted.path("link")).unwrap(), Path::new("to/nowhere"));
    fs::hard_link(&path, mounted.path("second")).unwrap();
    let first = fs::metadata(&path).unwrap();
    let second = fs::metadata(mounted.path("second"));
    assert_eq!((first.nlink(), first.ino()), (2, second.unwrap().ino()));
    let device = rustix::fs::makedev(259, 70_000);
    let kind = rustix::fs::FileType::BlockDevice;
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, mounted.path("device"), kind, mode, device).unwrap();
    assert_eq!(fs::metadata(mounted.path("device")).unwrap().rdev(), device);
}

#[test]
fn renames_replace_exchange_or_refuse() {
    let Some(mounted) = Mounted::new() else { return };
    let one = mounted.path("one");
    let two = mounted.path("two");
    let rename = |flags| renameat_with(CWD, &one, CWD, &two, flags);
    let read = |path| fs::read_to_string(path).unwrap();
    fs::write(&one, "1").unwrap();
    fs::write(&two, "2").unwrap();
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!((read(&one), read(&two)), ("2".to_owned(), "1".to_owned()));
    fs::rename(&one, &two).unwrap();
    assert_eq!(read(&two), "2");
    assert!(!one.exists());
    fs::create_dir_all(mounted.path("a/b")).unwrap();
    fs::rename(mounted.path("a/b"), mounted.path("b")).unwrap();
    fs::rename(&two, mounted.path("b/two")).unwrap();
    assert_eq!(fs::read_to_string(mounted.path("b/../b/two")).unwrap(), "2");
    assert_eq!(fs::metadata(mounted.path("a")).unwrap().nlink(), 2);
}

#[test]
fn extended_attributes_are_set_read_listed_and_removed() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    File::create(&path).unwrap();
    let long = pattern(60_000);
    setxattr(&path, "user.one", b"1", XattrFlags::CREATE).unwrap();
    setxattr(&path, "user.two", &long, XattrFlags::empty()).unwrap();
    assert_eq!(setxattr(&path, "user.one", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.no", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    let mut bytes = vec![0; 1 << 16];
    let count = getxattr(&path, "user.two", &mut bytes[..]).unwrap();
    assert!(bytes[..count] == long);
    assert_eq!(getxattr(&path, "user.two", &mut [0; 5]), Err(Errno::RANGE));
    assert_eq!(getxattr_query(&path, "user.two"), Ok(60_000));
    let count = listxattr(&path, &mut bytes[..]).unwrap();
    assert_eq!(&bytes[..count], b"user.one\0user.two\0");
    removexattr(&path, "user.one").unwrap();
    assert_eq!(getxattr(&path, "user.one", &mut bytes[..]), Err(Errno::NODATA));
}

#[test]
fn space_is_counted() {
    let Some(mounted) = Mounted::new() else { return };
    let found = statvfs(mounted.root()).unwrap();
    assert_eq!((found.f_blocks, found.f_bfree, found.f_bavail), (1000, 600, 500));
    assert_eq!((found.f_frsize, found.f_namemax), (4096, 255));
    assert_eq!(mounted.session.requests(Opcode::Statfs), 1);
}

#[test]
fn holes_are_made_and_found() {
    both(|mounted| {
        let mut file = File::create_new(mounted.path("file")).unwrap();
        file.write_all_at(&[1; 4096], 8192).unwrap();
        fallocate(&file, FallocateFlags::empty(), 16384, 4096).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 20480);
        let seek = |position| rustix::fs::seek(&file, position);
        assert!(fs::read(mounted.path("file")).unwrap()[8192..12288] == [1; 4096]);
        assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(8192));
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(8192)), Ok(12288));
        assert!(fs::read(mounted.path("file")).unwrap()[8192..12288] == [1; 4096]);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 8192, 4096).unwrap();
        assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(16384));
        assert_eq!(seek(rustix::fs::SeekFrom::Data(20480)), Err(Errno::NXIO));
        file.seek(SeekFrom::End(-4096)).unwrap();
        assert_eq!(file.stream_position().unwrap(), 16384);
    });
}

#[test]
fn ranges_are_copied_by_the_server() {
    both(|mounted| {
        let bytes = pattern(1 << 20);
        fs::write(mounted.path("from"), &bytes).unwrap();
        let from = File::open(mounted.path("from")).unwrap();
        let mut to = File::create_new(mounted.path("to")).unwrap();
        let mut at = 4096;
        let mut there = 10;
        let count = copy_file_range(&from, Some(&mut at), &to, Some(&mut there), 100_000);
        assert_eq!(count, Ok(100_000));
        to.flush().unwrap();
        let mut found = Vec::new();
        File::open(mounted.path("to")).unwrap().read_to_end(&mut found).unwrap();
        assert!(found[..10] == [0; 10] && found[10..] == bytes[4096..104_096]);
    });
}

#[test]
fn tmpfiles_and_unlinked_files_live_while_open() {
    both(|mounted| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file: File = open(mounted.root(), flags, Mode::from_raw_mode(0o600)).unwrap().into();
        file.write_all_at(b"nameless", 0).unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"nameless");
        let named = File::create_new(mounted.path("file")).unwrap();
        named.write_all_at(b"unlinked", 0).unwrap();
        fs::remove_file(mounted.path("file")).unwrap();
        assert_eq!(named.metadata().unwrap().nlink(), 0);
        named.sync_all().unwrap();
    });
}

#[test]
fn ioctls_of_a_fixed_size_are_answered() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create_new(mounted.path("file")).unwrap();
    let flags = rustix::fs::ioctl_getflags(&file).unwrap();
    assert_eq!(flags, rustix::fs::IFlags::IMMUTABLE);
}

#[test]
fn open_is_not_sent_again_after_enosys() {
    let Some(mounted) = Mounted::new() else { return };
    for number in 0..10 {
        fs::write(mounted.path(&number.to_string()), "x").unwrap();
        fs::read(mounted.path(&number.to_string())).unwrap();
    }
    // CREATE opens by itself; OPEN is sent only once.
    assert_eq!(mounted.memory.seen.change(|state| state.opens), 1);
}

#[test]
fn locks_are_kept_by_the_kernel_unless_the_server_wants_them() {
    let Some(mounted) = Mounted::new() else { return };
    let open = || File::options().create(true).write(true).truncate(false).open(mounted.path("f"));
    let one = open().unwrap();
    let two = open().unwrap();
    one.lock().unwrap();
    assert!(two.try_lock().is_err());
    one.unlock().unwrap();
    two.try_lock().unwrap();
}
