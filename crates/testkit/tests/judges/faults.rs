//! Each read, write and flush of a workload fails in turn, also for want of space below: the caller
//! is told of an I/O error, nothing is written after a failed commit, and the image reopens at a
//! commit, clean.
//!
//! 1. Data that cannot be written is told to who syncs or closes its file, or commits; all else
//!    goes on. What the file holds then is, byte by byte, what it held at some time ([`History`]).
//! 2. What is read after a failure is what was there since the last commit, or an error.
//! 3. Nothing is logged: an fsync is a commit.

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
use userbtrfs_testkit::manifest::{Difference, Entry, Kind, Manifest};
use userbtrfs_testkit::model::{Answer, End, Model};
use userbtrfs_testkit::operation::{Generator, Operation};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_ours};

use super::made::{Made, check_image, check_image_by_copy, kinds};
use super::{assert_none, is_torture, open_device, seed};

/// Operations of the workload that is there before, and of the one in which things fail.
const LENGTH: usize = 160;
/// Faults of each kind that are tried in CI.
const SAMPLE: usize = 12;
/// Workloads on each kind of filesystem in torture, each of which meets one in so many faults: each
/// of its requests fails, in one of the ways at least.
const ROUNDS: usize = 3;
/// How long a workload may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a failed write of data may leave as it was.
const LATE: &[&str] = &["size", "segments", "content", "mtime"];

/// What is done, to what.
struct Workload {
    base: SparseImage,
    before: Model,
    operations: Vec<Operation>,
}

impl Workload {
    /// Fills a filesystem, so that there is something to read.
    fn new(made: &Made, seed: u64) -> Self {
        let node_size = made.options.nodesize;
        let device = Arc::new(made.image().to_device());
        let filesystem = open_for_writing(device.clone()).unwrap();
        let mut actor = Actor::new(&filesystem);
        let (filling, operations) = draw(seed, node_size);
        let mut before = Model::new(node_size);
        for operation in &filling {
            let expected = before.apply(operation);
            assert_eq!(actor.apply(operation), expected, "{operation}");
        }
        drop(actor);
        filesystem.close().unwrap();
        Self { base: device.image(), before, operations }
    }

    /// How many requests of a kind there are.
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

/// What fills a filesystem, and what is done then: by the first seed from this one on that leaves
/// out nothing of what [`is_varied`] asks for.
fn draw(seed: u64, node_size: u32) -> (Vec<Operation>, Vec<Operation>) {
    let mut drawn = (seed..).map(|seed| {
        let mut generator = Generator::new(seed, node_size).commit_every(40);
        let filling: Vec<_> =
            generator.by_ref().take(4 * LENGTH).chain([Operation::Reopen]).collect();
        (filling, generator.take(LENGTH).chain([Operation::Reopen]).collect())
    });
    let is_wanted = |drawn: &(Vec<_>, Vec<_>)| is_varied(node_size, &drawn.0, &drawn.1);
    drawn.find(is_wanted).expect("seeds do not end")
}

/// Whether after this filling data is written, space is set aside, and attributes and xattrs are
/// set.
fn is_varied(node_size: u32, filling: &[Operation], operations: &[Operation]) -> bool {
    let mut model = Model::new(node_size);
    for operation in filling {
        let _ = model.apply(operation);
    }
    let done: Vec<_> = operations.iter().filter(|one| model.apply(one).is_ok()).collect();
    let kinds: [fn(&Operation) -> bool; 4] = [
        |one| matches!(one, Operation::Write { length: 1.., .. }),
        |one| matches!(one, Operation::Allocate { .. }),
        |one| matches!(one, Operation::Setattr { .. }),
        |one| matches!(one, Operation::SetXattr { .. }),
    ];
    kinds.iter().all(|is| done.iter().any(|one| is(one)))
}

fn open_for_writing(device: Arc<dyn userbtrfs::device::Device>) -> userbtrfs::Result<Filesystem> {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(4 << 20);
    options.tree_log(false);
    options.open_devices(vec![device])
}

/// A workload under way.
struct Run<'a> {
    workload: &'a Workload,
    filesystem: Filesystem,
    actor: Actor,
    /// What was done.
    model: Model,
    /// What may be on the disk: the last commit that ended well, and those that were tried since.
    durable: Vec<Model>,
    /// What was done to files since nothing had failed.
    history: History,
    device: Arc<FaultyDevice>,
    /// How many calls said that something failed.
    told: u64,
    /// Whether the filesystem has turned read-only.
    stopped: bool,
}

