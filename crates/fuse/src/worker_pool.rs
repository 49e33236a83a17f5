//! The worker threads that serve a mount.
//!
//! 1. Each thread has its own descriptor of the device, and a buffer unless it is spare. Some
//!    buffers of spare threads are kept until a spare thread ends. A thread receives a request,
//!    handles it, and receives the next: no request is passed to another thread.
//! 2. At least as many threads are *awake* as are *wanted*: one while requests come one at a time,
//!    otherwise `Config::threads`. A thread is awake unless it is in [`may_sleep`] or *spare*
//!    (idle). For each that goes to sleep, a spare thread is woken or a new one is started. Once
//!    there are `threads_max` threads, a new one is started only if none is awake and one is in
//!    [`may_wait`], because another thread has to receive the request that it waits for.
//! 3. While more than twice as many threads are awake as wanted, a thread that has finished a
//!    request becomes spare.
//! 4. `wake_spare` marks the thread awake under the lock, so a wake-up is not lost if the thread
//!    is not asleep yet. Spare threads are woken in LIFO order. One that is not woken for `idle`
//!    ends, unless only as many are left as may be wanted. Only the end of the session and a stop
//!    wake all of them.
//! 5. A thread is *at work* from before it checks whether the pool is stopped. So a thread that is
//!    not at work after a stop does not call the server again. A thread that ends, or that
//!    finishes a request after a stop, notifies the waiting threads.
//! 6. A thread that panics is replaced.
//! 7. A thread that has ended is joined, not detached: glibc may free the memory of a thread that
//!    is detached while it exits, and read it after that (its bug 19951).

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Arc, Class, Condvar, Mutex, thread};

use crate::channel::{Channel, End};
use crate::clone;
use crate::counts::Counts;
use crate::dispatch::{dispatch, refuse};
use crate::error::SessionError;
use crate::negotiate::{Config, Negotiated, buffer_size};
use crate::opcode::Opcode;
use crate::server::Server;

/// The number of buffers kept for each thread that may be wanted: if many threads sleep in turns,
/// they reuse memory that is already mapped.
const BUFFERS: usize = 8;

/// How many times as many threads as wanted are awake before one becomes spare: a thread that wakes
/// from a short sleep finds its replacement awake, and neither has to sleep at once.
const CROWDED: usize = 2;

thread_local! {
    /// The pool of this thread, while the thread is awake.
    static ACTIVE_POOL: RefCell<Option<Arc<WorkerPool>>> = const { RefCell::new(None) };
    /// The pool of this thread.
    static POOL: RefCell<Option<Arc<WorkerPool>>> = const { RefCell::new(None) };
}

/// Runs `work`, which may wait for a disk, or for a lock that is held over I/O. If this thread
/// serves a mount, another one receives requests meanwhile, up to the maximum number of threads.
pub fn may_sleep<R>(work: impl FnOnce() -> R) -> R {
    // In a nested call the thread is replaced already.
    let _asleep = ACTIVE_POOL.take().map(SleepGuard::new);
    work()
}

/// Like [`may_sleep`], for `work` that may wait until another request is done, as an invalidation
/// of contents does: a thread receives requests meanwhile, however many threads there are.
pub fn may_wait<R>(work: impl FnOnce() -> R) -> R {
    let _waits = POOL.with_borrow(Option::clone).map(WaitGuard::new);
    may_sleep(work)
}

/// The threads that serve a mount.
pub(crate) struct WorkerPool {
    server: Arc<dyn Server>,
    channel: Arc<Channel>,
    agreement: Negotiated,
    /// The number of threads wanted under high load.
    threads: usize,
    /// The number of threads that are not exceeded, except for a thread in [`may_wait`].
    threads_max: usize,
    stopped: AtomicBool,
    /// Whether more than [`CROWDED`] times as many threads are awake as wanted. Read after each
    /// request, without the lock.
    crowded: AtomicBool,
    state: Mutex<State>,
    /// How long a spare thread sleeps before it ends.
    idle: Duration,
    /// Notified when a thread has ended or is not at work, and when the session is over.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    threads: usize,
    awake: usize,
    /// The number of threads in [`may_wait`].
    waiting: usize,
    /// Spare threads; the latest is last.
    spares: Vec<Arc<WorkerSlot>>,
    /// All threads of the pool.
    workers: Vec<Arc<WorkerSlot>>,
    /// Buffers of spare threads, for reuse.
    buffers: Vec<Vec<u8>>,
    handles: Vec<thread::JoinHandle<()>>,
    /// The counts of threads that have ended.
    ended: Counts,
    over: bool,
    failure: Option<SessionError>,
}

