//! userbtrfs compared with the model: random operations have the same results and effects, at
//! commits, after a crash, after reopening, and in turns with Linux.

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
use userbtrfs_testkit::manifest::{Difference, Manifest, diff};
use userbtrfs_testkit::model::{End, Model};
use userbtrfs_testkit::operation::{
    Drivers, Generator, Object, Operation, shrink, simplify, to_text,
};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::target::{self, LinuxTarget, Mismatch, Target};
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_linux, walk_ours};

use super::made::{Made, check_file, check_image, kinds, squeeze, with_memory};
use super::{assert_same, is_torture, open, open_device, seed};

/// The image is checked at one in this many commits and reopenings.
const JUDGED: u64 = 4;
/// One in this many sequences resizes the filesystem.
const RESIZED: u64 = 3;
/// Inodes are evicted before one in this many operations.
const SQUEEZED: u64 = 60;

/// `FS_NOCOMP_FL` (`linux/fs.h`): a defragmentation sets it if data does not become smaller, which
/// the model does not know.
const NOCOMPRESS: u32 = 0x400;

/// userbtrfs on a device in memory whose image is checked occasionally.
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

    /// Checks that the image, as after a crash now, has the current state and passes `btrfs check`.
    fn judge(&mut self) {
        let image = self.device.image();
        check_image(self.name, &image);
        let left = open_device(Arc::new(image.to_device())).unwrap();
        let shown = walk_ours::walk(&left).unwrap();
        assert_same(self.name, &self.inner.manifest(), &shown);
        let size = self.inner.filesystem().superblock().total_bytes;
        assert_eq!(left.superblock().total_bytes, size, "{}", self.name);
    }
}

impl Target for Judged {
    fn answers_as_linux(&self, model: &Model, operation: &Operation) -> bool {
        self.inner.answers_as_linux(model, operation)
    }

    fn apply(&mut self, operation: &Operation) -> End {
        if self.random.one_in(SQUEEZED) {
            squeeze(self.inner.filesystem(), self.seed);
        }
        self.inner.apply(operation)
    }

    fn manifest(&mut self) -> Manifest {
        self.inner.manifest().without_flags(NOCOMPRESS)
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
    let seed = seed();
    let rounds = if is_torture() { 100 } else { 1 };
    let length = length(300, 2000);
    // All seeds differ.
    for (made, seed) in kinds().iter().zip((seed..).step_by(1000)) {
        let to_resize = made.to_resize();
        for seed in seed..seed + rounds {
            run_on(if seed.is_multiple_of(RESIZED) { &to_resize } else { made }, seed, length);
        }
    }
}

fn length(ci: usize, torture: usize) -> usize {
    if is_torture() { torture } else { ci }
}

fn run_on(made: &Made, seed: u64, length: usize) {
    let image = made.image();
    let node_size = made.options.nodesize;
    let generator = Generator::new(seed, node_size).with_subvolumes(Drivers::Ours);
    let generator = made.resizing(generator.with_compression().commit_every(40));
    let mut operations: Vec<_> = generator.take(length).collect();
    operations.push(Operation::Reopen);
    let run = |list: &[Operation]| -> Result<(), Mismatch> {
        let mut target = Judged::new(made, &image, seed);
        let mut model = made.model();
        target::run(&mut target, &mut model, list)?;
        target.inner.reopen();
        target.judge();
        let size = target.inner.filesystem().superblock().total_bytes;
        assert_eq!(Some(size), model.size(), "{}", made.name);
        target.inner.close().unwrap();
        Ok(())
    };
    let what = format!("{}, seed {seed}", made.name);
    assert_holds(&what, &operations, run, Operation::simpler, to_text);
}

/// Panics with the shortest and simplest failing part of a list, if the whole list fails.
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

/// The side that executes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Linux,
}

/// The number of operations in a turn.
const TURN: usize = 120;

