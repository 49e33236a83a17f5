//! Background threads: they call a function again and again, at intervals or when they are woken.
//!
//! The function writes back old data and excess dirty data, repairs bad mirrors, and retries
//! deletions that failed: see `FileOps`.

use std::time::Duration;

use userbtrfs_sync::thread::{self, JoinHandle};
use userbtrfs_sync::{Arc, Class, Condvar, Mutex};

/// The interval between two calls.
const PAUSE: Duration = Duration::from_secs(1);

/// The most threads.
const THREADS_MAX: usize = 4;

/// The background threads.
pub(in crate::data) struct Worker {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    requests: Mutex<WorkerRequests>,
    wake: Condvar,
}

#[derive(Default)]
struct WorkerRequests {
    hurry: bool,
    stop: bool,
}

impl Worker {
    pub(in crate::data) fn new() -> Self {
        let requests = Mutex::new(Class::TransactionState, WorkerRequests::default());
        let shared = Arc::new(Shared { requests, wake: Condvar::new() });
        Self { shared, threads: Mutex::new(Class::TransactionState, Vec::new()) }
    }

    /// Starts the threads, which call `work` when they are woken and, if `looks`, at intervals. A
    /// thread ends when `work` returns false.
    ///
    /// Fewer threads than wanted are enough; fails if not one can be started.
    pub(in crate::data) fn start(
        &self,
        looks: bool,
        work: impl Fn() -> bool + Clone + Send + 'static,
    ) -> std::io::Result<()> {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let mut threads = self.threads.lock();
        for _ in 0..count {
            let work = work.clone();
            let shared = Arc::clone(&self.shared);
            let run = move || while shared.next(looks) && work() {};
            match thread::Builder::new().name("writeback".to_owned()).spawn(run) {
                Ok(thread) => threads.push(thread),
                Err(_) if !threads.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Wakes the threads before their interval ends.
    pub(in crate::data) fn hurry(&self) {
        let is_asked = std::mem::replace(&mut self.shared.requests.lock().hurry, true);
        // A woken thread may run at once, and needs the lock.
        if !is_asked {
            self.shared.wake.notify_all();
        }
    }

    /// Ends the threads, after what they are doing.
    pub(in crate::data) fn stop(&self) {
        self.shared.requests.lock().stop = true;
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A worker itself may drop the last reference.
            if thread.thread().id() != thread::current().id() {
                thread.join().expect("a worker does not panic");
            }
        }
    }
}

impl Shared {
    /// Waits for a request, or until it is time to look; returns false when the threads must end.
    fn next(&self, looks: bool) -> bool {
        let mut requests = self.requests.lock();
        if !requests.stop && !requests.hurry {
            if looks {
                self.wake.wait_for(&mut requests, PAUSE);
            } else {
                self.wake.wait_idle(&mut requests);
            }
        }
        requests.hurry = false;
        !requests.stop
    }
}
