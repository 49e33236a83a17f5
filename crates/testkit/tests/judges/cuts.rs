//! A crash at every write leaves exactly the state of a commit.
//!
//! 1. A prefix of the writes shows the commit whose primary superblock is the last one in it. With
//!    writes reordered or lost, the state is that of a commit between the last durable one and the
//!    one in progress.
//! 2. An explicit commit has everything done before it. If only one file was synced, that file and
//!    all names are complete, and other files have content allowed by [`History`]. Files that are
//!    overwritten in place always do.
//! 3. Some workloads resize the filesystem. The size is that of the last resize, or of the one in
//!    progress.
//! 4. The log is disabled: an fsync is a commit. [`super::fsync_cuts`] tests the log.
//! 5. `btrfs check` accepts the result, Linux shows the same, and it can be written again.

use anyhow::{Context, ensure};
use userbtrfs::{Filesystem, OpenOptions, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{Event, Recording, RecordingDevice, SparseImage};
use userbtrfs_testkit::engine_target::EngineTarget;
use userbtrfs_testkit::history::History;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::{Difference, Entry, Manifest, diff};
use userbtrfs_testkit::model::{FileId, Model};
use userbtrfs_testkit::operation::{Drivers, Generator, Operation};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::target::Target;
use userbtrfs_testkit::{skip_unless_linux, walk_ours};

use super::made::{Made, check_file, kinds, with_memory};
use super::ours::{judge_by_linux, use_by_linux};
use super::{is_torture, open_device, seed};

/// The offset of the primary superblock, in bytes.
const SUPERBLOCK: u64 = 64 << 10;
/// Operations before each commit.
const OPERATIONS: usize = 40;
/// Commits of a workload.
const COMMITS: usize = 6;
/// The number of commits with little memory, and of files before each.
const HURRIED_COMMITS: usize = 3;
const HURRIED_FILES: usize = 1000;
/// The number of snapshots of a workload, and of files in their source.
const SNAPSHOTS: u32 = 5;
const SNAPSHOT_FILES: u32 = 250;
/// One in this many workloads resizes the filesystem.
const RESIZED: u64 = 3;
/// In CI, one in this many states is checked by btrfs-progs and Linux.
const JUDGED: u64 = 10;
/// The flag of a file that is overwritten in place (`FS_NOCOW_FL`).
const NOCOW: u32 = 0x80_0000;
/// Attributes that may be old after the sync of another file.
const LATE: &[&str] = &["size", "segments", "content", "mtime", "ctime"];

/// A durable state.
struct Commit {
    /// The number of events, and of those that wrote the primary superblock.
    end: usize,
    superblocks: usize,
    /// The visible state.
    shown: Manifest,
    /// The size of the filesystem in bytes.
    size: u64,
    model: Model,
    /// The changes to files since all of them were durable; `None` if all are.
    since: Option<Since>,
}

struct Since {
    history: History,
    /// The file that was synced, if the commit is for a sync.
    synced: Option<FileId>,
}

/// A recording, and the state at each commit.
struct Workload {
    recording: Recording,
    /// The first is that of mkfs.
    commits: Vec<Commit>,
    /// All contents that files ever had.
    ever: History,
}

impl Workload {
    fn new(made: &Made, base: &SparseImage, seed: u64) -> Self {
        let mut writer = Writer::new(made, base, seed);
        let generator = Generator::new(seed, made.options.nodesize)
            .with_subvolumes(Drivers::Ours)
            .without_copies_of_deleted_files()
            .with_compression()
            .commit_every(0);
        let mut operations = made.resizing(generator);
        for _ in 0..COMMITS {
            for operation in operations.by_ref().take(OPERATIONS) {
                assert!(!matches!(operation, Operation::Commit | Operation::Reopen));
                writer.step(&operation);
            }
            writer.commit();
        }
        writer.target.abandon();
        let recording = writer.device.recording();
        let commits = writer.commits;
        Self { recording, commits, ever: writer.ever }
    }

    /// Returns the first and the last commit that a state may show.
    fn may_show(&self, state: &State, is_prefix: bool) -> (usize, usize) {
        let last = self.commits.len() - 1;
        let durable = self.commits.iter().rposition(|commit| commit.end <= state.completed);
        let durable = durable.expect("the first is durable from the start");
        if !is_prefix {
            return (durable, last.min(durable + 1));
        }
        let begun = superblocks(&self.recording.events[..state.completed]);
        let shown = self.commits.iter().position(|commit| commit.superblocks >= begun);
        let shown = shown.unwrap_or(last);
        assert!((durable..=durable + 1).contains(&shown), "{begun} superblocks, {durable} commits");
        (shown, shown)
    }

    /// Checks that the size is that of a commit, or the one before while it is in progress.
    fn check_size(&self, index: usize, state: &State, size: u64) -> anyhow::Result<()> {
        let commit = &self.commits[index];
        let is_durable = commit.end <= state.completed;
        let before = index.checked_sub(1).filter(|_| !is_durable);
        let may_be = before.map(|before| self.commits[before].size);
        ensure!(
            size == commit.size || Some(size) == may_be,
            "a size of {size}, not {} or {may_be:?}",
            commit.size
        );
        Ok(())
    }

    /// Checks that the visible state is that of a commit.
    fn check(&self, commit: &Commit, shown: &Manifest, opened: &Filesystem) -> anyhow::Result<()> {
        let ignored = if commit.since.is_some() { LATE } else { &[] };
        let mut differences = diff(&commit.shown, shown, ignored);
        differences.retain(|one| {
            !(is_content(one) && shown.get(one.path.as_slice()).is_some_and(in_place))
        });
        let lines: Vec<_> = differences.iter().take(20).map(ToString::to_string).collect();
        ensure!(lines.is_empty(), "{} differences:\n{}", differences.len(), lines.join("\n"));
        for (path, id) in commit.model.files() {
            let path = [b"/", &path[..]].concat();
            let entry = shown.get(&path).expect("all names are there");
            let check = |history: &History| {
                let name = || String::from_utf8_lossy(&path).into_owned();
                history.check(id, &opened.open_file(&path)?, false).with_context(name)
            };
            match &commit.since {
                _ if in_place(entry) => check(&self.ever)?,
                Some(Since { synced, .. }) if *synced == Some(id) => {
                    let content = commit.model.content_of(id);
                    ensure!(entry.size == content.size(), "{}: its size", entry.path);
                    ensure!(entry.content == Some(content.digest()), "{}: synced", entry.path);
                }
                Some(Since { history, .. }) => check(history)?,
                None => {}
            }
        }
        Ok(())
    }
}

fn in_place(entry: &Entry) -> bool {
    entry.flags & NOCOW != 0
}

fn is_content(difference: &Difference) -> bool {
    matches!(difference.attribute.as_str(), "content" | "segments")
}

/// Returns the number of writes of the primary superblock.
fn superblocks(events: &[userbtrfs_testkit::devices::Recorded]) -> usize {
    let is_superblock = |event: &Event| matches!(event, Event::Write { offset: SUPERBLOCK, .. });
    events.iter().filter(|recorded| is_superblock(&recorded.event)).count()
}

/// The execution of a workload.
struct Writer {
    device: Arc<RecordingDevice>,
    target: EngineTarget,
    model: Model,
    history: History,
    ever: History,
    commits: Vec<Commit>,
}

impl Writer {
    fn new(made: &Made, base: &SparseImage, seed: u64) -> Self {
        let device = Arc::new(RecordingDevice::on(base));
        let options = with_memory(seed).tree_log(false).clone();
        let target = EngineTarget::with_options(device.clone(), &options).unwrap();
        let history = History::default();
        let ever = History::default();
        let model = made.model();
        let mut writer = Self { device, target, model, history, ever, commits: Vec::new() };
        let shown = writer.target.manifest();
        writer.note(shown, None);
        writer
    }

    fn step(&mut self, operation: &Operation) {
        let size = self.model.size();
        let ended = self.model.apply(operation);
        let is_commit = matches!(operation, Operation::Snapshot { .. }) && ended.is_ok();
        let found = self.target.apply(operation);
        assert_eq!(found, ended, "{operation}");
        self.history.note(&self.model, operation);
        self.ever.note(&self.model, operation);
        if is_commit {
            let shown = self.target.manifest();
            self.note(shown, None);
            self.history = History::from(&self.model);
        }
        if matches!(operation, Operation::Resize { .. }) && ended.is_ok() {
            self.note_resize(self.model.size() < size);
        }
        let synced = operation.object().and_then(|object| self.model.file_id(&object));
        if synced.is_some() && matches!(operation, Operation::Sync { .. }) {
            let history = self.history.clone();
            let shown = self.target.manifest();
            self.note(shown, Some(Since { history, synced }));
        }
    }

    /// Records a resize: the content of files is durable, too, if the filesystem shrank.
    fn note_resize(&mut self, has_shrunk: bool) {
        let history = (!has_shrunk).then(|| self.history.clone());
        let shown = self.target.manifest();
        self.note(shown, history.map(|history| Since { history, synced: None }));
        if has_shrunk {
            self.history = History::from(&self.model);
        }
    }

    fn commit(&mut self) {
        let before = self.target.manifest();
        self.target.commit();
        self.note(before, None);
        self.history = History::from(&self.model);
    }

    /// Records the durable state, if a superblock was written since the last one.
    fn note(&mut self, shown: Manifest, since: Option<Since>) {
        let log = self.device.log();
        let end = log.len();
        let superblocks = superblocks(&log);
        if self.commits.last().is_none_or(|last| last.superblocks < superblocks) {
            let model = self.model.clone();
            let size = self.target.filesystem().superblock().total_bytes;
            self.commits.push(Commit { end, superblocks, shown, size, model, since });
        }
    }
}

#[test]
fn a_cut_leaves_one_commit_or_the_next() {
    skip_unless_linux!();
    let seed = seed();
    let linux = Linux::lock().unwrap();
    let count = if is_torture() { usize::MAX } else { 24 };
    for (made, seed) in kinds().into_iter().zip(seed..) {
        let made = if seed.is_multiple_of(RESIZED) { made.to_resize() } else { made };
        let base = made.image();
        let workload = Workload::new(&made, &base, seed);
        let mut judge = Judge { linux: &linux, made: &made, random: Random::new(seed) };
        let prefixes =
            if is_torture() { Choice::EveryPrefix } else { Choice::Sample { seed, count } };
        for state in states(&workload.recording, prefixes) {
            judge.judge(&workload, &state, true);
        }
        let count = count.min(4 * workload.recording.events.len());
        for state in states(&workload.recording, Choice::Reordered { seed, count }) {
            judge.judge(&workload, &state, false);
        }
        linux.assert_no_complaints().unwrap();
    }
}

/// Runs a workload with little memory, so that leaves are written before their commit, and with
/// discards.
fn hurried(made: &Made, seed: u64) -> Workload {
    let device = Arc::new(RecordingDevice::on(&made.image()));
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(4 << 20).discard(true);
    let filesystem = options.open_devices(vec![device.clone()]).unwrap();
    let fsid = *filesystem.superblock().fsid.as_bytes();
    let mut random = Random::new(seed);
    let mut commits: Vec<Commit> = Vec::new();
    let mut early = 0;
    for round in 0..=HURRIED_COMMITS {
        if let Some(last) = commits.last() {
            change_much(&filesystem, round, &mut random);
            let since = &device.log()[last.end..];
            early += since.iter().filter(|done| is_tree_block(&done.event, fsid)).count();
        }
        let shown = walk_ours::walk(&filesystem).unwrap();
        filesystem.commit().unwrap();
        let log = device.log();
        let model = Model::new(made.options.nodesize);
        let superblocks = superblocks(&log);
        let size = made.len;
        commits.push(Commit { end: log.len(), superblocks, shown, size, model, since: None });
    }
    let given_back = filesystem.stats().discards;
    filesystem.abandon();
    let recording = device.recording();
    assert!(early > 0, "nothing was written before its commit");
    assert!(given_back.bytes > 0 && given_back.failed == 0, "{given_back:?}");
    let is_discard = |event: &Event| matches!(event, Event::Discard { .. });
    assert!(recording.events.iter().any(|recorded| is_discard(&recorded.event)));
    Workload { recording, commits, ever: History::default() }
}

/// Returns whether the event writes a tree block: its header has the id of the filesystem.
fn is_tree_block(event: &Event, fsid: [u8; 16]) -> bool {
    matches!(event, Event::Write { bytes, .. } if bytes.get(32..48) == Some(&fsid[..]))
}

/// Creates a directory with many files, some with extents, and removes the previous one.
fn change_much(filesystem: &Filesystem, round: usize, random: &mut Random) {
    let root = filesystem.root();
    let dir = root.create_dir(round.to_string().as_bytes(), 0o755).unwrap();
    for number in 0..HURRIED_FILES {
        let file = dir.create(number.to_string().as_bytes(), 0o644).unwrap();
        let len = if random.one_in(8) { 20_000 } else { 300 };
        file.write_content(&random.bytes(len)).unwrap();
    }
    if round > 1 {
        let name = (round - 1).to_string();
        root.lookup(name.as_bytes()).unwrap().open_dir().unwrap().remove_content().unwrap();
        root.remove_dir(name.as_bytes()).unwrap();
    }
}

#[test]
fn data_written_before_its_commit_and_discarded_after_is_not_missed() {
    skip_unless_linux!();
    let seed = seed();
    let linux = Linux::lock().unwrap();
    let made = &kinds()[1];
    let workload = hurried(made, seed);
    let mut judge = Judge { linux: &linux, made, random: Random::new(seed) };
    let count = if is_torture() { 1000 } else { 20 };
    for state in states(&workload.recording, Choice::Sample { seed, count }) {
        judge.judge(&workload, &state, true);
    }
    for state in states(&workload.recording, Choice::Reordered { seed, count }) {
        judge.judge(&workload, &state, false);
    }
}

/// Runs a workload of snapshots, which are changed and deleted, so that trees that share blocks are
/// dropped.
fn with_snapshots(made: &Made, seed: u64) -> Workload {
    let device = Arc::new(RecordingDevice::on(&made.image()));
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(16 << 20);
    let filesystem = options.open_devices(vec![device.clone()]).unwrap();
    let mut random = Random::new(seed);
    let mut commits: Vec<Commit> = Vec::new();
    let mut note = || {
        let log = device.log();
        let shown = walk_ours::walk(&filesystem).unwrap();
        let model = Model::new(made.options.nodesize);
        let end = log.len();
        let superblocks = superblocks(&log);
        assert!(commits.last().is_none_or(|last| last.superblocks + 1 == superblocks));
        let size = made.len;
        commits.push(Commit { end, superblocks, shown, size, model, since: None });
    };
    note();
    let root = filesystem.root();
    let source = root.create_subvolume(b"source", 0o755).unwrap();
    for number in 0..SNAPSHOT_FILES {
        let file = source.create(format!("file {number}").as_bytes(), 0o644).unwrap();
        file.write_content(&random.bytes(if number % 4 == 0 { 20_000 } else { 300 })).unwrap();
    }
    filesystem.commit().unwrap();
    note();
    for round in 0..SNAPSHOTS {
        let name = format!("snapshot {round}");
        let id = source.inode().id().subvolume;
        root.snapshot(name.as_bytes(), id, round % 2 == 1).unwrap();
        note();
        let inner = format!("inner {round}");
        source.snapshot(inner.as_bytes(), id, false).unwrap();
        assert!(filesystem.lookup(format!("source/{inner}/{inner}")).is_err());
        note();
        change_some(&filesystem, "source", &mut random);
        if round % 2 == 0 {
            change_some(&filesystem, &name, &mut random);
        }
        let older = format!("snapshot {}", round.wrapping_sub(2));
        if round >= 2 {
            let id = root.delete_subvolume(older.as_bytes()).unwrap();
            filesystem.commit().unwrap();
            note();
            filesystem.wait_for_deleted(&[id], || true).unwrap();
            assert!(filesystem.deleted_subvolumes().unwrap().is_empty());
        }
        filesystem.commit().unwrap();
        note();
    }
    filesystem.abandon();
    Workload { recording: device.recording(), commits, ever: History::default() }
}

/// Writes, creates and removes some files of the workload of snapshots.
fn change_some(filesystem: &Filesystem, subvolume: &str, random: &mut Random) {
    let dir = filesystem.open_dir(subvolume).unwrap();
    for number in 0..SNAPSHOT_FILES {
        let path = format!("{subvolume}/file {number}");
        match random.below(20) {
            0 => filesystem.write(&path, random.bytes(9000)).unwrap(),
            1 if filesystem.lookup(&path).is_ok() => filesystem.remove_file(&path).unwrap(),
            _ => {}
        }
    }
    let name = format!("new {}", random.below(1 << 30));
    dir.create(name.as_bytes(), 0o600).unwrap().write_content(b"new").unwrap();
}

#[test]
fn a_cut_while_snapshots_are_made_and_dropped_leaves_one_commit_or_the_next() {
    skip_unless_linux!();
    let seed = seed();
    let linux = Linux::lock().unwrap();
    let count = if is_torture() { usize::MAX } else { 40 };
    for made in &kinds()[..if is_torture() { kinds().len() } else { 2 }] {
        let workload = with_snapshots(made, seed);
        let mut judge = Judge { linux: &linux, made, random: Random::new(seed) };
        let prefixes =
            if is_torture() { Choice::EveryPrefix } else { Choice::Sample { seed, count } };
        for state in states(&workload.recording, prefixes) {
            judge.judge(&workload, &state, true);
        }
        let count = count.min(4 * workload.recording.events.len());
        for state in states(&workload.recording, Choice::Reordered { seed, count }) {
            judge.judge(&workload, &state, false);
        }
        linux.assert_no_complaints().unwrap();
    }
}

struct Judge<'a> {
    linux: &'a Linux,
    made: &'a Made,
    random: Random,
}

