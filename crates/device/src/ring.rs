//! The engine of io_uring: one ring per submitting thread, shared by all devices.
//!
//! 1. A slot owns its transfer, with buffer and file, from before it is submitted to the kernel
//!    until the kernel has reported it done. Nothing else accesses the transfer meanwhile.
//! 2. A slot has at most one entry with the kernel, and the queue has an entry for every slot: the
//!    queues never overflow. A submitter that finds no free slot waits for one.
//! 3. Completions run in the owner of the ring, when it submits, waits or polls; nowhere else.
//! 4. A ring is dropped when its thread ends, after all requests in flight have completed.
//! 5. If the kernel stops serving a ring, that is a bug in this code, and panics; if it happens
//!    while the thread ends, the process aborts before any memory in use is freed.
//! 6. A ring costs as much as some dozens of plain calls, so a thread gets one only when it has a
//!    batch that gains by it: not for one call that the kernel would hand to a worker. Short copies
//!    into its page cache are never submitted here, whatever else is in their batch.
//! 7. A call that the kernel reports as not done, for example because it may start no worker, is
//!    done by a plain call in the owner of the ring.
#![expect(unsafe_code, reason = "the kernel reads and writes memory named by queue entries")]

use std::cell::{OnceCell, RefCell};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::rc::Rc;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::{Errno, ReadWriteFlags};
use userbtrfs_sync::{OnceLock, thread};

use crate::batch::{Admitted, Batch, SharedBatch};
use crate::pread_pwrite;
use crate::transfer::{Call, PUNCH_HOLE, Transfer};

/// The number of bytes up to which a copy into the page cache takes less time than waking a worker
/// of the kernel for it; only one worker at a time writes to a file.
const COPY_MAX: u64 = 256 << 10;

thread_local! {
    /// The ring of this thread, made for the first batch that needs one; `None` if that failed.
    static RING: OnceCell<Option<RefCell<Ring>>> = const { OnceCell::new() };
}

/// Returns an error if this process may not use io_uring, or if an operation that this engine needs
/// is missing. The kernel is asked once.
pub(crate) fn probe() -> Result<(), Errno> {
    static ANSWER: OnceLock<Result<(), Errno>> = OnceLock::new();
    *ANSWER.get_or_init(|| try_ring().map_err(|error| errno_of(&error)))
}

fn try_ring() -> io::Result<()> {
    let ring = build(1)?;
    // A seccomp filter may allow a ring to be set up, but not to be entered.
    ring.submit()?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
    ];
    let complete = needed.into_iter().all(|code| probe.is_supported(code));
    if complete { Ok(()) } else { Err(Errno::NOSYS.into()) }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::NOSYS)
}

/// Sets up a ring with the cheapest completion mode that this kernel supports.
fn build(depth: u32) -> io::Result<IoUring> {
    let deferred = IoUring::builder()
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(depth);
    deferred
        .or_else(|_| IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(depth))
        .or_else(|_| IoUring::new(depth))
}

/// Returns whether a batch is better done by a ring than by plain calls.
pub(crate) fn is_worth_it(batch: &[Admitted]) -> bool {
    let mut pending = batch.iter().filter_map(Admitted::pending);
    match (pending.next(), pending.next()) {
        (None, _) => false,
        // The kernel hands all others to a worker: a write into its page cache, which is a copy, a
        // discard, a flush, and a durable write, for which its submitter waits next.
        (Some(only), None) => only.is_read() || (only.is_direct() && only.written().is_some()),
        (Some(_), Some(_)) => true,
    }
}

/// Returns whether a batch has copies into the kernel's page cache that plain calls do faster.
pub(crate) fn has_short_copy(batch: &[Admitted]) -> bool {
    let copied = batch.iter().filter_map(Admitted::pending).filter_map(Transfer::copied);
    (1..=COPY_MAX).contains(&copied.map(|range| range.end - range.start).sum())
}

/// Starts a batch on the ring of this thread, which is made with `depth` slots if there is none.
/// Returns the batch unchanged if the ring cannot be made.
pub(crate) fn submit(depth: u32, batch: Vec<Admitted>) -> Result<SharedBatch, Vec<Admitted>> {
    let mut given = Some(batch);
    let started = RING.try_with(|cell| {
        let ring = cell.get_or_init(|| Ring::new(depth).ok().map(RefCell::new)).as_ref()?;
        Some(ring.borrow_mut().submit(given.take()?))
    });
    match (started, given) {
        (Ok(Some(batch)), _) => Ok(batch),
        (_, given) => Err(given.unwrap_or_default()),
    }
}

