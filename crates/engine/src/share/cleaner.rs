//! The cleaner: drops the trees of deleted subvolumes in the background (Linux: btrfs-cleaner).
//!
//! 1. A subvolume is queued when it is deleted, and when a filesystem is opened in which an earlier
//!    mount left it.
//! 2. Its tree is dropped once its deletion is durable and none of its inodes is used: nothing
//!    reads the tree then, and nothing changes it.
//! 3. A stop takes effect between two steps. What is left is dropped after the next opening, by us
//!    or by Linux.
//! 4. While it is paused, it begins to drop no tree, and has dropped in part none that it began.
//! 5. A tree that cannot be dropped is left, too; the others are dropped. So are they while inodes
//!    of one are used, or its deletion is not durable.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use userbtrfs_format::TreeId;
use userbtrfs_sync::{Arc, Class, Condvar, Mutex};
use userbtrfs_transaction::{DropProgress, TransactionManager};

use crate::data::{FileOps, PageCache};
use crate::error::{Error, Result};
use crate::inode::{Namespace, ops};

/// How long to wait before it is looked again whether a deleted subvolume is still used, or its
/// deletion durable.
const PAUSE: Duration = Duration::from_millis(100);

/// Drops the trees of deleted subvolumes in the background.
pub(crate) struct Cleaner {
    shared: Arc<Shared>,
    /// `None` while there is nothing to drop.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    parts: Parts,
    state: Mutex<State>,
    /// Notified when a subvolume was cleaned, of a stop, of the end of a pause, and of a commit.
    changed: Condvar,
}

/// The parts of an open filesystem that the cleaner needs.
pub(crate) struct Parts {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) files: Arc<PageCache>,
    pub(crate) writer: Arc<FileOps>,
    pub(crate) transactions: Arc<TransactionManager>,
}

#[derive(Default)]
struct State {
    /// The subvolumes to be dropped, and the transaction that deleted each.
    queue: BTreeMap<TreeId, u64>,
    stops: bool,
    /// The number of pauses.
    pauses: usize,
    /// The number of threads that are dropping a tree.
    dropping: usize,
    /// The number of commits that the cleaner was told of.
    commits: u64,
    /// The first failure since it was last reported.
    failed: Option<Error>,
}

impl Cleaner {
    pub(crate) fn new(parts: Parts) -> Self {
        let state = Mutex::new(Class::SubvolumeQueue, State::default());
        let shared = Shared { parts, state, changed: Condvar::new() };
        Self { shared: Arc::new(shared), thread: Mutex::new(Class::CleanerThread, None) }
    }

    /// Queues the subvolumes that earlier mounts left.
    pub(crate) fn queue_left(&self) -> Result<()> {
        for id in self.shared.parts.transactions.dead_roots()? {
            self.queue(id, 0);
        }
        Ok(())
    }

    /// Queues a subvolume that was deleted in this transaction.
    pub(crate) fn queue(&self, id: TreeId, deleted_in: u64) {
        let mut thread = self.thread.lock();
        self.shared.state.lock().queue.insert(id, deleted_in);
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            if let Some(finished) = thread.take() {
                join(finished);
            }
            let shared = Arc::clone(&self.shared);
            let run = move || while shared.clean_some() {};
            // Without a thread, the subvolume is dropped by `wait`, or after the next opening.
            *thread = thread::Builder::new().name("cleaner".to_owned()).spawn(run).ok();
        }
    }

    /// Waits until the trees of these subvolumes are dropped, or `may_wait` returns false; returns
    /// whether they are dropped. Fails with the first failure.
    pub(crate) fn wait(&self, ids: &[TreeId], may_wait: impl Fn() -> bool) -> Result<bool> {
        self.shared.parts.transactions.commit()?;
        self.shared.look_again();
        if self.thread.lock().is_none() {
            while may_wait() && self.shared.clean_some() {}
        }
        let mut state = self.shared.state.lock();
        loop {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            let are_dropped = !ids.iter().any(|id| state.queue.contains_key(id));
            if are_dropped || state.stops || !may_wait() {
                return Ok(are_dropped);
            }
            self.shared.changed.wait_for(&mut state, PAUSE);
        }
    }

    /// Waits until the tree that is being dropped is, and drops no other one until the result is
    /// dropped.
    pub(crate) fn pause(&self) -> CleanerPause<'_> {
        let mut state = self.shared.state.lock();
        state.pauses += 1;
        let pause = CleanerPause(&self.shared);
        self.shared.changed.wait_while(&mut state, |state| state.dropping > 0);
        pause
    }

    /// Stops after the current step, until another subvolume is queued.
    pub(crate) fn stop(&self) {
        let mut thread = self.thread.lock();
        let Some(running) = thread.take() else { return };
        self.shared.state.lock().stops = true;
        self.shared.changed.notify_all();
        join(running);
        self.shared.state.lock().stops = false;
    }
}

