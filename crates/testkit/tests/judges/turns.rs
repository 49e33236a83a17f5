//! Many threads of userbtrfs and Linux take turns on one image, of every kind: each thread in a
//! directory of its own, compared with a model of its own.
//!
//! 1. A turn of ours ends with a clean close or a crash, with a log that Linux replays.
//! 2. In some images one of our threads resizes the filesystem meanwhile.
//! 3. After each turn `btrfs check` and a scrub by Linux find no errors, and Linux shows what we
//!    show.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use rustix::io::Errno;
use userbtrfs::{Filesystem, OpenOptions, TreeId};
use userbtrfs_testkit::engine_target::Actor;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::Manifest;
use userbtrfs_testkit::model::{Answer, End, Model};
use userbtrfs_testkit::operation::{Generator, Object, Operation};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::target::{self, LinuxTarget, Target};
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_ours};

use super::made::{Made, by_kinds, check_file};
use super::ours::{drop_space_behind_ends, judge_by_linux};
use super::threads::names_root;
use super::{assert_none, open};

const THREADS: u8 = 4;
/// One in this many images is resized, by this thread.
const RESIZED: u64 = 2;
const RESIZER: u8 = 0;
/// The number of handles of one thread.
const HANDLES: u8 = 16;
/// The number of turns of each side.
const TURNS: u32 = 2;
/// The number of operations of one thread in a turn.
const STEPS: u32 = 80;
/// The number of kinds in CI.
const KINDS: usize = 4;
/// The file that is synced last in a turn of ours.
const LOGGED: &str = "logged";
/// Its size in bytes.
const LOGGED_LEN: usize = 50_000;

/// A directory with its model, for either side.
struct Worker {
    thread: u8,
    model: Model,
    generator: Generator,
    random: Random,
}

impl Worker {
    fn new(made: &Made, thread: u8, seed: u64) -> Self {
        let seed = seed ^ u64::from(thread) << 40;
        let generator = Generator::new(seed, made.options.nodesize).commit_every(60);
        let generator = if thread == RESIZER { made.resizing(generator) } else { generator };
        Self { thread, model: made.model(), generator, random: Random::new(seed) }
    }

    fn directory(&self) -> String {
        format!("own-{}", self.thread)
    }

    /// Executes the next operation that `takes` returns true for, below the directory.
    fn step(
        &mut self,
        takes: impl FnMut(&Operation) -> bool,
        mut act: impl FnMut(&Operation) -> End,
    ) {
        let operation = self.generator.find(takes).expect("it does not end");
        let expected = self.model.apply(&operation);
        // The root of the model is an ordinary directory here, so operations on it would differ.
        if !names_root(&operation) {
            let below = operation.below(self.directory().as_bytes(), self.first_handle());
            assert_eq!(act(&below), expected, "thread {}: {below}", self.thread);
        }
    }

    fn first_handle(&self) -> u8 {
        self.thread * HANDLES
    }

    fn work(&mut self, filesystem: &Filesystem) {
        let mut actor = Actor::new(filesystem);
        for _ in 0..STEPS {
            self.step(|_| true, |operation| actor.apply(operation));
            if self.random.one_in(10) {
                actor.sync(&Object::Path(self.directory().as_str().into()), false).unwrap();
            }
        }
        self.end();
        assert_eq!(actor.late_errors(), 0, "data is lost");
    }

    fn work_by_linux(&mut self, target: &mut LinuxTarget<'_>) {
        let first_handle = self.first_handle();
        // Linux may lack the space.
        let is_taken = |operation: &Operation| !matches!(operation, Operation::Resize { .. });
        self.step(is_taken, |operation| {
            if *operation != Operation::Reopen {
                return target::do_to(target, operation);
            }
            // The handles of other threads stay open.
            for handle in first_handle..first_handle + HANDLES {
                let closed = target.apply(&Operation::Close { handle });
                assert!(closed.is_ok() || closed == Err(Errno::BADF), "{closed:?}");
            }
            Ok(Answer::default())
        });
    }

    /// Records that all handles are closed.
    fn end(&mut self) {
        self.model.apply(&Operation::Reopen).unwrap();
    }

    fn assert_shown(&self, what: &str, shown: &Manifest) {
        let own = shown.below(format!("/{}", self.directory()).as_bytes());
        let what = format!("{what}, thread {}", self.thread);
        assert_none(&what, &self.model.differences(&own));
    }
}

fn open_for_writing(image: &Path) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(16 << 20);
    options.open(image).unwrap()
}

/// Returns the data that is synced last in a turn.
fn logged(turn: u32) -> Vec<u8> {
    pattern::bytes(turn + 1, 0, LOGGED_LEN)
}

