//! Names, and files that have none.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, openat, renameat_with};
use rustix::io::Errno;
use userbtrfs_engine::api;
use userbtrfs_testkit::test_env::until;

use crate::support::{Ours, Site, both, nobody_does, nobody_is_refused, shell};

fn errno(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

#[test]
fn name_of_255_bytes_is_allowed_and_a_longer_one_refused() {
    both(|root| {
        let longest = "n".repeat(255);
        fs::write(root.join(&longest), "x").unwrap();
        let listed = fs::read_dir(root).unwrap().next().unwrap().unwrap().file_name();
        assert_eq!(listed, *longest);
        let longer = root.join("n".repeat(256));
        for error in [File::open(&longer).unwrap_err(), fs::write(&longer, "x").unwrap_err()] {
            assert_eq!(errno(&error), Some(Errno::NAMETOOLONG));
        }
    });
}

#[test]
fn a_name_that_was_absent_is_there_once_it_is_made() {
    both(|root| {
        let path = root.join("name");
        let other = root.join("other");
        for _ in 0..2 {
            assert_eq!(errno(&File::open(&path).unwrap_err()), Some(Errno::NOENT));
            fs::write(&path, "x").unwrap();
            fs::rename(&path, &other).unwrap();
            assert!(!path.exists() && other.exists());
            fs::hard_link(&other, &path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
            fs::remove_file(&path).unwrap();
            assert_eq!(fs::metadata(&other).unwrap().nlink(), 1);
        }
    });
}

#[test]
fn names_are_exchanged_and_not_replaced() {
    both(|root| {
        let a = root.join("a");
        let b = root.join("b");
        let c = root.join("c");
        fs::write(&a, "a").unwrap();
        fs::create_dir(&b).unwrap();
        let rename = |from: &Path, to: &Path, flags| renameat_with(CWD, from, CWD, to, flags);
        assert_eq!(rename(&a, &b, RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename(&a, &b, RenameFlags::EXCHANGE).unwrap();
        assert!(a.is_dir() && b.is_file());
        assert_eq!(rename(&a, &c, RenameFlags::EXCHANGE), Err(Errno::NOENT));
        rename(&b, &c, RenameFlags::WHITEOUT).unwrap();
        let left = fs::symlink_metadata(&b).unwrap();
        assert_eq!((left.mode() & 0o170_000, left.rdev()), (0o020_000, 0));
        assert_eq!(errno(&fs::rename(&c, &a).unwrap_err()), Some(Errno::ISDIR));
        assert_eq!(errno(&fs::rename(&a, a.join("in itself")).unwrap_err()), Some(Errno::INVAL));
    });
}

#[test]
fn open_file_without_a_name_stays_usable() {
    both(|root| {
        let path = root.join("file");
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"before").unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all(b" and after").unwrap();
        file.sync_all().unwrap();
        file.rewind().unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "before and after");
        // A new file of that name is another inode.
        fs::write(&path, "new").unwrap();
        assert_ne!(fs::metadata(&path).unwrap().ino(), file.metadata().unwrap().ino());
        file.set_len(3).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3);
    });
}

#[test]
fn replaced_file_and_removed_directory_stay_while_open() {
    both(|root| {
        let new = root.join("new");
        let old = root.join("old");
        fs::write(&old, "old").unwrap();
        fs::write(&new, "new").unwrap();
        let mut replaced = File::open(&old).unwrap();
        fs::rename(&new, &old).unwrap();
        let mut content = String::new();
        replaced.read_to_string(&mut content).unwrap();
        assert_eq!((content.as_str(), fs::read_to_string(&old).unwrap()), ("old", "new".into()));
        let dir = root.join("dir");
        fs::create_dir(&dir).unwrap();
        let removed = File::open(&dir).unwrap();
        fs::remove_dir(&dir).unwrap();
        let made = openat(&removed, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
        assert_eq!(made.unwrap_err(), Errno::NOENT);
    });
}

/// The server keeps an inode without a name only while it is in use.
#[test]
fn space_of_a_removed_file_is_freed_when_it_is_closed() {
    let Some(site) = Site::new() else { return };
    site.format();
    let ours = Ours::new(&site, api::OpenOptions::new().write(true).commit_seconds(1));
    let free = || rustix::fs::statvfs(ours.path()).unwrap().f_bfree;
    let path = ours.path().join("file");
    fs::write(&path, vec![7; 64 << 20]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    let full = free();
    fs::remove_file(&path).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(free() < full + (32 << 20) / 4096);
    drop(file);
    until("the space", || free() > full + (60 << 20) / 4096);
    ours.end();
    userbtrfs_testkit::linux::btrfs_check(&site.image()).unwrap();
}

#[test]
fn a_file_without_a_name_gets_one() {
    both(|root| {
        let mut options = OpenOptions::new();
        let flags = i32::try_from(OFlags::TMPFILE.bits()).unwrap();
        options.read(true).write(true).custom_flags(flags).mode(0o640);
        let mut file = options.open(root).unwrap();
        file.write_all(b"content").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        linkat(&file, "", CWD, root.join("named"), AtFlags::EMPTY_PATH).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 1);
        drop(file);
        let named = fs::metadata(root.join("named")).unwrap();
        assert_eq!((named.len(), named.mode() & 0o7777), (7, 0o640));
        // A file that gets no name leaves nothing.
        options.open(root).unwrap().write_all(b"gone").unwrap();
        assert_eq!(fs::read_dir(root).unwrap().count(), 1);
    });
}

#[test]
fn new_inode_belongs_to_the_caller() {
    both(|root| {
        shell(root, "mkdir free; chmod 1777 free; mkdir group; chgrp 7 group; chmod 2777 group");
        nobody_does(root, "umask 027; echo x >free/file; mkdir free/dir; ln -s x free/link");
        nobody_does(root, "echo x >group/file; mkdir group/dir; mkfifo group/pipe");
        let of = |path: &str| {
            let metadata = fs::symlink_metadata(root.join(path)).unwrap();
            (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
        };
        assert_eq!(of("free/file"), (65534, 65534, 0o640));
        assert_eq!(of("free/dir"), (65534, 65534, 0o750));
        assert_eq!(of("free/link"), (65534, 65534, 0o777));
        assert_eq!(of("group/file"), (65534, 7, 0o644));
        assert_eq!(of("group/dir"), (65534, 7, 0o2755));
        assert_eq!(of("group/pipe"), (65534, 7, 0o644));
    });
}

#[test]
fn whiteout_belongs_to_the_caller_of_rename() {
    const RENAME: &str = r"
import ctypes, os
AT_FDCWD, RENAME_WHITEOUT = -100, 4
libc = ctypes.CDLL(None, use_errno=True)
done = libc.renameat2(AT_FDCWD, b'free/old', AT_FDCWD, b'free/new', RENAME_WHITEOUT)
assert done == 0, os.strerror(ctypes.get_errno())
";
    if !userbtrfs_testkit::test_env::has_program("python3") {
        return;
    }
    both(|root| {
        shell(root, "mkdir free; chmod 1777 free");
        nobody_does(root, &format!("echo x >free/old; python3 - <<'END'\n{RENAME}\nEND"));
        let left = fs::symlink_metadata(root.join("free/old")).unwrap();
        assert_eq!((left.uid(), left.gid(), left.mode()), (65534, 65534, 0o020_000));
        // Its owner may remove it.
        nobody_does(root, "rm -f free/old");
    });
}

#[test]
fn permissions_and_sticky_directories_are_heeded() {
    both(|root| {
        shell(root, "mkdir -m 1777 sticky; echo x >sticky/mine; echo x >secret; chmod 600 secret");
        nobody_is_refused(root, "cat secret");
        nobody_is_refused(root, "echo x >new");
        nobody_is_refused(root, "rm -f sticky/mine");
        nobody_is_refused(root, "mv sticky/mine sticky/other");
        nobody_is_refused(root, "chmod 777 sticky/mine");
        nobody_is_refused(root, "touch -d 2001-01-01 sticky/mine");
        nobody_does(root, "echo x >sticky/own; mv sticky/own sticky/other; rm sticky/other");
    });
}
