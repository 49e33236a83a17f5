//! Concurrent fsyncs, together with commits and renames, and the cost of a single one.
//!
//! 1. An acknowledged fsync is kept by a crash at any later point.
//! 2. There is no commit that was neither requested nor has a reason.
//! 3. Renames in logged directories do not wait for the device.
//! 4. An fsync waits for the device and writes no more than necessary. Its record has the times
//!    that it waited.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use userbtrfs::mkfs::Options;
use userbtrfs::{
    CommitTrigger, Dir, File, FileKind, Filesystem, FullCommitReason, RenameMode, Stats,
    SyncOutcome, SyncRecord, XattrMode,
};
use userbtrfs_device::Operation;
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{
    Event, Fault, FaultyDevice, How, PausedDevice, Recorded, RecordingDevice, SparseImage,
};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::sleeping_threads::SleepingThreads;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made, check_image};
use super::{is_torture, open_device, open_to_write, seed};

/// The number of writers; half of them append to a file, half replace one.
const WRITERS: u32 = 64;
/// The number of directories that they share.
const DIRS: u32 = 4;
/// The number of bytes per write.
const BLOCK: usize = 4096;
/// The size of a file that is deleted in several steps.
const LARGE: usize = 5 << 20;
/// The offset of the primary superblock, in bytes.
const SUPERBLOCK: u64 = 64 << 10;
/// The time limit for operations that must not wait for a device, and a short pause.
const PATIENCE: Duration = Duration::from_mins(5);
const MOMENT: Duration = Duration::from_millis(2);
/// How long the device is held for a record to show it.
const HELD: Duration = Duration::from_millis(30);

fn image(nodesize: u32) -> SparseImage {
    Made::new("plain", 256 * MIB, Options { nodesize, ..Options::default() }).image()
}

/// An acknowledged fsync: the number of blocks, or the version, of a writer after `events` events.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    writer: u32,
    count: u32,
    events: usize,
}

/// Returns the initial path of a writer's file.
fn path(writer: u32, prefix: char) -> String {
    format!("/d{}/{prefix}{writer}", writer % DIRS)
}

fn bytes(writer: u32, count: u32) -> Vec<u8> {
    pattern::bytes(1 + writer + WRITERS * count, 0, BLOCK)
}

struct Workload<'a> {
    filesystem: &'a Filesystem,
    device: &'a RecordingDevice,
    acknowledged: Mutex<Vec<Acknowledged>>,
    rounds: u32,
}

