//! The thread that merges and commits in the background: in time, and under memory pressure.
//!
//! 1. It holds a reference to the manager only while it works, so that an unused one is dropped.
//! 2. Its failures are kept in the transaction state; the next change returns them.

use std::time::{Duration, Instant};

use userbtrfs_sync::thread::{self, JoinHandle};
use userbtrfs_sync::{Arc, Class, Condvar, Mutex};

use super::CommitTrigger;
use crate::manager::TransactionManager;

/// The background thread, and the requests to it.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    requests: Mutex<WorkerRequests>,
    wake: Condvar,
}

#[derive(Default)]
struct WorkerRequests {
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

/// The next task.
enum Task {
    Merge,
    Commit(CommitTrigger),
    Stop,
}

impl Worker {
    pub(crate) fn new() -> Self {
        let requests = Mutex::new(Class::TransactionState, WorkerRequests::default());
        let shared = Arc::new(Shared { requests, wake: Condvar::new() });
        Self { shared, thread: Mutex::new(Class::TransactionState, None) }
    }

    /// Starts the thread; fails if the system allows no more.
    pub(crate) fn start(&self, transactions: &Arc<TransactionManager>) -> std::io::Result<()> {
        let (transactions, shared) = (Arc::downgrade(transactions), Arc::clone(&self.shared));
        let pause = match transactions
            .upgrade()
            .map_or(0, |transactions| transactions.options.commit_seconds)
        {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        };
        let work = move || {
            let mut due = Due::after(pause);
            loop {
                let task = shared.next(&due);
                let Some(transactions) = transactions.upgrade() else { return };
                // The next change returns the failure.
                let _failed = match task {
                    Task::Stop => return,
                    Task::Merge => transactions.merge_most(),
                    Task::Commit(cause) => {
                        due = Due::after(pause);
                        transactions.commit_for(cause)
                    }
                };
            }
        };
        let started = thread::Builder::new().name("commit".to_owned()).spawn(work)?;
        *self.thread.lock() = Some(started);
        Ok(())
    }

    pub(crate) fn request_merge(&self) {
        self.shared.request(|requests| &mut requests.merge);
    }

    /// Requests a commit, to free memory that only a commit frees.
    pub(crate) fn request_commit(&self) {
        self.shared.request(|requests| &mut requests.commit);
    }

    /// Ends the thread, after its current task.
    pub(crate) fn stop(&self) {
        self.shared.request(|requests| &mut requests.stop);
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

impl Shared {
    /// Sets a request. One that is still set has woken the worker already.
    fn request(&self, select: impl FnOnce(&mut WorkerRequests) -> &mut bool) {
        if !std::mem::replace(select(&mut self.requests.lock()), true) {
            self.wake.notify_one();
        }
    }

    /// Waits for a request, or until a commit is due.
    fn next(&self, due: &Due) -> Task {
        let mut requests = self.requests.lock();
        loop {
            if requests.stop {
                return Task::Stop;
            }
            let left = due.left();
            if std::mem::take(&mut requests.commit) {
                return Task::Commit(CommitTrigger::Memory);
            }
            if left.is_zero() {
                return Task::Commit(CommitTrigger::Age);
            }
            if std::mem::take(&mut requests.merge) {
                return Task::Merge;
            }
            // The loop checks whether the time is over.
            self.wake.wait_for(&mut requests, left);
        }
    }
}
