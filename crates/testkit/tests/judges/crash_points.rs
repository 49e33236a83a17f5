//! A cut at each named crash point of a commit, a log commit, a replay and an orphan's deletion.
//!
//! 1. The recordings of a few workloads reach every point of [`CrashPoint::ALL`]; a point that none
//!    of them reaches fails the test.
//! 2. Each time a point is reached, the power is cut there: once with all writes until then, and
//!    once without some that no flush covers.
//! 3. A cut of a workload with fsyncs leaves what its [`SyncJournal`] requires, for us and for
//!    Linux, and so does a cut of the replay of such an image: a replay changes nothing that is
//!    shown.
//! 4. After a cut in the deletion of an orphan, the other file is whole, and the next mount deletes
//!    the orphan and frees its space.
//! 5. `btrfs check` accepts each image that Linux judges.
//!
//! [`SyncJournal`]: userbtrfs_testkit::durability_oracle::SyncJournal

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use userbtrfs::{BlockGroupFlags, Error, Filesystem, PathError};
use userbtrfs_device::{CrashPoint, Device, Request, Ticket};
use userbtrfs_format::SECTOR;
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{Layer, LayeredDevice, Recording, RecordingDevice, SparseImage};
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::skip_unless_linux;

use super::fsync_cuts::{Acted, act_with};
use super::fsynced::{Sequence, judge_both, now};
use super::made::{check_image, kinds};
use super::{is_torture, open_device, open_to_write, seed};

/// The numbers of sequences that are run.
const SEQUENCES: u64 = 8;
const SEQUENCES_IN_TORTURE: u64 = 400;
/// We judge this many states of a point in each recording.
const JUDGED: usize = 12;
/// Linux judges one state of a point in each recording, and this many in total.
const JUDGED_BY_LINUX: usize = 2;
/// The number of extents of the orphan, for three steps.
const EXTENTS: u64 = 1300;
/// The content of the file that stays.
const KEPT: &[u8] = b"this file stays";

/// The points in the deletion of an orphan.
const OF_ORPHANS: &[CrashPoint] =
    &[CrashPoint::OrphanListed, CrashPoint::OrphanStep, CrashPoint::OrphanDeleted];

/// The judge of cuts, and the number of states that it judged of each point.
struct Judge<'a> {
    linux: &'a Linux,
    random: Random,
    judged: BTreeMap<CrashPoint, usize>,
    judged_by_linux: BTreeMap<CrashPoint, usize>,
}

impl<'a> Judge<'a> {
    fn new(linux: &'a Linux, seed: u64) -> Self {
        let judged = BTreeMap::new();
        let judged_by_linux = BTreeMap::new();
        Self { linux, random: Random::new(seed), judged, judged_by_linux }
    }

