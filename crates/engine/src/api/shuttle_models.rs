//! Shuttle models of the log beside the commit: threads write and sync files and directories,
//! rename and link logged inodes, and commit.
//!
//! 1. Shuttle chooses the schedule of the threads and their operations, by its seed.
//! 2. After a certain number of syncs time stops: the content of the device at that moment is
//!    opened again, which replays the log. Everything that was synced exists, under a name that it
//!    had since the sync, and under no others.
//! 3. No failure is reported, and when all threads are done all changes exist.
//! 4. Often enough there is a log when time stops.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test -p userbtrfs-engine --release --lib shuttle_models
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_sync::{Arc, Class, Mutex, thread};

use crate::api::{
    Dir, File, FileKind, Filesystem, FullCommitReason, OpenOptions, RenameMode, TreeId,
};
use crate::inode::exploring;
use crate::inode::exploring::{JOINED, kept, runs};

/// Syncs of one thread in one run.
const STEPS: u32 = 3;
/// The bytes of one append.
const BLOCK: usize = 4096;
/// The names of the files: `w` is appended to, `r` is moved around.
const FILES: [&[u8]; 2] = [b"w", b"r"];
/// The places of `r`, in order: a directory, and a name in it.
const PLACES: [(usize, &[u8]); 3] = [(0, b"r"), (1, b"r"), (1, b"s")];
/// The directories, which stay.
const DIRS: [&[u8]; 2] = [b"left", b"rite"];

/// The syncs that were acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Synced {
    /// The number of syncs.
    count: u32,
    /// The synced blocks of `w`.
    blocks: u32,
    /// The synced names in `left`.
    names: u32,
    /// How often `r` had moved when it was last synced.
    moves: u32,
}

/// The number of runs with a log when time stopped.
static WITH_A_LOG: AtomicUsize = AtomicUsize::new(0);

struct World {
    device: Arc<MemoryDevice>,
    filesystem: Filesystem,
    /// The number of syncs after which time stops.
    stop_at: u32,
    told: Mutex<Told>,
}

/// The record of syncs.
#[derive(Default)]
struct Told {
    synced: Synced,
    /// The content of the device when time stopped, and the syncs until then.
    stopped: Option<(Vec<u8>, Synced)>,
}

fn open(device: &Arc<MemoryDevice>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(4 << 20);
    options.open_devices(vec![Arc::clone(device) as Arc<dyn Device>]).unwrap()
}

impl World {
    fn new(image: Vec<u8>) -> Self {
        let device = Arc::new(MemoryDevice::from_bytes(image));
        let filesystem = open(&device);
        let told = Mutex::new(Class::InodeState, Told::default());
        let stop_at = thread_rng().gen_range(1..=2 * STEPS);
        Self { device, filesystem, stop_at, told }
    }

    fn dir(&self, number: usize) -> Dir {
        self.filesystem.root().lookup(DIRS[number]).unwrap().open_dir().unwrap()
    }

    /// Appends to a file that another thread links meanwhile.
    fn append(&self) {
        let file = self.dir(0).lookup(b"w").unwrap().open().unwrap();
        for count in 1..=STEPS {
            file.append(&block(count)).unwrap();
            if thread_rng().gen_ratio(1, 3) { file.sync_data() } else { file.sync_all() }.unwrap();
            self.acknowledge(|synced| synced.blocks = count);
        }
        file.close().unwrap();
    }

    /// Creates names in a directory, and syncs the directory.
    fn create(&self) {
        let dir = self.dir(0);
        for count in 1..=STEPS {
            dir.create(&new_name(count), 0o644).unwrap();
            dir.sync_all().unwrap();
            self.acknowledge(|synced| synced.names = count);
        }
    }

    /// Moves a file around, and sometimes syncs it.
    fn rename(&self) {
        let dirs = [self.dir(0), self.dir(1)];
        let inode = dirs[0].lookup(b"r").unwrap();
        for moves in 1..=2 * STEPS {
            let (from, name) = place(moves - 1);
            let (to, new) = place(moves);
            dirs[from].rename(name, &dirs[to], new, RenameMode::NoReplace).unwrap();
            if thread_rng().gen_ratio(1, 2) {
                inode.sync_all().unwrap();
                self.acknowledge(|synced| synced.moves = moves);
            }
        }
    }

    /// Links the file that is appended to into the other directory, and unlinks it there.
    fn link(&self) {
        let left = self.dir(0);
        let rite = self.dir(1);
        let inode = left.lookup(b"w").unwrap();
        for _ in 0..STEPS {
            rite.link(b"w", &inode).unwrap();
            if thread_rng().gen_ratio(1, 2) {
                rite.sync_all().unwrap();
            }
            rite.remove_file(b"w").unwrap();
        }
    }