/// Returns whether this thread has made a ring, or tried to.
#[cfg(test)]
pub(crate) fn has_ring() -> bool {
    RING.with(|cell| cell.get().is_some())
}

/// Waits until no request of a batch of this thread is pending.
pub(crate) fn wait(batch: &SharedBatch) {
    if batch.borrow().pending() > 0 {
        with_ring(|ring| ring.wait(batch));
    }
}

/// Runs the completions that have arrived, and returns whether no request of a batch of this thread
/// is pending.
pub(crate) fn is_ready(batch: &SharedBatch) -> bool {
    if batch.borrow().pending() > 0 {
        with_ring(Ring::poll);
    }
    batch.borrow().pending() == 0
}

/// Runs `work` on the ring that a pending batch of this thread is on.
fn with_ring(work: impl FnOnce(&mut Ring)) {
    RING.with(|cell| {
        let ring = cell.get().and_then(Option::as_ref);
        work(&mut ring.expect("a pending batch is on the ring of its thread").borrow_mut());
    });
}

struct Ring {
    queues: IoUring,
    slots: Vec<Option<InFlight>>,
    /// Indexes of the empty slots.
    free: Vec<usize>,
}

/// A transfer in the kernel, and the request of the batch that it completes.
struct InFlight {
    transfer: Transfer,
    /// The pieces of its call, if it is a write of several.
    vectors: Vec<Vector>,
    batch: SharedBatch,
    index: usize,
}

/// The kernel's `struct iovec`.
#[repr(C)]
struct Vector {
    start: *const u8,
    len: usize,
}

impl Ring {
    fn new(depth: u32) -> io::Result<Ring> {
        let queues = build(depth)?;
        let slots: Vec<_> = (0..depth).map(|_| None).collect();
        let free = (0..slots.len()).rev().collect();
        Ok(Ring { queues, slots, free })
    }

    fn submit(&mut self, admitted: Vec<Admitted>) -> SharedBatch {
        let batch = Rc::new(RefCell::new(Batch::new(&admitted)));
        for (index, admitted) in admitted.into_iter().enumerate() {
            match admitted {
                Admitted::Completed(done) => batch.borrow_mut().complete(index, done),
                Admitted::Pending(transfer) => {
                    let batch = Rc::clone(&batch);
                    let vectors = Vec::new();
                    self.start(InFlight { transfer, vectors, batch, index });
                }
                Admitted::Followed => {}
            }
        }
        while !self.queues.submission().is_empty() {
            self.enter(0);
            self.run_completions();
        }
        batch
    }

    fn start(&mut self, in_flight: InFlight) {
        let slot = loop {
            match self.free.pop() {
                Some(slot) => break slot,
                None => self.reap(1),
            }
        };
        self.slots[slot] = Some(in_flight);
        self.push(slot);
    }

    fn wait(&mut self, batch: &SharedBatch) {
        self.run_completions();
        loop {
            // Each call of the batch has one completion, so at least this many will arrive.
            let calls = batch.borrow().calls();
            if calls == 0 {
                return;
            }
            self.reap(calls);
        }
    }

    fn poll(&mut self) {
        if self.queues.submission().taskrun() {
            self.enter(0);
        }
        self.run_completions();
    }

    /// Waits for `want` completions (fewer if interrupted), and runs them.
    fn reap(&mut self, want: usize) {
        self.enter(want);
        self.run_completions();
    }

    /// Submits queued entries and waits for `want` completions. May do less: callers repeat.
    fn enter(&self, want: usize) {
        let Err(error) = self.queues.submit_and_wait(want) else { return };
        match errno_of(&error) {
            Errno::INTR => {}
            // The kernel is short of memory for requests, or completions must be consumed first.
            Errno::AGAIN | Errno::BUSY => thread::yield_now(),
            _ => panic!("io_uring_enter: {error}"),
        }
    }

    fn run_completions(&mut self) {
        while let Some((slot, outcome)) = self.next_completion() {
            self.advance(slot, outcome);
        }
    }

    fn next_completion(&mut self) -> Option<(usize, Result<usize, Errno>)> {
        let entry = self.queues.completion().next()?;
        let slot = usize::try_from(entry.user_data()).expect("user data is the index of a slot");
        let outcome = usize::try_from(entry.result())
            .map_err(|_| Errno::from_raw_os_error(entry.result().wrapping_neg()));
        Some((slot, outcome))
    }

