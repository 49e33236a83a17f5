//! Each request fails in turn while files and directories are fsynced: a sync reports the failure,
//! or what it synced is durable.
//!
//! 1. The workload is a random sequence with fsyncs of any object, on a filesystem with data. The
//!    state at its end, and after a crash before, is what [`SyncJournal`] requires.
//! 2. An fsync that waited for a failed log commit gets an error, even if a commit after it
//!    succeeds; so does one whose flush failed.
//! 3. If the primary superblock is torn, committed changes must be found, but no log.
//! 4. A part is checked by `btrfs check` and by Linux.

use std::collections::HashMap;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use userbtrfs::device::Operation as Request;
use userbtrfs::mkfs::Options;
use userbtrfs::{
    Filesystem, FullCommitReason, SyncOutcome, SyncRecord, TreeId, Warning, XattrMode,
};
use userbtrfs_device::Device;
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{
    Fault, FaultyDevice, How, PausedDevice, Recording, RecordingDevice, SparseDevice, SparseImage,
};
use userbtrfs_testkit::durability_oracle::{OpWindow, SyncJournal};
use userbtrfs_testkit::engine_target::{Actor, errno};
use userbtrfs_testkit::history::History;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::Time;
use userbtrfs_testkit::model::{Model, Outcome};
use userbtrfs_testkit::operation::{Object, Operation, shrink, simplify};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::sleeping_threads::SleepingThreads;
use userbtrfs_testkit::stories::judge_by_us;

use super::faults::{check_answer, faults, in_time, is_change};
use super::fsynced::{Base, Sequence, Step, by_seeds, caught, judge_both, now, number};
use super::made::{MIB, Made, check_image_by_copy};
use super::{is_torture, open_device, open_to_write, seed};

const REQUESTS: [Request; 3] = [Request::Read, Request::Write, Request::Flush];
/// The number of faults per kind of request and sequence in CI.
const SAMPLE: usize = 10;
/// The number of sequences in CI, and in torture.
const SEQUENCES: u64 = 24;
const SEQUENCES_OF_TORTURE: u64 = 2_000;
/// The number of states of a run that we check.
const STATES: usize = 6;
/// One in this many runs is repaired and checked, and one is checked by Linux.
const CHECKED: u64 = 8;
const BEFORE_LINUX: u64 = 24;
/// The number of threads that wait for one log commit.
const WAITING: usize = 8;

/// Operations and the filesystem to apply them to.
#[derive(Clone)]
struct Workload {
    base: &'static Base,
    image: SparseImage,
    before: Model,
    steps: Vec<Step>,
}

impl Workload {
    /// Executes the first steps, so that there is data to read; `steps` are executed later.
    fn new(base: &'static Base, first: &[Step], steps: &[Step]) -> Result<Self> {
        let device = Arc::new(base.image.to_device());
        let filesystem = open(base, device.clone())?;
        let mut actor = Actor::new(&filesystem);
        let mut before = Model::new(base.made.options.nodesize);
        let operations = first.iter().filter_map(|step| match step {
            Step::Do(operation) => Some(operation),
            Step::Sync { .. } => None,
        });
        for operation in operations.chain([&Operation::Reopen]) {
            let expected = before.apply(operation);
            ensure!(actor.apply(operation) == expected, "{operation}");
        }
        drop(actor);
        filesystem.close()?;
        Ok(Self { base, image: device.image(), before, steps: steps.to_vec() })
    }

    /// Returns the number of requests of a kind.
    fn count(self: &Arc<Self>, request: Request) -> Result<u64> {
        let ended = run(self, None)?.expect("nothing fails");
        Ok(ended.device.count(request))
    }
}

fn open(base: &Base, device: Arc<dyn Device>) -> userbtrfs::Result<Filesystem> {
    let mut options = base.options();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0);
    options.open_devices(vec![device])
}

/// The record of the last sync.
type Heard = Arc<Mutex<Option<SyncRecord>>>;

/// A running workload.
struct Run {
    filesystem: Filesystem,
    actor: Actor,
    model: Model,
    /// The contents of files since it was opened.
    history: History,
    journal: SyncJournal,
    device: Arc<FaultyDevice>,
    recording: Arc<RecordingDevice>,
    heard: Heard,
    fault: Option<Fault>,
    /// The number of failures in the steps so far.
    failed: u64,
}

/// The result of a workload.
struct Ended {
    journal: SyncJournal,
    device: Arc<FaultyDevice>,
    recording: Recording,
    cut: Time,
}

