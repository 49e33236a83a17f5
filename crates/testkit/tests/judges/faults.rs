//! Each read, write and flush of a workload fails in turn, also because of a full host filesystem:
//! the caller gets an I/O error, nothing is written after a failed commit, and the image reopens
//! cleanly at a commit.
//!
//! 1. A failed write of data is reported by syncing or closing its file, or by a commit; everything
//!    else continues. Each byte of the file then has a value that it had at some time
//!    ([`History`]).
//! 2. A read after a failure returns data from since the last commit, or an error.
//! 3. The log is disabled: an fsync is a commit.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::io::Errno;
use userbtrfs::device::{Buffer, Operation as Request};
use userbtrfs::{Filesystem, InodeFlags, OpenOptions, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{Fault, FaultyDevice, How, SparseDevice, SparseImage};
use userbtrfs_testkit::engine_target::{Actor, errno};
use userbtrfs_testkit::history::History;
use userbtrfs_testkit::manifest::{Bytes, Difference, Entry, Kind, Manifest};
use userbtrfs_testkit::model::{Answer, End, Model};
use userbtrfs_testkit::operation::Operation;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_ours};

use self::drawn::draw;
use super::made::{Made, check_image, check_image_by_copy, kinds};
use super::{SECTOR_LEN, assert_none, is_torture, open_device, seed};

mod drawn;

/// Faults of each kind that are tested in CI.
const SAMPLE: usize = 12;
/// The number of those that must be reached, or more are tried.
const SAMPLE_MET: usize = 9;
/// Workloads on each kind of filesystem in torture; each meets one in this many faults, so that
/// each request fails, in at least one of the ways.
const ROUNDS: usize = 3;
/// The time limit of a workload.
const PATIENCE: Duration = Duration::from_mins(2);

/// Attributes that may be old after a failed write of data.
const LATE: &[&str] = &["size", "segments", "content", "mtime"];

/// Operations and the filesystem to apply them to.
struct Workload {
    base: SparseImage,
    before: Model,
    operations: Vec<Operation>,
}

impl Workload {
    /// Fills a filesystem, so that there is data to read.
    fn new(made: &Made, seed: u64, with_subvolumes: bool) -> Self {
        let node_size = made.options.nodesize;
        let device = Arc::new(made.image().to_device());
        let filesystem = open_for_writing(device.clone()).unwrap();
        let mut actor = Actor::new(&filesystem);
        let (filling, operations) = draw(seed, node_size, with_subvolumes);
        let mut before = Model::new(node_size);
        for operation in &filling {
            let expected = before.apply(operation);
            assert_eq!(actor.apply(operation), expected, "{operation}");
        }
        drop(actor);
        filesystem.close().unwrap();
        Self { base: device.image(), before, operations }
    }

    /// Returns the number of requests of a kind.
    fn count(&self, request: Request) -> u64 {
        let device = self.device();
        let run = Run::new(self, &device).unwrap().finish();
        assert_eq!(run.told, 0, "nothing fails");
        device.count(request)
    }

    fn device(&self) -> Arc<FaultyDevice> {
        Arc::new(FaultyDevice::new(Arc::new(self.base.to_device())))
    }
}

fn open_for_writing(device: Arc<dyn userbtrfs::device::Device>) -> userbtrfs::Result<Filesystem> {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(4 << 20);
    options.tree_log(false);
    options.open_devices(vec![device])
}

/// A running workload.
struct Run<'a> {
    workload: &'a Workload,
    filesystem: Filesystem,
    actor: Actor,
    /// The state after the operations so far.
    model: Model,
    /// The possible durable states: the last successful commit, and those attempted since.
    durable: Vec<Model>,
    /// The changes to files since the last state without failures.
    history: History,
    device: Arc<FaultyDevice>,
    /// The number of calls that reported a failure.
    told: u64,
    /// Whether the filesystem has turned read-only.
    stopped: bool,
    /// The subvolume whose deletion failed midway and stopped the filesystem: memory may lack its
    /// root item, while the name is there.
    half_deleted: Option<Bytes>,
}

/// The result of a workload.
struct Ended {
    durable: Vec<Model>,
    history: History,
    told: u64,
    stopped: bool,
}

impl<'a> Run<'a> {
    fn new(workload: &'a Workload, device: &Arc<FaultyDevice>) -> userbtrfs::Result<Self> {
        let filesystem = open_for_writing(device.clone())?;
        Ok(Self {
            workload,
            actor: Actor::new(&filesystem),
            filesystem,
            model: workload.before.clone(),
            durable: vec![workload.before.clone()],
            history: History::from(&workload.before),
            device: Arc::clone(device),
            told: 0,
            stopped: false,
            half_deleted: None,
        })
    }

