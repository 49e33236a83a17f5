//! The thread that merges and commits in the background: in time, and under memory pressure.
//!
//! 1. It knows when a task is due, and not how it is done: that is a callback.
//! 2. A callback that returns `Break` ends the thread.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use userbtrfs_sync::thread::{self, JoinHandle};
use userbtrfs_sync::{Arc, Class, Condvar, Mutex};

use super::trigger::CommitTrigger;

/// The background thread.
pub(crate) struct Worker {
    requests: Arc<WorkerRequests>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The requests to the background thread.
pub(crate) struct WorkerRequests {
    pending: Mutex<Pending>,
    wake: Condvar,
}

#[derive(Default)]
struct Pending {
    merge: bool,
    commit: bool,
    stop: bool,
}

/// The time when a commit is due, however much else there is to do; `None` for never.
struct Due(Option<Instant>);

impl Due {
    fn after(pause: Option<Duration>) -> Self {
        Self(pause.and_then(|pause| Instant::now().checked_add(pause)))
    }

    fn left(&self) -> Duration {
        self.0.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()))
    }
}

/// A task of the background thread.
pub(crate) enum Task {
    /// Merges delayed changes into trees.
    Merge,
    /// Commits.
    Commit(CommitTrigger),
}

impl Worker {
    /// Returns a worker without a thread.
    pub(crate) fn new(requests: Arc<WorkerRequests>) -> Self {
        Self { requests, thread: Mutex::new(Class::TransactionState, None) }
    }

    /// Starts the thread, which runs the tasks that are due; fails if the system allows no more. A
    /// commit is due `interval` after the last one, if there is an interval.
    pub(crate) fn start(
        &self,
        interval: Option<Duration>,
        run: impl Fn(Task) -> ControlFlow<()> + Send + 'static,
    ) -> std::io::Result<()> {
        let requests = Arc::clone(&self.requests);
        let work = move || {
            let mut due = Due::after(interval);
            while let Some(task) = requests.next(&due) {
                if matches!(task, Task::Commit(_)) {
                    due = Due::after(interval);
                }
                if run(task).is_break() {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("commit".to_owned()).spawn(work)?;
        *self.thread.lock() = Some(started);
        Ok(())
    }

    /// Ends the thread, after its current task.
    pub(crate) fn stop(&self) {
        self.requests.request(|pending| &mut pending.stop);
        let thread = self.thread.lock().take();
        // The worker itself may drop the last reference.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
        {
            thread.join().expect("the worker does not panic");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl WorkerRequests {
    /// Returns no requests.
    pub(crate) fn new() -> Self {
        let pending = Mutex::new(Class::TransactionState, Pending::default());
        Self { pending, wake: Condvar::new() }
    }

    /// Requests a merge of delayed changes.
    pub(crate) fn request_merge(&self) {
        self.request(|pending| &mut pending.merge);
    }

    /// Requests a commit, to free memory that only a commit frees.
    pub(crate) fn request_commit(&self) {
        self.request(|pending| &mut pending.commit);
    }

    /// Sets a request. One that is still set has woken the worker already.
    fn request(&self, select: impl FnOnce(&mut Pending) -> &mut bool) {
        if !std::mem::replace(select(&mut self.pending.lock()), true) {
            self.wake.notify_one();
        }
    }

    /// Waits for a request, or until a commit is due; `None` if the thread is to end.
    fn next(&self, due: &Due) -> Option<Task> {
        let mut pending = self.pending.lock();
        loop {
            if pending.stop {
                return None;
            }
            let left = due.left();
            if std::mem::take(&mut pending.commit) {
                return Some(Task::Commit(CommitTrigger::Memory));
            }
            if left.is_zero() {
                return Some(Task::Commit(CommitTrigger::Age));
            }
            if std::mem::take(&mut pending.merge) {
                return Some(Task::Merge);
            }
            // The loop checks whether the time is over.
            self.wake.wait_for(&mut pending, left);
        }
    }
}
