//! Background threads that write back old data and excess dirty data, repair bad mirrors, and retry
//! deletions that failed.
//!
//! 1. They hold a reference to the `WriteContext` only while they work, so that a filesystem
//!    without users is dropped.
//! 2. Failures are recorded for the users of the file.
//! 3. Each thread writes old data first, then the files from which nothing was taken for the
//!    longest time; it skips files that are under writeback.

use std::time::Duration;

use userbtrfs_sync::thread::{self, JoinHandle};
use userbtrfs_sync::{Arc, Class, Condvar, Mutex};

use crate::data::UnfinishedFile;
use crate::data::writeback::EofBlock;
use crate::data::writeback::context::WriteContext;

/// The interval between looks for old data.
const PAUSE: Duration = Duration::from_secs(1);

/// The most files that are written between two checks for excess dirty data.
const FILES_AT_ONCE: usize = 64;

/// The most threads.
const THREADS_MAX: usize = 4;

/// The background writeback threads.
pub(in crate::data) struct Worker {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    wishes: Mutex<WorkerRequests>,
    wake: Condvar,
}

#[derive(Default)]
struct WorkerRequests {
    hurry: bool,
    stop: bool,
}

impl Worker {
    pub(in crate::data) fn new() -> Self {
        let wishes = Mutex::new(Class::TransactionState, WorkerRequests::default());
        let shared = Arc::new(Shared { wishes, wake: Condvar::new() });
        Self { shared, threads: Mutex::new(Class::TransactionState, Vec::new()) }
    }

    /// Starts to write back data that is older than `age_seconds`; 0: only under memory pressure.
    ///
    /// Fewer threads than wanted are enough; fails if not one can be started.
    pub(in crate::data) fn start(
        &self,
        writer: &Arc<WriteContext>,
        age_seconds: u64,
    ) -> std::io::Result<()> {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let age = (age_seconds > 0).then(|| Duration::from_secs(age_seconds));
        let mut threads = self.threads.lock();
        for _ in 0..count {
            let (writer, shared) = (Arc::downgrade(writer), Arc::clone(&self.shared));
            let work = move || {
                while shared.next(age.is_some()) {
                    let Some(writer) = writer.upgrade() else { return };
                    writer.write_due(age);
                    writer.repair();
                    writer.nodes.delete_later();
                }
            };
            match thread::Builder::new().name("writeback".to_owned()).spawn(work) {
                Ok(thread) => threads.push(thread),
                Err(_) if !threads.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Wakes the threads to write dirty data before it is old.
    pub(in crate::data) fn hurry(&self) {
        let is_asked = std::mem::replace(&mut self.shared.wishes.lock().hurry, true);
        // A woken thread may run at once, and needs the lock.
        if !is_asked {
            self.shared.wake.notify_all();
        }
    }

    /// Ends the threads, after what they are doing.
    pub(in crate::data) fn stop(&self) {
        self.shared.wishes.lock().stop = true;
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
    fn next(&self, look: bool) -> bool {
        let mut wishes = self.wishes.lock();
        if !wishes.stop && !wishes.hurry {
            match look {
                true => drop(self.wake.wait_for(&mut wishes, PAUSE)),
                false => self.wake.wait_idle(&mut wishes),
            }
        }
        wishes.hurry = false;
        !wishes.stop
    }
}

impl WriteContext {
    /// Writes all of the files that are dirty for longer than `age`, then others while there is
    /// excess dirty data; skips files that are under writeback.
    fn write_due(&self, age: Option<Duration>) {
        let is_old = |file: &UnfinishedFile| age.is_some_and(|age| file.since.elapsed() >= age);
        let (old, others): (Vec<_>, Vec<_>) =
            self.cache.unfinished_files().into_iter().partition(is_old);
        self.write_while(|| true, old, EofBlock::Written);
        self.write_while(|| self.is_pressed(), others, EofBlock::Left);
    }

    fn write_while(&self, wanted: impl Fn() -> bool, files: Vec<UnfinishedFile>, tail: EofBlock) {
        let mut files = files.into_iter().map(|file| file.pages).peekable();
        while files.peek().is_some() && wanted() && self.transactions.check().is_ok() {
            let some: Vec<_> = files.by_ref().take(FILES_AT_ONCE).collect();
            let _told_elsewhere = self.write_idle(&some, tail);
        }
    }
}