impl Workload<'_> {
    fn acknowledge(&self, writer: u32, count: u32) {
        let events = self.device.count();
        self.acknowledged.lock().push(Acknowledged { writer, count, events });
    }

    /// Appends blocks; other threads move and link the file meanwhile.
    fn append(&self, writer: u32, file: File) {
        for count in 1..=self.rounds {
            file.append(&bytes(writer, count)).unwrap();
            if count % 3 == 0 { file.sync_data() } else { file.sync_all() }.unwrap();
            self.acknowledge(writer, count);
        }
        file.close().unwrap();
    }

    /// Writes a temporary file and renames it over the last version.
    fn replace(&self, writer: u32) {
        let dir = self.filesystem.open_dir(format!("/d{}", writer % DIRS)).unwrap();
        let aside = format!("t{writer}");
        let name = format!("f{writer}");
        for count in 1..=self.rounds {
            let file = dir.create(aside.as_bytes(), 0o644).unwrap().open().unwrap();
            file.append(&bytes(writer, count)).unwrap();
            file.sync_all().unwrap();
            self.acknowledge(writer, count);
            let to = RenameMode::Replace;
            dir.rename(aside.as_bytes(), &dir, name.as_bytes(), to).unwrap();
            file.close().unwrap();
        }
    }

    /// Moves, links and unlinks files that are appended to, until all data is written.
    fn rename(&self, seed: u64, is_over: &AtomicBool) {
        let mut random = Random::new(seed);
        let root = self.filesystem.root();
        let dirs: Vec<_> = (0..DIRS)
            .map(|dir| self.filesystem.open_dir(format!("/d{dir}")).unwrap())
            .chain([root])
            .collect();
        let mut places: Vec<_> = (0..WRITERS / 2)
            .map(|writer| (usize::try_from(writer % DIRS).unwrap(), format!("f{writer}")))
            .collect();
        while !is_over.load(Ordering::Relaxed) {
            let chosen = random.index(places.len());
            let (dir, name) = places[chosen].clone();
            let to = random.index(dirs.len());
            let new = format!("m{}", random.below(1 << 40));
            let [old, next] = [&name, &new].map(String::as_bytes);
            match random.below(3) {
                0 => {
                    let inode = dirs[dir].lookup(old).unwrap();
                    dirs[to].link(next, &inode).unwrap();
                    dirs[dir].remove_file(old).unwrap();
                }
                1 => {
                    let other = random.index(places.len());
                    let (with, name) = places[other].clone();
                    if other != chosen {
                        let exchange = RenameMode::Exchange;
                        dirs[dir].rename(old, &dirs[with], name.as_bytes(), exchange).unwrap();
                        places.swap(chosen, other);
                    }
                    continue;
                }
                _ => dirs[dir].rename(old, &dirs[to], next, RenameMode::NoReplace).unwrap(),
            }
            places[chosen] = (to, new);
        }
    }

    fn commit(&self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(3));
            self.filesystem.commit().unwrap();
        }
    }

    /// Runs all threads.
    fn run(&self, seed: u64) {
        let is_over = AtomicBool::new(false);
        let open = |writer| self.filesystem.open_file(path(writer, 'f')).unwrap();
        let files: Vec<_> = (0..WRITERS).map(|writer| (writer, open(writer))).collect();
        thread::scope(|scope| {
            let renaming = scope.spawn(|| self.rename(seed, &is_over));
            let committing = scope.spawn(|| self.commit(&is_over));
            let write = |(writer, file)| {
                if writer < WRITERS / 2 {
                    scope.spawn(move || self.append(writer, file))
                } else {
                    scope.spawn(move || self.replace(writer))
                }
            };
            let writing: Vec<_> = files.into_iter().map(write).collect();
            let ended: Vec<_> = writing.into_iter().map(thread::ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok), "a writer panicked");
            renaming.join().unwrap();
            committing.join().unwrap();
        });
    }
}

#[test]
fn files_fsynced_by_many_threads_at_once_are_kept() {
    let seed = seed();
    let rounds = if is_torture() { 200 } else { 12 };
    for nodesize in [4096, 16384] {
        let device = Arc::new(RecordingDevice::on(&image(nodesize)));
        let filesystem = open_to_write(device.clone());
        for dir in 0..DIRS {
            filesystem.root().create_dir(format!("d{dir}").as_bytes(), 0o755).unwrap();
        }
        for writer in 0..WRITERS {
            let dir = filesystem.open_dir(format!("/d{}", writer % DIRS)).unwrap();
            dir.create(format!("f{writer}").as_bytes(), 0o644).unwrap();
        }
        filesystem.commit().unwrap();
        let first = device.count();
        let device = &*device;
        let acknowledged = Mutex::new(Class::DeviceQueue, Vec::new());
        let workload = Workload { filesystem: &filesystem, device, acknowledged, rounds };
        workload.run(seed);
        check_reasons(&filesystem);
        let acknowledged = workload.acknowledged.lock().clone();
        filesystem.abandon();
        check_cuts(device, first, &acknowledged, seed);
    }
}

