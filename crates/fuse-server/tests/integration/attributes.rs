//! Attributes, and the set-id bits and capabilities that changes clear.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, chown};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, fallocate,
    ioctl_getflags, ioctl_setflags, statvfs, statx, utimensat,
};

use crate::support::{Site, both, nobody_does, nobody_is_refused, pattern, shell};
use rustix::io::Errno;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn times_before_1970_and_after_2038_are_kept() {
    both(|root| {
        let path = root.join("file");
        File::create(&path).unwrap();
        let set = |access: (i64, i64), change: (i64, i64)| {
            let time = |(tv_sec, tv_nsec): (i64, i64)| Timespec { tv_sec, tv_nsec };
            let times = Timestamps { last_access: time(access), last_modification: time(change) };
            utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
            let metadata = fs::metadata(&path).unwrap();
            let access = (metadata.atime(), metadata.atime_nsec());
            (access, (metadata.mtime(), metadata.mtime_nsec()))
        };
        let early = (-5, 999_999_999);
        let late = (1 << 34, 1);
        assert_eq!(set(early, late), (early, late));
        assert_eq!(set(late, early), (late, early));
        let (now, _) = set((0, UTIME_NOW), early);
        let stat = statx(CWD, &path, AtFlags::empty(), StatxFlags::BTIME).unwrap();
        assert!(stat.stx_mask & StatxFlags::BTIME.bits() != 0);
        assert!(stat.stx_btime.tv_sec > 1_500_000_000 && now.0 >= stat.stx_btime.tv_sec);
    });
}

/// Every change of a file changes its times, or those of its directory.
#[test]
fn times_follow_changes() {
    both(|root| {
        let path = root.join("file");
        fs::write(&path, "x").unwrap();
        let times = |path: &Path| {
            let metadata = fs::metadata(path).unwrap();
            let of = |seconds: i64, nanoseconds: i64| (seconds, nanoseconds);
            (
                of(metadata.mtime(), metadata.mtime_nsec()),
                of(metadata.ctime(), metadata.ctime_nsec()),
            )
        };
        let changes: &[(&str, bool, bool, bool)] = &[
            // The script, and whether it changes the content, the inode, the directory.
            ("chmod 600 file", false, true, false),
            ("printf y >>file", true, true, false),
            ("ln file link", false, true, true),
            ("setfattr -n user.a -v b file", false, true, false),
            ("rm link", false, true, true),
            ("truncate -s 100 file", true, true, false),
            ("mv file other; mv other file", false, true, true),
        ];
        for (script, content, inode, dir) in changes {
            std::thread::sleep(std::time::Duration::from_millis(15));
            let file = times(&path);
            let above = times(root);
            shell(root, script);
            let now = (times(&path), times(root));
            assert_eq!((now.0.0 > file.0, now.0.1 > file.1), (*content, *inode), "{script}");
            assert_eq!(now.1.0 > above.0, *dir, "{script}");
        }
    });
}

/// A new file gets its times from the server, a written one from the kernel.
#[test]
fn file_changed_later_is_not_older() {
    both(|root| {
        for number in 0..200 {
            let first = root.join(format!("a{number}"));
            let second = root.join(format!("b{number}"));
            File::create(&first).unwrap();
            fs::write(&second, "x").unwrap();
            let changed = |path: &Path| {
                let metadata = fs::metadata(path).unwrap();
                (metadata.mtime(), metadata.mtime_nsec())
            };
            assert!(changed(&first) <= changed(&second), "{number}");
            let born = statx(CWD, &second, AtFlags::empty(), StatxFlags::BTIME).unwrap().stx_btime;
            assert!((born.tv_sec, i64::from(born.tv_nsec)) <= changed(&second), "{number}");
        }
    });
}

