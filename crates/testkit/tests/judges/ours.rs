//! Ours before the model: random operations end as they do there, and leave the same behind; at
//! commits, in the order of a crash, after reopening, and with Linux taking turns.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;

use userbtrfs::TreeId;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{SparseDevice, SparseImage};
use userbtrfs_testkit::engine_target::EngineTarget;
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::manifest::{Manifest, diff};
use userbtrfs_testkit::model::{End, Model};
use userbtrfs_testkit::operation::{Generator, Object, Operation, shrink, simplify, to_text};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::target::{self, LinuxTarget, Mismatch, Target};
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_linux, walk_ours};

use super::made::{Made, check_file, check_image, kinds, squeeze, with_memory};
use super::{assert_same, is_torture, open, open_device, seed};

/// Once in so many commits and reopenings, the image is judged.
const JUDGED: u64 = 4;
/// Once in so many operations, what is in memory leaves it.
const SQUEEZED: u64 = 60;

/// Ours on a device in memory, which is judged now and then.
struct Judged {
    name: &'static str,
    device: Arc<SparseDevice>,
    inner: EngineTarget,
    seed: u64,
    random: Random,
}

impl Judged {
    fn new(made: &Made, image: &SparseImage, seed: u64) -> Self {
        let device = Arc::new(image.to_device());
        let inner = EngineTarget::with_options(device.clone(), &with_memory(seed)).unwrap();
        Self { name: made.name, device, inner, seed, random: Random::new(seed) }
    }

    /// What a crash now would leave is what is there, and `btrfs check` finds it clean.
    fn judge(&mut self) {
        let image = self.device.image();
        check_image(self.name, &image);
        let left = walk_ours::walk(&open_device(Arc::new(image.to_device())).unwrap()).unwrap();
        assert_same(self.name, &self.inner.manifest(), &left);
    }
}

impl Target for Judged {
    fn apply(&mut self, operation: &Operation) -> End {
        if self.random.one_in(SQUEEZED) {
            squeeze(self.inner.filesystem(), self.seed);
        }
        self.inner.apply(operation)
    }

    fn manifest(&mut self) -> Manifest {
        self.inner.manifest()
    }

    fn commit(&mut self) {
        self.inner.commit();
        if self.random.one_in(JUDGED) {
            self.judge();
        }
    }

    fn reopen(&mut self) {
        self.inner.reopen();
        if self.random.one_in(JUDGED) {
            self.judge();
        }
    }
}

#[test]
fn ours_answers_as_the_model_does() {
    skip_unless_linux!();
    let (seed, rounds, length) = (seed(), if is_torture() { 100 } else { 1 }, length(300, 2000));
    // No two of them are given the same.
    for (made, seed) in kinds().iter().zip((seed..).step_by(1000)) {
        let image = made.image();
        for seed in seed..seed + rounds {
            run_on(made, &image, seed, length);
        }
    }
}

fn length(ci: usize, torture: usize) -> usize {
    if is_torture() { torture } else { ci }
}

fn run_on(made: &Made, image: &SparseImage, seed: u64, length: usize) {
    let node_size = made.options.nodesize;
    let mut operations: Vec<_> =
        Generator::new(seed, node_size).commit_every(40).take(length).collect();
    operations.push(Operation::Reopen);
    let run = |list: &[Operation]| -> Result<(), Mismatch> {
        let mut target = Judged::new(made, image, seed);
        target::run(&mut target, &mut Model::new(node_size), list)?;
        target.inner.reopen();
        target.judge();
        target.inner.close().unwrap();
        Ok(())
    };
    let what = format!("{}, seed {seed}", made.name);
    assert_holds(&what, &operations, run, Operation::simpler, to_text);
}

