//! The ends of mounts, mounts for reading, and the number of requests.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;
use userbtrfs_engine::api::{Error, OpenOptions, PathError};
use userbtrfs_fuse_server::{
    Mount, MountFlags, MountGroup, MountOptions, Mounted, Opcode, Options, StartError,
};
use userbtrfs_testkit::walk_linux;

use crate::support::{Ours, Site, mount_options, pattern, shell};

#[test]
fn written_files_are_there_after_the_end_of_the_mount() {
    let Some(site) = Site::new() else { return };
    site.format();
    let shown = site.with_ours(|root| {
        shell(root, "mkdir a; echo content >a/file; ln -s file a/link; touch -d 2001-02-03 a");
        walk_linux::walk(root).unwrap()
    });
    site.judge(&shown);
    site.with_ours(|root| {
        assert_eq!(fs::read_to_string(root.join("a/link")).unwrap(), "content\n");
    });
}

/// A mount that is stopped while it is in use loses nothing that was written before.
#[test]
fn a_mount_that_is_stopped_in_use_is_committed() {
    let Some(site) = Site::new() else { return };
    site.format();
    let ours = Ours::new(&site, OpenOptions::new().write(true));
    let file = File::create_new(ours.path().join("file")).unwrap();
    file.write_all_at(&pattern(3 << 20), 0).unwrap();
    let removed = File::create_new(ours.path().join("removed")).unwrap();
    fs::remove_file(ours.path().join("removed")).unwrap();
    ours.mounted.unmount_handle().stop().unwrap();
    ours.mounted.end().unwrap();
    assert!(file.sync_all().is_err() && removed.sync_all().is_err());
    drop((file, removed));
    userbtrfs_testkit::linux::btrfs_check(&site.image()).unwrap();
    site.with_linux("ro,noatime", |root| {
        assert!(fs::read(root.join("file")).unwrap() == pattern(3 << 20));
        assert_eq!(fs::read_dir(root).unwrap().count(), 1);
    });
}

/// The filesystem is closing once the last mount has ended: a mount that is handed over at that
/// moment is refused, and an opener waits for the end.
#[test]
fn mount_of_a_group_after_the_end_of_its_last_one_is_refused() {
    let Some(site) = Site::new() else { return };
    site.format();
    let group = MountGroup::default();
    let filesystem = OpenOptions::new().write(true).open(site.image()).unwrap();
    let again = filesystem.reopened(&OpenOptions::new()).unwrap();
    let another = filesystem.reopened(&OpenOptions::new()).unwrap();
    let start = |name, filesystem| {
        let point = site.at(name);
        fs::create_dir(&point).unwrap();
        let mount = Mount::new(&point, &mount_options()).unwrap();
        let options = Options {
            threads: Some(2),
            device: site.image(),
            group: group.clone(),
            ..Options::default()
        };
        Mounted::start(mount, filesystem, &options)
    };
    let first = start("first", filesystem).unwrap();
    let second = start("second", again).unwrap();
    first.unmount_handle().unmount().unwrap();
    first.wait();
    first.end().unwrap();
    assert!(!group.is_over());
    fs::write(site.at("second/file"), "content").unwrap();
    second.unmount_handle().unmount().unwrap();
    second.wait();
    assert!(matches!(start("third", another), Err(StartError::Closing)));
    assert_eq!(fs::read_dir(site.at("third")).unwrap().count(), 0, "nothing is mounted there");
    second.end().unwrap();
    let opened = OpenOptions::new().open(site.image()).unwrap();
    assert_eq!(opened.read("file").unwrap(), b"content");
}

