//! Each experiment of docs/seeds.md keeps what an fsync has to keep.
//!
//! 1. The stories are executed by us in each experiment, and checked by us and by Linux.
//! 2. Random sequences with fsyncs are cut at writes, as in [`super::fsync_cuts`]; some of the cuts
//!    are replayed by Linux, too.
//! 3. In CI each experiment gets a share of the stories, a different one, and few cuts.

use userbtrfs::OpenOptions;
use userbtrfs_engine::api::Experiment;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::stories::{Story, act_by_us_in, all, read};

use super::fsync_cuts::{act_with, chosen, judge_all};
use super::fsynced::{Sequence, by_seeds, caught, judge_both};
use super::log_stories::{hole_items, judge, plain};
use super::{is_torture, seed};

/// In CI an experiment gets one of this many stories.
const STORIES: usize = 12;
/// The number of states of an experiment that are checked, and that of each sequence.
const STATES: u64 = 800;
const STATES_IN_TORTURE: u64 = 100_000;
const STATES_OF_SEQUENCE: usize = 40;
/// The number of sequences of which Linux replays states, and the number of these.
const SEQUENCES_FOR_LINUX: u64 = 4;
const STATES_FOR_LINUX: usize = 3;

/// This story has a link that need not be durable, but is in S1.
const UNSYNCED_LINK: &str = "an_unsynced_link_of_a_logged_file";

/// Executes a story in an experiment; returns the unmet expectations.
fn tell(experiment: Experiment, story: &Story) -> Vec<String> {
    let mut failures = Vec::new();
    let bases = [Some(plain()), story.hole_items.then(hole_items)];
    for base in bases.into_iter().flatten() {
        for (number, steps) in story.ways.iter().enumerate() {
            let what = format!("{}, way {number}, in {experiment}", story.name);
            let acted = act_by_us_in(Some(experiment), base, steps);
            let acted = acted.unwrap_or_else(|error| panic!("{what}: {error:#}"));
            failures.extend(judge(story, &what, &acted));
        }
    }
    failures
}

#[test]
fn link_and_rename_of_a_logged_file_are_durable_in_s1() {
    skip_unless_linux!();
    let text = "- **linked** Done: `mkdir d; file d/a 4k; fsync d/a; link d/a d/b`, `mkdir d; file \
                d/a 4k; fsync d/a; rename d/a d/b`, `mkdir d; file d/a 4k; sync; link d/a d/b; \
                fsync d; rename d/b d/c; link d/a d/e`. There: `all is now`.";
    let failures = tell(Experiment::S1, &read(text).unwrap()[0]);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn tell_stories(experiment: Experiment) {
    skip_unless_linux!();
    let is_durable = |story: &Story| experiment == Experiment::S1 && story.name == UNSYNCED_LINK;
    let stories = all().values().filter(|story| !is_durable(story));
    let first = Experiment::ALL.iter().position(|other| *other == experiment).unwrap();
    let failures: Vec<_> = if is_torture() {
        stories.flat_map(|story| tell(experiment, story)).collect()
    } else {
        let share = stories.skip(first).step_by(STORIES);
        share.flat_map(|story| tell(experiment, story)).collect()
    };
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn cut(experiment: Experiment) {
    skip_unless_linux!();
    let act = |seed| {
        let sequence = Sequence::new(seed);
        let base = sequence.base;
        let mut options = OpenOptions::new();
        options.memory(base.memory).experiment(experiment);
        act_with(&options, base, &sequence.steps).map(|acted| (base, acted))
    };
    let first = seed();
    let count = if is_torture() { STATES_IN_TORTURE } else { STATES };
    by_seeds(first, count, |seed| {
        let judged = caught(|| {
            let (base, acted) = act(seed)?;
            judge_all(base, &acted, seed, STATES_OF_SEQUENCE)
        });
        judged.map_err(|error| format!("seed {seed}, in {experiment}: {error:#}"))
    });
    let linux = Linux::lock().unwrap();
    for seed in first..first + SEQUENCES_FOR_LINUX {
        let (_, acted) = act(seed).unwrap();
        for state in chosen(&acted.recording, seed, STATES_FOR_LINUX) {
            let judged = judge_both(&linux, &state.image, acted.cut);
            judged.unwrap_or_else(|error| panic!("seed {seed}, in {experiment}: {error:#}"));
        }
    }
}

/// Defines the tests of each experiment.
macro_rules! experiments {
    ($($experiment:ident: $stories:ident $cuts:ident)*) => {
        $(
            #[test]
            fn $stories() {
                tell_stories(Experiment::$experiment);
            }

            #[test]
            fn $cuts() {
                cut(Experiment::$experiment);
            }
        )*
    };
}

experiments! {
    S0: stories_hold_in_s0 fsynced_files_are_kept_by_a_cut_in_s0
    S1: stories_hold_in_s1 fsynced_files_are_kept_by_a_cut_in_s1
    S2: stories_hold_in_s2 fsynced_files_are_kept_by_a_cut_in_s2
    S3: stories_hold_in_s3 fsynced_files_are_kept_by_a_cut_in_s3
    S4: stories_hold_in_s4 fsynced_files_are_kept_by_a_cut_in_s4
}