/// Panics with the shortest and simplest part of a list that fails, if the whole one does.
pub(crate) fn assert_holds<T: Clone, E: ToString>(
    what: &str,
    list: &[T],
    run: impl Fn(&[T]) -> Result<(), E>,
    simpler: impl Fn(&T) -> Vec<T>,
    text: impl Fn(&[T]) -> String,
) {
    let run = |list: &[T]| panic::catch_unwind(AssertUnwindSafe(|| run(list)));
    let fails = |list: &[T]| !matches!(run(list), Ok(Ok(())));
    if fails(list) {
        println!("{what}: it fails, and is shrunk");
        let short = simplify(&shrink(list, fails), simpler, fails);
        let said = match run(&short) {
            Ok(Err(mismatch)) => mismatch.to_string(),
            _ => "a panic, above".to_owned(),
        };
        panic!("{what}: {said}\n{}", text(&short));
    }
}

/// Who does an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Linux,
}

/// Operations of one turn.
const TURN: usize = 120;

#[test]
fn linux_and_ours_take_turns() {
    skip_unless_linux!();
    let (seed, rounds) = (seed(), if is_torture() { 100 } else { 1 });
    let linux = Linux::lock().unwrap();
    let all = kinds();
    let kinds = if is_torture() { &all[..] } else { &all[..4] };
    for seed in seed..seed + rounds {
        for (made, seed) in kinds.iter().zip((seed..).step_by(1000)) {
            let node_size = made.options.nodesize;
            let operations = Generator::new(seed, node_size).take(3 * TURN).enumerate();
            let side = |n| if n / TURN == 1 { Side::Linux } else { Side::Ours };
            let steps: Vec<_> = operations.map(|(n, operation)| (side(n), operation)).collect();
            let image = made.image();
            let run = |steps: &[_]| take_turns(&linux, made, (&image, seed), steps);
            let text = |steps: &[(Side, Operation)]| {
                let line = |(side, operation): &_| format!("{side:?} {operation}");
                steps.iter().map(line).collect::<Vec<_>>().join("\n")
            };
            let simpler = |(side, operation): &(Side, Operation)| {
                operation.simpler().into_iter().map(|simpler| (*side, simpler)).collect()
            };
            assert_holds(&format!("{}, seed {seed}", made.name), &steps, run, simpler, text);
            linux.assert_no_complaints().unwrap();
        }
    }
}

fn take_turns(
    linux: &Linux,
    made: &Made,
    (image, seed): (&SparseImage, u64),
    steps: &[(Side, Operation)],
) -> Result<(), Mismatch> {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("image");
    image.write_to(&file).unwrap();
    let mut model = Model::new(made.options.nodesize);
    let mut done = 0;
    for turn in steps.chunk_by(|a, b| a.0 == b.0) {
        match turn[0].0 {
            Side::Ours => {
                let mut target =
                    EngineTarget::on_subvolume(&file, TreeId::FS, &with_memory(seed)).unwrap();
                take_turn(&mut target, &mut model, turn, &mut done)?;
                target.close().unwrap();
            }
            Side::Linux => {
                let mut target = LinuxTarget::new(linux, &file).unwrap();
                if made.has_hole_items() {
                    drop_space_behind_ends(&mut target, &mut model, b"");
                }
                take_turn(&mut target, &mut model, turn, &mut done)?;
            }
        }
        model.apply(&Operation::Reopen).unwrap();
        check_file(made.name, &file);
        judge_by_linux(linux, made.name, &file);
    }
    Ok(())
}

/// Linux 6.18 forgets the size of a file with hole items that comes to reach over space set aside
/// behind its end before it was mounted: so that goes when Linux's turn begins. The names of the
/// model are below a directory.
pub(crate) fn drop_space_behind_ends(target: &mut LinuxTarget<'_>, model: &mut Model, dir: &[u8]) {
    for (path, id) in model.files() {
        let (object, size) = (Object::Path(path.into()), model.content_of(id).size());
        let truncate = Operation::Truncate { object, size };
        model.apply(&truncate).unwrap();
        target.apply(&truncate.below(dir, 0)).unwrap();
    }
}

/// Does the operations of a turn, then compares.
fn take_turn(
    target: &mut dyn Target,
    model: &mut Model,
    turn: &[(Side, Operation)],
    done: &mut usize,
) -> Result<(), Mismatch> {
    for (_, operation) in turn {
        target::step(target, model, operation, *done)?;
        *done += 1;
    }
    target::compare(target, model, *done)
}