    fn finish(mut self) -> Ended {
        for operation in &self.workload.operations {
            self.step(operation);
            if self.half_deleted.is_some() {
                break;
            }
        }
        self.device.unseen(|| self.check_shown());
        let Self { filesystem, actor, durable, history, mut told, mut stopped, .. } = self;
        told += actor.late_errors();
        drop(actor);
        if filesystem.close().is_err() {
            told += 1;
            stopped = true;
        }
        Ended { durable, history, told, stopped }
    }

    fn check_answer(&self, operation: &Operation, found: &Answer, expected: &End) {
        let known = (&self.model, &self.history, self.device.failed() > 0);
        let checked = check_answer(known, operation, found, expected);
        checked.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Checks that the state in memory is that of the model, except data that could not be written.
    fn check_shown(&self) {
        let Ok(shown) = walk_ours::walk(&self.filesystem) else {
            return assert!(self.device.failed() > 0, "it cannot be read");
        };
        let mut differences = self.model.differences(&shown);
        differences.retain(|one| self.device.failed() == 0 || !may_be_late(one, &shown));
        differences.retain(|one| !self.is_half_deleted(one.path.as_slice()));
        assert_none("in memory", &differences);
        for (path, id) in self.model.files() {
            if self.is_half_deleted(&path) {
                continue;
            }
            let name = String::from_utf8_lossy(&path);
            let file = self.filesystem.open_file(&path).unwrap();
            let checked = self.history.check(id, &file, true);
            checked.unwrap_or_else(|error| panic!("in memory: {name}: {error:#}"));
        }
    }

    /// Returns whether a path is in the subvolume whose deletion failed midway.
    fn is_half_deleted(&self, path: &[u8]) -> bool {
        let deleted = self.half_deleted.as_ref();
        let below = deleted.and_then(|deleted| path.strip_prefix(deleted.as_slice()));
        below.is_some_and(|below| below.is_empty() || below.starts_with(b"/"))
    }

    /// Returns whether an operation is a snapshot whose name is there.
    fn shows_snapshot(&self, operation: &Operation) -> bool {
        let Operation::Snapshot { path, .. } = operation else { return false };
        self.device.unseen(|| self.filesystem.symlink_metadata(path.as_slice()).is_ok())
    }

    fn step(&mut self, operation: &Operation) {
        let is_lossy = self.device.failed() > 0;
        if is_lossy && matches!(operation, Operation::Append { .. }) {
            // The end of the file is not known.
            return;
        }
        let mut after = self.model.clone();
        let expected = after.apply(operation);
        let makes_durable = match operation {
            Operation::Commit | Operation::Reopen | Operation::Sync { .. } => true,
            Operation::Snapshot { .. } => expected.is_ok(),
            _ => false,
        };
        if makes_durable {
            self.durable.push(after.clone());
        }
        self.history.note(&after, operation);
        let before = self.filesystem.superblock().generation;
        let found = self.actor.apply(operation);
        let has_committed = self.filesystem.superblock().generation > before;
        if self.device.failed() > 0 && expected.is_ok() {
            self.history.note_copies(&after, operation);
        }
        match found {
            // A file that did not change needs no commit.
            Ok(_) if matches!(operation, Operation::Sync { .. }) && !has_committed => {
                self.durable.pop();
                self.model = after;
            }
            Ok(answer) => {
                assert!(!self.stopped || !is_change(operation), "{operation} though read-only");
                self.model = after;
                self.check_answer(operation, &answer, &expected);
                if makes_durable {
                    self.durable.drain(..self.durable.len() - 1);
                    // A sync only writes the data of one file.
                    let is_all = !matches!(operation, Operation::Sync { .. });
                    if is_all && self.device.failed() == 0 {
                        self.history = History::from(&self.model);
                    }
                }
            }
            Err(Errno::IO | Errno::ROFS) if found != expected => {
                self.told += 1;
                self.model.skip_ids_of(&after);
                self.stopped = !self.filesystem.is_writable();
                assert!(self.stopped || found != Err(Errno::ROFS), "{operation}: no reason");
                if matches!(operation, Operation::Reopen | Operation::Close { .. }) {
                    // The handles are closed anyway.
                    self.model = after;
                } else if expected.is_ok() && self.stopped && self.shows_snapshot(operation) {
                    // The commit failed after it had made the snapshot: memory has it.
                    self.model = after;
                } else if let Operation::DeleteSubvolume { path } = operation
                    && self.stopped
                    && expected.is_ok()
                {
                    self.half_deleted = Some(path.clone());
                }
            }
            Err(_) => assert_eq!(found, expected, "{operation}"),
        }
    }
}

/// Checks a successful operation: it must succeed in the model, too; a read returns exactly the
/// content, or, after a failure, content from some time.
pub(crate) fn check_answer(
    (model, history, has_failed): (&Model, &History, bool),
    operation: &Operation,
    found: &Answer,
    expected: &End,
) -> anyhow::Result<()> {
    let &Operation::Read { ref object, offset, length } = operation else {
        ensure!(*expected == Ok(found.clone()), "{operation} is done, not {expected:?}");
        return Ok(());
    };
    ensure!(expected.is_ok(), "{operation} is done, not {expected:?}");
    ensure!(has_failed || *expected == Ok(found.clone()), "{operation} reads something else");
    let file = model.file_id(object).expect("what was read is a file");
    let range = offset..offset.saturating_add(length);
    history.check_read(file, range, &found.0).with_context(|| operation.to_string())
}

/// Returns whether an operation changes the filesystem.
pub(crate) fn is_change(operation: &Operation) -> bool {
    match operation {
        Operation::Open { .. } | Operation::Close { .. } | Operation::Read { .. } => false,
        Operation::Write { length, .. } => *length > 0,
        _ => true,
    }
}

#[test]
fn every_request_fails_in_turn() {
    skip_unless_linux!();
    let seed = seed();
    let all = kinds();
    let (tried, rounds) = if is_torture() { (all.len(), ROUNDS) } else { (3, 1) };
    // All workloads differ.
    let mut seeds = (seed..).step_by(1000);
    for made in all.iter().take(tried) {
        for (round, seed) in (0..rounds).zip(seeds.by_ref()) {
            fail_in_turn(made, seed, round, rounds, false);
        }
    }
}

/// Each request of a workload with subvolumes and snapshots fails in turn.
/// Deleted subvolumes are dropped in the background meanwhile.
#[test]
fn every_request_of_snapshots_fails_in_turn() {
    skip_unless_linux!();
    let seed = seed();
    let all = kinds();
    let (tried, rounds) = if is_torture() { (all.len(), ROUNDS) } else { (1, 1) };
    let mut seeds = (seed..).step_by(1000);
    for made in all.iter().take(tried) {
        for (round, seed) in (0..rounds).zip(seeds.by_ref()) {
            fail_in_turn(made, seed, round, rounds, true);
        }
    }
}

/// Runs a workload with every `turns`th of its faults, starting at `turn`.
fn fail_in_turn(made: &Made, seed: u64, turn: usize, turns: usize, with_subvolumes: bool) {
    let what = format!("{}, seed {seed}", made.name);
    let workload = Arc::new(Workload::new(made, seed, with_subvolumes));
    for request in [Request::Read, Request::Write, Request::Flush] {
        let faults = faults(request, workload.count(request), seed, usize::MAX);
        let mut tried = 0;
        let mut met = 0;
        for fault in faults.into_iter().skip(turn).step_by(turns) {
            if tried >= SAMPLE && met >= SAMPLE_MET && !is_torture() {
                break;
            }
            tried += 1;
            met += usize::from(judge(&what, &workload, fault));
        }
        println!("{what}: {met} of {tried} faults met a {request:?}");
        // The number of requests varies from run to run: the last faults may not be reached.
        let least = if is_torture() { 3 * tried / 4 } else { SAMPLE_MET.min(tried / 2) };
        assert!(met >= least, "{what}: of {tried} faults {met} alone met a {request:?}");
    }
}

/// Returns the faults to test: all of them in torture, otherwise `sample` of them.
pub(crate) fn faults(operation: Request, count: u64, seed: u64, sample: usize) -> Vec<Fault> {
    assert!(count > 0, "there are requests to fail: {operation:?}");
    let mut kinds = vec![(How::Eio, false), (How::Eio, true), (How::Short, false)];
    if operation != Request::Read {
        // A full disk may stay full.
        kinds.extend([(How::NoSpace, false), (How::NoSpace, true)]);
    }
    let of =
        |after| kinds.iter().map(move |&(how, lasting)| Fault { operation, after, how, lasting });
    let mut faults: Vec<Fault> = (0..count).flat_map(of).collect();
    if !is_torture() {
        Random::new(seed).shuffle(&mut faults);
        faults.truncate(sample);
    }
    faults
}

/// Tests one fault; returns whether it was reached.
fn judge(what: &str, workload: &Arc<Workload>, fault: Fault) -> bool {
    let what = format!("{what}: {fault:?}");
    let inner = Arc::new(workload.base.to_device());
    let device = Arc::new(FaultyDevice::new(inner.clone()));
    device.arm(fault);
    let ended = run_in_time(&what, workload, &device);
    let (durable, history) = match ended {
        None => (vec![workload.before.clone()], None),
        Some(ended) => {
            if fault.operation != Request::Read && device.failed() > 0 {
                // A failed write of data need not be reported if the file is deleted.
                let may_go_on = fault.operation == Request::Write;
                assert!(ended.told > 0 || may_go_on, "{what}: nobody was told");
                assert!(ended.stopped || may_go_on, "{what}: not read-only");
            }
            (ended.durable, (ended.told > 0).then_some(ended.history))
        }
    };
    device.disarm();
    assert_reopens(&what, &inner, &durable, history.as_ref());
    device.failed() > 0
}

/// Runs the workload with a time limit; `None` if the filesystem cannot be opened.
fn run_in_time(what: &str, workload: &Arc<Workload>, device: &Arc<FaultyDevice>) -> Option<Ended> {
    let workload = Arc::clone(workload);
    let device = Arc::clone(device);
    in_time(what, move || match Run::new(&workload, &device) {
        Ok(run) => Some(run.finish()),
        Err(error) => {
            assert_eq!(errno(&error), Errno::IO, "{error}");
            None
        }
    })
}

/// Calls `act` and panics if that panics or exceeds the time limit.
pub(crate) fn in_time<T: Send + 'static>(
    what: &str,
    act: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::spawn(move || drop(sender.send(act())));
    match receiver.recv_timeout(PATIENCE) {
        Ok(done) => done,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Ok(()) => unreachable!("it sends before it ends"),
            Err(panic) => panic!("{what}: it panics: {panic:?}"),
        },
    }
}