/// A mount that is no longer found at its mount point loses nothing, either, and another mount that
/// is there stays.
#[test]
fn lazily_unmounted_mount_is_committed_when_it_is_stopped() {
    let Some(site) = Site::new() else { return };
    site.format();
    let ours = Ours::new(&site, OpenOptions::new().write(true));
    let point = ours.path().to_owned();
    let file = File::create_new(point.join("file")).unwrap();
    file.write_all_at(&pattern(3 << 20), 0).unwrap();
    shell(&site.at(""), "umount --lazy point; mount -t tmpfs other point; touch point/other");
    ours.mounted.unmount_handle().stop().unwrap();
    ours.mounted.end().unwrap();
    assert!(file.sync_all().is_err());
    assert!(point.join("other").exists());
    shell(&site.at(""), "umount point");
    drop(file);
    // If the mount was not aborted, its last user has released it by now.
    OpenOptions::new().write(true).open(site.image()).unwrap().close().unwrap();
    userbtrfs_testkit::linux::btrfs_check(&site.image()).unwrap();
    site.with_linux("ro,noatime", |root| {
        assert!(fs::read(root.join("file")).unwrap() == pattern(3 << 20));
    });
}

#[test]
fn opening_the_image_of_a_mount_for_writing_is_refused() {
    let Some(site) = Site::new() else { return };
    site.format();
    let ours = Ours::new(&site, OpenOptions::new().write(true));
    let refused = OpenOptions::new().write(true).open(site.image()).err().unwrap();
    assert!(
        matches!(refused, PathError { error: Error::Device(_), .. }) && refused.errno() == 16,
        "{refused}"
    );
    ours.end();
    OpenOptions::new().write(true).open(site.image()).unwrap().close().unwrap();
}

#[test]
fn a_mount_for_reading_changes_nothing() {
    let Some(site) = Site::new() else { return };
    site.format();
    site.with_linux("noatime", |root| shell(root, "mkdir a; echo content >a/file"));
    let before = fs::read(site.image()).unwrap();
    let filesystem = OpenOptions::new().open(site.image()).unwrap();
    let flags = MountFlags::READ_ONLY | MountFlags::DEFAULT_PERMISSIONS;
    let ours = Ours::of(&site, filesystem, &MountOptions { flags, ..mount_options() });
    assert_eq!(fs::read_to_string(ours.path().join("a/file")).unwrap(), "content\n");
    let refused = File::create(ours.path().join("new")).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS));
    shell(ours.path(), "ls -lR; ! touch a/file 2>/dev/null; ! rm -f a/file 2>/dev/null; df .");
    ours.end();
    assert!(fs::read(site.image()).unwrap() == before);
}

/// A program that alternates between writes and syncs does not cause a request for attributes each
/// time.
#[test]
fn a_write_after_a_sync_is_one_request() {
    let Some(site) = Site::new() else { return };
    site.format();
    let ours = Ours::new(&site, OpenOptions::new().write(true));
    let file = File::create(ours.path().join("file")).unwrap();
    let kinds = [Opcode::Getattr, Opcode::Getxattr];
    let requests = || kinds.iter().map(|kind| ours.mounted.requests(*kind)).sum::<u64>();
    let before = requests();
    let begun = Instant::now();
    for page in 0..100 {
        file.write_all_at(&[1; 4096], 4096 * page).unwrap();
        file.sync_all().unwrap();
    }
    let asked = requests() - before;
    // The kernel requests the attributes of a file that is written once a second.
    let most = 10 + 2 * begun.elapsed().as_secs();
    assert!(asked < most, "{asked}, and not {most}");
    drop(file);
    ours.end();
}

/// Returns the number of requests of each kind.
fn requests(ours: &Ours) -> Vec<(Opcode, u64)> {
    let count = |kind: &Opcode| (*kind, ours.mounted.requests(*kind));
    Opcode::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect()
}

/// Asserts that the kernel caches in one of several new mounts: another test may have it drop its
/// caches at any moment, but not each time.
#[track_caller]
fn caches_in_a_new_mount(site: &Site, caches: impl Fn(&Ours) -> Result<(), String>) {
    let mut last = Ok(());
    let is_cached = |_| {
        let ours = Ours::new(site, OpenOptions::new().write(true));
        last = caches(&ours);
        ours.end();
        last.is_ok()
    };
    assert!((0..10).any(is_cached), "{last:?}");
}