/// Linux shows what we show, attribute by attribute.
pub(crate) fn judge_by_linux(linux: &Linux, what: &str, image: &Path) {
    judge_by_linux_but(linux, what, image, &[]);
}

/// The same, but for some attributes.
pub(crate) fn judge_by_linux_but(linux: &Linux, what: &str, image: &Path, ignored: &[&str]) {
    let shown = {
        let mount = linux.mount(image, "ro,noatime,subvolid=5").unwrap();
        walk_linux::walk(mount.path()).unwrap()
    };
    let ours = walk_ours::walk(&open(image, 64).unwrap()).unwrap();
    super::assert_none(what, &diff(&shown, &ours, ignored));
}

/// What Linux makes of an image that it uses, and how long that is, in bytes.
const OF_LINUX: &str = "of-linux";
const OF_LINUX_LEN: usize = 100_000;
/// With a name more a longer path may be longer than there are any, in bytes.
const DEEP: usize = 3800;
/// The files that it removes before it makes its own.
const REMOVED_AT_ONCE: usize = 2000;

/// Linux mounts an image for writing, removes files there, every second one first, until it can
/// make one of its own, and syncs: `btrfs check` finds nothing after that, and we read what it
/// wrote. What it complains of is left to be asked for.
///
/// As long as little metadata is free beside what it keeps for itself, it may refuse to make
/// something: with nodes of 64 KiB it keeps 22 MiB, and leaves that are half full are not free.
pub(crate) fn use_by_linux(linux: &Linux, what: &str, image: &Path) {
    let mount = linux.mount(image, "noatime,subvolid=5").unwrap();
    let told = |error: std::io::Error| panic!("{what}: Linux: {error}");
    let sync = || run(Command::new("btrfs").args(["filesystem", "sync"]).arg(mount.path()));
    let content = pattern::bytes(1, 0, OF_LINUX_LEN);
    let files = files_below(mount.path());
    let (seconds, others) = (files.iter().step_by(2), files.iter().skip(1).step_by(2));
    let mut files = seconds.chain(others);
    loop {
        let removed = files.by_ref().take(REMOVED_AT_ONCE);
        let count = removed.map(|path| fs::remove_file(path).unwrap_or_else(told)).count();
        // What was removed is space after a commit.
        sync().unwrap();
        match fs::write(mount.path().join(OF_LINUX), &content) {
            Err(error) if error.kind() == ErrorKind::StorageFull && count > 0 => {
                assert!(is_near_its_reserve(mount.path()), "{what}: Linux: {error}");
            }
            written => break written.unwrap_or_else(told),
        }
    }
    sync().unwrap();
    drop(mount);
    check_file(what, image);
    let found = open(image, 64).unwrap().read(format!("/{OF_LINUX}")).unwrap();
    assert!(found == content, "{what}: what Linux wrote");
}

/// Whether less metadata is free than twice what Linux keeps for itself: that is at least the price
/// of some twenty items, and so much may be reserved to make a file and write to it.
fn is_near_its_reserve(mount: &Path) -> bool {
    let output = run(Command::new("btrfs").args(["filesystem", "df", "--raw"]).arg(mount)).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let of = |kind: &str, what: &str| -> u64 {
        let line = said.lines().find(|line| line.contains(kind)).unwrap();
        let mut fields = line.split([' ', ',']);
        fields.find_map(|field| field.strip_prefix(what)).unwrap().parse().unwrap()
    };
    let free = of("Metadata", "total=") - of("Metadata", "used=");
    free < 2 * of("GlobalReserve", "total=")
}

/// What there is but directories, without what other subvolumes hold and what is too deep.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let subvolume = fs::metadata(root).unwrap().dev();
    let (mut dirs, mut files) = (vec![root.to_owned()], Vec::new());
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            match metadata.is_dir() {
                true if metadata.dev() != subvolume => {}
                true if entry.path().as_os_str().len() > DEEP => {}
                true => dirs.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files
}
