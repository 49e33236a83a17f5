//! A failed write of data while the log that refers to it is in flight.
//!
//! 1. The error is reported to the sync of that file, once; the other members of its log commit
//!    succeed.
//! 2. No log that refers to the data becomes durable: the file is unchanged, in memory and after a
//!    crash.
//! 3. The acknowledged changes of the others are kept by a crash at any point.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use userbtrfs::device::{Completion, Device, DeviceError, Request, Ticket};
use userbtrfs::mkfs::Options;
use userbtrfs::{File, Filesystem, FullCommitReason, OpenOptions, TreeId};
use userbtrfs_format::{Physical, SUPERBLOCK_OFFSETS, Superblock};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{Event, Layer, LayeredDevice, RecordingDevice};

use super::made::{MIB, Made, check_image};
use super::{is_torture, open_device, seed};

/// The first byte of data whose write fails.
const BAD: u8 = b'!';
/// The number of bytes per write.
const BLOCK: usize = 4096;
/// The number of writers.
const WRITERS: u8 = 16;

/// A device that fails writes of bad data, if enabled, on one that records.
type Failing = LayeredDevice<BadData, RecordingDevice>;

/// The layer that fails writes of bad data.
struct BadData {
    fails: AtomicBool,
}

impl BadData {
    fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    fn is_bad(&self, request: &Request) -> bool {
        let Request::Write { buffer, .. } = request else { return false };
        self.fails.load(Ordering::Relaxed) && buffer[..8] == [BAD; 8]
    }
}

impl Layer for BadData {
    fn submit<D: Device + ?Sized>(&self, below: &D, batch: Vec<Request>) -> Ticket {
        if !batch.iter().any(|request| self.is_bad(request)) {
            return below.submit(batch);
        }
        let run = |request: Request| {
            if self.is_bad(&request) { fail(request) } else { below.run(request) }
        };
        Ticket::completed(batch.into_iter().map(run).collect())
    }
}

fn failing() -> Arc<Failing> {
    let image = Made::new("plain", 256 * MIB, Options::default()).image();
    let layer = BadData { fails: AtomicBool::new(false) };
    Arc::new(Failing::on_device(Arc::new(RecordingDevice::on(&image)), layer))
}

fn fail(request: Request) -> Completion {
    let error = DeviceError::Short { device: "failing".into(), access: request.access(), done: 0 };
    request.complete(Err(error))
}

fn writable(device: &Arc<Failing>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0);
    options.open_devices(vec![device.clone()]).unwrap()
}

fn create(filesystem: &Filesystem, name: &str) -> File {
    filesystem.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap()
}

/// Returns the number of superblocks in a recording that refer to a log.
fn logs(events: &[Event]) -> usize {
    let at = SUPERBLOCK_OFFSETS[0];
    let superblocks = events.iter().filter_map(|event| match event {
        Event::Write { offset, bytes, .. } if Physical(*offset) == at => Some(bytes),
        _ => None,
    });
    let parsed = superblocks.map(|bytes| Superblock::parse(bytes, at).unwrap());
    parsed.filter(|superblock| superblock.log_root.is_some()).count()
}

/// Returns the bytes of a file after a crash.
fn left(state: &State, path: &str) -> Vec<u8> {
    let opened = open_device(Arc::new(state.image.to_device())).unwrap();
    opened.read(path).unwrap()
}