/// Checks that each commit was requested, was because of space, or has a reported reason.
fn check_reasons(filesystem: &Filesystem) {
    let Stats { log, commits, .. } = filesystem.stats();
    let reasons = FullCommitReason::ALL.map(|reason| (reason, log.commits(reason)));
    let causes = CommitTrigger::ALL.map(|cause| (cause, commits.by(cause)));
    println!("{causes:?}, {reasons:?}, {} groups", log.log_commits);
    let forced: u64 = reasons.iter().map(|(_, count)| count).sum();
    assert!(commits.by(CommitTrigger::Sync) <= forced, "{causes:?}, {reasons:?}");
    let others = [CommitTrigger::Age, CommitTrigger::Memory];
    assert!(others.iter().all(|cause| commits.by(*cause) == 0), "{causes:?}");
    let unfit =
        [FullCommitReason::Disabled, FullCommitReason::Failed, FullCommitReason::DataFailed];
    assert!(unfit.iter().all(|reason| log.commits(*reason) == 0), "{reasons:?}");
    assert!(log.log_commits > 0, "nothing was logged");
}

fn check_cuts(device: &RecordingDevice, first: usize, all: &[Acknowledged], seed: u64) {
    let recording = device.recording();
    let count = if is_torture() { 5_000 } else { 60 };
    let in_order = states(&recording, Choice::Sample { seed, count });
    let states = in_order.chain(states(&recording, Choice::Reordered { seed, count }));
    let mut judged = 0;
    for state in states.filter(|state| state.completed >= first) {
        let what = format!("{} events, {} lost", state.completed, state.lost);
        let left = left(&state);
        let acknowledged = last_of(all, state.completed);
        for writer in 0..WRITERS {
            let count = acknowledged[usize::try_from(writer).unwrap()];
            let what = format!("{what}, writer {writer}, acknowledged {count}");
            if writer < WRITERS / 2 {
                check_appended(&left, writer, count, &what);
            } else {
                check_replaced(&left, writer, count, &what);
            }
        }
        if judged % 20 == 0 {
            check_repaired(&state, &what);
        }
        judged += 1;
    }
    assert!(judged > 20, "only {judged} cuts");
}

/// Checks that the replayed image is sound.
fn check_repaired(state: &State, what: &str) {
    let device = Arc::new(state.image.to_device());
    open_to_write(device.clone()).close().unwrap();
    check_image(what, &device.image());
}

fn last_of(all: &[Acknowledged], completed: usize) -> Vec<u32> {
    let mut last = vec![0; usize::try_from(WRITERS).unwrap()];
    for one in all.iter().filter(|one| one.events <= completed) {
        let last = &mut last[usize::try_from(one.writer).unwrap()];
        *last = one.count.max(*last);
    }
    last
}

/// The bytes of each file by its path.
type Left = Vec<(Vec<u8>, Vec<u8>)>;

fn left(state: &State) -> Left {
    let opened = open_device(Arc::new(state.image.to_device())).unwrap();
    let entries = opened.walk("/").unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.kind == FileKind::Regular);
    files.map(|entry| (entry.path, entry.inode.open().unwrap().read_all().unwrap())).collect()
}

/// Checks that some file has all acknowledged blocks.
fn check_appended(left: &Left, writer: u32, count: u32, what: &str) {
    let expected: Vec<u8> = (1..=count).flat_map(|count| bytes(writer, count)).collect();
    let found = left.iter().filter(|(_, found)| found.starts_with(&expected));
    assert!(found.count() > 0, "{what}: it is nowhere");
}

/// Checks that the file is complete and has at least the version before the last, and that some
/// file has the last.
fn check_replaced(left: &Left, writer: u32, count: u32, what: &str) {
    let version = |name: char| {
        let path = path(writer, name).into_bytes();
        let (_, found) = left.iter().find(|(at, _)| *at == path)?;
        let of = (1..=count + 1).rev().find(|count| *found == bytes(writer, *count));
        Some(if found.is_empty() { 0 } else { of.unwrap_or_else(|| panic!("{what}: mixed")) })
    };
    let file = version('f').unwrap_or_else(|| panic!("{what}: none"));
    let aside = version('t');
    assert!(file + 1 >= count, "{what}: it is of version {file}");
    assert!(file.max(aside.unwrap_or(0)) >= count, "{what}: {file} and {aside:?}");
}