    /// Renames entries of a directory, which are only synced with the directory.
    fn shuffle(&self) {
        let dir = self.dir(0);
        let rename = |from: &[u8], to: &[u8], mode| dir.rename(from, &dir, to, mode).unwrap();
        for _ in 0..2 * STEPS {
            match thread_rng().gen_range(0..3) {
                0 => rename(b"a", b"b", RenameMode::Exchange),
                1 => {
                    rename(b"a", b"c", RenameMode::NoReplace);
                    rename(b"c", b"a", RenameMode::NoReplace);
                }
                _ => {
                    dir.create(b"n", 0o644).unwrap();
                    rename(b"n", b"d", RenameMode::Replace);
                }
            }
        }
    }

    fn sync_dir(&self) {
        let dir = self.dir(0);
        for _ in 0..2 * STEPS {
            dir.sync_all().unwrap();
            self.acknowledge(|_| {});
        }
    }

    fn commit(&self) {
        for _ in 0..2 {
            self.filesystem.commit().unwrap();
        }
    }

    /// Records a sync, and stops time if it is the last one.
    fn acknowledge(&self, note: impl FnOnce(&mut Synced)) {
        let mut told = self.told.lock();
        note(&mut told.synced);
        told.synced.count += 1;
        if told.synced.count == self.stop_at {
            told.stopped = Some((self.device.snapshot(), told.synced));
        }
    }
}

fn block(count: u32) -> Vec<u8> {
    vec![u8::try_from(count).expect("there are few"); BLOCK]
}

fn new_name(count: u32) -> Vec<u8> {
    format!("new {count}").into_bytes()
}

/// Returns the place of a file that moved this often.
fn place(moves: u32) -> (usize, &'static [u8]) {
    PLACES[usize::try_from(moves).expect("there are few") % PLACES.len()]
}

/// Returns an image with the directories and files.
fn image() -> Vec<u8> {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    kept(&IMAGE, |empty| {
        let world = World::new(empty);
        let dirs = DIRS.map(|name| world.filesystem.root().create_dir(name, 0o755).unwrap());
        for name in FILES {
            dirs[0].create(name, 0o644).unwrap();
        }
        drop(dirs);
        let World { device, filesystem, .. } = world;
        filesystem.close().unwrap();
        device.snapshot()
    })
}

/// The content after reopening: the names with their inodes, and the data of `w`.
struct Left {
    names: BTreeMap<(Vec<u8>, Vec<u8>), u64>,
    written: Vec<u8>,
    has_log: bool,
}

/// Opens an image, and checks that names and link counts agree.
fn left(image: Vec<u8>) -> Left {
    let filesystem = open(&Arc::new(MemoryDevice::from_bytes(image)));
    let has_log = filesystem.replayed().is_some();
    let mut names = BTreeMap::new();
    let mut counts: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
    for dir in DIRS {
        let opened = filesystem.root().lookup(dir).unwrap().open_dir().unwrap();
        let mut size = 0;
        for entry in opened.entries() {
            let entry = entry.unwrap();
            let metadata = opened.follow(&entry).unwrap().metadata().unwrap();
            assert_eq!(metadata.kind, FileKind::Regular);
            let number = metadata.id.number;
            names.insert((dir.to_vec(), entry.name().to_vec()), number);
            counts.entry(number).or_insert((metadata.nlink, 0)).1 += 1;
            size += 2 * entry.name().len() as u64;
        }
        assert_eq!(opened.inode().metadata().unwrap().size, size);
    }
    assert!(counts.values().all(|(nlink, names)| nlink == names), "{counts:?} of {names:?}");
    let file = filesystem.root().lookup(DIRS[0]).unwrap().open_dir().unwrap();
    let file: File = file.lookup(b"w").unwrap().open().unwrap();
    let written = file.read_all().unwrap();
    drop(file);
    filesystem.close().unwrap();
    Left { names, written, has_log }
}

impl Left {
    /// Checks that synced changes exist, and that others are old or new, never mixed.
    fn check(&self, synced: Synced) {
        let Self { names, written, .. } = self;
        let whole: Vec<u8> = (1..=STEPS).flat_map(block).collect();
        assert!(whole.starts_with(written), "mixed");
        assert!(written.len() >= BLOCK * usize::try_from(synced.blocks).unwrap(), "{synced:?}");
        for count in 1..=synced.names {
            let name = (DIRS[0].to_vec(), new_name(count));
            assert!(names.contains_key(&name), "{synced:?}: {names:?}");
        }
        let may_be: BTreeSet<_> = (synced.moves..=2 * STEPS).map(place).collect();
        let is_there = |(dir, name): &(usize, &[u8])| {
            names.contains_key(&(DIRS[*dir].to_vec(), name.to_vec()))
        };
        let found = PLACES.iter().filter(|place| is_there(place)).collect::<Vec<_>>();
        assert!(!found.is_empty(), "lost: {synced:?}: {names:?}");
        assert!(found.iter().all(|place| may_be.contains(place)), "{synced:?}: {found:?}");
        assert!(synced.moves == 0 || found.len() == 1, "{synced:?}: {found:?}");
    }
}

