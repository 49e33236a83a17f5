//! A crash at every write while several subvolumes made by Linux are fsynced: the fsynced changes
//! of each are kept, and their shared blocks and extents are intact.
//!
//! 1. Linux makes a subvolume, a snapshot of it, a snapshot of that, and a directory next to them;
//!    random operations change all but the last, so that tree blocks and extents are shared, also
//!    between files of one subvolume. A model has the state of each of them.
//! 2. Random operations are applied to these in turn, with fsyncs of any object in each; the last
//!    snapshot is not changed. A journal for each determines what a crash must leave.
//! 3. Occasionally so much else is changed and read that delayed items are merged and inodes are
//!    evicted in the middle of a transaction.
//! 4. In some states the replay is interrupted by a crash, too: it starts again, with the same
//!    result.
//! 5. Some states are replayed by Linux as well, with the same result, and checked by `btrfs
//!    check`.
//! 6. Some filesystems are resized by the operations in one of the trees.
//! 7. Syncs of several subvolumes that wait for one log commit share the next one, and its
//!    superblock.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::fs::ioctl_ficlone;
use userbtrfs::mkfs::Options;
use userbtrfs::{File as OpenFile, Filesystem};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{Event, PausedDevice, Recording, RecordingDevice, SparseImage};
use userbtrfs_testkit::durability_oracle::{OpWindow, SyncJournal};
use userbtrfs_testkit::engine_target::{EngineTarget, crowd_out, with_little_memory};
use userbtrfs_testkit::linux::{Linux, Mount, run};
use userbtrfs_testkit::manifest::{Bytes, Mode, Time};
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{Drivers, Generator, Object, Operation, join, split};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::sleeping_threads::SleepingThreads;
use userbtrfs_testkit::target::{Directory, do_to};

use super::fsynced::{Step, by_seeds, caught, draw_sync, judge_both, now, shortened};
use super::made::{MIB, Made};
use super::{is_torture, open_device, open_to_write, seed};

/// The maximum number of steps of a sequence.
const STEPS_MAX: usize = 80;
/// The numbers of states of a sequence that are checked by us, and by Linux.
const STATES: usize = 24;
const STATES_FOR_LINUX: usize = 3;
/// The replay of one in this many states is interrupted, at this many points.
const REPLAYED: u64 = 8;
const CUTS_OF_REPLAY: usize = 4;
/// The number of states per attempt to shrink a sequence.
const STATES_TO_SHRINK: usize = 24;
/// The number of operations that Linux applies to a tree at a time.
const MADE: usize = 80;
/// The size of a file that Linux shares.
const SHARED: u64 = 192 << 10;
/// The number of shared files.
const SHARING: u32 = 4;
/// A sync is usually of one of this many objects that were changed last.
const LATELY: usize = 8;
/// One in this many failing operations is executed.
const REFUSED: u64 = 8;
/// Inodes are evicted after one of this many steps.
const EVICTED: u64 = 12;
/// The number of handles of one tree.
const HANDLES: u8 = 16;
/// The number of trees that are changed; one more is not.
const CHANGED: usize = 3;
/// The directory next to the subvolumes, the first one, its snapshot, and the snapshot of that.
const TREES: [&str; CHANGED + 1] = ["top", "first", "second", "third"];

/// The offset of the primary superblock, in bytes.
const SUPERBLOCK: u64 = 64 << 10;
/// How often files of several subvolumes are synced together.
const TURNS: u8 = 3;
/// The number of bytes that they write.
const BLOCK: usize = 4096;