/// Gives a large, committed file an extent that is in no tree.
fn touch(dir: &Dir, name: &str) {
    let large = dir.lookup(format!("{name}large").as_bytes()).unwrap().open().unwrap();
    large.write_at(&[4; BLOCK], 2 * BLOCK as u64).unwrap();
    large.sync_all().unwrap();
}

/// Changes names in a logged directory, in all ways.
fn change(filesystem: &Filesystem, dir: &Dir, name: &str) {
    let root = filesystem.root();
    let to = |suffix: &str| format!("{name}{suffix}");
    dir.rename(b"a", dir, to("a").as_bytes(), RenameMode::NoReplace).unwrap();
    dir.rename(to("a").as_bytes(), dir, b"a", RenameMode::NoReplace).unwrap();
    dir.rename(b"b", dir, b"new", RenameMode::Exchange).unwrap();
    let inode = dir.lookup(b"c").unwrap();
    dir.link(to("c").as_bytes(), &inode).unwrap();
    dir.remove_file(to("c").as_bytes()).unwrap();
    dir.create(to("d").as_bytes(), 0o644).unwrap();
    dir.remove_file(to("large").as_bytes()).unwrap();
    root.rename(b"d", &root, b"x", RenameMode::NoReplace).unwrap();
    root.rename(b"x", &root, b"d", RenameMode::NoReplace).unwrap();
}

#[test]
fn names_in_a_logged_directory_change_while_the_device_is_held() {
    let device = Arc::new(PausedDevice::new(Arc::new(image(16384).to_device())));
    let filesystem = open_to_write(device.clone());
    let dir = filesystem.root().create_dir(b"d", 0o755).unwrap();
    let other = filesystem.root().create_dir(b"other", 0o755).unwrap();
    for name in ["a", "b", "c", "e"] {
        dir.create(name.as_bytes(), 0o644).unwrap();
    }
    for prefix in ["first", "second", "third", "fourth", "fifth", "sixth"] {
        let large = dir.create(format!("{prefix}large").as_bytes(), 0o644).unwrap();
        large.open().unwrap().append(&vec![3; LARGE]).unwrap();
    }
    filesystem.commit().unwrap();
    let file = dir.create(b"new", 0o644).unwrap().open().unwrap();
    file.append(&[1; BLOCK]).unwrap();
    file.sync_all().unwrap();
    dir.sync_all().unwrap();
    assert_eq!(filesystem.stats().log.log_commits, 2, "both are logged");
    let touch = |name: &str| touch(&dir, name);
    let change = |name: &str| change(&filesystem, &dir, name);
    touch("first");
    change("first");
    let waited_for = || device.is_waited_for();
    let commit = || filesystem.commit().unwrap();
    // With no other thread; then during an fsync, and during a commit.
    touch("second");
    held(&device, || change("second"), |_| {});
    file.append(&[2; BLOCK]).unwrap();
    touch("third");
    held(
        &device,
        || change("third"),
        |scope| {
            begin(scope, || file.sync_all().unwrap(), waited_for);
        },
    );
    touch("fourth");
    held(&device, || change("fourth"), |scope| begin(scope, commit, waited_for));
    // During a commit that must wait for an fsync, and for a commit. An fsync of a directory whose
    // names had been exchanged in a cycle would commit.
    commit();
    dir.create(b"logged", 0o644).unwrap();
    dir.sync_all().unwrap();
    other.create(b"new", 0o644).unwrap();
    touch("fifth");
    held(
        &device,
        || change("fifth"),
        |scope| {
            begin(scope, || other.sync_all().unwrap(), waited_for);
            also_commit(scope, &filesystem);
        },
    );
    touch("sixth");
    held(
        &device,
        || change("sixth"),
        |scope| {
            begin(scope, commit, waited_for);
            dir.create(b"later", 0o644).unwrap();
            also_commit(scope, &filesystem);
        },
    );
    file.close().unwrap();
    filesystem.close().unwrap();
}

type Scope<'s, 'e> = thread::Scope<'s, 'e>;

