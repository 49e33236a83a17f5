//! The threads that serve a mount.
//!
//! 1. Each thread has a descriptor of its own, and a buffer while it is no spare; some that spares
//!    leave are kept until one of these ends. It receives a request, has it done, and receives the
//!    next: no request is handed on.
//! 2. At least as many threads are *awake* as are *wanted*: one while requests come one at a time,
//!    else as many as the mount was made with. Awake are all but those in [`may_sleep`] and those
//!    *spare*: one is woken or started in the place of each that goes to sleep. Once there are
//!    `most` altogether, that is so only where nobody else would be awake and one is in
//!    [`may_wait`]: for a request that another has to receive.
//! 3. Of more than twice as many as wanted that are awake, those that end a request become spare.
//! 4. Who is called is a spare no more, also where it has not begun to sleep: no call is lost. Who
//!    became spare last is called first, and who was not called for long ends, but for as many as
//!    may be wanted. All spares wake at the end and at a stop alone.
//! 5. A thread is *at work* from before it looks whether the crew has been stopped. So whoever is
//!    not at work after a stop will not call the server any more. Who ends, or is done after a
//!    stop, tells those who wait.
//! 6. A thread that panics is replaced.

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
use crate::negotiate::{Config, Negotiated, buffer_size};
use crate::opcode::Opcode;
use crate::server::Server;
use crate::session::SessionError;

/// The buffers that are kept for each thread that may be wanted: where many sleep in turns, memory
/// that was written is written again.
const BUFFERS: usize = 8;

thread_local! {
    /// The crew that this thread is of, while it is awake.
    static CREW: RefCell<Option<Arc<WorkerPool>>> = const { RefCell::new(None) };
    /// The crew that this thread is of.
    static OWN: RefCell<Option<Arc<WorkerPool>>> = const { RefCell::new(None) };
}

/// Does what may take long: wait for a disk, for a lock that is held over I/O. Meanwhile another
/// thread receives requests in place of this one, if this one serves a mount and there may be more.
pub fn may_sleep<R>(work: impl FnOnce() -> R) -> R {
    // Who sleeps already has been replaced.
    let _asleep = CREW.take().map(Asleep::new);
    work()
}

/// The same for what may wait until another request is done, as a notice that contents are old
/// does: somebody receives meanwhile, however many threads there are.
pub fn may_wait<R>(work: impl FnOnce() -> R) -> R {
    let _waits = OWN.with_borrow(Option::clone).map(Waits::new);
    may_sleep(work)
}

pub(crate) struct WorkerPool {
    server: Arc<dyn Server>,
    channel: Arc<Channel>,
    agreement: Negotiated,
    /// How many threads are wanted where demand is high.
    threads: usize,
    most: usize,
    stopped: AtomicBool,
    /// More are awake than should be: looked at after each request, without the lock.
    crowded: AtomicBool,
    state: Mutex<State>,
    /// How long a spare sleeps that nobody calls.
    idle: Duration,
    /// A thread has ended or is idle, or all is over: for those who wait for that.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    threads: usize,
    awake: usize,
    /// Who is in [`may_wait`].
    waiting: usize,
    /// Who became spare last stands last.
    spares: Vec<Arc<WorkerSlot>>,
    seats: Vec<Arc<WorkerSlot>>,
    /// What spares left, for who needs one next.
    buffers: Vec<Vec<u8>>,
    handles: Vec<thread::JoinHandle<()>>,
    /// What threads that have ended have counted.
    past: Counts,
    over: bool,
    failure: Option<SessionError>,
}

/// What others see of a thread.
#[derive(Default)]
struct WorkerSlot {
    at_work: AtomicBool,
    /// Changes under the lock of the crew alone.
    is_spare: AtomicBool,
    /// It is a spare no more, or all is over.
    called: Condvar,
    counts: Counts,
}

impl State {
    /// A thread that was awake becomes spare.
    fn add_spare(&mut self, worker_slot: &Arc<WorkerSlot>) {
        worker_slot.is_spare.store(true, Ordering::Relaxed);
        self.spares.push(worker_slot.clone());
        self.awake -= 1;
    }