fn turn_of_ours(made: &Made, image: &Path, workers: &mut [Worker], turn: u32, is_cut: bool) {
    let filesystem = open_for_writing(image);
    let start = Barrier::new(workers.len());
    thread::scope(|scope| {
        for worker in workers.iter_mut() {
            let filesystem = &filesystem;
            let start = &start;
            scope.spawn(move || {
                start.wait();
                worker.work(filesystem);
            });
        }
    });
    if is_cut {
        if made.is_resized() {
            make_room_for_linux(made, &filesystem, workers);
        }
        filesystem.commit().unwrap();
    }
    let root = filesystem.root();
    let inode = match turn {
        0 => root.create(LOGGED.as_bytes(), 0o644),
        _ => root.lookup(LOGGED.as_bytes()),
    };
    let file = inode.and_then(|inode| inode.open()).unwrap();
    file.write_at(&logged(turn), 0).unwrap();
    file.sync_all().unwrap();
    if is_cut {
        filesystem.abandon();
        return;
    }
    file.close().unwrap();
    filesystem.close().unwrap();
}

/// Grows a filesystem, and removes the block groups that a resize filled for a while: Linux keeps
/// these for half a minute, and on what a shrink left it lacks space for the metadata of nodes of
/// 64 KiB.
fn make_room_for_linux(made: &Made, filesystem: &Filesystem, workers: &mut [Worker]) {
    const NAME: &[u8] = b"change";
    let grow = Operation::Resize { bytes: made.len };
    workers[usize::from(RESIZER)].model.apply(&grow).unwrap();
    Actor::new(filesystem).apply(&grow).unwrap();
    filesystem.commit().unwrap();
    let root = filesystem.root();
    root.create(NAME, 0o644).unwrap();
    root.remove_file(NAME).unwrap();
    filesystem.commit().unwrap();
}

fn turn_of_linux(linux: &Linux, made: &Made, image: &Path, workers: &mut [Worker], turn: u32) {
    let mut target = LinuxTarget::new(linux, image).unwrap();
    for worker in workers.iter_mut().filter(|_| made.has_hole_items()) {
        let dir = worker.directory();
        drop_space_behind_ends(&mut target, &mut worker.model, dir.as_bytes());
    }
    assert!(fs::read(target.path().join(LOGGED)).unwrap() == logged(turn), "what was synced");
    for _ in 0..STEPS {
        for worker in workers.iter_mut() {
            worker.work_by_linux(&mut target);
        }
    }
    workers.iter_mut().for_each(Worker::end);
}

/// Checks that the image is sound, and that we and Linux show the expected state.
fn judge(linux: &Linux, what: &str, image: &Path, workers: &[Worker]) {
    let opened = open(image, 64).unwrap();
    let resized = workers[usize::from(RESIZER)].model.size();
    assert_eq!(Some(opened.superblock().total_bytes), resized, "{what}");
    let shown = walk_ours::walk(&opened).unwrap();
    for worker in workers {
        worker.assert_shown(what, &shown);
    }
    judge_by_linux(linux, what, image);
    linux.scrub(image).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    linux.assert_no_complaints().unwrap_or_else(|error| panic!("{what}: {error:#}"));
}

fn take_turns(linux: &Linux, made: &Made, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    made.image().write_to(&image).unwrap();
    let mut random = Random::new(seed);
    let mut workers: Vec<_> = (0..THREADS).map(|thread| Worker::new(made, thread, seed)).collect();
    let filesystem = open_for_writing(&image);
    for worker in &workers {
        filesystem.root().create_dir(worker.directory().as_bytes(), 0o755).unwrap();
    }
    filesystem.close().unwrap();
    for turn in 0..TURNS {
        let what = format!("{}, seed {seed}, turn {turn}", made.name);
        let is_cut = random.one_in(2);
        turn_of_ours(made, &image, &mut workers, turn, is_cut);
        if !is_cut {
            check_file(&what, &image);
            judge(linux, &what, &image, &workers);
            if made.is_resized() {
                let filesystem = open_for_writing(&image);
                make_room_for_linux(made, &filesystem, &mut workers);
                filesystem.close().unwrap();
            }
        }
        turn_of_linux(linux, made, &image, &mut workers, turn);
        check_file(&what, &image);
        judge(linux, &format!("{what}, Linux's"), &image, &workers);
    }
}

#[test]
fn threads_of_ours_and_linux_take_turns() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    by_kinds(KINDS, |made, seed| {
        let to_resize = made.to_resize();
        let made = if seed.is_multiple_of(RESIZED) { &to_resize } else { made };
        take_turns(&linux, made, seed);
    });
}