/// Checks that `change` returns while the device is held, after `begin` started other threads.
fn held<'e>(
    device: &PausedDevice,
    change: impl Fn() + Send + 'e,
    begin: impl for<'s> FnOnce(&'s Scope<'s, 'e>),
) {
    device.hold();
    thread::scope(|scope| {
        begin(scope);
        let (done, is_done) = channel();
        scope.spawn(move || {
            change();
            done.send(()).unwrap();
        });
        let in_time = is_done.recv_timeout(PATIENCE);
        device.release();
        in_time.expect("it waits for the device");
    });
}

/// Runs something in a new thread, and waits until it has begun.
fn begin<'s>(
    scope: &'s Scope<'s, '_>,
    what: impl FnOnce() + Send + 's,
    has_begun: impl Fn() -> bool,
) {
    let thread = scope.spawn(what);
    while !thread.is_finished() && !has_begun() {
        thread::yield_now();
    }
}

fn also_commit<'s>(scope: &'s Scope<'s, '_>, filesystem: &'s Filesystem) {
    let commits = || filesystem.stats().commits.by(CommitTrigger::Asked);
    let before = commits();
    begin(scope, || filesystem.commit().unwrap(), || commits() > before);
}

/// A file that changed in a transaction that is being written, and in the next one.
struct Between {
    device: Arc<FaultyDevice>,
    recording: Arc<RecordingDevice>,
    held: Arc<PausedDevice>,
    filesystem: Filesystem,
    file: File,
}

impl Between {
    fn new() -> Self {
        let recording = Arc::new(RecordingDevice::on(&image(4096)));
        let device = Arc::new(FaultyDevice::new(recording.clone()));
        let held = Arc::new(PausedDevice::new(device.clone()));
        let filesystem = open_to_write(held.clone());
        let file = filesystem.root().create(b"f", 0o644).unwrap().open().unwrap();
        file.append(&[1; BLOCK]).unwrap();
        Self { device, recording, held, filesystem, file }
    }

    /// Holds the superblock write of a commit while an fsync of the next transaction does all but
    /// wait for it, calls `then`, and releases it. Returns whether commit and fsync succeeded.
    fn sync(&self, then: impl FnOnce()) -> [bool; 2] {
        self.held.hold_write_of(SUPERBLOCK);
        self.sync_while_held(then)
    }

    fn sync_while_held(&self, then: impl FnOnce()) -> [bool; 2] {
        thread::scope(|scope| {
            let commit = scope.spawn(|| self.filesystem.commit().is_ok());
            while !self.held.is_waited_for() {
                thread::yield_now();
            }
            self.file.append(&[2; BLOCK]).unwrap();
            let before = self.recording.count();
            let sync = scope.spawn(|| self.file.sync_all().is_ok());
            while self.filesystem.stats().log.waits_for_commit == 0 {
                assert!(!sync.is_finished(), "it does not wait for the superblock");
                thread::yield_now();
            }
            let cost = Cost::of(&self.recording.log()[before..], 0);
            then();
            self.held.release();
            // Data, two nodes, each twice, and a flush: everything but the superblock.
            assert_eq!((cost.flushes, cost.written), (1, BLOCK + 4 * 4096));
            [commit.join().unwrap(), sync.join().unwrap()]
        })
    }

    /// Returns the content of the file after a crash.
    fn left(self) -> Vec<u8> {
        let Self { recording, filesystem, file, .. } = self;
        filesystem.abandon();
        drop(file);
        let image = recording.recording().end();
        check_repaired(&State { completed: recording.count(), lost: 0, image: image.clone() }, "f");
        let left = open_device(Arc::new(image.to_device())).unwrap();
        left.open_file("/f").map_or(Vec::new(), |file| file.read_all().unwrap())
    }
}

#[test]
fn an_fsync_while_a_commit_writes_waits_for_its_superblock_alone() {
    let between = Between::new();
    assert_eq!(between.sync(|| ()), [true, true]);
    let log = between.filesystem.stats().log;
    assert_eq!((log.log_commits, log.waits_for_commit), (1, 1));
    assert!(FullCommitReason::ALL.iter().all(|reason| log.commits(*reason) == 0), "{log:?}");
    assert_eq!(between.left(), [[1; BLOCK], [2; BLOCK]].concat());
}