/// Runs a workload; `None` if the filesystem cannot be opened.
fn run(workload: &Arc<Workload>, fault: Option<Fault>) -> Result<Option<Ended>> {
    let workload = Arc::clone(workload);
    in_time("a workload", move || caught(|| run_here(&workload, fault)))
}

fn run_here(workload: &Workload, fault: Option<Fault>) -> Result<Option<Ended>> {
    let recording = Arc::new(RecordingDevice::on(&workload.image));
    let device = Arc::new(FaultyDevice::new(recording.clone()));
    if let Some(fault) = fault {
        device.arm(fault);
    }
    let filesystem = match open(workload.base, device.clone()) {
        Ok(filesystem) => filesystem,
        Err(error) => {
            ensure!(errno(&error) == Errno::IO && device.failed() > 0, "opening: {error}");
            return Ok(None);
        }
    };
    let mut run = Run::new(workload, filesystem, device, recording, fault);
    for (index, step) in workload.steps.iter().enumerate() {
        run.step(step).with_context(|| format!("step {index}: {step}"))?;
    }
    let cut = now();
    let Run { filesystem, actor, journal, device, recording, .. } = run;
    filesystem.abandon();
    drop(actor);
    Ok(Some(Ended { journal, device, recording: recording.recording(), cut }))
}

impl Run {
    fn new(
        workload: &Workload,
        filesystem: Filesystem,
        device: Arc<FaultyDevice>,
        recording: Arc<RecordingDevice>,
        fault: Option<Fault>,
    ) -> Self {
        let heard: Heard = Arc::new(Mutex::new(Class::DeviceQueue, None));
        let told = Arc::clone(&heard);
        filesystem.trace_syncs(move |record| *told.lock() = Some(*record));
        let actor = Actor::new(&filesystem);
        let model = workload.before.clone();
        let before = recording.count();
        let generation = filesystem.superblock().generation;
        let journal = SyncJournal::new(&model, OpWindow { before, after: before, generation });
        let history = History::from(&model);
        let failed = device.failed();
        let mut run = Self {
            filesystem,
            actor,
            model,
            history,
            journal,
            device,
            recording,
            heard,
            fault,
            failed,
        };
        run.number();
        run
    }

    fn number(&mut self) {
        let Self { journal, model, filesystem, device, .. } = self;
        device.unseen(|| number(journal, model, filesystem));
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let before = self.recording.count();
        match step {
            // The end of the file is not known.
            Step::Do(Operation::Append { .. }) if self.device.failed() > 0 => return Ok(()),
            Step::Do(operation) => self.operate(operation, before)?,
            Step::Sync { object, data_only } => self.sync(object, *data_only, before)?,
        }
        self.failed = self.suspect();
        self.number();
        Ok(())
    }

    /// Records failures since the last step in the journal, which may be from writeback; returns
    /// the total number of failures.
    fn suspect(&mut self) -> u64 {
        let failed = self.device.failed();
        if failed > self.failed {
            self.journal.suspect();
        }
        failed
    }

    fn meanwhile(&self, before: usize) -> OpWindow {
        let generation = self.filesystem.superblock().generation;
        OpWindow { before, after: self.recording.count(), generation }
    }

    fn operate(&mut self, operation: &Operation, before: usize) -> Result<()> {
        let was_writable = self.filesystem.is_writable();
        let late = self.actor.late_errors();
        let closed = match operation {
            Operation::Close { handle } => self.model.node(&Object::Handle(*handle)),
            _ => None,
        };
        let mut after = self.model.clone();
        let expected = after.apply(operation);
        let found = self.actor.apply(operation);
        let is_told = matches!(found, Err(Errno::IO | Errno::ROFS)) && found != expected;
        let is_late = self.actor.late_errors() > late;
        self.suspect();
        if is_told || is_late {
            self.journal.told(closed);
        }
        let meanwhile = self.meanwhile(before);
        if !is_told {
            let is_changed = found.is_ok() && is_change(operation);
            ensure!(was_writable || !is_changed, "done though read-only");
            self.model = after;
            self.history.note(&self.model, operation);
            let known = (&self.model, &self.history, self.device.failed() > 0);
            match &found {
                Ok(answer) => check_answer(known, operation, answer, &expected)?,
                Err(_) => ensure!(found == expected, "{found:?}, not {expected:?}"),
            }
            self.journal.note(&self.model, operation, meanwhile);
            // The data of this operation may be dropped already, and the error reported.
            self.suspect();
            if is_late {
                self.journal.told(closed);
            }
            return Ok(());
        }
        ensure!(found == Err(Errno::IO) || !self.filesystem.is_writable(), "no reason");
        ensure!(self.device.failed() > 0, "nothing failed: {found:?}");
        let tried = after.clone();
        self.history.note(&tried, operation);
        if matches!(operation, Operation::Reopen | Operation::Close { .. }) {
            // The handles are closed anyway.
            self.model = after;
        }
        self.journal.note_failed(&self.model, &tried, operation, meanwhile);
        Ok(())
    }