/// The shared state of one thread.
#[derive(Default)]
struct WorkerSlot {
    at_work: AtomicBool,
    /// Changes only under the lock of the pool.
    is_spare: AtomicBool,
    /// Notified when the thread is no longer spare, or the session is over.
    woken: Condvar,
    counts: Counts,
}

impl State {
    /// Makes a thread that was awake spare.
    fn add_spare(&mut self, worker_slot: &Arc<WorkerSlot>) {
        worker_slot.is_spare.store(true, Ordering::Relaxed);
        self.spares.push(worker_slot.clone());
        self.awake -= 1;
    }

    /// Wakes all spare threads, at the end or at a stop.
    fn wake_spares(&self) {
        self.spares.iter().for_each(|worker_slot| worker_slot.woken.notify_one());
    }

    /// Marks the latest spare thread awake, even if it is not asleep yet; false if there is none.
    fn wake_spare(&mut self) -> bool {
        let Some(worker_slot) = self.spares.pop() else { return false };
        worker_slot.is_spare.store(false, Ordering::Relaxed);
        self.awake += 1;
        worker_slot.woken.notify_one();
        true
    }

    /// Joins the threads whose function has returned.
    fn join_finished(&mut self) {
        let handles = std::mem::take(&mut self.handles).into_iter();
        let (finished, running) = handles.partition(thread::JoinHandle::is_finished);
        self.handles = running;
        join(finished);
    }

    /// Removes a thread that has ended, awake or spare.
    fn remove(&mut self, worker_slot: &Arc<WorkerSlot>) {
        let is_other = |other: &Arc<WorkerSlot>| !Arc::ptr_eq(other, worker_slot);
        self.workers.retain(is_other);
        self.spares.retain(is_other);
        self.threads -= 1;
        self.awake -= usize::from(!worker_slot.is_spare.load(Ordering::Relaxed));
        self.ended.add(&worker_slot.counts);
    }
}

fn join(handles: Vec<thread::JoinHandle<()>>) {
    // `ExitGuard` recorded any panic.
    for handle in handles {
        drop(handle.join());
    }
}

impl WorkerPool {
    /// Starts `Config::threads` threads.
    pub(crate) fn start(
        server: Arc<dyn Server>,
        channel: Arc<Channel>,
        agreement: Negotiated,
        config: &Config,
    ) -> io::Result<Arc<Self>> {
        let threads = config.threads.max(1);
        let worker_pool = Arc::new(Self {
            server,
            channel,
            agreement,
            threads,
            threads_max: config.threads_max.max(threads),
            stopped: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            idle: config.idle,
            state: Mutex::new(Class::FuseSession, State::default()),
            changed: Condvar::new(),
        });
        let mut state = worker_pool.state.lock();
        (0..threads).try_for_each(|_| worker_pool.add_thread(&mut state))?;
        drop(state);
        Ok(worker_pool)
    }

    pub(crate) fn agreement(&self) -> &Negotiated {
        &self.agreement
    }

    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    pub(crate) fn threads(&self) -> usize {
        self.state.lock().threads
    }

    /// Returns the number of requests of a kind.
    pub(crate) fn count(&self, opcode: Opcode) -> u64 {
        let state = self.state.lock();
        let present = state.workers.iter().map(|worker_slot| worker_slot.counts.get(opcode));
        present.sum::<u64>() + state.ended.get(opcode)
    }