/// A filesystem made by Linux.
struct Base {
    made: Made,
    image: SparseImage,
    /// The state of each tree.
    models: Vec<Model>,
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let nodes = |nodesize| Options { nodesize, ..Options::default() };
        let made = [
            Made::new("default", 192 * MIB, nodes(16384)),
            Made::new("4k nodes", 192 * MIB, nodes(4096)),
            Made::by_progs("hole items", 192 * MIB, nodes(4096), &["-O", "^no-holes"]),
            Made::new("resized", 192 * MIB, nodes(4096)).to_resize(),
        ];
        let linux = Linux::lock().unwrap();
        let make = |(seed, made): (u64, Made)| {
            let name = made.name;
            let base = Base::made_by_linux(&linux, made, seed);
            base.unwrap_or_else(|error| panic!("{name}: {error:#}"))
        };
        (1..).zip(made).map(make).collect()
    })
}

/// A tree of a filesystem that Linux has mounted.
struct Making<'a> {
    mount: &'a Mount,
    name: &'static str,
    model: Model,
}

impl Making<'_> {
    /// Applies random operations.
    fn change(&mut self, seed: u64, nodesize: u32) -> Result<()> {
        let mut directory = Directory::open(&self.mount.path().join(self.name))?;
        let generator = Generator::new(seed, nodesize).commit_every(0).on(self.model.clone());
        for operation in generator.take(MADE) {
            let expected = self.model.apply(&operation);
            ensure!(directory.apply(&operation) == expected, "{operation}");
        }
        self.model.apply(&Operation::Reopen).context("closing all").map(drop)
    }

    /// Creates files that share their extents.
    fn share(&mut self) -> Result<()> {
        let mut directory = Directory::open(&self.mount.path().join(self.name))?;
        let path = |number| format!("shared {number}").into_bytes();
        for number in 0..SHARING {
            let object = Object::Path(path(number).into());
            let write = Operation::Write { object, offset: 0, length: SHARED, seed: 7 };
            let create = Operation::Create { path: path(number).into(), mode: Mode::new(0o644) };
            let by_linux: &[_] = if number == 0 { &[&create, &write] } else { &[&create] };
            for operation in [&create, &write] {
                ensure!(self.model.apply(operation).is_ok(), "{operation}");
            }
            for operation in by_linux {
                ensure!(directory.apply(operation).is_ok(), "{operation}");
            }
        }
        let file = |number| self.mount.path().join(self.name).join(format!("shared {number}"));
        let first = File::open(file(0))?;
        first.sync_all()?;
        for number in 1..SHARING {
            ioctl_ficlone(File::options().write(true).open(file(number))?, &first)?;
        }
        Ok(())
    }

    /// Creates a snapshot.
    fn snapshot(&self, name: &'static str) -> Result<Self> {
        let of = self.mount.path().join(self.name);
        let at = self.mount.path().join(name);
        run(Command::new("btrfs").args(["subvolume", "snapshot"]).args([of, at]))?;
        Ok(Self { name, model: self.model.clone(), ..*self })
    }
}

impl Base {
    fn made_by_linux(linux: &Linux, made: Made, seed: u64) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("image");
        made.image().write_to(&file)?;
        let mount = linux.mount(&file, "noatime,subvolid=5")?;
        let models = make_trees(&mount, &made, seed)?;
        drop(mount);
        linux.assert_no_complaints()?;
        Ok(Self { made, image: SparseImage::from_file(&file)?, models })
    }
}

fn make_trees(mount: &Mount, made: &Made, seed: u64) -> Result<Vec<Model>> {
    let nodesize = made.options.nodesize;
    let empty = |name| Making { mount, name, model: made.model() };
    let [top, first, second, third] = TREES;
    let mut top = empty(top);
    let mut first = empty(first);
    let [dir, subvolume] = [&top, &first].map(|tree| mount.path().join(tree.name));
    fs::create_dir(&dir)?;
    run(Command::new("btrfs").args(["subvolume", "create"]).arg(&subvolume))?;
    for root in [dir, subvolume] {
        fs::set_permissions(root, Permissions::from_mode(0o755))?;
    }
    top.change(seed, nodesize)?;
    first.change(seed + 10, nodesize)?;
    first.share()?;
    let mut second = first.snapshot(second)?;
    first.change(seed + 20, nodesize)?;
    second.change(seed + 30, nodesize)?;
    let third = second.snapshot(third)?;
    second.change(seed + 40, nodesize)?;
    Ok([top, first, second, third].map(|tree| tree.model).into())
}