    /// Has all spares see that it is over.
    fn wake_spares(&self) {
        self.spares.iter().for_each(|worker_slot| worker_slot.called.notify_one());
    }

    /// The last spare is awake again, also where it has not begun to sleep.
    fn call_spare(&mut self) -> bool {
        let Some(worker_slot) = self.spares.pop() else { return false };
        worker_slot.is_spare.store(false, Ordering::Relaxed);
        self.awake += 1;
        worker_slot.called.notify_one();
        true
    }

    /// A thread has ended, awake or as a spare.
    fn remove(&mut self, worker_slot: &Arc<WorkerSlot>) {
        let is_other = |other: &Arc<WorkerSlot>| !Arc::ptr_eq(other, worker_slot);
        self.seats.retain(is_other);
        self.spares.retain(is_other);
        self.threads -= 1;
        self.awake -= usize::from(!worker_slot.is_spare.load(Ordering::Relaxed));
        self.past.add(&worker_slot.counts);
    }
}

impl WorkerPool {
    /// Starts the threads that are wanted.
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
            most: config.threads_max.max(threads),
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

    /// How many requests of a kind there were.
    pub(crate) fn count(&self, opcode: Opcode) -> u64 {
        let state = self.state.lock();
        let present = state.seats.iter().map(|worker_slot| worker_slot.counts.get(opcode));
        present.sum::<u64>() + state.past.get(opcode)
    }