    fn sync(&mut self, object: &Object, data_only: bool, before: usize) -> Result<()> {
        let failed = self.device.failed();
        *self.heard.lock() = None;
        let found = self.actor.sync(object, data_only);
        let meanwhile = self.meanwhile(before);
        let has_failed = self.device.failed() > failed;
        self.suspect();
        let Some(id) = self.model.node(object) else {
            ensure!(found.is_err(), "nothing is there");
            self.journal.note_nothing(&self.model, meanwhile);
            return Ok(());
        };
        self.check_told(found, has_failed)?;
        match found {
            Ok(()) => self.journal.note_sync(&self.model, object, data_only, meanwhile),
            Err(error) => {
                ensure!(matches!(error, Errno::IO | Errno::ROFS), "{error}");
                ensure!(self.device.failed() > 0, "nothing failed: {error}");
                self.journal.told(Some(id));
                self.journal.note_nothing(&self.model, meanwhile);
            }
        }
        Ok(())
    }

    /// Checks that a sync returned an error if it had to.
    fn check_told(&self, found: Outcome, has_failed: bool) -> Result<()> {
        let record = *self.heard.lock();
        // After a read error, a commit is an acceptable fallback.
        let is_read = self.fault.is_some_and(|fault| fault.operation == Request::Read);
        let must_be = !is_read && waited_for_failed(record);
        ensure!(!must_be || found.is_err(), "not told: {record:?}");
        let is_flush = self.fault.is_some_and(|fault| fault.operation == Request::Flush);
        ensure!(!(has_failed && is_flush) || found.is_err(), "not told of the flush: {record:?}");
        Ok(())
    }
}

/// Returns whether items were added to a log that could not be written.
fn waited_for_failed(record: Option<SyncRecord>) -> bool {
    let failed = SyncOutcome::Committed(FullCommitReason::Failed);
    record.is_some_and(|record| record.how == failed && record.items > 0)
}

/// Tests one fault and the state after it; returns whether the fault was reached.
fn judge(workload: &Arc<Workload>, fault: Fault, seed: u64) -> Result<bool> {
    let Some(ended) = run(workload, Some(fault))? else { return Ok(true) };
    if ended.device.failed() == 0 {
        return Ok(false);
    }
    let recording = &ended.recording;
    let in_order = states(recording, Choice::Sample { seed, count: STATES / 2 });
    let reordered = states(recording, Choice::Reordered { seed, count: STATES - STATES / 2 });
    for state in in_order.chain(reordered) {
        let what = || format!("{} events, {} lost", state.completed, state.lost);
        judge_state(&ended, &state).with_context(what)?;
    }
    let image = recording.end();
    let mut random = Random::new(seed ^ fault.after);
    let is_whole = has_primary(&image)?;
    if !is_whole && random.one_in(CHECKED) {
        check_image_by_copy("in pieces", &image);
    }
    if is_whole && random.one_in(CHECKED) {
        judge_by_us(&image).context("at the end, to us")?;
    }
    if is_whole && random.one_in(BEFORE_LINUX) {
        judge_both(&Linux::lock()?, &image, ended.cut).context("at the end")?;
    }
    Ok(true)
}

fn judge_state(ended: &Ended, state: &State) -> Result<()> {
    let Ended { journal, recording, .. } = ended;
    let left = open_device(Arc::new(state.image.to_device())).context("opening")?;
    let check = |journal: &SyncJournal| journal.check(recording, state.completed, &left);
    if is_primary(&left) {
        check(journal)
    } else {
        check(&journal.without_logs()).context("by a copy of the superblock")
    }
}

fn has_primary(image: &SparseImage) -> Result<bool> {
    Ok(is_primary(&open_device(Arc::new(image.to_device()))?))
}

/// Returns whether it was opened with the primary superblock.
fn is_primary(filesystem: &Filesystem) -> bool {
    !filesystem.warnings().iter().any(|warning| matches!(warning, Warning::Mirror { .. }))
}