/// One step.
#[derive(Clone)]
enum Placed {
    /// A step in one of the trees.
    In(usize, Step),
    /// Merges delayed items and evicts inodes of all trees.
    Evict,
}

impl Placed {
    fn simpler(&self) -> Vec<Self> {
        match self {
            Self::In(tree, step) => {
                step.simpler().into_iter().map(|step| Self::In(*tree, step)).collect()
            }
            Self::Evict => Vec::new(),
        }
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(tree, step) => write!(f, "{}: {step}", TREES[*tree]),
            Self::Evict => f.write_str("evict"),
        }
    }
}

/// Returns whether the sequence of a seed has subvolumes in its trees.
fn has_subvolumes(seed: u64) -> bool {
    seed.is_multiple_of(3)
}

/// A random sequence and its filesystem.
struct Sequence {
    base: &'static Base,
    steps: Vec<Placed>,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let bases = bases();
        let base = &bases[random.index(bases.len())];
        let nodesize = base.made.options.nodesize;
        let mut trees: Vec<_> = (0..CHANGED as u64)
            .map(|tree| {
                let generator = Generator::new(seed ^ (tree << 32), nodesize).commit_every(0);
                let is_crowded = !random.one_in(3);
                let generator = if is_crowded { generator.crowded() } else { generator };
                let generator = if has_subvolumes(seed) {
                    generator.with_subvolumes(Drivers::Ours).below_directory()
                } else {
                    generator
                };
                let generator = generator.on(base.models[usize::try_from(tree).unwrap()].clone());
                if tree == 0 { base.made.resizing(generator) } else { generator }
            })
            .collect();
        let sync_every = 2 + random.below(4);
        let commit_every = 15 + random.below(40);
        let length = STEPS_MAX / 4 + random.index(STEPS_MAX * 3 / 4);
        let mut steps = Vec::new();
        let mut touched = Vec::new();
        let mut models = base.models.clone();
        while steps.len() < length {
            let tree = random.index(CHANGED);
            let operation = trees[tree].next().expect("they do not end");
            let is_change = !matches!(operation, Operation::Sync { .. } | Operation::Read { .. });
            if !is_change || names_root(&operation) {
                continue;
            }
            if models[tree].apply(&operation).is_ok() {
                touched.extend(touches(&operation).map(|object| (tree, object)));
            } else if !random.one_in(REFUSED) {
                continue;
            }
            steps.push(Placed::In(tree, Step::Do(operation)));
            if random.one_in(sync_every) {
                let lately = &touched[touched.len().saturating_sub(LATELY)..];
                let (of, object) = random.pick(lately).cloned().unzip();
                let tree = of.unwrap_or(tree);
                let object = object.filter(|_| !random.one_in(4));
                let step = match object {
                    Some(object) => Step::Sync { object, data_only: random.one_in(8) },
                    None => draw_sync(trees[tree].model(), None, &mut random),
                };
                steps.push(Placed::In(tree, step));
            }
            if random.one_in(EVICTED) {
                steps.push(Placed::Evict);
            }
            if random.one_in(commit_every) {
                let reopens = random.one_in(4);
                let end = if reopens { Operation::Reopen } else { Operation::Commit };
                steps.push(Placed::In(tree, Step::Do(end)));
            }
        }
        Self { base, steps }
    }

    fn tell(&self, seed: u64, steps: &[Placed], error: &str) -> String {
        let lines: Vec<_> = steps.iter().map(ToString::to_string).collect();
        format!("seed {seed}, {}: {error}\n{}", self.base.made.name, lines.join("\n"))
    }
}

