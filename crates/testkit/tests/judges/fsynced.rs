//! Random sequences of operations with fsyncs in between, and checks of the states after a crash.
//!
//! 1. A sequence, and the filesystem for it, only depend on the seed.
//! 2. For an image with a log, we and Linux show the same state.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, ensure};
use userbtrfs::mkfs::{Options, Profile};
use userbtrfs::{Filesystem, OpenOptions};
use userbtrfs_testkit::devices::SparseImage;
use userbtrfs_testkit::durability_oracle::SyncJournal;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::{Bytes, Mode, Time};
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{Drivers, Generator, Object, Operation, shrink, simplify};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::stories::{judge_by_linux, judge_by_us};

use super::made::{MIB, Made, forced};

/// The maximum number of steps of a sequence.
const STEPS_MAX: usize = 100;
/// The size of a file that needs new block groups.
const LONG: u64 = 9 << 20;
/// After this many failures no other seed is tried.
const FAILURES_MAX: u64 = 3;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Do(Operation),
    Sync { object: Object, data_only: bool },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Do(operation) => operation.fmt(f),
            Self::Sync { object, data_only } => {
                let name = if *data_only { "fdatasync" } else { "fsync" };
                write!(f, "{name} {object:?}")
            }
        }
    }
}

impl Step {
    /// Returns simpler variants, the simplest first.
    pub(crate) fn simpler(&self) -> Vec<Self> {
        match self {
            Self::Do(operation) => operation.simpler().into_iter().map(Self::Do).collect(),
            Self::Sync { object, data_only: true } => {
                vec![Self::Sync { object: object.clone(), data_only: false }]
            }
            Self::Sync { .. } => Vec::new(),
        }
    }
}

/// A random sequence and its filesystem.
pub(crate) struct Sequence {
    pub(crate) base: &'static Base,
    pub(crate) steps: Vec<Step>,
}

/// An empty filesystem.
pub(crate) struct Base {
    pub(crate) made: Made,
    pub(crate) image: SparseImage,
    /// The memory limit in bytes.
    pub(crate) memory: u64,
    /// How data is compressed, by force.
    compress: Option<&'static str>,
}

impl Base {
    fn new(made: Made, memory: u64, compress: Option<&'static str>) -> Self {
        Self { image: made.image(), made, memory, compress }
    }

    /// Returns the options for opening it.
    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions::new().memory(self.memory).compress(self.compress.map(forced)).clone()
    }
}

/// Returns the kinds of filesystems for sequences.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let holes = |name| Made::by_progs(name, 128 * MIB, nodes(4096), &["-O", "^no-holes"]);
        let kinds = [
            (Made::new("default", 128 * MIB, Options::default()), 64 * MIB, None),
            (Made::new("4k nodes", 128 * MIB, nodes(4096)), 4 * MIB, None),
            (Made::new("mixed", 128 * MIB, Options::mixed()), 64 * MIB, None),
            (holes("hole items"), 4 * MIB, None),
            (Made::new("zlib", 128 * MIB, Options::default()), 64 * MIB, Some("zlib:1")),
            (Made::new("lzo, 4k nodes", 128 * MIB, nodes(4096)), 4 * MIB, Some("lzo")),
            (Made::new("zstd, mixed", 128 * MIB, Options::mixed()), 64 * MIB, Some("zstd:-5")),
        ];
        kinds.map(|(made, memory, compress)| Base::new(made, memory, compress)).into()
    })
}

/// Returns the kinds of filesystems for sequences that resize them.
fn bases_to_resize() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let of = |name, options| Made::new(name, 128 * MIB, options).to_resize();
        let twice = Options { data: Profile::Dup, ..nodes(4096) };
        let kinds = [
            (of("default, resized", Options::default()), 64 * MIB, None),
            (of("4k nodes, resized", nodes(4096)), 4 * MIB, None),
            (of("mixed, resized", Options::mixed()), 64 * MIB, None),
            (of("zstd, data twice, resized", twice), 4 * MIB, Some("zstd:-5")),
        ];
        kinds.map(|(made, memory, compress)| Base::new(made, memory, compress)).into()
    })
}

fn nodes(nodesize: u32) -> Options {
    Options { nodesize, ..Options::default() }
}

impl Sequence {
    /// Creates a short sequence.
    pub(crate) fn new(seed: u64) -> Self {
        Self::of(bases(), seed, Self::short, |generator| generator)
    }

    /// Creates a sequence of `length` steps.
    pub(crate) fn long(seed: u64, length: usize) -> Self {
        Self::of(bases(), seed, |_| length, |generator| generator)
    }

    /// Creates a short sequence that has subvolumes and snapshots.
    pub(crate) fn with_subvolumes(seed: u64) -> Self {
        let with = |generator: Generator| generator.with_subvolumes(Drivers::Ours);
        Self::of(bases(), seed, Self::short, with)
    }

    /// Creates a short sequence with subvolumes whose cuts `btrfs check` accepts.
    pub(crate) fn with_subvolumes_to_check(seed: u64) -> Self {
        Self::of(bases(), seed, Self::short, |generator| {
            generator.with_subvolumes(Drivers::Ours).without_copies_of_deleted_files()
        })
    }

    /// Creates a short sequence with subvolumes that resizes the filesystem, and whose cuts `btrfs
    /// check` accepts.
    pub(crate) fn with_resizing(seed: u64) -> Self {
        Self::of(bases_to_resize(), seed, Self::short, |generator| {
            generator.with_subvolumes(Drivers::Ours).without_copies_of_deleted_files()
        })
    }

    fn short(random: &mut Random) -> usize {
        STEPS_MAX / 4 + random.index(STEPS_MAX * 3 / 4)
    }

