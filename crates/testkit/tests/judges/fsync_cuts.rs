//! A crash at every write while files and directories are fsynced: fsynced changes are kept.
//!
//! 1. Random operations on few names, with fsyncs of any object in between and occasional commits.
//!    A crash leaves what [`SyncJournal`] requires.
//! 2. In some of the states, userbtrfs can remove everything.
//! 3. Some states are replayed by Linux as well, with the same result, and checked by `btrfs
//!    check`.
//! 4. All this also holds if block groups are created that no superblock refers to yet.
//! 5. Every third sequence has subvolumes and snapshots. A snapshot commits everything; after a
//!    subvolume is created, renamed or deleted, an fsync uses no log until the transaction ends.
//! 6. Some sequences resize the filesystem, which is a commit, too.
//! 7. A failing sequence is shrunk and printed.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use userbtrfs::{Filesystem, FullCommitReason, OpenOptions};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{Recording, RecordingDevice};
use userbtrfs_testkit::durability_oracle::{OpWindow, SyncJournal};
use userbtrfs_testkit::engine_target::EngineTarget;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::{Bytes, Time};
use userbtrfs_testkit::operation::{Operation, split};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::target::{Target, step};

use super::fsynced::{Base, Sequence, Step, by_seeds, caught, judge_both, now, number, shortened};
use super::{is_torture, open_device, seed};

/// The numbers of states of a sequence that are checked by us, and by Linux.
const STATES: usize = 40;
const STATES_FOR_LINUX: usize = 6;
/// In one of this many states everything is removed.
const REMOVED: u64 = 16;
/// One in this many sequences has subvolumes.
const WITH_SUBVOLUMES: u64 = 3;
/// One in this many sequences resizes the filesystem.
const RESIZED: u64 = 10;
/// The number of nodes by which the root tree of a filesystem that had subvolumes may be larger: it
/// has items of two more trees, so that its leaf of 4 KiB may be split.
const ROOT_NODES: u64 = 2;
/// The number of states per attempt to shrink a sequence.
const STATES_TO_SHRINK: usize = 30;

/// The number of files in a sequence that need new block groups.
const LONG_FILES: usize = 2;
/// One in this many sequences for Linux has such files.
const LONG_FOR_LINUX: u64 = 8;

/// The result of executing a sequence.
pub(crate) struct Acted {
    pub(crate) recording: Recording,
    pub(crate) journal: SyncJournal,
    pub(crate) cut: Time,
    /// Whether there was a subvolume below the root at any time.
    has_subvolumes: bool,
    /// The number of commits because of a new block group.
    for_new_groups: u64,
}

fn act(base: &Base, steps: &[Step]) -> Result<Acted> {
    act_with(&base.options(), base, steps)
}

