//! Execution of a story, by us or by Linux.

use std::sync::mpsc;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use userbtrfs::{FullCommitReason, OpenOptions, SyncOutcome};
use userbtrfs_engine::api::Experiment;
use userbtrfs_sync::Arc;

use super::folder::folder;
use super::step::Step;
use super::{Seen, linux_steps};
use crate::devices::{Event, Recording, RecordingDevice, SparseImage};
use crate::engine_target::{EngineTarget, crowd_out, with_little_memory};
use crate::linux::Linux;
use crate::manifest::{Bytes, Mode, Time};
use crate::model::Outcome;
use crate::operation::{Object, Operation};
use crate::target::{LinuxTarget, Target};

/// The offset of the log root address in the primary superblock, in bytes.
const LOG_ROOT: u64 = (64 << 10) + 0x60;

/// Mount options that prevent commits other than the requested ones.
const OPTIONS: &str = "noatime,commit=300";

/// The result of executing a story.
#[derive(Clone, Debug)]
pub struct Acted {
    /// The content of the device when the last step had returned.
    pub image: SparseImage,
    /// The image without writes that no flush covered, if that is known and differs.
    pub durable: Option<SparseImage>,
    /// The state when the last `sync` had returned.
    pub before: Option<Seen>,
    /// The state after the last step.
    pub now: Seen,
    /// The time of the crash: everything in the story happened earlier.
    pub cut: Time,
    /// The reason of each sync that became a commit, in order; only for our executions.
    pub commits: Vec<FullCommitReason>,
}

impl Acted {
    /// Returns whether a log is pending in the image.
    pub fn has_log(&self) -> bool {
        let mut root = [0; 8];
        self.image.read(LOG_ROOT, &mut root);
        root != [0; 8]
    }
}

/// An implementation that executes steps.
trait Actor {
    fn act(&mut self, step: &Step) -> Result<()>;
    fn see(&mut self) -> Result<Seen>;
}

/// Executes the steps; returns the state when the last `sync` had returned.
fn act(actor: &mut dyn Actor, steps: &[Step]) -> Result<Option<Seen>> {
    let last = steps.iter().rposition(|step| matches!(step, Step::Commit));
    let mut before = None;
    for (index, step) in steps.iter().enumerate() {
        actor.act(step).with_context(|| format!("step {index}: {step:?}"))?;
        if Some(index) == last {
            before = Some(actor.see()?);
        }
    }
    Ok(before)
}

/// Executes a story with userbtrfs on the filesystem in `base`.
pub fn act_by_us(base: &SparseImage, steps: &[Step]) -> Result<Acted> {
    act_by_us_in(None, base, steps)
}

/// Like [`act_by_us`], in an experiment of docs/seeds.md.
pub fn act_by_us_in(
    experiment: Option<Experiment>,
    base: &SparseImage,
    steps: &[Step],
) -> Result<Acted> {
    let device = Arc::new(RecordingDevice::on(base));
    let is_crowded = steps.iter().any(|step| matches!(step, Step::Evict));
    let mut options = if is_crowded { with_little_memory() } else { OpenOptions::new() };
    if let Some(experiment) = experiment {
        options.experiment(experiment);
    }
    let mut us = Us::new(EngineTarget::with_options(device.clone(), &options)?);
    let before = act(&mut us, steps)?;
    let recording = device.recording();
    let cut = Time::now();
    let now = us.see()?;
    us.target.abandon();
    let image = recording.end();
    let durable = durable(&recording);
    let durable = (durable != image).then_some(durable);
    Ok(Acted { image, durable, before, now, cut, commits: us.commits.try_iter().collect() })
}

/// Returns the image after a crash that loses everything that may be lost.
fn durable(recording: &Recording) -> SparseImage {
    let covered = recording.events.iter().map(|recorded| match recorded.event {
        Event::Flush { covers } => covers,
        _ => 0,
    });
    let covered = covered.max().unwrap_or(0);
    let mut image = recording.base.clone();
    for (index, recorded) in recording.events.iter().enumerate() {
        if index < covered || matches!(recorded.event, Event::Write { fua: true, .. }) {
            recorded.event.apply(&mut image);
        }
    }
    image
}