/// Returns the object that an operation changes, and the directories whose entries it changes.
fn touches(operation: &Operation) -> impl Iterator<Item = Object> {
    let named = match operation {
        Operation::Create { path, .. }
        | Operation::Mkdir { path, .. }
        | Operation::Mknod { path, .. }
        | Operation::Symlink { path, .. }
        | Operation::Unlink { path }
        | Operation::Rmdir { path }
        | Operation::Subvolume { path }
        | Operation::Snapshot { path, .. }
        | Operation::SetReadOnly { path, .. }
        | Operation::DeleteSubvolume { path }
        | Operation::Link { to: path, .. } => vec![path],
        Operation::Rename { from, to, .. } => vec![from, to],
        _ => Vec::new(),
    };
    let with_dir = |path: &Bytes| {
        let dir = split(path.as_slice()).map_or(&b""[..], |(dir, _)| dir);
        [Object::Path(dir.into()), Object::Path(path.clone())]
    };
    operation.object().into_iter().chain(named.into_iter().flat_map(with_dir))
}

/// Returns whether an operation creates or removes the root of its tree, which has a name here.
fn names_root(operation: &Operation) -> bool {
    match operation {
        Operation::Create { path, .. }
        | Operation::Mkdir { path, .. }
        | Operation::Mknod { path, .. }
        | Operation::Symlink { path, .. }
        | Operation::Unlink { path }
        | Operation::Rmdir { path }
        | Operation::Subvolume { path }
        | Operation::DeleteSubvolume { path }
        | Operation::Link { to: path, .. } => path.as_slice().is_empty(),
        Operation::Snapshot { source, path, .. } => {
            [source, path].iter().any(|it| it.as_slice().is_empty())
        }
        Operation::Rename { from, to, .. } => [from, to].iter().any(|it| it.as_slice().is_empty()),
        _ => false,
    }
}

/// The result of executing a sequence.
struct Acted {
    recording: Recording,
    journals: Vec<SyncJournal>,
    cut: Time,
    /// The number of durable log commits.
    groups: u64,
}

/// The execution of a sequence.
struct Acting {
    device: Arc<RecordingDevice>,
    target: EngineTarget,
    models: Vec<Model>,
    journals: Vec<SyncJournal>,
    groups: u64,
}

impl Acting {
    fn new(base: &Base) -> Result<Self> {
        let device = Arc::new(RecordingDevice::on(&base.image));
        let target = EngineTarget::with_options(device.clone(), &with_little_memory())?;
        let models = base.models.clone();
        let mut acting = Self { device, target, models, journals: Vec::new(), groups: 0 };
        let meanwhile = acting.meanwhile(acting.device.count());
        let journal = |model: &Model| SyncJournal::new(model, meanwhile);
        acting.journals = acting.models.iter().map(journal).collect();
        (0..TREES.len()).for_each(|tree| acting.number(tree));
        Ok(acting)
    }

    fn meanwhile(&self, before: usize) -> OpWindow {
        let generation = self.target.filesystem().superblock().generation;
        OpWindow { before, after: self.device.count(), generation }
    }

    fn number(&mut self, tree: usize) {
        number(&mut self.journals[tree], &self.models[tree], self.target.filesystem(), TREES[tree]);
    }

    fn act(&mut self, placed: &Placed) -> Result<()> {
        match placed {
            Placed::In(tree, step) => self.step(*tree, step),
            Placed::Evict => self.evict(),
        }
    }

    fn evict(&mut self) -> Result<()> {
        let before = self.device.count();
        crowd_out(self.target.filesystem())?;
        self.note_nothing(before, None);
        Ok(())
    }

    /// Records the possible end of a transaction in the journals of the other trees.
    fn note_nothing(&mut self, before: usize, but: Option<usize>) {
        let meanwhile = self.meanwhile(before);
        for other in (0..TREES.len()).filter(|other| Some(*other) != but) {
            self.journals[other].note_nothing(&self.models[other], meanwhile);
        }
    }