/// Checks that the image is clean and shows one of these states: completely, unless failures were
/// reported; then `history` has the possible contents.
fn assert_reopens(what: &str, device: &SparseDevice, durable: &[Model], history: Option<&History>) {
    let image = device.image();
    let opened = open_device(Arc::new(image.to_device())).unwrap();
    // The failed write may be that of the primary superblock; btrfs-progs read a mirror on request.
    match opened.warnings() {
        [] => check_image(what, &image),
        _ => check_image_by_copy(what, &image),
    }
    let shown = walk_ours::walk(&opened).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    let differences = |model: &Model| {
        let mut differences = model.differences(&shown);
        differences.retain(|one| history.is_none() || !may_be_late(one, &shown));
        differences
    };
    let differences: Vec<Vec<Difference>> = durable.iter().map(differences).collect();
    let Some(found) = differences.iter().position(Vec::is_empty) else {
        return assert_none(&format!("{what}: the first of {}", durable.len()), &differences[0]);
    };
    let Some(history) = history else { return };
    for (path, id) in durable[found].files() {
        let file = opened.open_file(&path).unwrap();
        let name = String::from_utf8_lossy(&path);
        history.check(id, &file, true).unwrap_or_else(|error| panic!("{what}: {name}: {error:#}"));
    }
}