    /// Stops the pool: later requests are refused.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.state.lock().wake_spares();
        self.changed.notify_all();
    }

    /// Waits until all threads have ended, or the pool is stopped and no thread is at work.
    pub(crate) fn wait(&self) -> Result<(), SessionError> {
        self.wait_until(|state| self.is_idle(state))
    }

    /// Waits until all threads have ended. The pool must be stopped, and the connection over: then
    /// each thread that receives ends.
    pub(crate) fn wait_ended(&self) -> Result<(), SessionError> {
        self.wait_until(|_| false)
    }

    /// Waits until all threads have ended, or this is true.
    fn wait_until(&self, is_over: impl Fn(&State) -> bool) -> Result<(), SessionError> {
        let mut state = self.state.lock();
        while state.threads > 0 && !is_over(&state) {
            self.changed.wait_idle(&mut state);
        }
        let all_ended = state.threads == 0;
        let handles = if all_ended { std::mem::take(&mut state.handles) } else { Vec::new() };
        let failure = state.failure;
        drop(state);
        join(handles);
        failure.map_or(Ok(()), Err)
    }

    /// Waits until no more requests can come, or the pool is stopped.
    pub(crate) fn wait_over(&self) {
        let mut state = self.state.lock();
        while state.threads > 0 && !state.over && !self.is_stopped() {
            self.changed.wait_idle(&mut state);
        }
    }

    fn is_idle(&self, state: &State) -> bool {
        self.is_stopped()
            && state.workers.iter().all(|worker_slot| !worker_slot.at_work.load(Ordering::SeqCst))
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn add_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let worker_slot = Arc::new(WorkerSlot::default());
        let worker_pool = self.clone();
        let own_slot = worker_slot.clone();
        let builder = thread::Builder::new().name("fuse".to_owned());
        state.join_finished();
        state.handles.push(builder.spawn(move || worker_pool.run(&own_slot))?);
        state.workers.push(worker_slot);
        state.threads += 1;
        state.awake += 1;
        Ok(())
    }

    fn wanted(&self) -> usize {
        if self.channel.load_estimate().is_high() { self.threads } else { 1 }
    }

    /// Wakes or starts threads until enough are awake, up to the maximum.
    fn replenish(self: &Arc<Self>, state: &mut State) {
        if state.over {
            return;
        }
        // A thread asleep at a stop may still wait for a request, which another has to refuse.
        let wanted = if self.is_stopped() { 1 } else { self.wanted() };
        let is_waited_for = state.waiting > 0 || self.is_stopped();
        while state.awake < wanted {
            let has_receiver = state.awake > 0 || !is_waited_for;
            let is_enough = state.threads >= self.threads_max && has_receiver;
            if !state.wake_spare() && (is_enough || self.add_thread(state).is_err()) {
                return;
            }
        }
    }

    /// Updates and returns `crowded`, after the number of awake or wanted threads has changed.
    fn update_crowded(&self, state: &State) -> bool {
        let crowded = state.awake > CROWDED * self.wanted();
        self.crowded.store(crowded, Ordering::Relaxed);
        crowded
    }

    /// The body of a thread.
    fn run(self: &Arc<Self>, worker_slot: &Arc<WorkerSlot>) {
        let _guard = ExitGuard { worker_pool: self, worker_slot };
        ACTIVE_POOL.set(Some(self.clone()));
        POOL.set(Some(self.clone()));
        let channel = self.own_channel();
        let mut buffer = self.take_buffer();
        loop {
            match channel.receive(&mut buffer) {
                Ok(message) => self.work(worker_slot, &channel, message),
                Err(end) => return self.note_end(end),
            }
            // After a stop the remaining threads refuse requests, so that no caller hangs.
            if self.becomes_spare(worker_slot) {
                self.leave_buffer(buffer);
                if !self.wait_while_spare(worker_slot) {
                    return;
                }
                buffer = self.take_buffer();
            }
        }
    }

    /// Returns a descriptor for this thread, or the first one of the mount if cloning it fails.
    fn own_channel(&self) -> Arc<Channel> {
        match clone::clone(self.channel.device()) {
            Ok(device) => Arc::new(self.channel.beside(device)),
            Err(_) => self.channel.clone(),
        }
    }

    fn work(self: &Arc<Self>, worker_slot: &WorkerSlot, channel: &Arc<Channel>, message: &[u8]) {
        worker_slot.at_work.store(true, Ordering::SeqCst);
        if self.is_stopped() {
            refuse(channel, message, self.agreement.flags, Errno::NOTCONN);
        } else {
            self.adapt_to_load();
            dispatch(&*self.server, channel, message, self.agreement.flags, &worker_slot.counts);
        }
        worker_slot.at_work.store(false, Ordering::SeqCst);
        if self.is_stopped() {
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }

    /// Updates the load estimate for a request, and adapts the number of awake threads.
    fn adapt_to_load(self: &Arc<Self>) {
        if self.channel.load_estimate().note() {
            let mut state = self.state.lock();
            self.update_crowded(&state);
            self.replenish(&mut state);
        }
    }

    fn take_buffer(&self) -> Vec<u8> {
        let left = self.state.lock().buffers.pop();
        left.unwrap_or_else(|| Vec::with_capacity(buffer_size(self.agreement.max_write)))
    }

    fn leave_buffer(&self, buffer: Vec<u8>) {
        let mut state = self.state.lock();
        if state.buffers.len() < BUFFERS * self.threads {
            state.buffers.push(buffer);
        }
    }

    /// Makes this thread spare if too many are awake; returns whether it did.
    fn becomes_spare(&self, worker_slot: &Arc<WorkerSlot>) -> bool {
        if !self.crowded.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state.lock();
        if !self.update_crowded(&state) {
            return false;
        }
        state.add_spare(worker_slot);
        self.update_crowded(&state);
        true
    }

    /// Sleeps while spare; false if the thread is no longer needed, or the session is over.
    fn wait_while_spare(&self, worker_slot: &Arc<WorkerSlot>) -> bool {
        let mut state = self.state.lock();
        let is_spare = || worker_slot.is_spare.load(Ordering::Relaxed);
        let mut is_wanted = true;
        while is_spare() && is_wanted && !state.over && !self.is_stopped() {
            let in_time = worker_slot.woken.wait_for(&mut state, self.idle);
            is_wanted = in_time || state.spares.len() <= self.threads;
        }
        if is_spare() {
            // The thread ends: `wake_spare` must not find it.
            state.spares.retain(|spare| !Arc::ptr_eq(spare, worker_slot));
            state.buffers.truncate(self.threads);
        }
        !is_spare()
    }

    fn note_end(&self, end: End) {
        let mut state = self.state.lock();
        state.over = true;
        if let End::Failed(error) = end {
            state.failure = Some(SessionError::Device(error));
            // The other threads might run for ever, with none to replace them.
            self.stopped.store(true, Ordering::SeqCst);
        }
        state.wake_spares();
        self.changed.notify_all();
    }
}