    /// Calls `check` with states of each point that a recording reached, and with Linux for those
    /// that it judges, too.
    fn cut(
        &mut self,
        recording: &Recording,
        check: impl Fn(CrashPoint, &State, Option<&Linux>) -> Result<()>,
    ) -> Result<()> {
        for &point in CrashPoint::ALL {
            let seed = self.random.number();
            let whole = states(recording, Choice::At(point));
            let lossy = states(recording, Choice::ReorderedAt { point, seed });
            let mut all: Vec<_> = whole.chain(lossy).collect();
            self.random.shuffle(&mut all);
            all.truncate(if is_torture() { usize::MAX } else { JUDGED });
            for (index, state) in all.iter().enumerate() {
                let linux = self.linux_for(point, index);
                let what = || format!("{point:?}: {} events, {} lost", state.completed, state.lost);
                check(point, state, linux).with_context(what)?;
                *self.judged.entry(point).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Returns Linux if it judges the state of this index, too.
    fn linux_for(&mut self, point: CrashPoint, index: usize) -> Option<&'a Linux> {
        let count = self.judged_by_linux.entry(point).or_default();
        if index > 0 || (*count >= JUDGED_BY_LINUX && !is_torture()) {
            return None;
        }
        *count += 1;
        Some(self.linux)
    }

    /// Cuts a workload with fsyncs at each point, then the replay of one of its logs.
    fn judge_sequence(&mut self, seed: u64) -> Result<()> {
        let sequence = Sequence::new(seed);
        let options = sequence.base.options().discard(true).clone();
        let acted = act_with(&options, sequence.base, &sequence.steps)?;
        self.cut(&acted.recording, |_, state, linux| {
            judge_shown(&acted, state.completed, &state.image, linux)
        })?;
        let Some(left) = states(&acted.recording, Choice::At(CrashPoint::LogBeforeWake)).last()
        else {
            return Ok(());
        };
        let replayed = record_replay(&left.image)?;
        self.cut(&replayed, |_, state, linux| {
            judge_shown(&acted, left.completed, &state.image, linux)
        })
        .context("in the replay")
    }

    /// Cuts the deletion of an orphan at each point.
    fn judge_orphan(&mut self) -> Result<()> {
        for made in &kinds()[..2] {
            let base = base_with_orphan_to_be(&made.image())?;
            let recording = record_deletion(&base)?;
            let cut = now();
            let deleted = |point, state: &State, linux: Option<&Linux>| {
                judge_deletion(point, &state.image)?;
                linux.map_or(Ok(()), |linux| judge_both(linux, &state.image, cut))
            };
            self.cut(&recording, deleted).context(made.name)?;
        }
        Ok(())
    }
}

/// Checks an image that has the state of a workload after `completed` of its events.
fn judge_shown(
    acted: &Acted,
    completed: usize,
    image: &SparseImage,
    linux: Option<&Linux>,
) -> Result<()> {
    let left = open_device(Arc::new(image.to_device())).context("opening")?;
    acted.journal.check(&acted.recording, completed, &left)?;
    linux.map_or(Ok(()), |linux| judge_both(linux, image, acted.cut))
}

/// Records the replay of the log of an image.
fn record_replay(image: &SparseImage) -> Result<Recording> {
    let device = Arc::new(RecordingDevice::on(image));
    let filesystem = open_to_write(device.clone());
    ensure!(filesystem.replayed().is_some(), "the image has no log");
    filesystem.abandon();
    Ok(device.recording())
}

/// Returns the byte that fills the extent of this index.
fn byte_of(index: u64) -> u8 {
    1 + u8::try_from(index % 255).expect("a byte")
}

/// Returns the expected content of the large file: a sector for each extent, and a hole after it.
fn content_of_large() -> Vec<u8> {
    let sector = usize::try_from(SECTOR).expect("a sector is small");
    let one = |index| [vec![byte_of(index); sector], vec![0; sector]].concat();
    let mut content: Vec<u8> = (0..EXTENTS).flat_map(one).collect();
    content.truncate(content.len() - sector);
    content
}

/// Adds a small file, and one with so many extents that it is deleted in steps.
fn base_with_orphan_to_be(image: &SparseImage) -> Result<SparseImage> {
    let device = Arc::new(image.to_device());
    let filesystem = open_to_write(device.clone());
    filesystem.root().create(b"kept", 0o644)?.write_content(KEPT)?;
    let large = filesystem.root().create(b"large", 0o644)?.open()?;
    for (index, sector) in content_of_large().chunks(2 * usize::try_from(SECTOR)?).enumerate() {
        let data = &sector[..usize::try_from(SECTOR)?];
        large.write_all_at(data, 2 * SECTOR * u64::try_from(index)?)?;
    }
    large.close()?;
    filesystem.close()?;
    Ok(device.image())
}

/// A layer that commits when an orphan's deletion reaches a point, so that what it did until then
/// is on the device. The deleting thread holds no lock there.
struct CommitInDeletion(Mutex<Option<Filesystem>>);

impl Layer for CommitInDeletion {
    fn submit<D: Device + ?Sized>(&self, below: &D, batch: Vec<Request>) -> Ticket {
        below.submit(batch)
    }

    fn reached(&self, point: CrashPoint) {
        let filesystem = OF_ORPHANS.contains(&point).then(|| self.0.lock().clone()).flatten();
        if let Some(filesystem) = filesystem {
            filesystem.commit().unwrap();
        }
    }
}

/// Records the deletion of the large file, with a commit at each step.
fn record_deletion(base: &SparseImage) -> Result<Recording> {
    let recorder = Arc::new(RecordingDevice::on(base));
    let below: Arc<dyn Device> = recorder.clone();
    let layer = CommitInDeletion(Mutex::new(Class::DeviceQueue, None));
    let device = Arc::new(LayeredDevice::on_device(below, layer));
    let filesystem = open_to_write(device.clone());
    *device.layer().0.lock() = Some(filesystem.clone());
    filesystem.root().remove_file(b"large")?;
    let held = device.layer().0.lock().take();
    drop(held);
    filesystem.commit()?;
    filesystem.abandon();
    let recording = recorder.recording();
    let steps = states(&recording, Choice::At(CrashPoint::OrphanStep)).count();
    ensure!(steps > 1, "the file was deleted in {steps} steps");
    Ok(recording)
}

/// Checks the files that a cut in a deletion left, and that the next mount completes the deletion.
fn judge_deletion(point: CrashPoint, image: &SparseImage) -> Result<()> {
    let device = Arc::new(image.to_device());
    let filesystem = open_to_write(device.clone());
    ensure!(filesystem.read(b"/kept")? == KEPT, "the other file changed");
    match filesystem.read(b"/large") {
        Ok(content) => {
            ensure!(!OF_ORPHANS.contains(&point), "the orphan has its name");
            ensure!(content == content_of_large(), "the file has its name, but is not whole");
            filesystem.root().remove_file(b"large")?;
        }
        Err(PathError { error: Error::NotFound, .. }) => {}
        Err(error) => return Err(error).context("the orphan"),
    }
    filesystem.close()?;
    check_image("after the deletion", &device.image());
    let reopened = open_device(device)?;
    let kinds = reopened.usage()?.kinds;
    let data = kinds.iter().filter(|kind| kind.flags == BlockGroupFlags::DATA);
    let used: u64 = data.map(|kind| kind.used).sum();
    ensure!(used == 0, "{used} bytes of the orphan are in use");
    Ok(())
}

#[test]
fn every_crash_point_is_reached_and_survived() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let first = seed();
    let count = if is_torture() { SEQUENCES_IN_TORTURE } else { SEQUENCES };
    let mut judge = Judge::new(&linux, first);
    for seed in (first..).take(usize::try_from(count).unwrap()) {
        judge.judge_sequence(seed).unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    }
    judge.judge_orphan().unwrap_or_else(|error| panic!("{error:#}"));
    linux.assert_no_complaints().unwrap();
    for point in CrashPoint::ALL {
        let judged = judge.judged.get(point).copied().unwrap_or(0);
        let by_linux = judge.judged_by_linux.get(point).copied().unwrap_or(0);
        println!("{point:?}: {judged} cuts, {by_linux} by Linux");
        assert!(judged > 0 && by_linux > 0, "{point:?} was not reached");
    }
}