/// Returns whether the difference may result from a failed write of data.
fn may_be_late(difference: &Difference, shown: &Manifest) -> bool {
    let is_file = |entry: &Entry| entry.kind == Kind::File;
    let of_file = shown.get(difference.path.as_slice()).is_some_and(is_file);
    of_file && LATE.contains(&difference.attribute.as_str())
}

/// A failed write of data is reported once, by sync or close, and the data is lost.
#[test]
fn a_failed_write_of_data_is_told_once_and_the_old_data_stays() {
    let made = &kinds()[0];
    for told_by_close in [false, true] {
        let inner = Arc::new(made.image().to_device());
        let device = Arc::new(FaultyDevice::new(inner.clone()));
        let filesystem = open_for_writing(device.clone()).unwrap();
        let inode = filesystem.root().create(b"file", 0o644).unwrap();
        let file = inode.open().unwrap();
        file.write_at(&pattern::bytes(1, 0, 50_000), 0).unwrap();
        file.sync_all().unwrap();
        file.write_at(&pattern::bytes(2, 4096, 20_000), 4096).unwrap();
        let operation = Request::Write;
        let how = How::Eio;
        device.arm(Fault { operation, after: 0, how, lasting: false });
        let file = if told_by_close {
            filesystem.commit().unwrap_err();
            assert_eq!(errno(&file.close().unwrap_err()), Errno::IO);
            inode.open().unwrap()
        } else {
            assert_eq!(errno(&file.sync_all().unwrap_err()), Errno::IO);
            file
        };
        assert_eq!(device.failed(), 1);
        assert!(filesystem.is_writable(), "nothing else is lost");
        assert!(file.read_all().unwrap() == pattern::bytes(1, 0, 50_000), "the old data");
        file.sync_all().unwrap();
        file.write_at(&pattern::bytes(3, 8192, 4096), 8192).unwrap();
        file.close().unwrap();
        filesystem.close().unwrap();
        let mut expected = pattern::bytes(1, 0, 50_000);
        pattern::fill(3, 8192, &mut expected[8192..12_288]);
        let left = open_device(inner).unwrap();
        assert!(
            left.root().lookup(b"file").unwrap().open().unwrap().read_all().unwrap() == expected
        );
    }
}