/// Tests faults of a sequence; returns how many were reached, or the shortest failing sequence.
fn judge_sequence(seed: u64) -> Result<u64, String> {
    let sequence = Sequence::new(seed);
    let (first, steps) = sequence.steps.split_at(sequence.steps.len() / 2);
    let tell = |error: &anyhow::Error| sequence.tell(seed, &sequence.steps, &format!("{error:#}"));
    let workload = caught(|| Workload::new(sequence.base, first, steps));
    let workload = Arc::new(workload.map_err(|error| tell(&error))?);
    let mut met = 0;
    for request in REQUESTS {
        let count = caught(|| workload.count(request)).map_err(|error| tell(&error))?;
        for fault in if count > 0 { faults(request, count, seed, SAMPLE) } else { Vec::new() } {
            let judged = caught(|| judge(&workload, fault, seed));
            met += u64::from(judged.map_err(|error| told(&sequence, seed, fault, &error))?);
        }
    }
    Ok(met)
}

/// Shrinks a sequence that fails for some fault of the same kind; returns its description.
fn told(sequence: &Sequence, seed: u64, fault: Fault, error: &anyhow::Error) -> String {
    println!("seed {seed}, {fault:?} fails: {error:#}");
    let (first, steps) = sequence.steps.split_at(sequence.steps.len() / 2);
    let error_of = |first: &[Step], steps: &[Step]| find(sequence.base, first, steps, fault, seed);
    let Some(_) = error_of(first, steps) else {
        return sequence.tell(seed, &sequence.steps, &format!("{fault:?}: {error:#}, not again"));
    };
    let steps = shrink(steps, |steps| error_of(first, steps).is_some());
    let first = shrink(first, |first| error_of(first, &steps).is_some());
    let steps = simplify(&steps, Step::simpler, |steps| error_of(&first, steps).is_some());
    let error = error_of(&first, &steps).unwrap_or_else(|| format!("{error:#}"));
    let error = format!("{error}\n(the first {} without faults)", first.len());
    sequence.tell(seed, &[first, steps].concat(), &error)
}

/// Searches for a failing fault that differs from this one only in its number.
fn find(
    base: &'static Base,
    first: &[Step],
    steps: &[Step],
    fault: Fault,
    seed: u64,
) -> Option<String> {
    let workload = Arc::new(Workload::new(base, first, steps).ok()?);
    let count = caught(|| workload.count(fault.operation)).ok()?;
    (0..count).find_map(|after| {
        let fault = Fault { after, ..fault };
        let error = caught(|| judge(&workload, fault, seed)).err()?;
        Some(format!("{fault:?}: {error:#}"))
    })
}

#[test]
fn sync_of_a_failing_device_reports_the_error_or_is_kept() {
    skip_unless_linux!();
    let sequences = if is_torture() { SEQUENCES_OF_TORTURE } else { SEQUENCES };
    let met = Mutex::new(Class::DeviceQueue, 0);
    by_seeds(seed(), sequences, |seed| {
        *met.lock() += judge_sequence(seed)?;
        Ok(1)
    });
    let met = *met.lock();
    println!("{met} faults");
    assert!(met > sequences, "faults are met");
}