    fn step(&mut self, tree: usize, step: &Step) -> Result<()> {
        let before = self.device.count();
        let dir = TREES[tree].as_bytes();
        let first_handle = HANDLES * u8::try_from(tree)?;
        match step {
            Step::Do(operation @ (Operation::Commit | Operation::Reopen)) => {
                if *operation == Operation::Reopen {
                    self.groups += self.target.filesystem().stats().log.log_commits;
                }
                do_to(&mut self.target, operation)?;
                let meanwhile = self.meanwhile(before);
                for (model, journal) in self.models.iter_mut().zip(&mut self.journals) {
                    model.apply(operation)?;
                    journal.note(model, operation, meanwhile);
                }
                return Ok(());
            }
            Step::Do(operation) => {
                let expected = self.models[tree].apply(operation);
                let placed = operation.clone().below(dir, first_handle);
                let ended = do_to(&mut self.target, &placed);
                ensure!(ended == expected, "{ended:?}, not {expected:?}");
                let meanwhile = self.meanwhile(before);
                if matches!(operation, Operation::Resize { .. }) {
                    self.note_resize(tree, operation, meanwhile);
                    return Ok(());
                }
                if matches!(operation, Operation::Snapshot { .. }) && ended.is_ok() {
                    for (model, journal) in self.models.iter().zip(&mut self.journals) {
                        journal.note(model, &Operation::Commit, meanwhile);
                    }
                    self.number(tree);
                    return Ok(());
                }
                self.journals[tree].note(&self.models[tree], operation, meanwhile);
            }
            Step::Sync { object, data_only } => {
                let is_there = self.models[tree].node(object).is_some();
                let synced = self.target.sync(&below(object, dir, first_handle), *data_only);
                ensure!(synced.is_ok() == is_there, "{synced:?}");
                let meanwhile = self.meanwhile(before);
                let model = &self.models[tree];
                if is_there {
                    self.journals[tree].note_sync(model, object, *data_only, meanwhile);
                } else {
                    self.journals[tree].note_nothing(model, meanwhile);
                }
            }
        }
        self.note_nothing(before, Some(tree));
        self.number(tree);
        Ok(())
    }

    /// Records a resize in the journals of all trees; the model of `tree` has it.
    fn note_resize(&mut self, tree: usize, operation: &Operation, meanwhile: OpWindow) {
        let all = self.models.iter_mut().zip(&mut self.journals).enumerate();
        for (other, (model, journal)) in all {
            if other != tree {
                // It may be refused, as in that tree.
                let _ended = model.apply(operation);
            }
            journal.note(model, operation, meanwhile);
        }
    }
}

/// Records the inode numbers of new objects in a tree.
fn number(journal: &mut SyncJournal, model: &Model, filesystem: &Filesystem, tree: &str) {
    journal.number(model, |path| {
        let path = join(tree.as_bytes(), path);
        let metadata = filesystem.symlink_metadata([b"/", &path[..]].concat());
        metadata.expect("it is there").id
    });
}

/// Returns an object of a tree as seen from the top level.
fn below(object: &Object, dir: &[u8], first_handle: u8) -> Object {
    match object {
        Object::Path(path) => Object::Path(join(dir, path.as_slice()).into()),
        Object::Handle(handle) => Object::Handle(handle + first_handle),
    }
}

fn act(base: &Base, steps: &[Placed]) -> Result<Acted> {
    let mut acting = Acting::new(base)?;
    for (index, placed) in steps.iter().enumerate() {
        acting.act(placed).with_context(|| format!("step {index}: {placed}"))?;
    }
    let Acting { device, target, journals, groups, .. } = acting;
    let groups = groups + target.filesystem().stats().log.log_commits;
    let recording = device.recording();
    let cut = now();
    target.abandon();
    Ok(Acted { recording, journals, cut, groups })
}