#[test]
fn an_fsync_while_a_commit_writes_its_nodes_waits_for_its_superblock_alone() {
    let between = Between::new();
    let Between { held, filesystem, file, .. } = &between;
    filesystem.commit().unwrap();
    // A change without data: nodes are written first.
    file.inode().set_xattr(b"user.a", b"1", XattrMode::Either).unwrap();
    held.hold_next();
    assert_eq!(between.sync_while_held(|| ()), [true, true]);
    let log = filesystem.stats().log;
    assert_eq!((log.log_commits, log.waits_for_commit), (1, 1));
    assert_eq!(between.left(), [[1; BLOCK], [2; BLOCK]].concat());
}

/// Its name is removed in the transaction that is being written.
#[test]
fn an_fsync_of_a_file_without_a_name_waits_until_that_is_gone() {
    let between = Between::new();
    let Between { recording, held, filesystem, file, .. } = &between;
    filesystem.commit().unwrap();
    filesystem.root().remove_file(b"f").unwrap();
    held.hold_write_of(SUPERBLOCK);
    let told = thread::scope(|scope| {
        let waited_for = || held.is_waited_for();
        begin(scope, || filesystem.commit().unwrap(), waited_for);
        file.append(&[2; BLOCK]).unwrap();
        let sync = scope.spawn(|| {
            file.sync_all().unwrap();
            recording.count()
        });
        // Gives the sync time to return too early.
        (0..100).take_while(|_| !sync.is_finished()).for_each(|_| thread::sleep(MOMENT));
        held.release();
        sync.join().unwrap()
    });
    let mut recording = recording.recording();
    recording.events.truncate(told);
    let opened = open_device(Arc::new(recording.end().to_device())).unwrap();
    assert!(opened.lookup("/f").is_err(), "it is still there");
    let Between { filesystem, file, .. } = between;
    file.close().unwrap();
    filesystem.close().unwrap();
}

#[test]
fn an_fsync_while_a_commit_fails_is_told() {
    let between = Between::new();
    let fault = Fault { operation: Operation::Write, after: 0, how: How::Eio, lasting: false };
    assert_eq!(between.sync(|| between.device.arm(fault)), [false, false]);
    assert_eq!((between.device.failed(), between.filesystem.stats().log.log_commits), (1, 0));
    assert_eq!(between.left(), [0; 0], "a log without its commit is not shown");
}

#[test]
fn a_record_tells_what_an_fsync_waited_for() {
    let between = Between::new();
    let Between { held, filesystem, file, .. } = &between;
    let other = filesystem.root().create(b"other", 0o644).unwrap().open().unwrap();
    filesystem.commit().unwrap();
    let (tell, told) = channel();
    filesystem.trace_syncs(move |record| tell.send(*record).unwrap());
    let sync = |file: &File| file.sync_all().unwrap();
    let write = |file: &File| assert!(file.append(&[2; BLOCK]).is_ok());
    // Held in turn: its data, its superblock, and the superblock of the previous commit.
    write(file);
    held.hold_next();
    slowly(held, |_| (), || sync(file));
    check_phase(&told.recv().unwrap(), |record| record.write_back);
    write(file);
    held.hold_write_of(SUPERBLOCK);
    slowly(held, |_| (), || sync(file));
    check_phase(&told.recv().unwrap(), |record| record.device);
    assert_eq!(between.sync(|| thread::sleep(HELD)), [true, true]);
    check_phase(&told.recv().unwrap(), |record| record.previous);
    // Another thread writes a log commit.
    [file, &other].into_iter().for_each(write);
    held.hold_write_of(SUPERBLOCK);
    let waiting = SleepingThreads::default();
    slowly(
        held,
        |scope| {
            scope.spawn(|| {
                waiting.add();
                sync(&other);
            });
            waiting.wait(1);
        },
        || sync(file),
    );
    let records = [told.recv().unwrap(), told.recv().unwrap()];
    let of_other = records.iter().find(|record| record.inode == other.inode().id()).unwrap();
    check_phase(of_other, |record| record.writers);
    filesystem.stop_trace();
    write(file);
    sync(file);
    assert!(told.try_recv().is_err(), "nobody listens any more");
}