impl Judge<'_> {
    fn judge(&mut self, workload: &Workload, state: &State, is_prefix: bool) {
        let State { completed, lost, image } = state;
        let what = format!("{}: {completed} events, {lost} of them lost", self.made.name);
        let device = Arc::new(image.to_device());
        let opened = open_device(device).unwrap_or_else(|error| panic!("{what}: {error}"));
        let shown = walk_ours::walk(&opened).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let (first, last) = workload.may_show(state, is_prefix);
        let size = opened.superblock().total_bytes;
        let check = |index| {
            workload.check_size(index, state, size)?;
            workload.check(&workload.commits[index], &shown, &opened)
        };
        if let Some(Err(error)) = (first..=last).map(check).reduce(Result::or) {
            panic!("{what}: not commit {first} to {last}: {error:#}");
        }
        if is_torture() || self.random.one_in(JUDGED) {
            self.judge_by_others(&what, image);
        }
    }

    fn judge_by_others(&self, what: &str, image: &SparseImage) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        image.write_to(&file).unwrap();
        check_file(what, &file);
        judge_by_linux(self.linux, what, &file);
        let used = folder.path().join("used");
        image.write_to(&used).unwrap();
        use_by_linux(self.linux, what, &used);
        judge_by_linux(self.linux, what, &used);
        // Writing continues normally.
        let mut target = EngineTarget::on_image(&file).unwrap();
        for operation in Generator::new(1, self.made.options.nodesize).take(OPERATIONS) {
            match operation {
                Operation::Commit | Operation::Reopen => target.commit(),
                other => drop(target.apply(&other)),
            }
        }
        target.close().unwrap();
        check_file(what, &file);
        // After each image: the kernel log has a limited size.
        self.linux.assert_no_complaints().unwrap();
    }
}