/// Returns random states after a crash: half of them prefixes.
fn chosen(recording: &Recording, seed: u64, count: usize) -> impl Iterator<Item = State> + '_ {
    let in_order = states(recording, Choice::Sample { seed, count: count / 2 });
    in_order.chain(states(recording, Choice::Reordered { seed, count: count - count / 2 }))
}

/// Replays the log and checks the state of each tree.
fn judge(acted: &Acted, state: &State) -> Result<()> {
    judge_image(acted, state.completed, &state.image)
}

/// Checks the states after a crash during the replay of `state`.
fn judge_cut_replay(acted: &Acted, state: &State, seed: u64) -> Result<()> {
    let device = Arc::new(RecordingDevice::on(&state.image));
    EngineTarget::on_device(device.clone())?.close()?;
    for cut in chosen(&device.recording(), seed, CUTS_OF_REPLAY) {
        let judged = judge_image(acted, state.completed, &cut.image);
        judged.with_context(|| {
            format!("{} events of the replay, {} lost", cut.completed, cut.lost)
        })?;
    }
    Ok(())
}

fn judge_image(acted: &Acted, completed: usize, image: &SparseImage) -> Result<()> {
    let left = open_device(Arc::new(image.to_device())).context("opening")?;
    for (name, journal) in TREES.iter().zip(&acted.journals) {
        let dir = format!("/{name}");
        let judged = journal.check_below(dir.as_bytes(), &acted.recording, completed, &left);
        judged.with_context(|| dir)?;
    }
    Ok(())
}

/// Executes a sequence and checks `count` states; returns the number of checked states.
fn run_sequence(base: &Base, steps: &[Placed], seed: u64, count: usize) -> Result<u64> {
    let acted = act(base, steps)?;
    let mut random = Random::new(seed);
    let mut judged = 0;
    for state in chosen(&acted.recording, seed, count) {
        let what = || format!("{} events, {} lost", state.completed, state.lost);
        judge(&acted, &state).with_context(what)?;
        if random.one_in(REPLAYED) {
            judge_cut_replay(&acted, &state, seed).with_context(what)?;
        }
        judged += 1;
    }
    Ok(judged)
}

/// Shrinks a failing sequence; returns its description.
fn told(sequence: &Sequence, seed: u64, error: &anyhow::Error) -> String {
    println!("seed {seed} fails");
    let run = |steps: &[Placed]| run_sequence(sequence.base, steps, seed, STATES_TO_SHRINK);
    let (steps, error) = shortened(&sequence.steps, error, Placed::simpler, run);
    sequence.tell(seed, &steps, &error)
}

#[test]
fn files_fsynced_in_subvolumes_that_share_are_kept_by_a_cut() {
    skip_unless_linux!();
    let count = if is_torture() { 100_000 } else { 2_000 };
    by_seeds(seed(), count, |seed| {
        let sequence = Sequence::new(seed);
        let judged = caught(|| run_sequence(sequence.base, &sequence.steps, seed, STATES));
        judged.map_err(|error| told(&sequence, seed, &error))
    });
}

