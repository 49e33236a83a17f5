//! A crash while free space is discarded on request (FITRIM) beside writers.
//!
//! 1. A file whose fsync returned before the crash has its content, unless its removal had begun.
//! 2. The log of a crash is replayed, by us and by Linux, and `btrfs check` accepts the result.

use std::fs;
use std::thread;

use userbtrfs::mkfs::{Options, Profile};
use userbtrfs::{Filesystem, OpenOptions, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{Event, Recording, RecordingDevice};
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made};
use super::{is_torture, open_device, seed};

const WRITERS: u32 = 3;
/// The number of files that each writer creates, and of those that it keeps.
const FILES: u32 = 16;
const KEPT: usize = 4;
/// The length of a file in bytes: some are inline.
const LENGTHS: [usize; 4] = [1000, 20_000, 50_000, 200_000];
/// One in this many states is judged by Linux.
const JUDGED: u64 = 8;

/// A file that was fsynced.
struct Synced {
    path: String,
    content: Vec<u8>,
    /// The number of events when its fsync had returned.
    since: usize,
    /// The number of events when its removal began.
    until: Option<usize>,
}

/// The files of a recording.
struct Workload {
    recording: Recording,
    files: Vec<Synced>,
}

impl Workload {
    fn new(made: &Made) -> Self {
        let device = Arc::new(RecordingDevice::on(&made.image()));
        let mut options = OpenOptions::new();
        options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(16 << 20);
        let filesystem = options.open_devices(vec![device.clone()]).unwrap();
        let are_done = AtomicBool::new(false);
        let files: Vec<Synced> = thread::scope(|scope| {
            let trimmer = scope.spawn(|| {
                let mut trims = 0;
                let mut bytes = 0;
                while trims < 2 || !are_done.load(Ordering::Relaxed) {
                    bytes += filesystem.trim(0..u64::MAX, 0).unwrap();
                    trims += 1;
                }
                assert!(bytes > 0);
            });
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| {
                    scope.spawn({
                        let filesystem = &filesystem;
                        let device = &device;
                        move || write(filesystem, device, number)
                    })
                })
                .collect();
            let files = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
            are_done.store(true, Ordering::Relaxed);
            trimmer.join().unwrap();
            files
        });
        filesystem.abandon();
        let recording = device.recording();
        let discards =
            recording.events.iter().filter(|it| matches!(it.event, Event::Discard { .. }));
        assert!(discards.count() > 10, "little was discarded");
        Self { recording, files }
    }

    /// Returns the files that a crash has kept. After a prefix, no more was done than the completed
    /// events.
    fn kept(&self, state: &State, is_prefix: bool) -> impl Iterator<Item = &Synced> {
        let completed = state.completed;
        let may_be_removed = move |until| !is_prefix || completed > until;
        self.files
            .iter()
            .filter(move |file| file.since <= completed && !file.until.is_some_and(may_be_removed))
    }
}

/// Creates files, fsyncs each, and removes the older ones.
fn write(filesystem: &Filesystem, device: &RecordingDevice, writer: u32) -> Vec<Synced> {
    let root = filesystem.root();
    let mut files: Vec<Synced> = Vec::new();
    for (number, len) in (0..FILES).zip(LENGTHS.into_iter().cycle()) {
        let path = format!("{writer}-{number}");
        let content = pattern::bytes(writer * FILES + number, 0, len);
        let file = root.create(path.as_bytes(), 0o644).unwrap().open().unwrap();
        file.write_all_at(&content, 0).unwrap();
        file.sync_all().unwrap();
        files.push(Synced { path, content, since: device.count(), until: None });
        if let Some(old) = files.len().checked_sub(KEPT + 1) {
            let old = &mut files[old];
            old.until = Some(device.count());
            root.remove_file(old.path.as_bytes()).unwrap();
        }
    }
    files
}

/// Judges a state, also by Linux if it is given.
fn judge(workload: &Workload, linux: Option<&Linux>, state: &State, is_prefix: bool) {
    let what = format!("{} events, {} of them lost", state.completed, state.lost);
    let opened = open_device(Arc::new(state.image.to_device()));
    let opened = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    for Synced { path, content, .. } in workload.kept(state, is_prefix) {
        let found = opened.read(path).unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
        assert!(found == *content, "{what}: {path}");
    }
    let Some(linux) = linux else { return };
    let folder = tempfile::tempdir().unwrap();
    let [file, copy] = ["image", "copy"].map(|name| folder.path().join(name));
    state.image.write_to(&file).unwrap();
    let look = |root: &std::path::Path| {
        for Synced { path, content, .. } in workload.kept(state, is_prefix) {
            assert!(fs::read(root.join(path)).unwrap() == *content, "{what}: Linux: {path}");
        }
    };
    linux.with_copy(&file, &copy, look).unwrap_or_else(|error| panic!("{what}: {error:#}"));
}

#[test]
fn files_synced_beside_a_trim_are_kept_by_a_cut() {
    skip_unless_linux!();
    let seed = seed();
    let linux = Linux::lock().unwrap();
    let single = Options { nodesize: 4096, metadata: Profile::Single, ..Options::default() };
    for options in [Options::default(), single] {
        let workload = Workload::new(&Made::new("trimmed", 256 * MIB, options));
        let mut random = Random::new(seed);
        let count = if is_torture() { 2000 } else { 60 };
        let prefixes =
            if is_torture() { Choice::EveryPrefix } else { Choice::Sample { seed, count } };
        let mut others = || (is_torture() || random.one_in(JUDGED)).then_some(&linux);
        for state in states(&workload.recording, prefixes) {
            judge(&workload, others(), &state, true);
        }
        for state in states(&workload.recording, Choice::Reordered { seed, count }) {
            judge(&workload, others(), &state, false);
        }
        linux.assert_no_complaints().unwrap();
    }
}
