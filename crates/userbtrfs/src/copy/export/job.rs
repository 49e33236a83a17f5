//! Files on their way from the walker to the workers, large ones in parts of their data.
//!
//! 1. At most [`QUEUE_MAX`] parts of opened files wait, so that descriptors and memory stay
//!    bounded.
//! 2. A worker takes several small files at once and starts to read all of them before it
//!    writes the first.
//! 3. Who is done with the last part of a file completes it.

use std::collections::VecDeque;
use std::ffi::CString;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use userbtrfs_engine::api::{Inode, Metadata};

use super::target::TargetDir;

/// Parts that may wait.
const QUEUE_MAX: usize = 128;

/// Parts that a worker takes at once, and the bytes they may have together.
const BATCH_MAX: usize = 16;
const BATCH_BYTES_MAX: u64 = 1 << 20;

/// A file that is being filled.
pub(super) struct Filling {
    /// What it is.
    pub(super) new: NewFile,
    parts_left: AtomicUsize,
    failed: AtomicBool,
    /// How far it was written.
    end: AtomicU64,
}

/// A file to fill, as the walker made it.
pub(super) struct NewFile {
    pub(super) inode: Inode,
    pub(super) metadata: Metadata,
    pub(super) source: String,
    pub(super) dir: Arc<TargetDir>,
    pub(super) name: CString,
    pub(super) file: OwnedFd,
    pub(super) path: PathBuf,
}

/// How a part of a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Others are not done.
    Parts,
    /// It was the last, and all is well.
    Nothing,
    /// It was the last, and some part failed.
    Failure,
}

impl Filling {
    /// A file with one part to come.
    pub(super) fn new(new: NewFile) -> Self {
        Self {
            new,
            parts_left: AtomicUsize::new(1),
            failed: AtomicBool::new(false),
            end: AtomicU64::new(0),
        }
    }

    /// Notes that one more part is to come. The caller has one that is not done.
    pub(super) fn add_part(&self) {
        self.parts_left.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that bytes were written up to here.
    pub(super) fn written(&self, end: u64) {
        self.end.fetch_max(end, Ordering::Relaxed);
    }

    /// How far it was written.
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Whether a part of it failed.
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Notes that a part is done, and says what is left.
    pub(super) fn part_done(&self, failed: bool) -> Left {
        if failed {
            self.failed.store(true, Ordering::Relaxed);
        }
        // What the other parts did is seen by who is last.
        match self.parts_left.fetch_sub(1, Ordering::AcqRel) {
            1 if self.is_failed() => Left::Failure,
            1 => Left::Nothing,
            _ => Left::Parts,
        }
    }
}

/// A part of a file to fill.
pub(super) struct Job {
    pub(super) file: Arc<Filling>,
    pub(super) range: Range<u64>,
}

/// The parts that wait.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// For workers: there is something to do, or nothing will come.
    work: Condvar,
    /// For the walker: there is room.
    room: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
    /// Workers that wait. None is woken where none waits: that would cost a system call a file.
    idle: usize,
}

impl Queue {
    /// Adds a part; waits while too many do.
    pub(super) fn push(&self, job: Job) {
        let state = self.state.lock().expect("no one panics with it");
        let full = |state: &mut State| state.jobs.len() >= QUEUE_MAX;
        let mut state = self.room.wait_while(state, full).expect("no one panics with it");
        state.jobs.push_back(job);
        if state.idle > 0 {
            self.work.notify_one();
        }
    }

    /// No more parts come.
    pub(super) fn close(&self) {
        self.state.lock().expect("no one panics with it").closed = true;
        self.work.notify_all();
    }

    /// The next parts; none when all are done.
    pub(super) fn take(&self) -> Vec<Job> {
        let mut state = self.state.lock().expect("no one panics with it");
        if state.jobs.is_empty() {
            state.idle += 1;
            let idle = |state: &mut State| state.jobs.is_empty() && !state.closed;
            state = self.work.wait_while(state, idle).expect("no one panics with it");
            state.idle -= 1;
        }
        let was_full = state.jobs.len() >= QUEUE_MAX;
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(job) = state.jobs.front() {
            bytes += job.range.end - job.range.start;
            let enough = batch.len() == BATCH_MAX || bytes > BATCH_BYTES_MAX;
            if enough && !batch.is_empty() {
                break;
            }
            batch.extend(state.jobs.pop_front());
        }
        if was_full {
            self.room.notify_one();
        }
        batch
    }
}