/// Executes the steps on a recorded device, on a filesystem opened with these options.
pub(crate) fn act_with(options: &OpenOptions, base: &Base, steps: &[Step]) -> Result<Acted> {
    let device = Arc::new(RecordingDevice::on(&base.image));
    let mut target = EngineTarget::with_options(device.clone(), options)?;
    let mut model = base.made.model();
    let meanwhile = |target: &EngineTarget, before| {
        let generation = target.filesystem().superblock().generation;
        OpWindow { before, after: device.count(), generation }
    };
    let mut journal = SyncJournal::new(&model, meanwhile(&target, device.count()));
    number(&mut journal, &model, target.filesystem());
    let generation = |target: &EngineTarget| target.filesystem().superblock().generation;
    // The last commit before a subvolume was created, renamed or deleted.
    let mut changed = None;
    let mut has_subvolumes = false;
    for (index, one) in steps.iter().enumerate() {
        let before = device.count();
        let committed = generation(&target);
        match one {
            Step::Do(operation) => {
                let subvolumes = model.named_subvolumes();
                let size = model.size();
                step(&mut target, &mut model, operation, index)
                    .map_err(|mismatch| anyhow!("{mismatch}"))?;
                let is_changed = model.named_subvolumes() != subvolumes;
                let is_snapshot = matches!(operation, Operation::Snapshot { .. }) && is_changed;
                let is_commit = is_snapshot || model.size() != size;
                ensure!(!is_commit || generation(&target) > committed, "no commit: {one}");
                has_subvolumes |= is_changed;
                if is_changed && !is_snapshot {
                    changed = Some(generation(&target));
                }
                let noted = if is_snapshot { &Operation::Commit } else { operation };
                journal.note(&model, noted, meanwhile(&target, before));
            }
            Step::Sync { object, data_only } => {
                let log_commits = target.filesystem().stats().log.log_commits;
                let is_synced = target.sync(object, *data_only).is_ok();
                let is_logged = target.filesystem().stats().log.log_commits > log_commits;
                ensure!(!is_logged || changed != Some(committed), "a log has {one}");
                if is_synced && changed == Some(committed) && generation(&target) > committed {
                    let window = meanwhile(&target, before);
                    journal.note_sync_by_commit(&model, object, *data_only, window);
                } else if is_synced {
                    journal.note_sync(&model, object, *data_only, meanwhile(&target, before));
                } else {
                    ensure!(model.node(object).is_none(), "step {index} failed: {one}");
                }
            }
        }
        number(&mut journal, &model, target.filesystem());
    }
    let recording = device.recording();
    let cut = now();
    let for_new_groups = target.filesystem().stats().log.commits(FullCommitReason::NewBlockGroup);
    target.abandon();
    Ok(Acted { recording, journal, cut, has_subvolumes, for_new_groups })
}

/// Returns random states after a crash: half of them prefixes.
pub(crate) fn chosen(
    recording: &Recording,
    seed: u64,
    count: usize,
) -> impl Iterator<Item = State> + '_ {
    let in_order = states(recording, Choice::Sample { seed, count: count / 2 });
    in_order.chain(states(recording, Choice::Reordered { seed, count: count - count / 2 }))
}

/// Replays the log and checks the state.
fn judge(acted: &Acted, state: &State) -> Result<()> {
    let left = open_device(Arc::new(state.image.to_device())).context("opening")?;
    acted.journal.check(&acted.recording, state.completed, &left)
}

/// Checks that everything can be removed, that it is still gone after a reopen, and that its space
/// is free.
fn judge_removal(base: &Base, acted: &Acted, state: &State) -> Result<()> {
    let mut target = EngineTarget::on_device(Arc::new(state.image.to_device()))?;
    delete_subvolumes(target.filesystem())?;
    let root = target.filesystem().root();
    root.remove_content().context("removing all")?;
    for (name, _) in root.inode().xattrs()? {
        root.inode().remove_xattr(&name)?;
    }
    target.reopen();
    ensure!(target.manifest().entries().len() == 1, "something is left");
    let left = used(target.filesystem())?;
    let before = used(EngineTarget::on_device(Arc::new(base.image.to_device()))?.filesystem())?;
    let more = if acted.has_subvolumes { ROOT_NODES } else { 0 };
    let most = before + more * u64::from(base.made.options.nodesize);
    ensure!((before..=most).contains(&left), "{left} bytes are used, not {before} to {most}");
    target.close()
}

/// Returns the number of used bytes after a commit, once all deleted subvolumes are dropped.
fn used(filesystem: &Filesystem) -> Result<u64> {
    let deleted: Vec<_> = filesystem.deleted_subvolumes()?.iter().map(|it| it.id).collect();
    filesystem.wait_for_deleted(&deleted, || true)?;
    filesystem.finish()?;
    filesystem.commit()?;
    Ok(filesystem.superblock().bytes_used)
}

/// Deletes all subvolumes below the root, inner ones first.
fn delete_subvolumes(filesystem: &Filesystem) -> Result<()> {
    let mut all = filesystem.subvolumes()?;
    all.retain(|it| !it.path.is_empty());
    all.sort_by_key(|it| Reverse(it.path.len()));
    for one in &all {
        filesystem.set_subvolume_read_only(one.id, false)?;
    }
    for one in all {
        let (dir, name) = split(&one.path).context("the path of a subvolume")?;
        let dir = filesystem.open_dir([b"/", dir].concat())?;
        dir.delete_subvolume(name).with_context(|| format!("{}", Bytes::from(one.path.clone())))?;
    }
    Ok(())
}