/// A sync of a file also reports data of it that an earlier commit failed to write.
#[test]
fn a_write_that_failed_before_the_sync_is_told_by_it() {
    let inner = Arc::new(crowded_image().to_device());
    let device = Arc::new(FaultyDevice::new(inner.clone()));
    let filesystem = open_to_write(device.clone());
    let file = filesystem.open_file("/f0").unwrap();
    file.append(&[1; 8192]).unwrap();
    file.sync_all().unwrap();
    file.write_at(&[2; 4096], 4096).unwrap();
    let operation = Request::Write;
    let how = How::Eio;
    device.arm(Fault { operation, after: 0, how, lasting: false });
    filesystem.commit().unwrap_err();
    assert_eq!(device.failed(), 1);
    assert_eq!(errno(&file.sync_all().unwrap_err()), Errno::IO);
    file.sync_all().unwrap();
    file.write_at(&[3; 100], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(filesystem.stats().log.commits(FullCommitReason::Failed), 0, "logs go on");
    drop(file);
    filesystem.abandon();
    let left = open_device(inner).unwrap().open_file("/f0").unwrap().read_all().unwrap();
    assert!(left == [vec![3; 100], vec![1; 8092]].concat(), "what failed is the old data");
}

/// Many threads that sync: one waits for a log commit in progress, the others for the next.
struct Crowd {
    filesystem: Filesystem,
    held: Arc<PausedDevice>,
    device: Arc<FaultyDevice>,
    inner: Arc<SparseDevice>,
    /// The sync record of each inode.
    heard: Arc<Mutex<HashMap<u64, SyncRecord>>>,
}

impl Crowd {
    fn new(image: &SparseImage) -> Self {
        let inner = Arc::new(image.to_device());
        let device = Arc::new(FaultyDevice::new(inner.clone()));
        let held = Arc::new(PausedDevice::new(device.clone()));
        let filesystem = open_to_write(held.clone());
        let heard = Arc::new(Mutex::new(Class::DeviceQueue, HashMap::new()));
        let told = Arc::clone(&heard);
        filesystem.trace_syncs(move |record| {
            told.lock().insert(record.inode.number, *record);
        });
        Self { filesystem, held, device, inner, heard }
    }

    /// Changes an existing file, but not its data, and syncs it.
    fn sync(&self, number: usize) -> userbtrfs::Result<()> {
        let inode = self.filesystem.root().lookup(name(number).as_bytes())?;
        inode.set_xattr(b"user.x", b"1", XattrMode::Create)?;
        inode.sync_all()
    }

    /// Syncs all files concurrently during the fault; returns for each whether it failed.
    fn gather(&self, fault: Fault) -> Vec<bool> {
        self.held.hold();
        let waiting = SleepingThreads::default();
        thread::scope(|scope| {
            let start = |number| {
                let waiting = &waiting;
                scope.spawn(move || {
                    waiting.add();
                    self.sync(number).is_err()
                })
            };
            let mut threads = vec![start(0)];
            while !self.held.is_waited_for() {
                thread::yield_now();
            }
            threads.extend((1..WAITING).map(start));
            waiting.wait(WAITING);
            self.device.arm(fault);
            self.held.release();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Returns whether the sync of this file added items to a log that failed.
    fn waited(&self, number: usize) -> bool {
        let id = self.filesystem.symlink_metadata(format!("/{}", name(number))).unwrap().id.number;
        waited_for_failed(self.heard.lock().get(&id).copied())
    }
}

fn name(number: usize) -> String {
    format!("f{number}")
}

/// Returns an image with a file per thread.
fn crowded_image() -> SparseImage {
    let made = Made::new("plain", 256 * MIB, Options { nodesize: 4096, ..Options::default() });
    let device = Arc::new(made.image().to_device());
    let filesystem = open_to_write(device.clone());
    for number in 0..WAITING {
        filesystem.root().create(name(number).as_bytes(), 0o644).unwrap();
    }
    filesystem.close().unwrap();
    device.image()
}

#[test]
fn all_who_waited_for_a_group_that_failed_are_told() {
    let image = crowded_image();
    let mut told_of_many = 0;
    let mut kept_by_commit = 0;
    for operation in [Request::Write, Request::Flush] {
        let afters = if operation == Request::Write { 0..14 } else { 0..3 };
        for (after, lasting) in afters.flat_map(|after| [(after, false), (after, true)]) {
            let fault = Fault { operation, after, how: How::Eio, lasting };
            let crowd = Crowd::new(&image);
            let told = crowd.gather(fault);
            crowd.device.disarm();
            for (number, is_told) in told.iter().enumerate() {
                assert!(*is_told || !crowd.waited(number), "{fault:?}: {number} is not told");
            }
            let has_failed = crowd.device.failed() > 0;
            assert_eq!(has_failed, told.contains(&true), "{fault:?}: {told:?}");
            told_of_many += u64::from(told.iter().filter(|told| **told).count() > WAITING / 2);
            kept_by_commit += u64::from(crowd.filesystem.is_writable() && has_failed);
            check_kept(crowd, &told, fault);
        }
    }
    assert!(told_of_many > 4 && kept_by_commit > 4, "{told_of_many}, {kept_by_commit}");
}

/// Checks that changes are durable if their sync did not fail.
fn check_kept(crowd: Crowd, told: &[bool], fault: Fault) {
    let Crowd { filesystem, inner, .. } = crowd;
    filesystem.abandon();
    let what = format!("{fault:?}, told: {told:?}");
    let left = open_to_write(Arc::new(inner.image().to_device()));
    for number in (0..WAITING).filter(|number| !told[*number]) {
        let inode = left.root().lookup(name(number).as_bytes()).unwrap();
        let found = inode.xattr(b"user.x").unwrap();
        assert_eq!(found, b"1", "{what}: {number}");
    }
    left.close().unwrap();
}