/// Runs `what`, calls `also` once it waits for the device, and releases the device after a while.
fn slowly<'e>(
    held: &PausedDevice,
    also: impl for<'s> FnOnce(&'s Scope<'s, 'e>),
    what: impl FnOnce() + Send + 'e,
) {
    thread::scope(|scope| {
        begin(scope, what, || held.is_waited_for());
        also(scope);
        thread::sleep(HELD);
        held.release();
    });
}

fn check_phase(record: &SyncRecord, phase: impl Fn(&SyncRecord) -> Duration) {
    assert_eq!(record.how, SyncOutcome::Logged);
    assert!(phase(record) >= HELD, "{record:?}");
}

#[test]
fn an_fsync_alone_waits_three_times_and_writes_each_block_once() {
    for nodesize in [4096, 16384] {
        let device = Arc::new(RecordingDevice::on(&image(nodesize)));
        let filesystem = open_to_write(device.clone());
        let file = filesystem.root().create(b"f", 0o644).unwrap().open().unwrap();
        filesystem.commit().unwrap();
        for _ in 0..20 {
            file.append(&[7; BLOCK]).unwrap();
            let events = device.count();
            let waits = device.waits();
            file.sync_all().unwrap();
            let waits = device.waits() - waits;
            let cost = Cost::of(&device.log()[events..], waits);
            // Data; two nodes, each twice; the superblock.
            let written = BLOCK + 4 * usize::try_from(nodesize).unwrap() + BLOCK;
            assert_eq!(cost, Cost { waits: 3, flushes: 1, written });
        }
        assert_eq!(filesystem.stats().log.log_commits, 20);
        file.close().unwrap();
        filesystem.abandon();
    }
}

/// With hole items: existing ones are not logged again.
#[test]
fn an_fsync_of_a_file_with_hole_items_writes_what_changed() {
    skip_unless_linux!();
    let made = Options { nodesize: 4096, ..Options::default() };
    let made = Made::by_progs("hole items", 256 * MIB, made, &["-O", "^no-holes"]);
    let device = Arc::new(RecordingDevice::on(&made.image()));
    let filesystem = open_to_write(device.clone());
    let file = filesystem.root().create(b"f", 0o644).unwrap().open().unwrap();
    let block = BLOCK as u64;
    for number in 0..500 {
        file.write_at(&[7; BLOCK], 2 * block * number).unwrap();
    }
    filesystem.commit().unwrap();
    for number in 500..510 {
        file.write_at(&[7; BLOCK], 2 * block * number).unwrap();
        let events = device.count();
        file.sync_all().unwrap();
        // Data; two nodes, each twice; the superblock.
        assert_eq!(Cost::of(&device.log()[events..], 0).written, BLOCK + 4 * 4096 + BLOCK);
    }
    file.close().unwrap();
    filesystem.abandon();
    check_repaired(&State { completed: 0, lost: 0, image: device.recording().end() }, "hole items");
}

/// The writes and waits of an operation.
#[derive(Debug, PartialEq)]
struct Cost {
    /// The number of waits.
    waits: u64,
    flushes: usize,
    /// The number of bytes.
    written: usize,
}

impl Cost {
    fn of(events: &[Recorded], waits: u64) -> Self {
        let is_flush = |one: &&Recorded| matches!(one.event, Event::Flush { .. });
        let written = events.iter().map(|recorded| match &recorded.event {
            Event::Write { bytes, .. } => bytes.len(),
            _ => 0,
        });
        let flushes = events.iter().filter(is_flush).count();
        Self { waits, flushes, written: written.sum() }
    }
}
