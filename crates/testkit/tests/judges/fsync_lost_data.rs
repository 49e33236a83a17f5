//! Data that cannot be written while the log that speaks of it is on its way.
//!
//! 1. Whose data it is, is told, once; the others of its group are not.
//! 2. No log with it becomes durable: the file stays as it was, for us and after a cut.
//! 3. What was acknowledged to the others is there, wherever it is cut.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use userbtrfs::device::{Completion, Device, DeviceError, Request, Ticket};
use userbtrfs::mkfs::Options;
use userbtrfs::{File, Filesystem, FullCommitReason, OpenOptions, TreeId};
use userbtrfs_format::{Physical, SUPERBLOCK_OFFSETS, Superblock};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{Event, RecordingDevice};

use super::made::{MIB, Made, check_image};
use super::{is_torture, open_device, seed};

/// What data begins with that fails.
const BAD: u8 = b'!';
/// What is written at once, in bytes.
const BLOCK: usize = 4096;
/// Who writes at once.
const WRITERS: u8 = 16;

/// Fails what is written of bad data, where it is told to.
struct Failing {
    inner: RecordingDevice,
    fails: AtomicBool,
}

impl Failing {
    fn new() -> Arc<Self> {
        let image = Made::new("plain", 256 * MIB, Options::default()).image();
        Arc::new(Self { inner: RecordingDevice::on(&image), fails: AtomicBool::new(false) })
    }

    fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    fn is_bad(&self, request: &Request) -> bool {
        let Request::Write { buffer, .. } = request else { return false };
        self.fails.load(Ordering::Relaxed) && buffer[..8] == [BAD; 8]
    }
}

impl Device for Failing {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn name(&self) -> &'static str {
        "failing"
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        if !batch.iter().any(|request| self.is_bad(request)) {
            return self.inner.submit(batch);
        }
        let run = |request: Request| match self.is_bad(&request) {
            true => fail(request),
            false => self.inner.run(request),
        };
        Ticket::completed(batch.into_iter().map(run).collect())
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.inner.wait(ticket)
    }
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

/// The logs to which superblocks of a recording lead.
fn logs(events: &[Event]) -> usize {
    let at = SUPERBLOCK_OFFSETS[0];
    let superblocks = events.iter().filter_map(|event| match event {
        Event::Write { offset, bytes, .. } if Physical(*offset) == at => Some(bytes),
        _ => None,
    });
    let parsed = superblocks.map(|bytes| Superblock::parse(bytes, at).unwrap());
    parsed.filter(|superblock| superblock.log_root.is_some()).count()
}

/// The bytes of a file in what a cut left.
fn left(state: &State, path: &str) -> Vec<u8> {
    let opened = open_device(Arc::new(state.image.to_device())).unwrap();
    opened.read(path).unwrap()
}

#[test]
fn data_that_fails_beside_its_log_leaves_the_old_data_and_no_log() {
    let device = Failing::new();
    let filesystem = writable(&device);
    let (file, other) = (create(&filesystem, "file"), create(&filesystem, "other"));
    file.append(&[1; 3 * BLOCK]).unwrap();
    file.sync_all().unwrap();
    let old = file.read_all().unwrap();
    let first = device.inner.count();
    device.fail(true);
    file.write_at(&[BAD; BLOCK], u64::try_from(BLOCK).unwrap()).unwrap();
    file.append(&[BAD; BLOCK]).unwrap();
    let nodes = filesystem.stats().log.nodes;
    file.sync_all().unwrap_err();
    device.fail(false);
    file.sync_all().expect("it is told once");
    let log = filesystem.stats().log;
    assert_eq!((log.commits(FullCommitReason::DataFailed), log.nodes), (1, nodes), "{log:?}");
    let recording = device.inner.recording();
    let events: Vec<_> = recording.events[first..].iter().map(|one| one.event.clone()).collect();
    let is_node =
        |event: &&Event| matches!(event, Event::Write { bytes, .. } if bytes.len() > BLOCK);
    assert!(events.iter().filter(is_node).count() > 0, "the log was on its way");
    assert_eq!(logs(&events), 0, "it became durable");
    assert_eq!(file.read_all().unwrap()[..old.len()], old);
    for state in states(&recording, Choice::EveryPrefix).filter(|state| state.completed >= first) {
        assert_eq!(left(&state, "/file")[..old.len()], old, "{} events", state.completed);
    }
    // All goes on, with logs.
    other.append(&[2; BLOCK]).unwrap();
    other.sync_all().unwrap();
    assert_eq!(filesystem.stats().log.groups, log.groups + 1);
    file.close().unwrap();
    other.close().unwrap();
    filesystem.close().unwrap();
    check_image("after data failed", &device.inner.recording().end());
}

/// Each writes blocks of its own and syncs, one of them in vain; gives what was acknowledged when:
/// the writer, how many blocks, and after how many events.
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
                    acknowledged.push((writer, round, device.inner.count()));
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
fn who_shares_a_group_with_data_that_fails_is_durable_and_not_told() {
    let rounds = if is_torture() { 100 } else { 12 };
    let seed = seed();
    let device = Failing::new();
    let filesystem = writable(&device);
    let files: Vec<_> =
        (0..WRITERS).map(|writer| create(&filesystem, &format!("f{writer}"))).collect();
    filesystem.commit().unwrap();
    let first = device.inner.count();
    device.fail(true);
    let unlucky = u8::try_from(seed % u64::from(WRITERS)).unwrap();
    let acknowledged = write_together(&device, &files, rounds, unlucky);
    let log = filesystem.stats().log;
    assert_eq!(log.commits(FullCommitReason::DataFailed), 1, "{log:?}");
    drop(files);
    filesystem.abandon();
    let recording = device.inner.recording();
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
