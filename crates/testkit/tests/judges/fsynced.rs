//! Sequences of random operations with fsyncs of anything in between, and who judges what is left.
//!
//! 1. A sequence, and what it is done to, depend on its seed alone.
//! 2. What we open and what Linux mounts of an image with a log is the same.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, ensure};
use userbtrfs::Filesystem;
use userbtrfs::mkfs::Options;
use userbtrfs_testkit::devices::SparseImage;
use userbtrfs_testkit::durability_oracle::SyncJournal;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::{Bytes, Mode, Time};
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{Generator, Object, Operation, shrink, simplify};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::stories::{judge_by_linux, judge_by_us};

use super::made::{MIB, Made};

/// Steps of a sequence, at most.
const STEPS_MAX: usize = 100;
/// Bytes of a file that is so long that it takes new space.
const LONG: u64 = 9 << 20;
/// After so many failures no other seed is tried.
const FAILURES_MAX: u64 = 3;

/// One thing that is done.
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
    /// The same with less, the least first.
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

/// What a seed decides.
pub(crate) struct Sequence {
    pub(crate) base: &'static Base,
    pub(crate) steps: Vec<Step>,
}

/// An empty filesystem.
pub(crate) struct Base {
    pub(crate) made: Made,
    pub(crate) image: SparseImage,
    /// In bytes.
    pub(crate) memory: u64,
}

/// The kinds of filesystems that sequences are done to.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let nodes = |nodesize| Options { nodesize, ..Options::default() };
        let holes = |name| Made::by_progs(name, 128 * MIB, nodes(4096), &["-O", "^no-holes"]);
        let kinds = [
            (Made::new("default", 128 * MIB, Options::default()), 64 * MIB),
            (Made::new("4k nodes", 128 * MIB, nodes(4096)), 4 * MIB),
            (Made::new("mixed", 128 * MIB, Options::mixed()), 64 * MIB),
            (holes("hole items"), 4 * MIB),
        ];
        kinds.map(|(made, memory)| Base { image: made.image(), made, memory }).into()
    })
}

impl Sequence {
    /// A short one.
    pub(crate) fn new(seed: u64) -> Self {
        Self::of(seed, |random| STEPS_MAX / 4 + random.index(STEPS_MAX * 3 / 4))
    }

    /// One of so many steps.
    pub(crate) fn long(seed: u64, length: usize) -> Self {
        Self::of(seed, |_| length)
    }

    fn of(seed: u64, length: impl FnOnce(&mut Random) -> usize) -> Self {
        let mut random = Random::new(seed);
        let bases = bases();
        let base = &bases[random.index(bases.len())];
        let commits = [0, 15, 40][random.index(3)];
        let mut generator = Generator::new(seed, base.made.options.nodesize).commit_every(commits);
        if !random.one_in(4) {
            generator = generator.crowded();
        }
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

    /// The same, with so many files in between for which block groups are made, and which go as
    /// soon as they are synced.
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

    /// It, and what was found of it.
    pub(crate) fn tell(&self, seed: u64, steps: &[Step], error: &str) -> String {
        let lines: Vec<_> = steps.iter().map(ToString::to_string).collect();
        format!("seed {seed}, {}: {error}\n{}", self.base.made.name, lines.join("\n"))
    }
}

/// An fsync of anything: what was touched last, often.
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

/// Notes the inode numbers of what is new.
pub(crate) fn number(journal: &mut SyncJournal, model: &Model, filesystem: &Filesystem) {
    journal.number(model, |path| {
        let metadata = filesystem.symlink_metadata([b"/", path].concat());
        metadata.expect("it is there").id.number
    });
}

pub(crate) fn now() -> Time {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    Time { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

/// A panic is an error, too.
pub(crate) fn caught<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    let text = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => anyhow!("panicked: {text}"),
        Err(panic) => anyhow!("panicked: {:?}", panic.downcast_ref::<&str>()),
    };
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(text(panic)))
}

/// Steps that fail, as few and as simple as can be, and how they do; if they do not when they are
/// done again, then those that there were, and how they did.
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

/// Has one seed after the other be worked on until so much was judged; `work` says how much that
/// was of a seed, or what failed. Panics if anything did.
pub(crate) fn by_seeds(first: u64, enough: u64, work: impl Fn(u64) -> Result<u64, String> + Sync) {
    let (next, judged, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
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

/// What Linux makes of an image that was cut at this time is what we make of it.
pub(crate) fn judge_both(linux: &Linux, image: &SparseImage, cut: Time) -> Result<()> {
    let by_linux = judge_by_linux(linux, image).context("to Linux")?;
    let by_us = judge_by_us(image).context("to us")?;
    let differences = by_linux.differences_of_judges(&by_us, cut);
    ensure!(differences.is_empty(), "Linux's first:\n{}", differences.join("\n"));
    Ok(())
}