    /// From now on requests are refused.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.state.lock().wake_spares();
        self.changed.notify_all();
    }

    /// Waits until all threads have ended, or the crew is stopped and nobody at work.
    pub(crate) fn wait(&self) -> Result<(), SessionError> {
        let mut state = self.state.lock();
        while state.threads > 0 && !self.is_idle(&state) {
            self.changed.wait_idle(&mut state);
        }
        let all_ended = state.threads == 0;
        let handles = std::mem::take(&mut state.handles);
        let failure = state.failure;
        drop(state);
        if all_ended {
            // A panic was noted where it happened.
            for handle in handles {
                drop(handle.join());
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Waits until no request comes any more, or the crew is stopped.
    pub(crate) fn wait_over(&self) {
        let mut state = self.state.lock();
        while state.threads > 0 && !state.over && !self.is_stopped() {
            self.changed.wait_idle(&mut state);
        }
    }

    fn is_idle(&self, state: &State) -> bool {
        self.is_stopped()
            && state.seats.iter().all(|worker_slot| !worker_slot.at_work.load(Ordering::SeqCst))
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn add_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let worker_slot = Arc::new(WorkerSlot::default());
        let (worker_pool, taken) = (self.clone(), worker_slot.clone());
        let builder = thread::Builder::new().name("fuse".to_owned());
        state.handles.retain(|handle| !handle.is_finished());
        state.handles.push(builder.spawn(move || worker_pool.run(&taken))?);
        state.seats.push(worker_slot);
        state.threads += 1;
        state.awake += 1;
        Ok(())
    }

    fn wanted(&self) -> usize {
        if self.channel.load_estimate().is_high() { self.threads } else { 1 }
    }

    /// Sees to it that enough are awake, as far as there may be more.
    fn replenish(self: &Arc<Self>, state: &mut State) {
        if state.over {
            return;
        }
        // Who is asleep at a stop may still wait for a request, which somebody has to refuse.
        let wanted = if self.is_stopped() { 1 } else { self.wanted() };
        let is_waited_for = state.waiting > 0 || self.is_stopped();
        while state.awake < wanted {
            let somebody_comes = state.awake > 0 || !is_waited_for;
            let is_enough = state.threads >= self.most && somebody_comes;
            if !state.call_spare() && (is_enough || self.add_thread(state).is_err()) {
                return;
            }
        }
    }

    /// Whether more are awake than should be, now that either number has changed.
    fn judge(&self, state: &State) -> bool {
        let crowded = state.awake > 2 * self.wanted();
        self.crowded.store(crowded, Ordering::Relaxed);
        crowded
    }

    /// What a thread does from beginning to end.
    fn run(self: &Arc<Self>, worker_slot: &Arc<WorkerSlot>) {
        let _leaves = Leaves { worker_pool: self, worker_slot };
        CREW.set(Some(self.clone()));
        OWN.set(Some(self.clone()));
        let channel = self.own_channel();
        let mut buffer = self.take_buffer();
        loop {
            match channel.receive(&mut buffer) {
                Ok(message) => self.work(worker_slot, &channel, message),
                Err(end) => return self.note_end(end),
            }
            // Who is left after a stop refuses all that comes, so that nobody waits in vain.
            if self.becomes_spare(worker_slot) {
                self.leave_buffer(buffer);
                if !self.is_called(worker_slot) {
                    return;
                }
                buffer = self.take_buffer();
            }
        }
    }

    /// A descriptor for this thread; the mount's first, where there can be no other.
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
            self.heed_demand();
            dispatch(&*self.server, channel, message, self.agreement.flags, &worker_slot.counts);
        }
        worker_slot.at_work.store(false, Ordering::SeqCst);
        if self.is_stopped() {
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }

    /// A request has come: it may be that more threads are wanted from now on, or fewer.
    fn heed_demand(self: &Arc<Self>) {
        if self.channel.load_estimate().note() {
            let mut state = self.state.lock();
            self.judge(&state);
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

    /// Whether too many are awake; then this thread is a spare from now on.
    fn becomes_spare(&self, worker_slot: &Arc<WorkerSlot>) -> bool {
        if !self.crowded.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state.lock();
        if !self.judge(&state) {
            return false;
        }
        state.add_spare(worker_slot);
        self.judge(&state);
        true
    }

    /// Sleeps as a spare; false when it is not wanted any more, or all is over.
    fn is_called(&self, worker_slot: &Arc<WorkerSlot>) -> bool {
        let mut state = self.state.lock();
        let is_spare = || worker_slot.is_spare.load(Ordering::Relaxed);
        let mut is_wanted = true;
        while is_spare() && is_wanted && !state.over && !self.is_stopped() {
            let in_time = worker_slot.called.wait_for(&mut state, self.idle);
            is_wanted = in_time || state.spares.len() <= self.threads;
        }
        if is_spare() {
            // It ends; nobody may call it meanwhile.
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
            // The others might go on for ever, and nobody would come after them.
            self.stopped.store(true, Ordering::SeqCst);
        }
        state.wake_spares();
        self.changed.notify_all();
    }
}

/// A thread in [`may_sleep`].
struct Asleep(Arc<WorkerPool>);

impl Asleep {
    fn new(worker_pool: Arc<WorkerPool>) -> Self {
        let mut state = worker_pool.state.lock();
        state.awake -= 1;
        worker_pool.replenish(&mut state);
        drop(state);
        Self(worker_pool)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.awake += 1;
        self.0.judge(&state);
        drop(state);
        CREW.set(Some(self.0.clone()));
    }
}

/// A thread in [`may_wait`].
struct Waits(Arc<WorkerPool>);

impl Waits {
    fn new(worker_pool: Arc<WorkerPool>) -> Self {
        let mut state = worker_pool.state.lock();
        state.waiting += 1;
        worker_pool.replenish(&mut state);
        drop(state);
        Self(worker_pool)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

/// A thread that has begun, and will end.
struct Leaves<'a> {
    worker_pool: &'a Arc<WorkerPool>,
    worker_slot: &'a Arc<WorkerSlot>,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        CREW.set(None);
        OWN.set(None);
        let mut state = self.worker_pool.state.lock();
        state.remove(self.worker_slot);
        if std::thread::panicking() {
            state.failure = Some(SessionError::Panicked);
        }
        self.worker_pool.replenish(&mut state);
        self.worker_pool.changed.notify_all();
        assert!(state.awake <= state.threads, "who is awake is there");
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crew({} threads)", self.threads())
    }
}
