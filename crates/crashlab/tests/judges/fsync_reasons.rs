//! No transaction is committed in the place of a log without a reason, and each is counted.
//!
//! 1. A long random sequence is done alone: a transaction ends where a commit is asked for, with
//!    an fsync that says why it could not be logged, or where the space that it freed is wanted and
//!    that is counted; and nowhere else.
//! 2. By reasons, the commits that are counted are the fsyncs that said so.
//! 3. There are such fsyncs: now and then space grows, and without a log all are.

use anyhow::{Context, Result, anyhow, bail, ensure};
use userbtrfs::{CommitCause, CommitReason, OpenOptions, SyncHow, SyncRecord};
use userbtrfs_crashlab::engine_target::EngineTarget;
use userbtrfs_crashlab::manifest::{Bytes, Mode};
use userbtrfs_crashlab::model::Model;
use userbtrfs_crashlab::operation::{Object, Operation};
use userbtrfs_crashlab::target::step;
use userbtrfs_sync::{Arc, Class, Mutex};

use super::fsynced::{Sequence, Step};
use super::{is_torture, seed};

/// Steps of a sequence in CI, and in torture.
const LENGTH: usize = 3_000;
const LENGTH_OF_TORTURE: usize = 100_000;
/// How many sequences there are.
const SEQUENCES: u64 = 6;
/// How many files are made that are so long, in bytes, that they take new space.
const LONG_FILES: usize = 4;
const LONG: u64 = 9 << 20;

/// How often something was made durable: by the log, and by commits for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Synced {
    logged: u64,
    committed: [u64; CommitReason::ALL.len()],
}

impl Synced {
    fn add(&mut self, other: Self) {
        self.logged += other.logged;
        self.committed.iter_mut().zip(other.committed).for_each(|(sum, more)| *sum += more);
    }

    fn of(&self, reason: CommitReason) -> u64 {
        self.committed[place(reason)]
    }
}

fn place(reason: CommitReason) -> usize {
    CommitReason::ALL.iter().position(|one| *one == reason).expect("all are listed")
}

type Records = Arc<Mutex<Vec<SyncRecord>>>;

/// A filesystem that is watched since it was opened.
struct Watched {
    target: EngineTarget,
    records: Records,
    since_opened: Synced,
    before: Synced,
}

impl Watched {
    fn new(target: EngineTarget) -> Self {
        let records = Records::new(Mutex::new(Class::DeviceQueue, Vec::new()));
        let (since_opened, before) = (Synced::default(), Synced::default());
        let mut watched = Self { target, records, since_opened, before };
        watched.listen();
        watched
    }

    fn listen(&mut self) {
        let records = Arc::clone(&self.records);
        self.target.filesystem().trace_syncs(move |record| records.lock().push(*record));
        self.before.add(std::mem::take(&mut self.since_opened));
    }

    fn generation(&self) -> u64 {
        self.target.filesystem().superblock().generation
    }

    /// Transactions that ended, but for those of which the space was wanted.
    fn ended(&self) -> u64 {
        let for_space = self.target.filesystem().stats().commits.by(CommitCause::Space);
        self.generation() - for_space
    }

    fn do_step(&mut self, model: &mut Model, one: &Step, index: usize) -> Result<()> {
        let before = self.ended();
        match one {
            Step::Do(Operation::Reopen) => {
                self.check()?;
                self.operate(model, &Operation::Reopen, index)?;
                self.listen();
            }
            Step::Do(operation) => {
                self.operate(model, operation, index)?;
                let is_asked = *operation == Operation::Commit;
                ensure!(is_asked || self.ended() == before, "a commit without a reason");
                ensure!(self.records.lock().is_empty(), "a sync that nobody asked for");
            }
            Step::Sync { object, data_only } => self.sync(model, object, *data_only)?,
        }
        Ok(())
    }

    fn operate(&mut self, model: &mut Model, operation: &Operation, index: usize) -> Result<()> {
        step(&mut self.target, model, operation, index).map_err(|mismatch| anyhow!("{mismatch}"))
    }

    fn sync(&mut self, model: &Model, object: &Object, data_only: bool) -> Result<()> {
        let before = self.ended();
        let synced = self.target.sync(object, data_only);
        ensure!(synced.is_ok() == model.node(object).is_some(), "{synced:?}");
        let records = std::mem::take(&mut *self.records.lock());
        ensure!(records.len() == usize::from(synced.is_ok()), "{records:?}");
        let mut commits = 0;
        for record in &records {
            match record.how {
                SyncHow::Unchanged => {}
                SyncHow::Failed => bail!("{record:?}"),
                SyncHow::Logged => self.since_opened.logged += 1,
                SyncHow::Committed(reason) => {
                    self.since_opened.committed[place(reason)] += 1;
                    commits += 1;
                }
            }
        }
        ensure!(self.ended() == before + commits, "{records:?}, not {commits} commits");
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let log = self.target.filesystem().stats().log;
        let counted = CommitReason::ALL.map(|reason| log.commits(reason));
        let told = self.since_opened.committed;
        ensure!(counted == told, "counted {counted:?}, told {told:?}");
        Ok(())
    }
}

/// The steps, with others in which files take new space, are synced, and go.
fn growing(steps: &[Step]) -> Vec<Step> {
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
    let length = steps.len().div_ceil(LONG_FILES);
    steps.chunks(length).enumerate().flat_map(grow).collect()
}

/// Does a sequence.
fn run(seed: u64, with_log: bool) -> Result<Synced> {
    let length = if is_torture() { LENGTH_OF_TORTURE } else { LENGTH };
    let Sequence { base, steps } = Sequence::long(seed, length);
    let device = Arc::new(base.image.to_device());
    let options = OpenOptions::new().memory(base.memory).tree_log(with_log).clone();
    let mut watched = Watched::new(EngineTarget::with_options(device, &options)?);
    let mut model = Model::new(base.made.options.nodesize);
    for (index, one) in growing(&steps).iter().enumerate() {
        let done = watched.do_step(&mut model, one, index);
        done.with_context(|| format!("seed {seed}, step {index}: {one}"))?;
    }
    watched.check()?;
    let Watched { target, mut before, since_opened, .. } = watched;
    before.add(since_opened);
    target.close()?;
    Ok(before)
}

#[test]
fn each_commit_in_the_place_of_a_log_has_a_reason() {
    let seed = seed();
    let mut all = Synced::default();
    for seed in seed..seed + SEQUENCES {
        all.add(run(seed, true).unwrap());
    }
    println!("{all:?} for {:?}", CommitReason::ALL);
    assert!(all.logged > 100 && all.of(CommitReason::NewBlockGroup) > 0, "{all:?}");
    let unfit = [CommitReason::Disabled, CommitReason::Failed, CommitReason::Subvolume];
    assert!(unfit.iter().all(|reason| all.of(*reason) == 0), "{all:?}");
    let without = run(seed, false).unwrap();
    let disabled = without.of(CommitReason::Disabled);
    assert!(disabled > 10, "{without:?}");
    assert_eq!((without.logged, without.committed.iter().sum::<u64>()), (0, disabled));
}
