//! Requests that wait for the device do not delay others.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use userbtrfs::OpenOptions;
use userbtrfs::device::{FileDevice, FileOptions};
use userbtrfs::mount::{Mount, MountOptions, Mounted, Options};
use userbtrfs_testkit::devices::PausedDevice;
use userbtrfs_testkit::test_env::until;

use super::support::pattern;
use super::support::site::Site;

/// The number of look-ups that wait at the same time: more than the threads that are awake.
const COLD: usize = 12;
/// The size of files that are stored inline in a leaf, and the number of them that fills several
/// leaves.
const INLINE: usize = 1500;
const BETWEEN: usize = 40;

/// While look-ups of inodes that are not in memory, more of them than threads, wait for the device,
/// a read of data in memory is still answered.
#[test]
fn read_from_memory_is_answered_while_look_ups_wait() {
    let Some(site) = Site::new() else { return };
    fill(&site);
    let device = FileDevice::open(site.image(), FileOptions::default()).unwrap();
    let device = Arc::new(PausedDevice::new(Arc::new(device)));
    let filesystem = OpenOptions::new().open_devices(vec![device.clone()]).unwrap();
    let options = MountOptions { source: "image".into(), ..MountOptions::default() };
    let mount = Mount::new(&site.point(), &options).unwrap();
    let options = Options { threads: Some(2), ..Options::default() };
    let mounted = Mounted::start(mount, filesystem, &options).unwrap();
    let root = mounted.point();
    let kept = File::open(root.join("kept")).unwrap();
    let read = || {
        // This drops it from the kernel's cache, not from the server's.
        rustix::fs::fadvise(&kept, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut bytes = vec![0; 100_000];
        kept.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert!(read() == pattern(100_000));
    let parents: Vec<_> = (0..COLD).map(|number| root.join(format!("parent{number}"))).collect();
    assert!(parents.iter().all(|parent| parent.is_dir()));
    let is_read = thread::scope(|scope| {
        device.hold_reads();
        let looks = parents.iter().map(|parent| scope.spawn(|| parent.join("child").is_dir()));
        let looks: Vec<_> = looks.collect();
        let (tell, told) = channel();
        // No panic here while threads wait: they would never end.
        let all_wait = (0..30_000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            device.waiting() >= COLD
        });
        scope.spawn(move || tell.send(read() == pattern(100_000)));
        let is_read = told.recv_timeout(Duration::from_mins(5));
        device.release();
        assert!(looks.into_iter().all(|look| look.join().unwrap()));
        assert!(all_wait, "look-ups wait for each other");
        is_read
    });
    assert_eq!(is_read, Ok(true));
    drop(kept);
    let unmount_handle = mounted.unmount_handle();
    until("nobody to use the mount", || unmount_handle.unmount().is_ok());
    drop(unmount_handle);
    mounted.end().unwrap();
}

/// Makes directories with one child each, so that parent and child have inodes in different leaves.
fn fill(site: &Site) {
    let filesystem = site.made.open_for_writing();
    filesystem.write("/kept", pattern(100_000)).unwrap();
    for number in 0..COLD {
        filesystem.create_dir(format!("/parent{number}"), 0o755).unwrap();
    }
    for number in 0..COLD {
        let parent = format!("/parent{number}");
        let fill = |side: &str| {
            for number in 0..BETWEEN {
                filesystem.write(format!("{parent}/{side}{number}"), pattern(INLINE)).unwrap();
            }
        };
        fill("before");
        filesystem.create_dir(format!("{parent}/child"), 0o755).unwrap();
        fill("behind");
    }
    filesystem.close().unwrap();
}
