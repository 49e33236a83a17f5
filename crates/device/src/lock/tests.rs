//! Two writers of one file, in one process and in two.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use tempfile::NamedTempFile;
use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use userbtrfs_testkit::time_limit::limit_time;

use super::*;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::file::FileDevice;
use crate::file::tests::TestLoop;
use crate::open::{Direct, FileOptions, IoUring};
use crate::request::Request;

/// Names the image to a process of this test binary that is to hold its lock.
const HOLD: &str = "USERBTRFS_TEST_HOLD_IMAGE";

/// How long an opener must wait to count as waiting. If too short, a test may miss a bug, but
/// never fails without one.
const A_WHILE: Duration = Duration::from_millis(50);

fn image() -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    file
}

fn open(path: &Path) -> Result<FileDevice, DeviceError> {
    FileDevice::open(path, FileOptions { writable: true, ..FileOptions::default() })
}

fn assert_locked(path: &Path) {
    let error = open(path).expect_err("it is held");
    assert!(matches!(error, DeviceError::Locked { .. }), "{error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}

/// Not a test: runs in another process, controlled by its input. Does nothing without `HOLD`.
#[test]
fn holder() {
    let Some(path) = env::var_os(HOLD) else { return };
    let device = open(Path::new(&path)).unwrap();
    println!("\nheld");
    for line in io::stdin().lines() {
        assert_eq!(line.unwrap(), "closing");
        device.mark_closing();
        println!("\nsaid");
    }
}

/// Another process that holds the lock.
struct Holder {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn of(path: &Path) -> Holder {
        limit_time();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "lock::tests::holder", "--nocapture"])
            .env(HOLD, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Holder { child, input, output };
        holder.expect("held");
        holder
    }

    fn expect(&mut self, word: &str) {
        let mut lines = (&mut self.output).lines();
        assert!(lines.any(|line| line.unwrap() == word), "the holder ended before: {word}");
    }

    fn mark_closing(&mut self) {
        writeln!(self.input.as_ref().unwrap(), "closing").unwrap();
        self.expect("said");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }
}

/// Returns whether `OPEN_BYTE` is locked.
fn has_door(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    let mut found = bytes(libc::F_WRLCK, OPEN_BYTE, 1);
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut found)).unwrap();
    libc::c_int::from(found.l_type) != libc::F_UNLCK
}

/// Asserts that a reader waits until `end` has ended the holder.
fn assert_reader_waits(path: &Path, end: impl FnOnce()) {
    let (tell, told) = channel();
    thread::scope(|scope| {
        let read = || FileDevice::open(path, FileOptions::default()).map(drop);
        scope.spawn(move || tell.send(read()).unwrap());
        assert_eq!(told.recv_timeout(A_WHILE).err(), Some(RecvTimeoutError::Timeout));
        end();
        told.recv().unwrap().unwrap();
    });
}

/// Asserts that an opener waits until `end` has ended the holder.
fn assert_waits(path: &Path, end: impl FnOnce()) {
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(move || tell.send(open(path).map(drop)).unwrap());
        while !has_door(path) {
            thread::yield_now();
        }
        assert_eq!(told.recv_timeout(A_WHILE).err(), Some(RecvTimeoutError::Timeout));
        // The waiting opener holds `OPEN_BYTE`.
        assert_locked(path);
        end();
        told.recv().unwrap().unwrap();
    });
}

#[test]
fn a_second_writer_is_refused_and_readers_are_not() {
    let file = image();
    let first = open(file.path()).unwrap();
    assert_locked(file.path());
    let reader = FileDevice::open(file.path(), FileOptions::default()).unwrap();
    drop(reader);
    assert_locked(file.path());
    drop(first);
    drop(open(file.path()).unwrap());
}

fn open_excluding_writers(path: &Path) -> Result<FileDevice, DeviceError> {
    FileDevice::open(path, FileOptions { exclude_writers: true, ..FileOptions::default() })
}

#[test]
fn writer_and_reader_that_excludes_writers_exclude_each_other() {
    let file = image();
    let writer = open(file.path()).unwrap();
    let refused = open_excluding_writers(file.path()).err();
    assert!(matches!(refused, Some(DeviceError::Locked { .. })), "{refused:?}");
    drop(writer);
    let first = open_excluding_writers(file.path()).unwrap();
    assert!(first.is_read_only());
    let second = open_excluding_writers(file.path()).unwrap();
    drop(FileDevice::open(file.path(), FileOptions::default()).unwrap());
    assert_locked(file.path());
    drop(first);
    assert_locked(file.path());
    second.publish_mount(0x703);
    assert_eq!(mount_of_holder(file.path()), Some(0x703));
    second.mark_closing();
    assert_eq!(mount_of_holder(file.path()), None);
    assert_waits(file.path(), || drop(second));
}