#[test]
fn set_id_bits_are_cleared_by_changes() {
    both(|root| {
        let path = root.join("file");
        let with = |bits: &str| {
            shell(
                root,
                &format!("rm -f file; echo content >file; chmod 0666 file; chmod {bits} file"),
            );
        };
        for (bits, left) in [("6777", 0o777), ("6767", 0o2767), ("2747", 0o2747), ("4666", 0o666)] {
            with(bits);
            chown(&path, Some(1), None).unwrap();
            assert_eq!(mode(&path), left, "chown of {bits}");
            with(bits);
            chown(&path, None, None).unwrap();
            assert_eq!(mode(&path), left, "chown of {bits} to nobody");
        }
        let chown_to_nobody = "python3 -c 'import os; os.chown(\"file\", -1, -1)'";
        for bits in ["4755", "2755", "2745", "6777"] {
            with(bits);
            let before = mode(&path);
            nobody_is_refused(root, chown_to_nobody);
            assert_eq!(mode(&path), before, "chown of {bits} to nobody, by another");
            shell(root, "chown nobody file; chmod 6755 file");
            nobody_does(root, chown_to_nobody);
            assert_eq!(mode(&path), 0o755, "the same by the owner");
        }
        with("0755");
        nobody_does(root, chown_to_nobody);
        for change in ["printf x >>file", "truncate -s 3 file", ": >file"] {
            with("6777");
            nobody_does(root, change);
            assert_eq!(mode(&path), 0o777, "{change}");
            with("6777");
            shell(root, change);
            assert_eq!(mode(&path), 0o6777, "{change} by root");
        }
        for change in ["printf x >>file", "truncate -s 3 file", ": >file", "fallocate -l 99 file"] {
            with("2767");
            nobody_does(root, change);
            assert_eq!(mode(&path), 0o767, "{change} by a stranger to the group");
            with("2767");
            shell(root, "chgrp nogroup file; chmod 2767 file");
            nobody_does(root, change);
            assert_eq!(mode(&path), 0o2767, "{change} by a member of the group");
            with("2767");
            shell(root, change);
            assert_eq!(mode(&path), 0o2767, "{change} by root");
        }
        with("6777");
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"by root", 0).unwrap();
        assert_eq!(mode(&path), 0o6777);
        shell(root, "mkdir dir; chmod 6777 dir");
        chown(root.join("dir"), Some(1), None).unwrap();
        assert_eq!(mode(&root.join("dir")), 0o6777);
    });
}

/// Inode flags forbid setting the mode, but a change that they allow clears the set-id bits.
#[test]
fn set_id_bits_are_cleared_by_appends_to_an_append_only_file() {
    both(|root| {
        let path = root.join("file");
        for flag in ["a", "i"] {
            let with_bits = "rm -f file; echo first >file; chmod 6777 file";
            shell(root, &format!("{with_bits}; chattr +{flag} file"));
            shell(root, "! chown 1 file 2>/dev/null; ! truncate -s 1 file 2>/dev/null");
            assert_eq!(mode(&path), 0o6777, "chown with {flag}");
            chown(&path, None, None).unwrap();
            assert_eq!(mode(&path), 0o777, "chown to nobody with {flag}");
            shell(root, &format!("chattr -{flag} file"));
        }
        shell(root, "chmod 6777 file; chattr +a file");
        nobody_does(root, "echo second >>file; sync file");
        assert_eq!(mode(&path), 0o777);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first\nsecond\n");
        shell(root, "! chmod 6777 file 2>/dev/null; ! chown 1 file 2>/dev/null");
        // The kernel does not learn the new time when flags of a file are set.
        shell(root, "chattr -a file; chmod 777 file");
    });
}

#[test]
fn set_id_bits_are_cleared_by_fallocate_and_copy_file_range() {
    const COPY: &str = "python3 -c 'import os; \
        source = os.open(\"source\", os.O_RDONLY); file = os.open(\"file\", os.O_WRONLY); \
        assert os.copy_file_range(source, file, 4) == 4'";
    both(|root| {
        shell(root, "echo content >source");
        for change in ["fallocate -l 99999 file", "fallocate -p -o 0 -l 4096 file", COPY] {
            shell(root, "rm -f file; echo content >file; chmod 6777 file");
            nobody_does(root, change);
            assert_eq!(mode(&root.join("file")), 0o777, "{change}");
            shell(root, &format!("chmod 6777 file; {change}"));
            assert_eq!(mode(&root.join("file")), 0o6777, "{change} by root");
        }
    });
}

