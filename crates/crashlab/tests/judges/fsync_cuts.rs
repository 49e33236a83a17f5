//! Cut at every write, where files and directories are fsynced: what was fsynced is there.
//!
//! 1. Random operations on few names are done, with fsyncs of anything in between and now and then
//!    a commit. What a crash leaves of them is what [`Journal`] says must be left.
//! 2. In some of what is left, all can be removed by us.
//! 3. A part goes before Linux, which replays what we replay, and before `btrfs check`.
//! 4. What fails is made as short as can be, and printed.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, ensure};
use userbtrfs::OpenOptions;
use userbtrfs::mkfs::Options;
use userbtrfs_crashlab::devices::cut::{Choice, State, states};
use userbtrfs_crashlab::devices::{Recording, RecordingDevice, SparseImage};
use userbtrfs_crashlab::engine_target::EngineTarget;
use userbtrfs_crashlab::kept::{Journal, Meanwhile};
use userbtrfs_crashlab::linux::Linux;
use userbtrfs_crashlab::manifest::Time;
use userbtrfs_crashlab::model::Model;
use userbtrfs_crashlab::operation::{Generator, Object, Operation, shrink, simplify};
use userbtrfs_crashlab::random::Random;
use userbtrfs_crashlab::skip_unless_linux;
use userbtrfs_crashlab::stories::{judge_by_linux, judge_by_us};
use userbtrfs_crashlab::target::{Target, step};
use userbtrfs_sync::Arc;

use super::made::{MIB, Made};
use super::{is_torture, open_device, seed};

/// Steps of a sequence, at most.
const STEPS_MAX: usize = 100;
/// States of a sequence that we judge, and that Linux judges.
const STATES: usize = 40;
const STATES_FOR_LINUX: usize = 6;
/// In one of so many states all is removed.
const REMOVED: u64 = 16;
/// States in which a sequence is looked at while it is made shorter.
const STATES_TO_SHRINK: usize = 30;

/// One thing that is done.
#[derive(Clone, Debug, PartialEq)]
enum Step {
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

/// What a seed decides.
struct Sequence {
    made: &'static Base,
    steps: Vec<Step>,
}

struct Base {
    made: Made,
    image: SparseImage,
    /// In bytes.
    memory: u64,
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
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let bases = bases();
        let made = &bases[random.index(bases.len())];
        let commits = [0, 15, 40][random.index(3)];
        let mut generator = Generator::new(seed, made.made.options.nodesize).commit_every(commits);
        if !random.one_in(4) {
            generator = generator.crowded();
        }
        let sync_every = 2 + random.below(8);
        let length = STEPS_MAX / 4 + random.index(STEPS_MAX * 3 / 4);
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
        Self { made, steps }
    }
}

/// An fsync of anything: what was touched last, often.
fn draw_sync(model: &Model, touched: Option<Object>, random: &mut Random) -> Step {
    let data_only = random.one_in(8);
    let any = |random: &mut Random| {
        let paths = model.paths();
        let (path, _) = random.pick(&paths).expect("the root");
        Object::Path(path.clone().into())
    };
    let object = touched.filter(|_| random.one_in(3)).unwrap_or_else(|| any(random));
    Step::Sync { object, data_only }
}

/// What was done.
struct Acted {
    recording: Recording,
    journal: Journal,
    cut: Time,
}

fn act(base: &Base, steps: &[Step]) -> Result<Acted> {
    let device = Arc::new(RecordingDevice::on(&base.image));
    let options = OpenOptions::new().memory(base.memory).clone();
    let mut target = EngineTarget::with_options(device.clone(), &options)?;
    let mut model = Model::new(base.made.options.nodesize);
    let meanwhile = |target: &EngineTarget, before| {
        let generation = target.filesystem().superblock().generation;
        Meanwhile { before, after: device.count(), generation }
    };
    let mut journal = Journal::new(&model, meanwhile(&target, device.count()));
    number(&mut journal, &model, &target);
    for (index, one) in steps.iter().enumerate() {
        let before = device.count();
        match one {
            Step::Do(operation) => {
                step(&mut target, &mut model, operation, index)
                    .map_err(|mismatch| anyhow!("{mismatch}"))?;
                journal.note(&model, operation, meanwhile(&target, before));
            }
            Step::Sync { object, data_only } => {
                if target.sync(object, *data_only).is_ok() {
                    journal.note_sync(&model, object, *data_only, meanwhile(&target, before));
                } else {
                    ensure!(model.node(object).is_none(), "step {index} failed: {one}");
                }
            }
        }
        number(&mut journal, &model, &target);
    }
    let recording = device.recording();
    let cut = now();
    target.abandon();
    Ok(Acted { recording, journal, cut })
}

/// Notes the inode numbers of what is new.
fn number(journal: &mut Journal, model: &Model, target: &EngineTarget) {
    journal.number(model, |path| {
        let metadata = target.filesystem().symlink_metadata([b"/", path].concat());
        metadata.expect("it is there").id.number
    });
}