    fn of(
        bases: &'static [Base],
        seed: u64,
        length: impl FnOnce(&mut Random) -> usize,
        with: impl FnOnce(Generator) -> Generator,
    ) -> Self {
        let mut random = Random::new(seed);
        let base = &bases[random.index(bases.len())];
        let commits = [0, 15, 40][random.index(3)];
        let mut generator = Generator::new(seed, base.made.options.nodesize).commit_every(commits);
        if !random.one_in(4) {
            generator = generator.crowded();
        }
        let mut generator = base.made.resizing(with(generator));
        let sync_every = 2 + random.below(8);
        let length = length(&mut random);
        let mut steps = Vec::new();
        while steps.len() < length {
            let Some(operation) = generator.next() else { break };
            let touched = operation.object();
            if !matches!(operation, Operation::Sync { .. } | Operation::Read { .. }) {
                steps.push(Step::Do(operation));
            }
            if random.one_in(sync_every) {
                steps.push(draw_sync(generator.model(), touched, &mut random));
            }
        }
        Self { base, steps }
    }

    /// Inserts `count` files that need new block groups; each is removed once it is synced.
    pub(crate) fn with_long_files(self, count: usize) -> Self {
        let grow = |(index, steps): (usize, &[Step])| {
            let path: Bytes = format!("long {index}").into_bytes().into();
            let object = Object::Path(path.clone());
            let make = [
                Operation::Create { path: path.clone(), mode: Mode::new(0o644) },
                Operation::Append { object: object.clone(), length: LONG, seed: 1 },
            ];
            let sync = Step::Sync { object, data_only: false };
            let remove = Step::Do(Operation::Unlink { path });
            let more = make.into_iter().map(Step::Do).chain([sync, remove]);
            steps.iter().cloned().chain(more).collect::<Vec<_>>()
        };
        let length = self.steps.len().div_ceil(count);
        let steps = self.steps.chunks(length).enumerate().flat_map(grow).collect();
        Self { steps, ..self }
    }

    /// Describes a failure of these steps.
    pub(crate) fn tell(&self, seed: u64, steps: &[Step], error: &str) -> String {
        let lines: Vec<_> = steps.iter().map(ToString::to_string).collect();
        format!("seed {seed}, {}: {error}\n{}", self.base.made.name, lines.join("\n"))
    }
}

/// Draws an fsync of any object, often the one touched last.
pub(crate) fn draw_sync(model: &Model, touched: Option<Object>, random: &mut Random) -> Step {
    let data_only = random.one_in(8);
    let any = |random: &mut Random| {
        let paths = model.paths();
        let (path, _) = random.pick(&paths).expect("the root");
        Object::Path(path.clone().into())
    };
    let object = touched.filter(|_| random.one_in(3)).unwrap_or_else(|| any(random));
    Step::Sync { object, data_only }
}

/// Records the inode numbers of new objects.
pub(crate) fn number(journal: &mut SyncJournal, model: &Model, filesystem: &Filesystem) {
    journal.number(model, |path| {
        let metadata = filesystem.symlink_metadata([b"/", path].concat());
        metadata.expect("it is there").id
    });
}

pub(crate) fn now() -> Time {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    Time { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

/// Converts a panic to an error.
pub(crate) fn caught<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    let text = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => anyhow!("panicked: {text}"),
        Err(panic) => anyhow!("panicked: {:?}", panic.downcast_ref::<&str>()),
    };
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(text(panic)))
}

/// Shrinks and simplifies failing steps; returns them with their error. If they do not fail again,
/// returns the original steps and error.
pub(crate) fn shortened<S: Clone>(
    steps: &[S],
    error: &anyhow::Error,
    simpler: impl Fn(&S) -> Vec<S>,
    run: impl Fn(&[S]) -> Result<u64>,
) -> (Vec<S>, String) {
    let fails = |steps: &[S]| caught(|| run(steps)).is_err();
    if !fails(steps) {
        return (steps.to_vec(), format!("{error:#}"));
    }
    let steps = simplify(&shrink(steps, fails), simpler, fails);
    let error =
        caught(|| run(&steps)).err().map_or_else(|| format!("{error:#}"), |it| format!("{it:#}"));
    (steps, error)
}

/// Calls `work` with consecutive seeds until `enough` states were checked; `work` returns the
/// number of checked states of a seed, or a failure. Panics if there was a failure.
pub(crate) fn by_seeds(first: u64, enough: u64, work: impl Fn(u64) -> Result<u64, String> + Sync) {
    let next = AtomicU64::new(0);
    let judged = AtomicU64::new(0);
    let failed = AtomicU64::new(0);
    let work_on = || {
        let mut failures = Vec::new();
        let goes_on = || {
            judged.load(Ordering::Relaxed) < enough && failed.load(Ordering::Relaxed) < FAILURES_MAX
        };
        while goes_on() {
            let seed = first.wrapping_add(next.fetch_add(1, Ordering::Relaxed));
            match work(seed) {
                Ok(more) => drop(judged.fetch_add(more, Ordering::Relaxed)),
                Err(told) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    println!("{told}");
                    failures.push(told);
                }
            }
        }
        failures
    };
    let threads = thread::available_parallelism().unwrap().get();
    let failures: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work_on)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    println!("{} judged of {} seeds", judged.into_inner(), next.into_inner());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Checks that the states after replay by Linux and by us are the same.
pub(crate) fn judge_both(linux: &Linux, image: &SparseImage, cut: Time) -> Result<()> {
    let by_linux = judge_by_linux(linux, image).context("to Linux")?;
    let by_us = judge_by_us(image).context("to us")?;
    let differences = by_linux.differences_of_judges(&by_us, cut);
    ensure!(differences.is_empty(), "Linux's first:\n{}", differences.join("\n"));
    Ok(())
}