#[test]
fn capabilities_are_cleared_by_changes() {
    // Version 2, CAP_NET_RAW.
    const SET: &str = "rm -f file; echo content >file; chmod 777 file; \
        setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 file";
    both(|root| {
        for change in ["printf x >>file", "truncate -s 3 file", "chown 1 file", ": >file"] {
            shell(root, SET);
            let has =
                || shell(root, "getfattr -d -m - --absolute-names file").contains("security.");
            assert!(has());
            shell(root, change);
            assert!(!has(), "{change}");
        }
        shell(root, SET);
        shell(root, "chmod 700 file; touch file; mv file other; mv other file");
        assert!(shell(root, "getfattr -d -m - --absolute-names file").contains("security."));
    });
}

#[test]
fn write_by_root_keeps_set_id_bits_of_a_file_with_capabilities() {
    both(|root| {
        let path = root.join("file");
        let with_both = "rm -f file; echo content >file; chmod 6777 file; \
            setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 file";
        let has = || shell(root, "getfattr -d -m - --absolute-names file").contains("security.");
        shell(root, with_both);
        fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"x", 0).unwrap();
        assert_eq!((mode(&path), has()), (0o6777, false));
        shell(root, with_both);
        nobody_does(root, "printf x >>file");
        assert_eq!((mode(&path), has()), (0o777, false));
    });
}

#[test]
fn chown_by_a_stranger_that_is_refused_keeps_the_capability() {
    both(|root| {
        shell(
            root,
            "echo content >file; chmod 4755 file; \
            setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 file",
        );
        nobody_is_refused(root, "python3 -c 'import os; os.chown(\"file\", -1, -1)'");
        assert!(shell(root, "getfattr -d -m - --absolute-names file").contains("security."));
        assert_eq!(mode(&root.join("file")), 0o4755);
    });
}

#[test]
fn touch_of_append_only_inodes_succeeds() {
    both(|root| {
        shell(root, "echo x >file; mkdir dir; echo y >fixed; touch -d 2001-01-01 file dir fixed");
        shell(root, "chattr +a file dir; chattr +i fixed; touch file dir");
        for name in ["file", "dir"] {
            let year = shell(root, &format!("date -r {name} +%Y"));
            assert_ne!(year.trim(), "2001", "{name}");
        }
        shell(root, "! touch fixed 2>/dev/null; ! touch -d 2002-02-02 dir 2>/dev/null");
        shell(root, "chattr -a file dir; chattr -i fixed; chmod 777 file dir fixed");
    });
}

#[test]
fn flags_are_shown_and_set() {
    both(|root| {
        let path = root.join("file");
        let file = File::create(&path).unwrap();
        assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::empty());
        ioctl_setflags(&file, IFlags::NOATIME | IFlags::NODUMP).unwrap();
        assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::NOATIME | IFlags::NODUMP);
        shell(root, "lsattr file; chattr +C file; mkdir dir; chattr +c dir; echo x >dir/inherits");
        assert!(shell(root, "lsattr -d file").contains('C'));
        assert!(shell(root, "lsattr dir/inherits").contains('c'));
        shell(root, "chattr -C file; chattr +i file");
        shell(root, "! mv file other 2>error; ! rm -f file 2>error; ! ln file link 2>error");
        shell(root, "! chmod 777 file 2>error; chattr -i file; mv file other");
    });
}

/// A nodatacow file is neither marked to be compressed, nor marked not to be.
#[test]
fn flags_that_exclude_each_other_are_refused() {
    both(|root| {
        let pairs = "for first in C c m; do for second in C c m; do
            touch file; chattr +$first file
            ! chattr +$second file 2>/dev/null || echo -n $first$second,
            rm file
        done; done";
        assert_eq!(shell(root, pairs), "CC,cc,mm,");
    });
}

/// An append-only file grows by writes of any size, and keeps its content.
#[test]
fn an_append_only_file_grows() {
    both(|root| {
        shell(root, "echo first >log; sync log; chattr +a log; echo second >>log; sync log");
        let mut file = OpenOptions::new().append(true).open(root.join("log")).unwrap();
        let bytes = pattern(5 << 20);
        for part in bytes.chunks(70_001) {
            file.write_all(part).unwrap();
        }
        file.sync_all().unwrap();
        file.write_all(b"last\n").unwrap();
        file.sync_all().unwrap();
        drop(file);
        shell(root, "! truncate -s 3 log 2>error; ! rm -f log 2>error; ! mv log other 2>error");
        let expected = [b"first\nsecond\n", &bytes[..], b"last\n"].concat();
        assert!(fs::read(root.join("log")).unwrap() == expected);
    });
}