/// Runs all threads at once.
fn crowd() {
    let world = Arc::new(World::new(image()));
    let works: [fn(&World); 5] =
        [World::append, World::create, World::rename, World::link, World::commit];
    let start = |work: fn(&World)| {
        let world = Arc::clone(&world);
        thread::spawn(move || work(&world))
    };
    let threads = works.map(start);
    for thread in threads {
        thread.join().expect(JOINED);
    }
    let stats = world.filesystem.stats().log;
    let failed = [FullCommitReason::Failed, FullCommitReason::Disabled];
    assert_eq!(failed.map(|reason| stats.commits(reason)), [0; 2]);
    let Told { synced: synced_last, stopped } = std::mem::take(&mut *world.told.lock());
    let World { device, filesystem, .. } = Arc::into_inner(world).expect("all threads ended");
    filesystem.abandon();
    let (image, synced) = stopped.expect("so many were synced");
    let stopped = left(image);
    stopped.check(synced);
    WITH_A_LOG.fetch_add(usize::from(stopped.has_log), Ordering::Relaxed);
    left(device.snapshot()).check(synced_last);
    assert_eq!((synced_last.blocks, synced_last.names), (STEPS, STEPS));
}

/// Syncs a directory while new names in it are exchanged and replace others: both files exist, each
/// under one name, and the replaced name always exists.
fn names_in_a_synced_directory() {
    let world = Arc::new(World::new(image()));
    let dir = world.dir(0);
    let numbers = [b"a", b"b", b"d"].map(|name| dir.create(name, 0o644).unwrap().id().number);
    drop(dir);
    let works: [fn(&World); 3] = [World::shuffle, World::sync_dir, World::commit];
    let start = |work: fn(&World)| {
        let world = Arc::clone(&world);
        thread::spawn(move || work(&world))
    };
    for thread in works.map(start) {
        thread.join().expect(JOINED);
    }
    let Told { stopped, .. } = std::mem::take(&mut *world.told.lock());
    Arc::into_inner(world).expect("all threads ended").filesystem.abandon();
    let Left { names, has_log, .. } = left(stopped.expect("so many were synced").0);
    WITH_A_LOG.fetch_add(usize::from(has_log), Ordering::Relaxed);
    for number in &numbers[..2] {
        let count = names.values().filter(|it| *it == number).count();
        assert_eq!(count, 1, "{number}: {names:?}");
    }
    assert!(names.contains_key(&(DIRS[0].to_vec(), b"d".to_vec())), "{names:?}");
}

/// Syncs a file without a name while it gets one, and then syncs the directory: the name and the
/// content of the file exist.
fn a_first_name_beside_a_sync() {
    let World { device, filesystem, .. } = World::new(image());
    let dir = filesystem.root().lookup(DIRS[0]).unwrap().open_dir().unwrap();
    let inode = dir.create_unnamed(0o644).unwrap();
    inode.open().unwrap().append(&block(1)).unwrap();
    let syncs = inode.clone();
    let links = inode;
    let threads = [
        thread::spawn(move || syncs.sync_all().unwrap()),
        thread::spawn(move || {
            dir.link(b"u", &links).unwrap();
            dir.sync_all().unwrap();
        }),
    ];
    for thread in threads {
        thread.join().expect(JOINED);
    }
    let image = device.snapshot();
    filesystem.abandon();
    let filesystem = open(&Arc::new(MemoryDevice::from_bytes(image)));
    WITH_A_LOG.fetch_add(usize::from(filesystem.replayed().is_some()), Ordering::Relaxed);
    let path = [DIRS[0], b"/u"].concat();
    assert!(filesystem.read(path).unwrap() == block(1));
    filesystem.close().unwrap();
}

fn explore(scheduler: impl Scheduler + 'static, model: fn()) {
    exploring::explore(scheduler, image, model);
    let with_a_log = WITH_A_LOG.load(Ordering::Relaxed);
    assert!(with_a_log > 20, "a log only {with_a_log} times");
}

#[test]
fn a_crowd_by_random_schedules() {
    explore(RandomScheduler::new(runs(200)), crowd);
}

#[test]
fn a_crowd_by_few_preemptions() {
    explore(PctScheduler::new(5, runs(200)), crowd);
}

#[test]
fn names_in_a_synced_directory_by_random_schedules() {
    explore(RandomScheduler::new(runs(200)), names_in_a_synced_directory);
}

#[test]
fn names_in_a_synced_directory_by_few_preemptions() {
    explore(PctScheduler::new(4, runs(200)), names_in_a_synced_directory);
}

#[test]
fn a_first_name_beside_a_sync_by_random_schedules() {
    explore(RandomScheduler::new(runs(200)), a_first_name_beside_a_sync);
}

#[test]
fn a_first_name_beside_a_sync_by_few_preemptions() {
    explore(PctScheduler::new(4, runs(200)), a_first_name_beside_a_sync);
}