/// How a workload ended.
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
        })
    }

    fn finish(mut self) -> Ended {
        for operation in &self.workload.operations {
            self.step(operation);
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

    /// What is in memory is what was done, but for data of files that could not be written.
    fn check_shown(&self) {
        let Ok(shown) = walk_ours::walk(&self.filesystem) else {
            return assert!(self.device.failed() > 0, "it cannot be read");
        };
        let mut differences = self.model.differences(&shown);
        differences.retain(|one| self.device.failed() == 0 || !may_be_late(one, &shown));
        assert_none("in memory", &differences);
        for (path, id) in self.model.files() {
            let name = String::from_utf8_lossy(&path);
            let file = self.filesystem.open_file(&path).unwrap();
            let checked = self.history.check(id, &file, true);
            checked.unwrap_or_else(|error| panic!("in memory: {name}: {error:#}"));
        }
    }

    fn step(&mut self, operation: &Operation) {
        let is_lossy = self.device.failed() > 0;
        if is_lossy && matches!(operation, Operation::Append { .. }) {
            // Where the file ends is not known.
            return;
        }
        let makes_durable =
            matches!(operation, Operation::Commit | Operation::Reopen | Operation::Sync { .. });
        let mut after = self.model.clone();
        let expected = after.apply(operation);
        if makes_durable {
            self.durable.push(after.clone());
        }
        self.history.note(&after, operation);
        let before = self.filesystem.superblock().generation;
        let found = self.actor.apply(operation);
        let has_committed = self.filesystem.superblock().generation > before;
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
                    // A sync writes the data of one file.
                    let is_all = !matches!(operation, Operation::Sync { .. });
                    if is_all && self.device.failed() == 0 {
                        self.history = History::from(&self.model);
                    }
                }
            }
            Err(Errno::IO | Errno::ROFS) if found != expected => {
                self.told += 1;
                self.stopped = !self.filesystem.is_writable();
                assert!(self.stopped || found != Err(Errno::ROFS), "{operation}: no reason");
                if matches!(operation, Operation::Reopen | Operation::Close { .. }) {
                    // The handles are gone all the same.
                    self.model = after;
                }
            }
            Err(_) => assert_eq!(found, expected, "{operation}"),
        }
    }
}

/// What ended well ended as it must; what is read is exactly what is there, but where something
/// failed before: then it is what was there at some time.
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

/// Whether an operation changes what is in the filesystem.
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
    let (seed, all) = (seed(), kinds());
    let (tried, rounds) = if is_torture() { (all.len(), ROUNDS) } else { (3, 1) };
    // No two workloads are the same.
    let mut seeds = (seed..).step_by(1000);
    for made in all.iter().take(tried) {
        for (round, seed) in (0..rounds).zip(seeds.by_ref()) {
            fail_in_turn(made, seed, (round, rounds));
        }
    }
}

/// Has a workload meet faults: each that comes in its turn, of so many turns.
fn fail_in_turn(made: &Made, seed: u64, (turn, turns): (usize, usize)) {
    let what = format!("{}, seed {seed}", made.name);
    let workload = Arc::new(Workload::new(made, seed));
    for request in [Request::Read, Request::Write, Request::Flush] {
        // How many requests there are varies from run to run: the last faults may meet none.
        let faults = faults(request, workload.count(request), seed, SAMPLE);
        let faults: Vec<_> = faults.into_iter().skip(turn).step_by(turns).collect();
        let tried = faults.len();
        let met = faults.into_iter().filter(|fault| judge(&what, &workload, *fault)).count();
        println!("{what}: {met} of {tried} faults met a {request:?}");
        assert!(4 * met >= 3 * tried, "{what}: of {tried} faults {met} alone met a {request:?}");
    }
}

