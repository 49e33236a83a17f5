//! The queue of files to the workers; large files are queued in parts.
//!
//! 1. At most [`QUEUE_MAX`] parts of opened files are queued, so that descriptors and memory stay
//!    bounded.
//! 2. A worker takes several small files at once and starts to read all of them before it
//!    writes the first.
//! 3. The thread that finishes the last part of a file completes the file.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::copy::sink::host::HostSink;
use crate::copy::source::image_tree::ImageContent;
use crate::copy::tree::NewFile;

/// The maximum number of queued parts.
const QUEUE_MAX: usize = 128;

/// The maximum number of parts that a worker takes at once, and of their bytes if they are several.
const BATCH_MAX: usize = 16;
const BATCH_BYTES_MAX: u64 = 1 << 20;

/// A file that is being filled.
pub(super) struct Filling {
    /// The file, as the tree made it.
    pub(super) new: NewFile<HostSink>,
    pub(super) content: ImageContent,
    parts_left: AtomicUsize,
    failed: AtomicBool,
}

/// The state of a file after one of its parts is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Other parts are not done.
    Parts,
    /// That was the last part, and all succeeded.
    Nothing,
    /// That was the last part, and some part failed.
    Failure,
}

impl Filling {
    /// Creates a file with one pending part.
    pub(super) fn new(new: NewFile<HostSink>, content: ImageContent) -> Self {
        Self { new, content, parts_left: AtomicUsize::new(1), failed: AtomicBool::new(false) }
    }

    /// Adds a pending part. The caller must have one that is not done.
    pub(super) fn add_part(&self) {
        self.parts_left.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if a part of the file failed.
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Records that a part is done, and returns the state of the file.
    pub(super) fn part_done(&self, failed: bool) -> Left {
        if failed {
            self.failed.store(true, Ordering::Relaxed);
        }
        // AcqRel: the thread that finishes last sees the effects of all other parts.
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

/// The queue of parts.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes workers: a part was added, or the queue was closed.
    work: Condvar,
    /// Wakes the thread that adds parts: the queue is no longer full.
    room: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
    /// The number of waiting workers. `push` notifies only if there are any, which saves a system
    /// call per file.
    idle: usize,
}

impl Queue {
    /// Adds a part; waits while the queue is full.
    pub(super) fn push(&self, job: Job) {
        let state = self.state.lock().expect("no one panics with it");
        let full = |state: &mut State| state.jobs.len() >= QUEUE_MAX;
        let mut state = self.room.wait_while(state, full).expect("no one panics with it");
        state.jobs.push_back(job);
        if state.idle > 0 {
            self.work.notify_one();
        }
    }

    /// Closes the queue: no more parts will be added.
    pub(super) fn close(&self) {
        self.state.lock().expect("no one panics with it").closed = true;
        self.work.notify_all();
    }

    /// Waits for the next parts; returns none once the queue is closed and empty.
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