#[test]
fn linux_and_ours_take_turns() {
    skip_unless_linux!();
    let seed = seed();
    let rounds = if is_torture() { 100 } else { 1 };
    let linux = Linux::lock().unwrap();
    let all = kinds();
    let kinds = if is_torture() { &all[..] } else { &all[..4] };
    for seed in seed..seed + rounds {
        for (made, seed) in kinds.iter().zip((seed..).step_by(1000)) {
            let node_size = made.options.nodesize;
            let to_resize = made.to_resize();
            let made = if seed.is_multiple_of(RESIZED) { &to_resize } else { made };
            let generator = Generator::new(seed, node_size).with_subvolumes(Drivers::Ours);
            let operations = made.resizing(generator).take(3 * TURN).enumerate();
            let side = |n| if n / TURN == 1 { Side::Linux } else { Side::Ours };
            let steps: Vec<_> = operations.map(|(n, operation)| (side(n), operation)).collect();
            let image = made.image();
            let run = |steps: &[_]| take_turns(&linux, made, &image, seed, steps);
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
    image: &SparseImage,
    seed: u64,
    steps: &[(Side, Operation)],
) -> Result<(), Mismatch> {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("image");
    image.write_to(&file).unwrap();
    let mut model = made.model();
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

/// Truncates all files to their size to free preallocation past the end. Linux 6.18 loses the size
/// of a file with hole items that is extended over space preallocated before the mount. The paths
/// of the model are relative to `dir`.
pub(crate) fn drop_space_behind_ends(target: &mut LinuxTarget<'_>, model: &mut Model, dir: &[u8]) {
    for (path, id) in model.files() {
        let object = Object::Path(path.into());
        let size = model.content_of(id).size();
        let truncate = Operation::Truncate { object, size };
        model.apply(&truncate).unwrap();
        target.apply(&truncate.below(dir, 0)).unwrap();
    }
}

/// Executes the operations of a turn, then compares.
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

/// Checks that Linux and we show the same, attribute by attribute.
pub(crate) fn judge_by_linux(linux: &Linux, what: &str, image: &Path) {
    judge_by_linux_but(linux, what, image, &[]);
}

/// Removes the differences of segments where Linux's cover ours: to Linux, a preallocated extent
/// that files share is data, not a hole.
pub(crate) fn retain_unless_shared_ahead(
    differences: &mut Vec<Difference>,
    linux: &Manifest,
    ours: &Manifest,
) {
    differences.retain(|one| {
        let segments =
            |shown: &Manifest| shown.get(one.path.as_slice()).map(|it| it.segments.clone());
        let both = segments(linux).zip(segments(ours));
        !(one.attribute == "segments" && both.is_some_and(|(theirs, ours)| covers(&theirs, &ours)))
    });
}

/// Checks the same, except some attributes.
pub(crate) fn judge_by_linux_but(linux: &Linux, what: &str, image: &Path, ignored: &[&str]) {
    let shown = {
        let mount = linux.mount(image, "ro,noatime,subvolid=5").unwrap();
        walk_linux::walk(mount.path()).unwrap()
    };
    let ours = walk_ours::walk(&open(image, 64).unwrap()).unwrap();
    let mut differences = diff(&shown, &ours, ignored);
    retain_unless_shared_ahead(&mut differences, &shown, &ours);
    super::assert_none(what, &differences);
}

/// Returns whether each of some segments lies in one of the others.
fn covers(outer: &[(u64, u64)], inner: &[(u64, u64)]) -> bool {
    inner.iter().all(|&(start, len)| {
        outer.iter().any(|&(from, max)| from <= start && start + len <= from + max)
    })
}

/// The file that Linux creates in an image, and its size in bytes.
const OF_LINUX: &str = "of-linux";
const OF_LINUX_LEN: usize = 100_000;
/// Longer paths, in bytes, may exceed `PATH_MAX` with one more name.
const DEEP: usize = 3800;
/// The number of files removed before each attempt to create one.
const REMOVED_AT_ONCE: usize = 2000;

/// Mounts an image with Linux for writing, removes files, every second one first, until a new file
/// can be created, and syncs: `btrfs check` finds no errors afterwards, and we read the new file.
/// Complaints of Linux are not checked here.
///
/// Creating a file may fail while little metadata space is free beyond the global reserve: with
/// nodes of 64 KiB the reserve is 22 MiB, and half-full leaves do not count as free.
pub(crate) fn use_by_linux(linux: &Linux, what: &str, image: &Path) {
    let mount = linux.mount(image, "noatime,subvolid=5").unwrap();
    let told = |error: std::io::Error| panic!("{what}: Linux: {error}");
    let sync = || run(Command::new("btrfs").args(["filesystem", "sync"]).arg(mount.path()));
    let content = pattern::bytes(1, 0, OF_LINUX_LEN);
    let files = files_below(mount.path());
    let seconds = files.iter().step_by(2);
    let others = files.iter().skip(1).step_by(2);
    let mut files = seconds.chain(others);
    loop {
        let removed = files.by_ref().take(REMOVED_AT_ONCE);
        let count = removed.map(|path| fs::remove_file(path).unwrap_or_else(told)).count();
        // Space of removed files is free after a commit.
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

/// Checks a full image with btrfs-progs, and lets Linux use it.
pub(crate) fn check_full_image(what: &str, image: &SparseImage) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    image.write_to(&file).unwrap();
    check_file(what, &file);
    let linux = Linux::lock().unwrap();
    use_by_linux(&linux, what, &file);
    linux.assert_no_complaints().unwrap_or_else(|error| panic!("{what}: {error:#}"));
}

/// Returns whether free metadata is less than twice the global reserve. The reserve is at least the
/// cost of about twenty items, which may all be reserved to create and write a file.
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

/// Returns all files except directories, without other subvolumes and without very long paths.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let subvolume = fs::metadata(root).unwrap().dev();
    let mut dirs = vec![root.to_owned()];
    let mut files = Vec::new();
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