#[test]
fn data_that_fails_beside_its_log_leaves_the_old_data_and_no_log() {
    let device = failing();
    let filesystem = writable(&device);
    let file = create(&filesystem, "file");
    let other = create(&filesystem, "other");
    file.append(&[1; 3 * BLOCK]).unwrap();
    file.sync_all().unwrap();
    let old = file.read_all().unwrap();
    let first = device.below().count();
    device.layer().fail(true);
    file.write_at(&[BAD; BLOCK], u64::try_from(BLOCK).unwrap()).unwrap();
    file.append(&[BAD; BLOCK]).unwrap();
    let nodes = filesystem.stats().log.nodes;
    file.sync_all().unwrap_err();
    device.layer().fail(false);
    file.sync_all().expect("it is told once");
    let log = filesystem.stats().log;
    assert_eq!((log.commits(FullCommitReason::DataFailed), log.nodes), (1, nodes), "{log:?}");
    let recording = device.below().recording();
    let events: Vec<_> = recording.events[first..].iter().map(|one| one.event.clone()).collect();
    let is_node =
        |event: &&Event| matches!(event, Event::Write { bytes, .. } if bytes.len() > BLOCK);
    assert!(events.iter().filter(is_node).count() > 0, "the log was on its way");
    assert_eq!(logs(&events), 0, "it became durable");
    assert_eq!(file.read_all().unwrap()[..old.len()], old);
    for state in states(&recording, Choice::EveryPrefix).filter(|state| state.completed >= first) {
        assert_eq!(left(&state, "/file")[..old.len()], old, "{} events", state.completed);
    }
    // Further syncs succeed, with logs.
    other.append(&[2; BLOCK]).unwrap();
    other.sync_all().unwrap();
    assert_eq!(filesystem.stats().log.log_commits, log.log_commits + 1);
    file.close().unwrap();
    other.close().unwrap();
    filesystem.close().unwrap();
    check_image("after data failed", &device.below().recording().end());
}

/// Writes different blocks from each thread and syncs them; one of the syncs fails. Returns what
/// was acknowledged: the writer, the number of blocks, and the number of events.
fn write_together(
    device: &Failing,
    files: &[File],
    rounds: u8,
    unlucky: u8,
) -> Vec<(u8, u8, usize)> {
    let write = |writer: u8, file: &File| {
        let mut acknowledged = Vec::new();
        for round in 1..=rounds {
            let is_bad = writer == unlucky && round == rounds / 2;
            let byte = if is_bad { BAD } else { 128 + round };
            file.write_at(&[byte; BLOCK], u64::from(round - 1) * BLOCK as u64).unwrap();
            match file.sync_all() {
                Ok(()) => {
                    assert!(!is_bad, "it is told");
                    acknowledged.push((writer, round, device.below().count()));
                }
                Err(error) => assert!(is_bad, "writer {writer}: {error}"),
            }
        }
        acknowledged
    };
    thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..)
            .zip(files)
            .map(|(writer, file)| scope.spawn(move || write(writer, file)))
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    })
}

#[test]
fn fsync_that_shares_a_log_commit_with_failed_data_is_durable_without_error() {
    let rounds = if is_torture() { 100 } else { 12 };
    let seed = seed();
    let device = failing();
    let filesystem = writable(&device);
    let files: Vec<_> =
        (0..WRITERS).map(|writer| create(&filesystem, &format!("f{writer}"))).collect();
    filesystem.commit().unwrap();
    let first = device.below().count();
    device.layer().fail(true);
    let unlucky = u8::try_from(seed % u64::from(WRITERS)).unwrap();
    let acknowledged = write_together(&device, &files, rounds, unlucky);
    let log = filesystem.stats().log;
    assert_eq!(log.commits(FullCommitReason::DataFailed), 1, "{log:?}");
    drop(files);
    filesystem.abandon();
    let recording = device.below().recording();
    let cuts = states(&recording, Choice::Reordered { seed, count: 60 });
    for state in cuts.filter(|state| state.completed >= first) {
        for writer in 0..WRITERS {
            let found = left(&state, &format!("/f{writer}"));
            let of_writer = acknowledged
                .iter()
                .filter(|(of, _, events)| *of == writer && *events <= state.completed);
            for (_, round, _) in of_writer {
                let at = usize::from(round - 1) * BLOCK;
                let block = found.get(at..at + BLOCK);
                assert_eq!(block, Some(&[128 + round; BLOCK][..]), "writer {writer}, {round}");
            }
            assert!(!found.contains(&BAD), "writer {writer}: it was not written");
        }
    }
}