/// Returns an error with the requests if `look` causes any.
fn causes_no_requests(ours: &Ours, look: impl FnOnce()) -> Result<(), String> {
    let before = requests(ours);
    look();
    let after = requests(ours);
    if before == after { Ok(()) } else { Err(format!("{before:?}, then {after:?}")) }
}

/// The kernel does not request again what it has cached.
#[test]
fn cached_answers_cause_no_requests() {
    let Some(site) = Site::new() else { return };
    site.format();
    caches_in_a_new_mount(&site, |ours| {
        let path = ours.path().join("file");
        fs::write(&path, [1; 10_000]).unwrap();
        shell(ours.path(), "ln -sf file link; mkdir -p dir; touch dir/one dir/two");
        // After a file is closed, the kernel requests its blocks again.
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        let read = |file: &File| {
            let mut bytes = vec![0; 10_000];
            file.read_exact_at(&mut bytes, 0).unwrap();
        };
        let look = || {
            read(&file);
            assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
            assert!(!ours.path().join("absent").exists());
            assert_eq!(fs::read_link(ours.path().join("link")).unwrap(), Path::new("file"));
            assert_eq!(fs::read_dir(ours.path().join("dir")).unwrap().count(), 2);
        };
        look();
        // Until written data is on disk, the kernel requests the blocks each second.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        look();
        let cached = causes_no_requests(ours, || {
            for _ in 0..50 {
                look();
            }
            for _ in 0..50 {
                read(&File::open(&path).unwrap());
            }
        });
        for once in [Opcode::Open, Opcode::Opendir, Opcode::Flush] {
            assert!(ours.mounted.requests(once) <= 1, "{once:?}");
        }
        cached
    });
}

/// A listing returns attributes with the names, and is cached.
#[test]
fn a_listing_with_attributes_is_few_requests() {
    let Some(site) = Site::new() else { return };
    site.format();
    site.with_ours(|root| {
        (0..300).for_each(|number| fs::write(root.join(number.to_string()), "content").unwrap());
    });
    // The kernel has cached nothing of another mount.
    caches_in_a_new_mount(&site, |ours| {
        // As ls(1) does it; a listing does not contain the time of birth.
        let list = || {
            let entries = fs::read_dir(ours.path()).unwrap().map(Result::unwrap);
            let size = |entry: fs::DirEntry| rustix::fs::lstat(entry.path()).unwrap().st_size;
            assert_eq!(entries.map(size).sum::<i64>(), 2100);
        };
        list();
        let kinds = [Opcode::Lookup, Opcode::Getattr, Opcode::Statx];
        let asked = kinds.map(|kind| ours.mounted.requests(kind));
        if asked.iter().sum::<u64>() >= 10 {
            return Err(format!("{asked:?}"));
        }
        // The kernel requests the access time of the directory again.
        fs::metadata(ours.path()).unwrap();
        causes_no_requests(ours, list)
    });
}

/// The kernel caches writes until a program syncs them.
#[test]
fn many_small_writes_are_few_requests() {
    let Some(site) = Site::new() else { return };
    site.format();
    let ours = Ours::new(&site, OpenOptions::new().write(true));
    let mut file =
        File::options().append(true).create(true).open(ours.path().join("file")).unwrap();
    let begun = Instant::now();
    for _ in 0..2000 {
        file.write_all(&[1; 100]).unwrap();
    }
    file.sync_all().unwrap();
    let all: u64 = requests(&ours).iter().map(|(_, count)| count).sum();
    assert!(ours.mounted.requests(Opcode::Write) > 0);
    // The kernel requests the attributes of a file that is written once a second.
    let most = 30 + 2 * begun.elapsed().as_secs();
    assert!(all < most, "{:?}", requests(&ours));
    drop(file);
    ours.end();
}
