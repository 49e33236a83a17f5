//! Tests of files and loop devices, with every engine in every mode.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use rustix::io::Errno;
use tempfile::NamedTempFile;
use userbtrfs_testkit::time_limit::limit_time;

use super::*;
use crate::open::Direct;
use crate::slice::Slice;

const LEN: usize = 1 << 20;

/// A deterministic stream of numbers (xorshift), so that a failure repeats.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }

    /// Cuts the device into pieces; half of the cuts are at multiples of 4096.
    fn pieces(&mut self) -> Vec<Range<usize>> {
        let mut cuts: Vec<usize> = (0..48)
            .map(|_| match self.below(2) {
                0 => self.below(LEN / 4096) * 4096,
                _ => self.below(LEN),
            })
            .collect();
        cuts.extend([0, LEN]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }
}

fn image() -> (NamedTempFile, Vec<u8>) {
    let bytes = Numbers(0x9E37_79B9).bytes(LEN);
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    file.as_file().sync_all().unwrap();
    (file, bytes)
}

/// A loop device over a file, detached at the end.
pub(crate) struct TestLoop(pub(crate) PathBuf);

impl TestLoop {
    /// Attaches a loop device; returns `None`, with a note, if this user or system cannot.
    pub(crate) fn over(file: &NamedTempFile) -> Option<TestLoop> {
        limit_time();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        match made {
            Ok(output) if output.status.success() => {
                Some(TestLoop(String::from_utf8(output.stdout).unwrap().trim().into()))
            }
            Ok(output) => skip(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => skip(&error.to_string()),
        }
    }
}

impl Drop for TestLoop {
    fn drop(&mut self) {
        Command::new("losetup").arg("--detach").arg(&self.0).status().unwrap();
    }
}

fn skip<T>(reason: &str) -> Option<T> {
    eprintln!("skipped: no loop device: {}", reason.trim());
    None
}

/// Returns every engine in every mode, as far as this process may use them.
fn modes() -> Vec<FileOptions> {
    let engines = match ring::probe() {
        Ok(()) => vec![IoUring::On, IoUring::Off],
        Err(errno) => {
            eprintln!("skipped: io_uring: {errno}");
            vec![IoUring::Off]
        }
    };
    let with = |&io_uring: &IoUring| {
        [Direct::On, Direct::Off, Direct::Auto].map(|direct| FileOptions {
            writable: true,
            direct,
            io_uring,
            ..FileOptions::default()
        })
    };
    engines.iter().flat_map(with).collect()
}

/// Opens in this mode; returns `None` if the file system does not support direct I/O.
fn open(path: &Path, options: FileOptions) -> Option<FileDevice> {
    match FileDevice::open(path, options) {
        Ok(device) => Some(device),
        Err(error @ DeviceError::DirectRefused { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a test on a file, and on a loop device, in every mode; each on its own thread, and so on
/// its own ring.
fn everywhere(test: impl Fn(&FileDevice, Vec<u8>) + Sync) {
    for options in modes() {
        let (file, bytes) = image();
        on(file.path(), options, bytes.clone(), &test);
        let (file, bytes) = image();
        if let Some(device) = TestLoop::over(&file) {
            on(&device.0, options, bytes.clone(), &test);
        }
    }
}

fn on(
    path: &Path,
    options: FileOptions,
    bytes: Vec<u8>,
    test: &(impl Fn(&FileDevice, Vec<u8>) + Sync),
) {
    let Some(device) = open(path, options) else { return };
    thread::scope(|scope| {
        scope.spawn(|| test(&device, bytes));
    });
}

/// Returns a write of a slice of a buffer, at varying alignments in memory.
fn write(offset: usize, bytes: &[u8], fua: bool) -> Request {
    let skip = [0, 1, 512, 4096][offset % 4];
    let mut buffer = Buffer::zeroed(skip + bytes.len() + 7);
    buffer[skip..][..bytes.len()].copy_from_slice(bytes);
    let buffer = Slice::new(Arc::new(buffer), skip..skip + bytes.len());
    Request::Write { offset: offset as u64, buffer, fua }
}

fn read(piece: &Range<usize>) -> Request {
    Request::Read { offset: piece.start as u64, buffer: Buffer::zeroed(piece.len()) }
}

fn run(device: &FileDevice, batch: Vec<Request>) -> Vec<Completion> {
    let completions = device.wait(device.submit(batch));
    for completion in &completions {
        assert!(completion.result.is_ok(), "{completion:?}");
    }
    completions
}

#[test]
fn random_batches_agree_with_a_model() {
    everywhere(|device, mut model| {
        let mut numbers = Numbers(42);
        for _ in 0..12 {
            let pieces = numbers.pieces();
            let mut batch = vec![Request::Flush];
            let before = model.clone();
            for piece in &pieces {
                if numbers.below(2) == 0 {
                    batch.push(read(piece));
                } else {
                    model[piece.clone()].copy_from_slice(&numbers.bytes(piece.len()));
                    batch.push(write(piece.start, &model[piece.clone()], numbers.below(8) == 0));
                }
            }
            let completions = run(device, batch);
            assert_eq!(completions.len(), pieces.len() + 1);
            for (piece, completion) in pieces.iter().zip(&completions[1..]) {
                if let Some(buffer) = &completion.buffer {
                    assert!(buffer[..] == before[piece.clone()], "read of {piece:?} differs");
                }
            }
        }
        assert!(device.read(0, LEN).unwrap()[..] == model[..]);
    });
}

#[test]
fn writes_of_one_mode_are_read_by_every_other() {
    let (file, mut model) = image();
    let mut numbers = Numbers(7);
    for options in modes().into_iter().cycle().take(16) {
        let Some(device) = open(file.path(), options) else { continue };
        let start = numbers.below(LEN - 10_000);
        model[start..start + 9999].copy_from_slice(&numbers.bytes(9999));
        run(&device, vec![write(start, &model[start..start + 9999], false)]);
        let readers = modes().into_iter().map(|mode| FileOptions { writable: false, ..mode });
        for reader in readers.filter_map(|options| open(file.path(), options)) {
            assert!(reader.read(0, LEN).unwrap()[..] == model[..], "{options:?}");
        }
    }
}

/// Overlapping large and small requests of whole pages, by threads with a part each: direct and
/// buffered requests are coherent.
#[test]
fn direct_and_buffered_requests_to_an_image_are_coherent() {
    const PARTS: usize = 4;
    const PAGES: usize = LEN / PARTS / 4096;
    let (file, model) = image();
    let options = FileOptions { writable: true, ..FileOptions::default() };
    let device = &FileDevice::open(file.path(), options).unwrap();
    let is_direct = |len: usize| device.file.way_of(&read(&(4096..4096 + len))).is_direct();
    assert!(!is_direct(60 << 10) && !is_direct((64 << 10) + 1));
    if !is_direct(64 << 10) {
        return eprintln!("skipped: the file takes no direct I/O, or there is no io_uring");
    }
    let plain = FileOptions { io_uring: IoUring::Off, ..FileOptions::default() };
    let plain =
        FileDevice::open(image().0.path(), FileOptions { writable: true, ..plain }).unwrap();
    assert!(!plain.file.way_of(&read(&(0..64 << 10))).is_direct());
    thread::scope(|scope| {
        for (part, model) in model.chunks(LEN / PARTS).enumerate() {
            scope.spawn(move || {
                let mut numbers = Numbers(1 + part as u64);
                let mut model = model.to_vec();
                for _ in 0..400 {
                    let start = numbers.below(PAGES);
                    let most = [PAGES, 8][numbers.below(2)];
                    let pages = 1 + numbers.below(most);
                    let range = start * 4096..(start + pages).min(PAGES) * 4096;
                    let at = part * LEN / PARTS + range.start;
                    if numbers.below(2) == 0 {
                        model[range.clone()].copy_from_slice(&numbers.bytes(range.len()));
                        run(device, vec![write(at, &model[range], numbers.below(8) == 0)]);
                    } else {
                        let found = device.read(at as u64, range.len()).unwrap();
                        assert!(found[..] == model[range.clone()], "{range:?} of part {part}");
                    }
                }
            });
        }
    });
}

#[test]
fn a_large_request_not_done_keeps_the_lock_of_a_dropped_device() {
    let (file, _) = image();
    let options = FileOptions { writable: true, ..FileOptions::default() };
    let device = FileDevice::open(file.path(), options).unwrap();
    let request = read(&(0..1 << 16));
    let transfer = Transfer::new(device.file.way_of(&request), request);
    drop(device);
    let refused = FileDevice::open(file.path(), options).err();
    assert!(matches!(refused, Some(DeviceError::Locked { .. })), "{refused:?}");
    drop(transfer);
    FileDevice::open(file.path(), options).unwrap();
}

#[test]
fn a_batch_larger_than_the_ring_keeps_its_order() {
    for options in modes() {
        let (file, bytes) = image();
        let options = FileOptions { queue_depth: 3, ..options };
        on(file.path(), options, bytes, &|device: &FileDevice, bytes: Vec<u8>| {
            let pieces: Vec<_> = (0..200).map(|n| n * 4096 + n..(n + 1) * 4096).collect();
            let completions = run(device, pieces.iter().map(read).collect());
            for (piece, completion) in pieces.iter().zip(completions) {
                assert!(completion.into_buffer().unwrap()[..] == bytes[piece.clone()]);
            }
        });
    }
}

#[test]
fn tickets_are_waited_for_in_any_order() {
    everywhere(|device, bytes| {
        let pieces: Vec<_> = (0..20).map(|n| n * 5000..n * 5000 + 3000).collect();
        let tickets: Vec<_> = pieces.iter().map(|piece| device.submit(vec![read(piece)])).collect();
        for (piece, ticket) in pieces.iter().zip(tickets).rev() {
            let buffer = device.wait(ticket).pop().unwrap().into_buffer().unwrap();
            assert!(buffer[..] == bytes[piece.clone()]);
        }
    });
}

#[test]
fn a_dropped_ticket_loses_no_write() {
    everywhere(|device, mut model| {
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 0..100 {
                    drop(device.submit(vec![write(n * 4096, &[0xAB; 4096], false)]));
                    drop(device.submit(vec![read(&(n * 4096..LEN))]));
                }
            });
            // A scope does not wait for the thread-local destructors of a thread; a join does.
            writer.join().unwrap();
        });
        model[..100 * 4096].fill(0xAB);
        assert!(device.read(0, LEN).unwrap()[..] == model[..]);
    });
}

#[test]
fn device_reopens_after_a_dropped_ticket() {
    for options in modes() {
        let (file, _) = image();
        for _ in 0..20 {
            let Some(device) = open(file.path(), options) else { break };
            let dropped = device.submit(vec![read(&(0..LEN)), write(0, &[1; 4096], false)]);
            drop(dropped);
            let large = device.file.way_of(&read(&(0..LEN)));
            let users = [Arc::strong_count(&device.file), Arc::strong_count(large)];
            assert_eq!(users, [1, 1], "a request keeps the image open");
            device.mark_closing();
        }
    }
}

#[test]
fn merged_write_may_complete_before_its_batch_is_started() {
    for options in modes() {
        let (file, mut model) = image();
        let options = FileOptions { queue_depth: 1, ..options };
        // Two adjacent writes are one call, started at the first: it has completed when the next
        // call needs the only slot, before the second is reached in the batch.
        let pages: Vec<_> = [0, 1].into_iter().flat_map(|n| [n, n + 3, n + 6]).collect();
        for page in &pages {
            model[page * 4096..][..4096].fill(0xCD);
        }
        on(file.path(), options, model, &|device: &FileDevice, model: Vec<u8>| {
            run(
                device,
                pages.iter().map(|page| write(page * 4096, &[0xCD; 4096], false)).collect(),
            );
            assert!(device.read(0, LEN).unwrap()[..] == model[..]);
        });
    }
}

#[test]
fn thread_makes_no_ring_for_batches_that_gain_nothing_by_it() {
    for options in modes().into_iter().filter(|mode| mode.io_uring != IoUring::Off) {
        let (file, _) = image();
        let Some(device) = open(file.path(), options) else { continue };
        let makes_ring = |batch: fn() -> Vec<Request>| {
            thread::scope(|scope| {
                let worked = scope.spawn(|| {
                    run(&device, batch());
                    ring::has_ring()
                });
                worked.join().unwrap()
            })
        };
        assert!(!makes_ring(|| vec![Request::Flush]), "{options:?}");
        assert!(!makes_ring(|| vec![write(0, &[1; 4096], true)]), "{options:?}");
        let discard = || vec![Request::Discard { offset: 0, len: 4096 }];
        assert!(!makes_ring(discard), "{options:?}");
        assert_eq!(makes_ring(|| vec![write(0, &[1; 4096], false)]), device.is_direct());
        let two = || vec![write(0, &[1; 4096], false), write(8192, &[1; 4096], false)];
        assert_eq!(makes_ring(two), device.is_direct(), "{options:?}");
        assert!(makes_ring(|| vec![read(&(0..4096))]), "{options:?}");
        let flushed = || vec![write(0, &[1; 4096], false), Request::Flush];
        assert_eq!(makes_ring(flushed), device.is_direct(), "{options:?}");
        assert!(makes_ring(|| vec![read(&(0..4096)), write(8192, &[1; 4096], false)]));
    }
}

#[test]
fn polling_completes_a_batch() {
    everywhere(|device, bytes| {
        let ticket = device.submit(vec![read(&(0..LEN)), Request::Flush]);
        while !device.is_ready(&ticket) {
            thread::yield_now();
        }
        let buffer = device.wait(ticket).swap_remove(0).into_buffer().unwrap();
        assert!(buffer[..] == bytes[..]);
    });
}

#[test]
fn a_ticket_outlives_its_device() {
    for options in modes() {
        let (file, bytes) = image();
        let Some(device) = open(file.path(), options) else { continue };
        let ticket = device.submit(vec![read(&(0..LEN))]);
        drop(device);
        let buffer = ticket.wait().pop().unwrap().into_buffer().unwrap();
        assert!(buffer[..] == bytes[..]);
    }
}

#[test]
fn two_devices_share_the_ring_of_a_thread() {
    for options in modes() {
        let (first, bytes) = image();
        let second = NamedTempFile::new().unwrap();
        second.as_file().set_len(LEN as u64).unwrap();
        let Some(source) = open(first.path(), options) else { continue };
        let target = open(second.path(), options).unwrap();
        let reading = source.submit(vec![read(&(0..LEN))]);
        let writing = target.submit(vec![write(8192, &bytes[..4096], true)]);
        assert!(target.wait(writing)[0].result.is_ok());
        assert!(source.wait(reading).pop().unwrap().into_buffer().unwrap()[..] == bytes[..]);
        assert!(target.read(8192, 4096).unwrap()[..] == bytes[..4096]);
    }
}

#[test]
fn threads_write_side_by_side() {
    everywhere(|device, _| {
        // Odd shares, so that adjacent ones write parts of the same sectors.
        let share = LEN / 8 - 1;
        thread::scope(|scope| {
            for n in 0..8_u8 {
                scope.spawn(move || {
                    for _ in 0..4 {
                        run(
                            device,
                            vec![write(usize::from(n) * share, &vec![n + 1; share], false)],
                        );
                    }
                });
            }
        });
        let bytes = device.read(0, 8 * share).unwrap();
        for (n, part) in (1..).zip(bytes.chunks(share)) {
            assert!(part.iter().all(|&byte| byte == n), "share {n}");
        }
    });
}

#[test]
fn unaligned_adjacent_writes_of_one_batch_are_all_kept() {
    everywhere(|device, mut model| {
        let batch: Vec<_> = (0..64)
            .map(|n| {
                let piece = n * 1111..(n + 1) * 1111;
                model[piece.clone()].fill(u8::try_from(n).unwrap());
                write(piece.start, &model[piece], false)
            })
            .collect();
        run(device, batch);
        assert!(device.read(0, LEN).unwrap()[..] == model[..]);
    });
}

#[test]
fn write_flush_and_discard_leave_their_neighbours() {
    everywhere(|device, mut model| {
        run(device, vec![write(65_536, &[1; 4096], true)]);
        model[65_536..69_632].fill(1);
        device.flush().unwrap();
        match device.discard(100_001, 50_000) {
            Ok(()) | Err(DeviceError::Unsupported { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        device.discard(200, 10).unwrap();
        device.flush().unwrap();
        let bytes = device.read(0, LEN).unwrap();
        assert!(bytes[..200] == model[..200] && bytes[210..100_001] == model[210..100_001]);
        assert!(bytes[150_001..] == model[150_001..]);
        run(device, vec![write(100_001, &model[100_001..150_001], false)]);
        assert!(device.read(210, LEN - 210).unwrap()[..] == model[210..]);
    });
}

#[test]
fn a_request_beyond_the_end_fails_alone() {
    everywhere(|device, bytes| {
        let batch =
            vec![read(&(LEN - 10..LEN + 1)), read(&(LEN - 10..LEN)), write(LEN, &[1], true)];
        let mut completions = device.wait(device.submit(batch));
        for index in [0, 2] {
            let error = completions[index].result.as_ref().unwrap_err();
            assert!(matches!(error, DeviceError::BeyondEnd { device_len, .. }
                if *device_len == LEN as u64));
        }
        assert!(completions.swap_remove(1).into_buffer().unwrap()[..] == bytes[LEN - 10..]);
        assert!(device.read(LEN as u64, 0).unwrap().is_empty());
    });
}

#[test]
fn read_of_a_truncated_file_fails_and_does_not_hang() {
    for options in modes() {
        let (file, _) = image();
        let Some(device) = open(file.path(), options) else { continue };
        file.as_file().set_len(10_000).unwrap();
        for (offset, len, moved) in
            [(8192, 4096, 1808), (4096, 9000, 5904), (8000, 5000, 2000), (12_288, 4096, 0)]
        {
            let error = device.read(offset, len).unwrap_err();
            let DeviceError::Short { done, .. } = error else { panic!("{error}") };
            assert_eq!(done, moved, "{options:?}");
        }
        assert!(device.read(4096, 4096).is_ok());
    }
}

#[test]
fn a_device_opened_for_reading_refuses_changes() {
    let (file, bytes) = image();
    for mode in modes() {
        let options = FileOptions { writable: false, ..mode };
        let Some(device) = open(file.path(), options) else { continue };
        assert!(device.is_read_only());
        let refused = device.run(write(0, &[1], false)).result;
        assert!(matches!(refused, Err(DeviceError::ReadOnly { .. })));
        assert!(matches!(device.discard(0, 4096), Err(DeviceError::ReadOnly { .. })));
        device.flush().unwrap();
    }
    assert!(fs::read(file.path()).unwrap() == bytes);
}

#[test]
fn path_to_another_kind_of_file_is_refused_by_its_kind() {
    limit_time();
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let kinds = [
        (directory.path(), "directory"),
        (Path::new("/dev/null"), "character device"),
        (&pipe, "pipe"),
    ];
    for (path, expected) in kinds {
        let refused = FileDevice::open(path, FileOptions::default()).err();
        let Some(DeviceError::NotADevice { kind, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(kind, expected);
    }
    let missing = FileDevice::open(directory.path().join("none"), FileOptions::default()).err();
    assert!(matches!(missing, Some(DeviceError::Open { .. })), "{missing:?}");
}

#[test]
fn the_mode_follows_the_options() {
    let (file, _) = image();
    let auto = FileDevice::open(file.path(), FileOptions::default()).unwrap();
    assert!(!auto.is_direct());
    assert_eq!(auto.uses_io_uring(), ring::probe().is_ok());
    if let Some(device) = TestLoop::over(&file) {
        let device = FileDevice::open(&device.0, FileOptions::default()).unwrap();
        assert!(device.is_direct());
        assert_eq!(device.len(), LEN as u64);
    }
    file.as_file().set_len(LEN as u64 + 1).unwrap();
    let direct = FileOptions { direct: Direct::On, ..FileOptions::default() };
    let refused = FileDevice::open(file.path(), direct).err();
    assert!(matches!(refused, Some(DeviceError::DirectRefused { .. })), "{refused:?}");
}

#[test]
fn errors_of_the_system_reach_the_caller() {
    // A file opened for reading, in a device that counts as writable.
    for options in modes() {
        let (file, _) = image();
        let Ok(mut open) =
            OpenFile::open(file.path(), FileOptions { writable: false, ..options }, false)
        else {
            continue;
        };
        open.is_writable = true;
        let depth = (options.io_uring == IoUring::On).then_some(8);
        let device = FileDevice { file: Arc::new(open), ring_depth: depth };
        let error = device.run(write(4096, &[0; 4096], false)).result.unwrap_err();
        let DeviceError::Io { source, access, .. } = error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(Errno::BADF.raw_os_error()));
        assert_eq!((access.offset, access.len), (4096, 4096));
    }
}
