//! Many threads concurrently: each in a directory of its own, compared with a model of its own, and
//! all of them in shared ones. Linux shows the same state as we do at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::thread;

use userbtrfs::{Filesystem, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::SparseDevice;
use userbtrfs_testkit::engine_target::Actor;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::Mode;
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{Drivers, Generator, Object, Operation, RenameKind};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{skip_unless_linux, walk_ours};

use super::contended::Contended;
use super::made::{Made, check_file, kinds, squeeze, with_memory};
use super::ours::judge_by_linux;
use super::{assert_none, assert_same, is_torture, open, seed};

const THREADS: u8 = 8;
/// The number of handles of one thread.
const HANDLES: u8 = 16;
/// The shared directory.
const SHARED: &str = "shared";
/// The maximum number of names that may move while a directory is listed.
const MOVED_MAX: usize = 48;
/// Inodes are evicted before one in this many steps of a thread.
const SQUEEZED: u64 = 100;
/// The number of names in it that all threads create and remove.
const CONTENDED: u64 = 6;

#[test]
fn threads_do_not_see_each_other() {
    skip_unless_linux!();
    let seed = seed();
    let rounds = if is_torture() { 200 } else { 1 };
    for seed in seed..seed + rounds {
        for (made, seed) in kinds().iter().take(3).zip((seed..).step_by(1000)) {
            run_threads(made, seed);
        }
    }
}

/// The knowledge of one thread at the end.
struct Known {
    model: Model,
    /// Its own names in the shared directory.
    names: BTreeSet<String>,
    /// How often it created each contended name, minus how often it removed it.
    balance: BTreeMap<String, i64>,
}

fn run_threads(made: &Made, seed: u64) {
    let device = Arc::new(made.image().to_device());
    let mut options = with_memory(seed);
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0);
    let filesystem = options.open_devices(vec![device.clone()]).unwrap();
    for dir in (0..THREADS).map(directory).chain([SHARED.to_owned()]) {
        filesystem.root().create_dir(dir.as_bytes(), 0o755).unwrap();
    }
    let contended = Contended::new(&filesystem, THREADS);
    let start = Barrier::new(THREADS.into());
    let known: Vec<Known> = thread::scope(|scope| {
        let filesystem = &filesystem;
        let contended = &contended;
        let start = &start;
        let work = |thread| {
            scope.spawn(move || {
                start.wait();
                Worker::new(made, filesystem, contended, seed, thread).run()
            })
        };
        let threads: Vec<_> = (0..THREADS).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    contended.judge(&format!("{}, seed {seed}", made.name));
    drop(contended);
    judge(made, filesystem, &device, &known);
}

fn directory(thread: u8) -> String {
    format!("own-{thread}")
}

fn judge(made: &Made, filesystem: Filesystem, device: &Arc<SparseDevice>, known: &[Known]) {
    let shown = walk_ours::walk(&filesystem).unwrap();
    for (thread, known) in (0..).zip(known) {
        let own = shown.below(format!("/{}", directory(thread)).as_bytes());
        assert_none(&format!("{}, thread {thread}", made.name), &known.model.differences(&own));
    }
    let mut expected: BTreeSet<String> = known.iter().flat_map(|k| k.names.clone()).collect();
    let mut balance: BTreeMap<&str, i64> = BTreeMap::new();
    for (name, count) in known.iter().flat_map(|known| &known.balance) {
        *balance.entry(name).or_default() += count;
    }
    for (name, count) in balance {
        assert!((0..=1).contains(&count), "{name} was made {count} times more than removed");
        expected.extend((count == 1).then(|| name.to_owned()));
    }
    assert_eq!(listed(&filesystem), expected);
    filesystem.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    device.image().write_to(&file).unwrap();
    check_file(made.name, &file);
    assert_same(made.name, &shown, &walk_ours::walk(&open(&file, 64).unwrap()).unwrap());
    let linux = Linux::lock().unwrap();
    judge_by_linux(&linux, made.name, &file);
    linux.assert_no_complaints().unwrap();
}

/// Lists the names in the shared directory.
fn listed(filesystem: &Filesystem) -> BTreeSet<String> {
    let dir = filesystem.open_dir(format!("/{SHARED}")).unwrap();
    let names: Vec<_> = dir
        .entries()
        .map(|entry| String::from_utf8(entry.unwrap().name().to_vec()).unwrap())
        .collect();
    let set: BTreeSet<_> = names.iter().cloned().collect();
    // Only a name that moves during the listing may be listed twice.
    assert!(names.len() - set.len() <= MOVED_MAX, "{names:?}");
    set
}

struct Worker<'a> {
    seed: u64,
    thread: u8,
    filesystem: &'a Filesystem,
    contended: &'a Contended,
    actor: Actor,
    generator: Generator,
    random: Random,
    known: Known,
}

impl<'a> Worker<'a> {
    fn new(
        made: &Made,
        filesystem: &'a Filesystem,
        contended: &'a Contended,
        seed: u64,
        thread: u8,
    ) -> Self {
        let node_size = made.options.nodesize;
        let own_seed = seed ^ (u64::from(thread) << 40);
        let known = Known {
            model: Model::new(node_size),
            names: BTreeSet::new(),
            balance: BTreeMap::new(),
        };
        Self {
            seed,
            thread,
            filesystem,
            contended,
            actor: Actor::new(filesystem),
            generator: Generator::new(own_seed, node_size)
                .commit_every(200)
                .with_subvolumes(Drivers::Ours)
                .below_directory(),
            random: Random::new(own_seed),
            known,
        }
    }

    fn run(mut self) -> Known {
        let count = if is_torture() { 1000 } else { 150 };
        for step in 0..count {
            self.step_in_own();
            self.contended.step(&mut self.random, self.thread);
            if self.random.one_in(SQUEEZED) {
                squeeze(self.filesystem, self.seed);
            }
            match self.random.below(3) {
                0 => self.step_with_own_names(step),
                _ => self.step_with_contended_names(),
            }
            if self.random.one_in(40) {
                let listed = listed(self.filesystem);
                assert!(self.known.names.is_subset(&listed), "thread {} misses names", self.thread);
            }
        }
        self.actor.apply(&Operation::Reopen).unwrap();
        self.known.model.apply(&Operation::Reopen).unwrap();
        self.known
    }

    fn step_in_own(&mut self) {
        let operation = self.generator.next().expect("it does not end");
        let expected = self.known.model.apply(&operation);
        let below =
            operation.clone().below(directory(self.thread).as_bytes(), self.thread * HANDLES);
        // The root of the model is an ordinary directory here, so operations on it would differ.
        if !names_root(&operation) {
            let found = self.actor.apply(&below);
            assert_eq!(found, expected, "thread {}: {below}", self.thread);
        }
    }

    fn step_with_own_names(&mut self, step: u32) {
        let own: Vec<_> = self.known.names.iter().cloned().collect();
        let new = format!("t{}-{step}", self.thread);
        let old = self.random.pick(&own).cloned();
        match (self.random.below(4), old) {
            (0, Some(old)) => {
                self.shared(|_| Operation::Unlink { path: path(&old) }).unwrap();
                self.known.names.remove(&old);
            }
            (1, Some(old)) => {
                self.rename(&old, &new).unwrap();
                self.known.names.remove(&old);
                self.known.names.insert(new);
            }
            (2, Some(old)) => {
                let from = Object::Path(path(&old));
                self.shared(|_| Operation::Link { from, to: path(&new) }).unwrap();
                self.known.names.insert(new);
            }
            _ => {
                self.create(&new).unwrap();
                self.known.names.insert(new);
            }
        }
    }

    fn step_with_contended_names(&mut self) {
        let [name, other] = [(); 2].map(|()| format!("all-{}", self.random.below(CONTENDED)));
        match self.random.below(3) {
            0 => {
                if self.create(&name).is_ok() {
                    self.count(&name, 1);
                }
            }
            1 => {
                if self.shared(|_| Operation::Unlink { path: path(&name) }).is_ok() {
                    self.count(&name, -1);
                }
            }
            _ => {
                if self.rename(&name, &other).is_ok() {
                    self.count(&name, -1);
                    self.count(&other, 1);
                }
            }
        }
    }

    fn count(&mut self, name: &str, change: i64) {
        *self.known.balance.entry(name.to_owned()).or_default() += change;
    }

    fn create(&mut self, name: &str) -> Result<(), rustix::io::Errno> {
        self.shared(|_| Operation::Create { path: path(name), mode: Mode::new(0o600) })
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), rustix::io::Errno> {
        let from = path(from);
        let to = path(to);
        self.shared(|_| Operation::Rename { from, to, kind: RenameKind::NoReplace })
    }

    fn shared(&mut self, make: impl FnOnce(u8) -> Operation) -> Result<(), rustix::io::Errno> {
        self.actor.apply(&make(self.thread)).map(drop)
    }
}

fn path(name: &str) -> userbtrfs_testkit::manifest::Bytes {
    format!("{SHARED}/{name}").into()
}

/// Returns whether an operation creates or removes the root, which fails for that reason.
pub(crate) fn names_root(operation: &Operation) -> bool {
    match operation {
        Operation::Create { path, .. }
        | Operation::Mkdir { path, .. }
        | Operation::Mknod { path, .. }
        | Operation::Symlink { path, .. }
        | Operation::Unlink { path }
        | Operation::Rmdir { path }
        | Operation::Subvolume { path }
        | Operation::DeleteSubvolume { path } => path.as_slice().is_empty(),
        Operation::Snapshot { source, path, .. } => {
            source.as_slice().is_empty() || path.as_slice().is_empty()
        }
        Operation::Link { to, .. } => to.as_slice().is_empty(),
        Operation::Rename { from, to, .. } => {
            from.as_slice().is_empty() || to.as_slice().is_empty()
        }
        _ => false,
    }
}