/// Executes a sequence and checks `count` states; returns the number of checked states.
fn run(base: &Base, steps: &[Step], seed: u64, count: usize) -> Result<u64> {
    judge_all(base, &act(base, steps)?, seed, count)
}

/// Checks `count` states; returns the number of checked states.
pub(crate) fn judge_all(base: &Base, acted: &Acted, seed: u64, count: usize) -> Result<u64> {
    let mut random = Random::new(seed);
    let mut judged = 0;
    for state in chosen(&acted.recording, seed, count) {
        let what = || format!("{} events, {} lost", state.completed, state.lost);
        judge(acted, &state).with_context(what)?;
        if random.one_in(REMOVED) {
            judge_removal(base, acted, &state).with_context(what)?;
        }
        judged += 1;
    }
    Ok(judged)
}

/// Shrinks a failing sequence; returns its description.
fn told(sequence: &Sequence, seed: u64, error: &anyhow::Error) -> String {
    println!("seed {seed} fails");
    let run = |steps: &[Step]| run(sequence.base, steps, seed, STATES_TO_SHRINK);
    let (steps, error) = shortened(&sequence.steps, error, Step::simpler, run);
    sequence.tell(seed, &steps, &error)
}

/// Returns the sequence of a seed, for some seeds one that `with_subvolumes` creates.
fn sequence(seed: u64, with_subvolumes: fn(u64) -> Sequence) -> Sequence {
    let new = if seed % RESIZED == 1 {
        Sequence::with_resizing
    } else if seed.is_multiple_of(WITH_SUBVOLUMES) {
        with_subvolumes
    } else {
        Sequence::new
    };
    new(seed)
}

#[test]
fn fsynced_files_are_kept_by_a_cut() {
    skip_unless_linux!();
    let count = if is_torture() { 1_000_000 } else { 20_000 };
    by_seeds(seed(), count, |seed| {
        let sequence = sequence(seed, Sequence::with_subvolumes);
        let judged = caught(|| run(sequence.base, &sequence.steps, seed, STATES));
        judged.map_err(|error| told(&sequence, seed, &error))
    });
}

#[test]
fn files_fsynced_in_a_new_block_group_are_kept_by_a_cut() {
    skip_unless_linux!();
    let count = if is_torture() { 50_000 } else { 1_000 };
    let for_new_groups = AtomicU64::new(0);
    by_seeds(seed(), count, |seed| {
        let sequence = Sequence::new(seed).with_long_files(LONG_FILES);
        let run = || {
            let acted = act(sequence.base, &sequence.steps)?;
            for_new_groups.fetch_add(acted.for_new_groups, Ordering::Relaxed);
            judge_all(sequence.base, &acted, seed, STATES)
        };
        caught(run).map_err(|error| told(&sequence, seed, &error))
    });
    let for_new_groups = for_new_groups.into_inner();
    println!("{for_new_groups} commits since a block group was new");
    assert!(for_new_groups > 0, "no block group was made in between");
}

#[test]
fn linux_replays_what_we_replay_of_a_cut() {
    skip_unless_linux!();
    let first = seed();
    let count = if is_torture() { 5_000 } else { 300 };
    let linux = Linux::lock().unwrap();
    let mut judged = 0;
    for seed in first.. {
        let mut sequence = sequence(seed, Sequence::with_subvolumes_to_check);
        if seed.is_multiple_of(LONG_FOR_LINUX) {
            sequence = sequence.with_long_files(LONG_FILES);
        }
        let acted = act(sequence.base, &sequence.steps).unwrap();
        for state in chosen(&acted.recording, seed, STATES_FOR_LINUX) {
            let both = || {
                judge(&acted, &state)?;
                judge_both(&linux, &state.image, acted.cut)
            };
            if let Err(error) = caught(both) {
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