/// A loop device and its file are one image, whichever of them is opened.
#[test]
fn a_loop_device_and_its_file_are_locked_together() {
    let file = image();
    let Some(device) = TestLoop::over(&file) else { return };
    let paths = [file.path(), &device.0];
    for (first, second) in [(0, 1), (1, 0)] {
        let writer = open(paths[first]).unwrap();
        assert_locked(paths[second]);
        assert!(open_excluding_writers(paths[second]).is_err());
        drop(FileDevice::open(paths[second], FileOptions::default()).unwrap());
        drop(writer);
        let reader = open_excluding_writers(paths[first]).unwrap();
        assert_locked(paths[second]);
        drop(open_excluding_writers(paths[second]).unwrap());
        drop(reader);
    }
    drop(open(paths[0]).unwrap());
}

#[test]
fn every_mode_holds_the_lock_until_it_is_dropped() {
    for direct in [Direct::Auto, Direct::On, Direct::Off] {
        let file = image();
        let options = FileOptions { writable: true, direct, ..FileOptions::default() };
        let Ok(device) = FileDevice::open(file.path(), options) else { continue };
        assert_locked(file.path());
        drop(device);
        drop(open(file.path()).unwrap());
    }
}

#[test]
fn an_opener_waits_for_one_that_is_closing() {
    let file = image();
    let first = open(file.path()).unwrap();
    first.mark_closing();
    assert_waits(file.path(), || drop(first));
}

/// The reader then reads what the holder left.
#[test]
fn a_reader_waits_for_one_that_is_closing() {
    let file = image();
    let first = open(file.path()).unwrap();
    first.mark_closing();
    assert_reader_waits(file.path(), || drop(first));

    let mut holder = Holder::of(file.path());
    holder.mark_closing();
    assert_reader_waits(file.path(), || drop(holder));
    // A reader takes no lock that would conflict with a writer.
    let reader = FileDevice::open(file.path(), FileOptions::default()).unwrap();
    drop(open(file.path()).unwrap());
    drop(reader);
}

#[test]
fn mount_of_holder_is_known_until_it_is_closing() {
    let file = image();
    let first = open(file.path()).unwrap();
    assert_eq!(mount_of_holder(file.path()), None);
    first.publish_mount(0x703);
    assert_eq!(mount_of_holder(file.path()), Some(0x703));
    assert_locked(file.path());
    first.mark_closing();
    assert_eq!(mount_of_holder(file.path()), None);
    drop(first);
    let second = open(file.path()).unwrap();
    second.publish_mount(0);
    assert_eq!(mount_of_holder(file.path()), Some(0));
    drop(second);
    assert_eq!(mount_of_holder(file.path()), None);
    assert_eq!(mount_of_holder(Path::new("/dev/null")), None);
}

#[test]
fn a_request_not_done_keeps_the_lock_of_a_dropped_device() {
    let file = image();
    // Plain calls do reads only in `wait`.
    let io_uring = IoUring::Off;
    let options = FileOptions { writable: true, io_uring, ..FileOptions::default() };
    let first = FileDevice::open(file.path(), options).unwrap();
    let ticket = first.submit(vec![Request::Read { offset: 0, buffer: Buffer::zeroed(4096) }]);
    drop(first);
    assert_locked(file.path());
    assert!(ticket.wait()[0].result.is_ok());
    drop(open(file.path()).unwrap());
}

#[test]
fn locks_of_other_processes_are_respected_and_end_with_them() {
    let file = image();
    let mut holder = Holder::of(file.path());
    assert_locked(file.path());
    holder.mark_closing();
    assert_waits(file.path(), || drop(holder));

    let mut killed = Holder::of(file.path());
    assert_locked(file.path());
    killed.child.kill().unwrap();
    drop(killed);
    drop(open(file.path()).unwrap());
}

#[test]
fn many_writers_have_the_image_one_at_a_time() {
    let file = image();
    let inside = AtomicUsize::new(0);
    let attempt = || {
        let Ok(device) = open(file.path()) else { return 0 };
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        device.mark_closing();
        thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
        1
    };
    let successes: usize = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..200).map(|_| attempt()).sum::<usize>())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(successes > 0);
}

fn claim(device: &Path) -> File {
    let exclusive = OFlags::EXCL.bits().cast_signed();
    File::options().read(true).custom_flags(exclusive).open(device).unwrap()
}

#[test]
fn a_block_device_that_the_kernel_uses_is_refused() {
    let file = image();
    let Some(device) = TestLoop::over(&file) else { return };
    let claim = claim(&device.0);
    let refused = open(&device.0).err();
    assert!(matches!(refused, Some(DeviceError::InUse { .. })), "{refused:?}");
    let off = FileOptions { writable: true, direct: Direct::Off, ..FileOptions::default() };
    let refused = FileDevice::open(&device.0, off).err();
    assert!(matches!(refused, Some(DeviceError::InUse { .. })), "{refused:?}");
    drop(FileDevice::open(&device.0, FileOptions::default()).unwrap());
    drop(claim);

    let writer = open(&device.0).unwrap();
    assert_locked(&device.0);
    writer.mark_closing();
    assert_waits(&device.0, || drop(writer));
}

/// As while a process that was forked meanwhile has not called `exec` yet.
#[test]
fn a_claim_that_ends_a_moment_later_is_waited_for() {
    let file = image();
    let Some(device) = TestLoop::over(&file) else { return };
    let claim = claim(&device.0);
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(A_WHILE);
            drop(claim);
        });
        drop(open(&device.0).unwrap());
    });
}