/// A partly failed write takes no space, if discards are enabled.
#[test]
fn a_failed_write_of_data_gives_its_space_back() {
    let inner = Arc::new(kinds()[0].image().to_device());
    let device = Arc::new(FaultyDevice::new(inner.clone()));
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).discard(true);
    options.tree_log(false);
    let filesystem = options.open_devices(vec![device.clone()]).unwrap();
    let file = filesystem.root().create(b"file", 0o644).unwrap().open().unwrap();
    let before = inner.image();
    file.write_at(&pattern::bytes(1, 0, 50_000), 0).unwrap();
    let operation = Request::Write;
    let how = How::NoSpace;
    device.arm(Fault { operation, after: 0, how, lasting: false });
    assert_eq!(errno(&file.sync_all().unwrap_err()), Errno::IO);
    let discards = filesystem.stats().discards;
    assert_eq!((discards.bytes, discards.failed), (53_248, 0), "whole sectors");
    assert!(inner.image() == before, "nothing is left of it");
    assert!(filesystem.is_writable());
    file.close().unwrap();
    filesystem.close().unwrap();
    check_image("given back", &inner.image());
}

/// A failed direct write is reported immediately; each sector has the old or the new data, now and
/// after reopening.
#[test]
fn a_failed_direct_write_is_told_and_leaves_each_sector_old_or_new() {
    skip_unless_linux!();
    for in_place in [false, true] {
        for how in [How::Eio, How::Short, How::NoSpace] {
            fail_directly(in_place, how);
        }
    }
}

fn fail_directly(in_place: bool, how: How) {
    let what = format!("in place: {in_place}, {how:?}");
    let inner = Arc::new(kinds()[0].image().to_device());
    let device = Arc::new(FaultyDevice::new(inner.clone()));
    let filesystem = open_for_writing(device.clone()).unwrap();
    let inode = filesystem.root().create(b"file", 0o644).unwrap();
    if in_place {
        inode.set_flags(InodeFlags::NODATACOW).unwrap();
    }
    let file = inode.open().unwrap();
    let [old, new] = [1, 2].map(|seed| pattern::bytes(seed, 0, 20 * SECTOR_LEN));
    file.write_at(&old, 0).unwrap();
    file.sync_all().unwrap();
    let start = 3 * SECTOR_LEN;
    let end = 13 * SECTOR_LEN;
    let buffer = Arc::new(Buffer::from(&new[start..end]));
    device.arm(Fault { operation: Request::Write, after: 0, how, lasting: false });
    let error = file.write_direct(&buffer, start as u64).unwrap_err();
    assert_eq!((errno(&error), device.failed()), (Errno::IO, 1), "{what}");
    assert!(filesystem.is_writable(), "{what}: nothing else is lost");
    let check = |found: &[u8]| {
        assert_eq!(found.len(), old.len(), "{what}");
        for at in (0..old.len()).step_by(SECTOR_LEN) {
            let is = |content: &[u8]| found[at..at + SECTOR_LEN] == content[at..at + SECTOR_LEN];
            let may_be_new = in_place && (start..end).contains(&at);
            assert!(is(&old) || may_be_new && is(&new), "{what}: the sector at {at}");
        }
    };
    check(&file.read_all().unwrap());
    check(&file.read_direct(0, old.len()).unwrap());
    filesystem.commit().unwrap();
    let left = open_device(Arc::new(inner.image().to_device())).unwrap();
    check(&left.read("/file").unwrap());
    check_image(&what, &inner.image());
    // Another attempt succeeds.
    file.write_direct(&buffer, start as u64).unwrap();
    file.close().unwrap();
    filesystem.close().unwrap();
    let left = open_device(inner.clone()).unwrap().read("/file").unwrap();
    assert!(left == [&old[..start], &new[start..end], &old[end..]].concat(), "{what}");
    check_image(&what, &inner.image());
}