/// The guard of a thread in [`may_sleep`].
struct SleepGuard(Arc<WorkerPool>);

impl SleepGuard {
    fn new(worker_pool: Arc<WorkerPool>) -> Self {
        let mut state = worker_pool.state.lock();
        state.awake -= 1;
        worker_pool.replenish(&mut state);
        drop(state);
        Self(worker_pool)
    }
}

impl Drop for SleepGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.awake += 1;
        self.0.update_crowded(&state);
        drop(state);
        ACTIVE_POOL.set(Some(self.0.clone()));
    }
}

/// The guard of a thread in [`may_wait`].
struct WaitGuard(Arc<WorkerPool>);

impl WaitGuard {
    fn new(worker_pool: Arc<WorkerPool>) -> Self {
        let mut state = worker_pool.state.lock();
        state.waiting += 1;
        worker_pool.replenish(&mut state);
        drop(state);
        Self(worker_pool)
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

/// The guard that removes a thread from the pool when it ends, also by a panic.
struct ExitGuard<'a> {
    worker_pool: &'a Arc<WorkerPool>,
    worker_slot: &'a Arc<WorkerSlot>,
}

impl Drop for ExitGuard<'_> {
    fn drop(&mut self) {
        ACTIVE_POOL.set(None);
        POOL.set(None);
        let mut state = self.worker_pool.state.lock();
        state.remove(self.worker_slot);
        if std::thread::panicking() {
            state.failure = Some(SessionError::Panicked);
        }
        self.worker_pool.replenish(&mut state);
        self.worker_pool.changed.notify_all();
        assert!(state.awake <= state.threads, "an awake thread is one of the pool");
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerPool({} threads)", self.threads())
    }
}