fn join(thread: JoinHandle<()>) {
    thread.join().expect("the cleaner does not panic");
}

/// Keeps trees from being dropped.
pub(crate) struct CleanerPause<'a>(&'a Shared);

impl Drop for CleanerPause<'_> {
    fn drop(&mut self) {
        self.0.state.lock().pauses -= 1;
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// Has the cleaner look at once whether what it waits for is so: something was committed.
    fn look_again(&self) {
        let mut state = self.state.lock();
        state.commits = state.commits.wrapping_add(1);
        self.changed.notify_all();
    }

    /// Drops the trees of the queued subvolumes that can be dropped now; waits a while if there is
    /// none. Returns false if none is queued, or after a stop.
    fn clean_some(&self) -> bool {
        let (queue, commits) = {
            let state = self.state.lock();
            (state.queue.clone(), state.commits)
        };
        let mut is_any = false;
        for (id, deleted_in) in queue {
            {
                let mut state = self.state.lock();
                if state.pauses > 0 {
                    break;
                }
                state.dropping += 1;
            }
            let cleaned = self.clean(id, deleted_in);
            let mut state = self.state.lock();
            state.dropping -= 1;
            self.changed.notify_all();
            match cleaned {
                Ok(false) => continue,
                Ok(true) => {}
                Err(error) => drop(state.failed.get_or_insert(error)),
            }
            is_any = true;
            state.queue.remove(&id);
        }
        let mut state = self.state.lock();
        if !is_any && !state.stops && state.commits == commits && !state.queue.is_empty() {
            self.changed.wait_for(&mut state, PAUSE);
        }
        !state.stops && !state.queue.is_empty()
    }

    /// Drops the tree of a subvolume; returns false if it cannot be dropped yet, or after a stop.
    fn clean(&self, id: TreeId, deleted_in: u64) -> Result<bool> {
        self.parts.transactions.check()?;
        if !self.is_durable(deleted_in)? || !self.is_unused(id)? {
            return Ok(false);
        }
        while !self.state.lock().stops {
            if let DropProgress::Dropped(_) = self.parts.transactions.drop_tree_step(id)? {
                ops::forget_subvolume(&self.parts.namespace, id);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_durable(&self, generation: u64) -> Result<bool> {
        if self.parts.transactions.generation() <= generation {
            return Ok(false);
        }
        self.parts.transactions.wait_durable(generation)?;
        Ok(true)
    }

    /// Returns true if no inode of a deleted subvolume is in memory any more. Those that are not
    /// used are written, and dropped.
    fn is_unused(&self, id: TreeId) -> Result<bool> {
        let Parts { namespace, files, writer, transactions } = &self.parts;
        files.forget_subvolume(id);
        if ops::evict_subvolume(namespace, id) {
            return Ok(true);
        }
        // Failures are recorded for the users of the files.
        let _failed = writer.settle();
        transactions.merge_pending()?;
        files.forget_subvolume(id);
        Ok(ops::evict_subvolume(namespace, id))
    }
}