/// The faults that are tried: for every n in torture, else so many.
pub(crate) fn faults(operation: Request, count: u64, seed: u64, sample: usize) -> Vec<Fault> {
    assert!(count > 0, "there are requests to fail: {operation:?}");
    let mut kinds = vec![(How::Eio, false), (How::Eio, true), (How::Short, false)];
    if operation != Request::Read {
        // A disk that is full may stay so.
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

/// Whether the fault was met.
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
                // Of a write of data nobody need be told if the file is gone.
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

/// Runs the workload, but no longer than it may take; nothing where it cannot be opened.
fn run_in_time(what: &str, workload: &Arc<Workload>, device: &Arc<FaultyDevice>) -> Option<Ended> {
    let (workload, device) = (Arc::clone(workload), Arc::clone(device));
    in_time(what, move || match Run::new(&workload, &device) {
        Ok(run) => Some(run.finish()),
        Err(error) => {
            assert_eq!(errno(&error), Errno::IO, "{error}");
            None
        }
    })
}

/// Does something that neither panics nor takes longer than it may.
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

/// The image is clean, and shows one of these: in all if nobody was told of something else, which
/// the history has.
fn assert_reopens(what: &str, device: &SparseDevice, durable: &[Model], history: Option<&History>) {
    let image = device.image();
    let opened = open_device(Arc::new(image.to_device())).unwrap();
    // What is cut short may be the primary superblock; btrfs-progs read another if asked to.
    match opened.notices() {
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

/// Whether it is of what a failed write of data may leave.
fn may_be_late(difference: &Difference, shown: &Manifest) -> bool {
    let is_file = |entry: &Entry| entry.kind == Kind::File;
    let of_file = shown.get(difference.path.as_slice()).is_some_and(is_file);
    of_file && LATE.contains(&difference.attribute.as_str())
}

/// Data that cannot be written is told to who syncs or closes, once, and is gone.
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
        let (operation, how) = (Request::Write, How::Eio);
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

/// What could not be written whole takes no space, where discards are wanted.
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
    let (operation, how) = (Request::Write, How::NoSpace);
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

/// What is written past memory and fails is told at once; each sector is as it was or as it was to
/// be, now and after reopening.
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
    const SECTOR: usize = 4096;
    let what = format!("in place: {in_place}, {how:?}");
    let inner = Arc::new(kinds()[0].image().to_device());
    let device = Arc::new(FaultyDevice::new(inner.clone()));
    let filesystem = open_for_writing(device.clone()).unwrap();
    let inode = filesystem.root().create(b"file", 0o644).unwrap();
    if in_place {
        inode.set_flags(InodeFlags::NODATACOW).unwrap();
    }
    let file = inode.open().unwrap();
    let [old, new] = [1, 2].map(|seed| pattern::bytes(seed, 0, 20 * SECTOR));
    file.write_at(&old, 0).unwrap();
    file.sync_all().unwrap();
    let (start, end) = (3 * SECTOR, 13 * SECTOR);
    let buffer = Arc::new(Buffer::from(&new[start..end]));
    device.arm(Fault { operation: Request::Write, after: 0, how, lasting: false });
    let error = file.write_direct(&buffer, start as u64).unwrap_err();
    assert_eq!((errno(&error), device.failed()), (Errno::IO, 1), "{what}");
    assert!(filesystem.is_writable(), "{what}: nothing else is lost");
    let check = |found: &[u8]| {
        assert_eq!(found.len(), old.len(), "{what}");
        for at in (0..old.len()).step_by(SECTOR) {
            let is = |content: &[u8]| found[at..at + SECTOR] == content[at..at + SECTOR];
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
    // It is done all the same when it is tried again.
    file.write_direct(&buffer, start as u64).unwrap();
    file.close().unwrap();
    filesystem.close().unwrap();
    let left = open_device(inner.clone()).unwrap().read("/file").unwrap();
    assert!(left == [&old[..start], &new[start..end], &old[end..]].concat(), "{what}");
    check_image(&what, &inner.image());
}