fn now() -> Time {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    Time { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

/// The states of what was done: half of them in order.
fn chosen(recording: &Recording, seed: u64, count: usize) -> impl Iterator<Item = State> + '_ {
    let in_order = states(recording, Choice::Sample { seed, count: count / 2 });
    in_order.chain(states(recording, Choice::Reordered { seed, count: count - count / 2 }))
}

/// We replay it, and look at what is left.
fn judge(acted: &Acted, state: &State) -> Result<()> {
    let left = open_device(Arc::new(state.image.to_device())).context("opening")?;
    acted.journal.check(&acted.recording, state.completed, &left)
}

/// All can be removed, and nothing is left of it when it is opened again.
fn judge_removal(state: &State) -> Result<()> {
    let mut target = EngineTarget::on_device(Arc::new(state.image.to_device()))?;
    target.filesystem().root().remove_content().context("removing all")?;
    target.reopen();
    ensure!(target.manifest().entries().len() == 1, "something is left");
    target.close()
}

/// A panic is an error, too.
fn caught<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    let text = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => anyhow!("panicked: {text}"),
        Err(panic) => anyhow!("panicked: {:?}", panic.downcast_ref::<&str>()),
    };
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(text(panic)))
}

/// Does a sequence and judges what is left of it in so many states.
fn run(base: &Base, steps: &[Step], seed: u64, count: usize) -> Result<usize> {
    let acted = act(base, steps)?;
    let mut random = Random::new(seed);
    let mut judged = 0;
    for state in chosen(&acted.recording, seed, count) {
        let what = || format!("{} events, {} lost", state.completed, state.lost);
        judge(&acted, &state).with_context(what)?;
        if random.one_in(REMOVED) {
            judge_removal(&state).with_context(what)?;
        }
        judged += 1;
    }
    Ok(judged)
}

/// As short as can be, and still an error.
fn told(sequence: &Sequence, seed: u64, error: &anyhow::Error) -> String {
    let fails =
        |steps: &[Step]| caught(|| run(sequence.made, steps, seed, STATES_TO_SHRINK)).is_err();
    let mut steps = sequence.steps.clone();
    let mut error = format!("{error:#}");
    if fails(&steps) {
        steps = shrink(&steps, fails);
        steps = simplify(&steps, simpler, fails);
        if let Err(short) = caught(|| run(sequence.made, &steps, seed, STATES_TO_SHRINK)) {
            error = format!("{short:#}");
        }
    }
    let lines: Vec<_> = steps.iter().map(ToString::to_string).collect();
    format!("seed {seed}, {}: {error}\n{}", sequence.made.made.name, lines.join("\n"))
}

fn simpler(step: &Step) -> Vec<Step> {
    match step {
        Step::Do(operation) => operation.simpler().into_iter().map(Step::Do).collect(),
        Step::Sync { object, data_only: true } => {
            vec![Step::Sync { object: object.clone(), data_only: false }]
        }
        Step::Sync { .. } => Vec::new(),
    }
}

#[test]
fn what_was_fsynced_is_there_after_a_cut() {
    skip_unless_linux!();
    let (first, count) = (seed(), if is_torture() { 1_000_000 } else { 20_000 });
    let (next, judged, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut failures = Vec::new();
        while judged.load(Ordering::Relaxed) < count && failed.load(Ordering::Relaxed) < 3 {
            let seed = first.wrapping_add(next.fetch_add(1, Ordering::Relaxed));
            let sequence = Sequence::new(seed);
            match caught(|| run(sequence.made, &sequence.steps, seed, STATES)) {
                Ok(more) => drop(judged.fetch_add(more as u64, Ordering::Relaxed)),
                Err(error) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    println!("seed {seed} fails");
                    let told = told(&sequence, seed, &error);
                    println!("{told}");
                    failures.push(told);
                }
            }
        }
        failures
    };
    let threads = thread::available_parallelism().unwrap().get();
    let failures: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    println!("{} cuts of {} sequences", judged.into_inner(), next.into_inner());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn linux_replays_what_we_replay_of_a_cut() {
    skip_unless_linux!();
    let (first, count) = (seed(), if is_torture() { 5_000 } else { 300 });
    let linux = Linux::lock().unwrap();
    let mut judged = 0;
    for seed in first.. {
        let sequence = Sequence::new(seed);
        let acted = act(sequence.made, &sequence.steps).unwrap();
        for state in chosen(&acted.recording, seed, STATES_FOR_LINUX) {
            let judge = || judge_both(&linux, &acted, &state);
            if let Err(error) = caught(judge) {
                let State { completed, lost, .. } = state;
                panic!("seed {seed}: {completed} events, {lost} lost: {error:#}");
            }
            judged += 1;
        }
        if judged >= count {
            break;
        }
    }
    println!("{judged} cuts");
}

fn judge_both(linux: &Linux, acted: &Acted, state: &State) -> Result<()> {
    judge(acted, state)?;
    let by_linux = judge_by_linux(linux, &state.image).context("to Linux")?;
    let by_us = judge_by_us(&state.image).context("to us")?;
    let differences = by_linux.differences_of_judges(&by_us, acted.cut);
    ensure!(differences.is_empty(), "Linux's first:\n{}", differences.join("\n"));
    Ok(())
}
