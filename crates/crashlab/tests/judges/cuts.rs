//! Cut at every write: what a crash leaves is the state of a commit, whole.
//!
//! 1. A prefix of the writes shows the commit whose primary superblock is the last in it; with
//!    writes reordered or lost, that of a commit between the last that was durable and the one
//!    under way.
//! 2. What is left is clean for `btrfs check`, Linux shows the same, and it can be written again.

use userbtrfs_crashlab::devices::cut::{Choice, State, states};
use userbtrfs_crashlab::devices::{Event, Recording, RecordingDevice, SparseImage};
use userbtrfs_crashlab::engine_target::EngineTarget;
use userbtrfs_crashlab::linux::Linux;
use userbtrfs_crashlab::manifest::{Manifest, diff};
use userbtrfs_crashlab::operation::{Generator, Operation};
use userbtrfs_crashlab::random::Random;
use userbtrfs_crashlab::target::Target;
use userbtrfs_crashlab::{skip_unless_linux, walk_ours};
use userbtrfs_sync::Arc;

use super::made::{Made, check_file, kinds};
use super::ours::judge_by_linux;
use super::{is_torture, open_device, seed};

/// Where the primary superblock is, in bytes.
const SUPERBLOCK: u64 = 64 << 10;
/// Operations before each commit.
const OPERATIONS: usize = 40;
/// Commits of a workload.
const COMMITS: usize = 6;
/// In CI, one state in so many goes before btrfs-progs and Linux.
const JUDGED: u64 = 10;

/// What was done, and what was to be seen at each commit.
struct Workload {
    recording: Recording,
    /// How many events there were when a commit was durable, and what there was to be seen;
    /// the first is that of mkfs.
    commits: Vec<(usize, Manifest)>,
}

impl Workload {
    fn new(made: &Made, base: &SparseImage, seed: u64) -> Self {
        let device = Arc::new(RecordingDevice::on(base));
        let mut target = EngineTarget::on_device(device.clone()).unwrap();
        let mut commits = vec![(0, target.manifest())];
        let mut operations = Generator::new(seed, made.options.nodesize).commit_every(0);
        for _ in 0..COMMITS {
            for operation in operations.by_ref().take(OPERATIONS) {
                assert!(!matches!(operation, Operation::Commit | Operation::Reopen));
                // What it is refused for, others judge.
                let _ = target.apply(&operation);
            }
            let before = target.manifest();
            target.commit();
            commits.push((device.log().len(), before));
        }
        target.abandon();
        Self { recording: device.recording(), commits }
    }

    /// The commits that a state may show: from one to another.
    fn may_show(&self, state: &State, is_prefix: bool) -> (usize, usize) {
        let durable = self.commits.iter().rposition(|(end, _)| *end <= state.completed);
        let durable = durable.expect("the first is durable from the start");
        let begun = self.recording.events[..state.completed]
            .iter()
            .filter(|recorded| matches!(recorded.event, Event::Write { offset: SUPERBLOCK, .. }));
        let begun = begun.count();
        assert!(begun == durable || begun == durable + 1, "{begun} superblocks, {durable} commits");
        match is_prefix {
            true => (begun, begun),
            false => (durable, durable + 1),
        }
    }
}

#[test]
fn a_cut_leaves_one_commit_or_the_next() {
    skip_unless_linux!();
    let seed = seed();
    let linux = Linux::lock().unwrap();
    let count = if is_torture() { usize::MAX } else { 24 };
    for (made, seed) in kinds().into_iter().zip(seed..) {
        let base = made.image();
        let workload = Workload::new(&made, &base, seed);
        let mut judge = Judge { linux: &linux, made: &made, random: Random::new(seed) };
        let prefixes = match is_torture() {
            true => Choice::EveryPrefix,
            false => Choice::Sample { seed, count },
        };
        for state in states(&workload.recording, prefixes) {
            judge.judge(&workload, &state, true);
        }
        let count = count.min(4 * workload.recording.events.len());
        for state in states(&workload.recording, Choice::Reordered { seed, count }) {
            judge.judge(&workload, &state, false);
        }
        linux.assert_no_complaints().unwrap();
    }
}

struct Judge<'a> {
    linux: &'a Linux,
    made: &'a Made,
    random: Random,
}

impl Judge<'_> {
    fn judge(&mut self, workload: &Workload, state: &State, is_prefix: bool) {
        let State { completed, lost, image } = state;
        let what = format!("{}: {completed} events, {lost} of them lost", self.made.name);
        let device = Arc::new(image.to_device());
        let opened = open_device(device).unwrap_or_else(|error| panic!("{what}: {error}"));
        let shown = walk_ours::walk(&opened).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let (first, last) = workload.may_show(state, is_prefix);
        let last = last.min(workload.commits.len() - 1);
        let differences: Vec<_> =
            workload.commits[first..=last].iter().map(|(_, at)| diff(at, &shown, &[])).collect();
        if !differences.iter().any(Vec::is_empty) {
            super::assert_none(&format!("{what}: commit {first}"), &differences[0]);
        }
        if is_torture() || self.random.one_in(JUDGED) {
            self.judge_by_others(&what, image);
        }
    }

    fn judge_by_others(&self, what: &str, image: &SparseImage) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        image.write_to(&file).unwrap();
        check_file(what, &file);
        judge_by_linux(self.linux, what, &file);
        // It goes on as if nothing had been.
        let mut target = EngineTarget::on_image(&file).unwrap();
        for operation in Generator::new(1, self.made.options.nodesize).take(OPERATIONS) {
            match operation {
                Operation::Commit | Operation::Reopen => target.commit(),
                other => drop(target.apply(&other)),
            }
        }
        target.close().unwrap();
        check_file(what, &file);
    }
}
