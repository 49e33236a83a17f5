//! Files on their way from the walker to the workers.
//!
//! 1. At most [`QUEUE_MAX`] opened files wait, so that descriptors and memory stay bounded.
//! 2. A worker takes several small files at once and starts to read all of them before it
//!    writes the first.

use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use userbtrfs_engine::api::{Inode, Metadata};

use super::target::TargetDir;

/// Files that may wait.
const QUEUE_MAX: usize = 128;

/// Files that a worker takes at once, and the bytes they may have together.
const BATCH_MAX: usize = 16;
const BATCH_BYTES_MAX: u64 = 1 << 20;

/// A file to fill.
pub(super) struct Job {
    pub(super) inode: Inode,
    pub(super) metadata: Metadata,
    pub(super) source: String,
    pub(super) dir: Arc<TargetDir>,
    pub(super) name: CString,
    pub(super) file: OwnedFd,
    pub(super) path: PathBuf,
}

/// The files that wait.
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
    /// Adds a file; waits while too many do.
    pub(super) fn push(&self, job: Job) {
        let state = self.state.lock().expect("no one panics with it");
        let full = |state: &mut State| state.jobs.len() >= QUEUE_MAX;
        let mut state = self.room.wait_while(state, full).expect("no one panics with it");
        state.jobs.push_back(job);
        if state.idle > 0 {
            self.work.notify_one();
        }
    }

    /// No more files come.
    pub(super) fn close(&self) {
        self.state.lock().expect("no one panics with it").closed = true;
        self.work.notify_all();
    }

    /// The next files; none when all are done.
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
            bytes += job.metadata.size;
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