    fn advance(&mut self, slot: usize, outcome: Result<usize, Errno>) {
        let in_flight = self.slots[slot].as_mut().expect("the kernel reports only what we gave");
        let outcome = done(&mut in_flight.transfer, outcome);
        let Some(result) = in_flight.transfer.advance(outcome) else { return self.push(slot) };
        let mut ended = self.slots[slot].take().expect("it was there a line ago");
        self.free.push(slot);
        let mut batch = ended.batch.borrow_mut();
        for (index, completion) in ended.transfer.follow(&result) {
            batch.complete_follower(index, completion);
        }
        batch.complete(ended.index, ended.transfer.finish(result));
    }

    /// Queues the next call of the transfer in `slot`.
    fn push(&mut self, slot: usize) {
        let in_flight = self.slots[slot].as_mut().expect("a slot is filled before it is queued");
        let entry = entry(in_flight).user_data(slot as u64);
        // SAFETY: the entry names memory and a file that the `InFlight` in `slot` owns. It stays
        // there, untouched, until the kernel reports this entry done (invariant 1), its bytes do
        // not move even if the slot does (transfer, invariant 1), and neither is freed with the
        // ring before that (invariants 4 and 5).
        let pushed = unsafe { self.queues.submission().push(&entry) };
        pushed.expect("the queue has an entry for every slot");
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            self.reap(1);
        }
    }
}

/// Returns the outcome of a call, which is done by a plain call if the ring did not do it.
///
/// The kernel cancels a call if it cannot start a worker for it (a limit of processes), and refuses
/// one if it is short of memory.
fn done(transfer: &mut Transfer, outcome: Result<usize, Errno>) -> Result<usize, Errno> {
    match outcome {
        Err(Errno::CANCELED | Errno::AGAIN | Errno::NOMEM | Errno::INTR) => {
            pread_pwrite::perform_next(transfer)
        }
        done => done,
    }
}

fn entry(in_flight: &mut InFlight) -> squeue::Entry {
    let (file, call) = in_flight.transfer.next();
    let fd = types::Fd(file.as_raw_fd());
    match call {
        Call::Read { offset, target } => {
            opcode::Read::new(fd, target.as_mut_ptr(), entry_len(target)).offset(offset).build()
        }
        Call::Write { offset, bytes, fua } => {
            let flags = if fua { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let flags = flags.bits().cast_signed();
            if let [bytes] = &bytes[..] {
                let write = opcode::Write::new(fd, bytes.as_ptr(), entry_len(bytes));
                return write.offset(offset).rw_flags(flags).build();
            }
            let vector = |bytes: &IoSlice<'_>| Vector { start: bytes.as_ptr(), len: bytes.len() };
            in_flight.vectors = bytes.iter().map(vector).collect();
            let count = u32::try_from(bytes.len()).expect("a call is of few pieces");
            let write = opcode::Writev::new(fd, in_flight.vectors.as_ptr().cast(), count);
            write.offset(offset).rw_flags(flags).build()
        }
        Call::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        Call::Discard { offset, len } => {
            let mode = PUNCH_HOLE.bits().cast_signed();
            opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build()
        }
    }
}

fn entry_len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a call moves at most 1 GiB")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::buffer::Buffer;
    use crate::open::{FileOptions, OpenFile};
    use crate::request::Request;

    #[test]
    fn call_that_the_ring_did_not_do_is_done_by_a_plain_call() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let options = FileOptions { writable: true, ..FileOptions::default() };
        let open = OpenFile::open(file.path(), options, true).unwrap();
        let open = Arc::new(open);
        for (at, errno) in (0_u8..).zip([Errno::CANCELED, Errno::AGAIN, Errno::NOMEM, Errno::INTR])
        {
            let offset = u64::from(at) * 100;
            let buffer = Buffer::from(&[at + 1; 100][..]).into();
            let mut write = Transfer::new(&open, Request::Write { offset, buffer, fua: false });
            assert_eq!(done(&mut write, Err(errno)), Ok(100));
            let buffer = Buffer::zeroed(100);
            let mut read = Transfer::new(&open, Request::Read { offset, buffer });
            assert_eq!(done(&mut read, Err(errno)), Ok(100));
            assert!(matches!(read.advance(Ok(100)), Some(Ok(()))));
            let read = read.finish(Ok(())).buffer.unwrap();
            assert_eq!(read[..], [at + 1; 100]);
            let mut flush = Transfer::new(&open, Request::Flush);
            assert_eq!(done(&mut flush, Err(errno)), Ok(0));
        }
        let mut read = Transfer::new(&open, Request::Read { offset: 0, buffer: Buffer::zeroed(1) });
        assert_eq!(done(&mut read, Err(Errno::IO)), Err(Errno::IO), "an error of the medium stays");
    }
}