/// Space may be allocated for bytes that will be appended.
#[test]
fn space_is_allocated_for_an_append_only_file() {
    both(|root| {
        let mut file = OpenOptions::new().append(true).create(true).open(root.join("log")).unwrap();
        file.write_all(b"first\n").unwrap();
        ioctl_setflags(&file, IFlags::APPEND).unwrap();
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
        let hole = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        assert_eq!(fallocate(&file, hole, 0, 4096), Err(Errno::PERM));
        file.write_all(b"second\n").unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(root.join("log")).unwrap(), b"first\nsecond\n");
        // The kernel does not learn the new time when flags of a file are set.
        shell(root, "chattr -a log; chmod 600 log");
    });
}

/// truncate(2) to the size that a file has leaves its times, also if they are not cached.
#[test]
fn truncate_to_the_same_size_keeps_the_time() {
    both(|root| {
        shell(root, "echo text >file; touch -d 2001-01-01 file; sync file");
        shell(root, "python3 -c 'import os; os.truncate(\"file\", 5)'");
        rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        assert_eq!(fs::metadata(root.join("file")).unwrap().mtime(), 978_307_200);
    });
}

/// Inode flags forbid later changes; data that was written before is kept, and so is its time.
#[test]
fn data_written_before_a_flag_is_kept() {
    both(|root| {
        for (name, flag) in [("fixed", IFlags::IMMUTABLE), ("grows", IFlags::APPEND)] {
            let path = root.join(name);
            let mut file = File::create(&path).unwrap();
            file.write_all(&pattern(3 << 20)).unwrap();
            ioctl_setflags(&file, flag).unwrap();
            file.sync_all().unwrap();
            assert!(fs::read(&path).unwrap() == pattern(3 << 20), "{name}");
        }
        shell(root, "! touch -m -d 2001-01-01 fixed 2>error; ! chmod 777 fixed grows 2>error");
        // The kernel does not learn the new time when flags of a file are set.
        shell(root, "chattr -i fixed; chattr -a grows; chmod 777 fixed grows");
    });
}

#[test]
fn flags_change_the_time_of_a_directory() {
    both(|root| {
        let dir = root.join("dir");
        fs::create_dir(&dir).unwrap();
        let changed = || {
            let metadata = fs::metadata(&dir).unwrap();
            (metadata.ctime(), metadata.ctime_nsec())
        };
        let before = changed();
        std::thread::sleep(std::time::Duration::from_millis(15));
        shell(root, "chattr +d dir");
        assert!(changed() > before);
    });
}

/// statfs(2) shows about the space that it shows in Linux.
#[test]
fn space_is_counted_as_linux_counts_it() {
    let Some(site) = Site::new() else { return };
    let fill = |root: &Path| {
        let before = statvfs(root).unwrap();
        let file = File::create(root.join("file")).unwrap();
        for part in 0..64 {
            file.write_all_at(&vec![1; 1 << 20], part << 20).unwrap();
        }
        file.sync_all().unwrap();
        rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
        let after = statvfs(root).unwrap();
        (before, after)
    };
    site.format();
    let linux = site.with_linux("noatime", fill);
    site.format();
    let ours = site.with_ours(fill);
    let slack = (96 << 20) / 4096;
    for (linux, ours) in [(&linux.0, &ours.0), (&linux.1, &ours.1)] {
        assert_eq!((ours.f_blocks, ours.f_frsize), (linux.f_blocks, linux.f_frsize));
        for (ours, linux) in [(ours.f_bfree, linux.f_bfree), (ours.f_bavail, linux.f_bavail)] {
            assert!(ours.abs_diff(linux) < slack, "{ours} blocks, and {linux} of Linux");
        }
        assert_eq!(ours.f_namemax, linux.f_namemax);
    }
    let taken = ours.0.f_bavail - ours.1.f_bavail;
    assert!(taken.abs_diff((64 << 20) / 4096) < 1024, "64 MiB took {taken} blocks");
}