/// Executes a story with Linux on the filesystem in `base`.
pub fn act_by_linux(linux: &Linux, base: &SparseImage, steps: &[Step]) -> Result<Acted> {
    let folder = folder()?;
    let file = folder.path().join("image");
    base.write_to(&file)?;
    let mut kernel = Kernel(LinuxTarget::with_options(linux, &file, OPTIONS)?);
    let before = act(&mut kernel, steps)?;
    let image = SparseImage::from_file(&file)?;
    let cut = Time::now();
    let now = kernel.see()?;
    Ok(Acted { image, durable: None, before, now, cut, commits: Vec::new() })
}

/// userbtrfs, through its library.
struct Us {
    target: EngineTarget,
    /// The reasons of syncs that became commits.
    commits: mpsc::Receiver<FullCommitReason>,
    teller: mpsc::Sender<FullCommitReason>,
}

impl Us {
    fn new(target: EngineTarget) -> Self {
        let (teller, commits) = mpsc::channel();
        let us = Self { target, commits, teller };
        us.listen();
        us
    }

    /// Starts tracing; must be called for each filesystem that is opened.
    fn listen(&self) {
        let teller = self.teller.clone();
        self.target.filesystem().trace_syncs(move |sync| {
            if let SyncOutcome::Committed(reason) = sync.how {
                // The receiver is gone if the filesystem outlives the story.
                let _gone = teller.send(reason);
            }
        });
    }
}

impl Actor for Us {
    fn act(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Change(change) => done(self.target.apply(change).map(drop)),
            Step::Sync { object, data_only } => done(self.target.sync(object, *data_only)),
            Step::Commit => {
                self.target.commit();
                Ok(())
            }
            Step::Evict => crowd_out(self.target.filesystem()),
            Step::Fill(path) => fill(&mut self.target, path),
            Step::Remount => {
                self.target.reopen();
                self.listen();
                Ok(())
            }
            Step::WriteThrough(write) => {
                done(self.target.apply(write).map(drop))?;
                done(self.target.sync(&object_of(write), true))
            }
            Step::Clone { from, offset, length, to, at } => {
                let filesystem = self.target.filesystem();
                let [from, to] = [from, to].map(|path| filesystem.open_file(path.as_slice()));
                Ok(to?.clone_range(&from?, *offset, *length, *at)?)
            }
            Step::Subvolume(path) => {
                let (dir, name) = self.target.filesystem().open_parent(path.as_slice())?;
                dir.create_subvolume(&name, 0o755)?;
                Ok(())
            }
            Step::Snapshot(of, at) => {
                let filesystem = self.target.filesystem();
                let source = filesystem.lookup([b"/", of.as_slice()].concat())?.id().subvolume;
                let (dir, name) = filesystem.open_parent(at.as_slice())?;
                dir.snapshot(&name, source, false)?;
                Ok(())
            }
            Step::Delete(path) => {
                let (dir, name) = self.target.filesystem().open_parent(path.as_slice())?;
                dir.delete_subvolume(&name)?;
                Ok(())
            }
        }
    }

    fn see(&mut self) -> Result<Seen> {
        Seen::by_us(self.target.filesystem())
    }
}

/// Linux, on a loop device.
struct Kernel<'a>(LinuxTarget<'a>);

impl Actor for Kernel<'_> {
    fn act(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Change(change) => done(self.0.apply(change).map(drop)),
            Step::Sync { object, data_only } => done(self.0.sync(object, *data_only)),
            Step::Commit => {
                self.0.commit();
                Ok(())
            }
            Step::Remount => {
                self.0.reopen();
                Ok(())
            }
            Step::Fill(path) => fill(&mut self.0, path),
            other => linux_steps::act(self.0.path(), other),
        }
    }

    fn see(&mut self) -> Result<Seen> {
        Seen::by_linux(self.0.path())
    }
}

/// Fills a new file with large writes while there is space, then with smaller ones.
fn fill(target: &mut dyn Target, path: &Bytes) -> Result<()> {
    let mode = Mode::new(0o644);
    done(target.apply(&Operation::Create { path: path.clone(), mode }).map(drop))?;
    for length in [1 << 20, 64 << 10, 4 << 10] {
        let object = Object::Path(path.clone());
        let append = Operation::Append { object, length, seed: 1 };
        let end = loop {
            if let Err(error) = target.apply(&append) {
                break error;
            }
        };
        ensure!(end == Errno::NOSPC, "filling it: {end}");
    }
    Ok(())
}

/// Returns the object of a write.
fn object_of(write: &Operation) -> Object {
    write.object().expect("a write is to something")
}

fn done(outcome: Outcome) -> Result<()> {
    Ok(outcome?)
}
