//! The states that a cut of recorded writes leaves, each judged by all.

use userbtrfs::Filesystem;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::RecordingDevice;
use userbtrfs_testkit::devices::cut::{Choice, states};
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::Time;
use userbtrfs_testkit::stories;

use super::made::check_file;
use super::open_device;

/// The least number of states that tell something.
const STATES_MIN: usize = 6;

/// Judges one in `step` of the prefixes of the writes that have at least `begin` events: by
/// `check`, by `btrfs check`, and by Linux and userbtrfs, which show the same.
pub(crate) fn judge_prefixes(
    linux: &Linux,
    name: &str,
    device: &RecordingDevice,
    begin: usize,
    step: usize,
    check: impl Fn(&str, &Filesystem),
) {
    let cut = Time::now();
    let recording = device.recording();
    let cuts = states(&recording, Choice::EveryPrefix).filter(|it| it.completed >= begin);
    let mut judged = 0;
    for state in cuts.step_by(step) {
        judged += 1;
        let what = format!("{name}: after {} events", state.completed);
        let opened = open_device(Arc::new(state.image.to_device())).unwrap();
        check(&what, &opened);
        drop(opened);
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        state.image.write_to(&image).unwrap();
        check_file(&what, &image);
        let by_linux = stories::judge_by_linux(linux, &state.image).unwrap();
        let by_us = stories::judge_by_us(&state.image).unwrap();
        assert_eq!(by_linux.differences_of_judges(&by_us, cut), [""; 0], "{what}");
    }
    println!("{name}: {judged} cuts");
    assert!(judged >= STATES_MIN, "{name}: {judged} cuts");
    linux.assert_no_complaints().unwrap();
}