#[test]
fn linux_replays_what_we_replay_of_subvolumes_that_share() {
    skip_unless_linux!();
    let first = seed();
    let count = if is_torture() { 1_000 } else { 30 };
    // Linux is needed for these, too.
    let _made = bases();
    let linux = Linux::lock().unwrap();
    let mut judged = 0;
    let mut of_plain = 0;
    let mut groups = 0;
    for seed in first.. {
        let sequence = Sequence::new(seed);
        let acted = act(sequence.base, &sequence.steps).unwrap();
        // After a change of subvolumes an fsync commits, and a resize makes block groups.
        let is_plain = !has_subvolumes(seed) && !sequence.base.made.is_resized();
        groups += if is_plain { acted.groups } else { 0 };
        for state in chosen(&acted.recording, seed, STATES_FOR_LINUX) {
            let both = || {
                judge(&acted, &state)?;
                judge_both(&linux, &state.image, acted.cut)
            };
            if let Err(error) = caught(both) {
                let State { completed, lost, .. } = state;
                let what = format!("{completed} events, {lost} lost: {error:#}");
                panic!("{}", sequence.tell(seed, &sequence.steps, &what));
            }
            judged += 1;
            of_plain += u64::from(is_plain);
        }
        // Not all sequences have subvolumes or are resized.
        if judged >= count && of_plain > 0 {
            break;
        }
    }
    println!("{judged} cuts, {of_plain} without subvolumes, {groups} groups in these");
    assert!(groups > of_plain, "most was committed, not logged");
}

/// A file in each of several subvolumes, and one in another tree.
struct Sharers {
    recording: Arc<RecordingDevice>,
    held: Arc<PausedDevice>,
    filesystem: Filesystem,
    files: Vec<OpenFile>,
}

impl Sharers {
    fn new(base: &Base) -> Self {
        let recording = Arc::new(RecordingDevice::on(&base.image));
        let held = Arc::new(PausedDevice::new(recording.clone()));
        let filesystem = open_to_write(held.clone());
        let make = |tree: &str| {
            let dir = filesystem.open_dir(format!("/{tree}")).unwrap();
            dir.create(b"new file", 0o644).unwrap().open().unwrap()
        };
        let files = TREES.map(make).into();
        filesystem.commit().unwrap();
        Self { recording, held, filesystem, files }
    }

    fn append(&self, byte: u8) {
        for file in &self.files {
            file.append(&[byte; BLOCK]).unwrap();
        }
    }

    /// Syncs all files, the others while the superblock write of the first one's log commit is
    /// held. Returns the number of log commits that this took.
    fn sync(&self) -> u64 {
        let groups = || self.filesystem.stats().log.log_commits;
        let before = (groups(), self.superblocks());
        let waiting = SleepingThreads::default();
        self.held.hold_write_of(SUPERBLOCK);
        thread::scope(|scope| {
            let [first, others @ ..] = &self.files[..] else { unreachable!("there are four") };
            scope.spawn(|| first.sync_all().unwrap());
            while !self.held.is_waited_for() {
                thread::yield_now();
            }
            let waiting = &waiting;
            for other in others {
                scope.spawn(move || {
                    waiting.add();
                    other.sync_all().unwrap();
                });
            }
            waiting.wait(others.len());
            self.held.release();
        });
        let groups = groups() - before.0;
        assert_eq!(self.superblocks() - before.1, groups, "one for each group");
        groups
    }

    /// Returns the number of writes of the primary superblock.
    fn superblocks(&self) -> u64 {
        let is_superblock = |event: &Event| match event {
            Event::Write { offset, .. } => *offset == SUPERBLOCK,
            _ => false,
        };
        let log = self.recording.log();
        log.iter().filter(|recorded| is_superblock(&recorded.event)).count() as u64
    }
}

#[test]
fn fsyncs_of_several_subvolumes_share_a_superblock() {
    skip_unless_linux!();
    let sharers = Sharers::new(&bases()[0]);
    for byte in 1..=TURNS {
        sharers.append(byte);
        assert_eq!(sharers.sync(), 2, "turn {byte}");
    }
    let image = sharers.recording.recording().end();
    sharers.filesystem.abandon();
    let expected: Vec<u8> = (1..=TURNS).flat_map(|byte| [byte; BLOCK]).collect();
    let left = open_device(Arc::new(image.to_device())).unwrap();
    for tree in TREES {
        let file = left.open_file(format!("/{tree}/new file")).unwrap();
        assert!(file.read_all().unwrap() == expected, "{tree}");
    }
    judge_both(&Linux::lock().unwrap(), &image, now()).unwrap();
}
