//! A device that fails or blocks on request.

use std::thread::{self, ThreadId};

use userbtrfs_device::{DeviceError, Operation, Request, Ticket};
use userbtrfs_sync::{Class, Condvar, Mutex};

use super::*;

/// A device that fails or blocks on request.
pub(super) struct Failing {
    pub(super) memory: MemoryDevice,
    told: Mutex<What>,
    changed: Condvar,
}

/// The requested behaviour, and counters.
#[derive(Default)]
struct What {
    /// Data that starts with `!!!!!!!!` cannot be written.
    fails_writes: bool,
    /// The thread whose reads fail, and how many still succeed before that.
    reads_left: Option<(ThreadId, u64)>,
    /// The number of reads.
    reads: u64,
    /// The number of flushes.
    flushes: u64,
    /// Batches with such a request block.
    holds: Option<(Operation, Which)>,
    /// The number of batches that block.
    held: usize,
}

/// Which batches block: all, only the first, or only the first at this offset.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    First,
    All,
    At(u64),
}

impl Failing {
    /// Returns a device of `mib` MiB, with an empty filesystem of small nodes.
    pub(super) fn new(mib: usize) -> Arc<Self> {
        Self::of(mib, &Options { nodesize: 4096, ..Options::default() })
    }

    /// Like `new`, with the given options of the filesystem.
    pub(super) fn of(mib: usize, options: &Options) -> Arc<Self> {
        let memory = MemoryDevice::new(mib << 20);
        userbtrfs_mkfs::make(&memory, options).unwrap();
        let told = Mutex::new(Class::DeviceQueue, What::default());
        Arc::new(Self { memory, told, changed: Condvar::new() })
    }

    pub(super) fn open(self: &Arc<Self>, memory: u64) -> Filesystem {
        open(Arc::clone(self) as Arc<dyn Device>, memory)
    }

    /// Sets whether writes of data that starts with `!!!!!!!!` fail.
    pub(super) fn fail_writes(&self, fails: bool) {
        self.told.lock().fails_writes = fails;
    }

    /// Lets only `left` more reads of this thread succeed.
    pub(super) fn allow_reads(&self, left: u64) {
        self.told.lock().reads_left = Some((thread::current().id(), left));
    }

    /// Lets all reads succeed again.
    pub(super) fn allow_all_reads(&self) {
        self.told.lock().reads_left = None;
    }

    /// Returns the number of reads.
    pub(super) fn reads(&self) -> u64 {
        self.told.lock().reads
    }

    /// Returns the number of flushes.
    pub(super) fn flushes(&self) -> u64 {
        self.told.lock().flushes
    }

    /// Blocks such requests from now on.
    pub(super) fn hold(&self, operation: Operation, which: Which) {
        self.told.lock().holds = Some((operation, which));
    }

    /// Waits until a batch blocks.
    pub(super) fn wait_until_held(&self) {
        let mut told = self.told.lock();
        self.changed.wait_while(&mut told, |told| told.held == 0);
    }

    /// Unblocks all batches.
    pub(super) fn release(&self) {
        let mut told = self.told.lock();
        (told.holds, told.held) = (None, 0);
        self.changed.notify_all();
    }

    /// Waits if the batch is to block.
    fn pass(&self, batch: &[Request]) {
        let mut told = self.told.lock();
        let Some((operation, which)) = told.holds else { return };
        let is_there = |offset| !matches!(which, Which::At(place) if place != offset);
        let is_it = |request: &Request| {
            let access = request.access();
            access.operation == operation && is_there(access.offset)
        };
        if !batch.iter().any(is_it) || (which != Which::All && told.held > 0) {
            return;
        }
        told.held += 1;
        self.changed.notify_all();
        while told.held > 0 {
            self.changed.wait_idle(&mut told);
        }
    }

    fn fails(&self, request: &Request) -> bool {
        let mut told = self.told.lock();
        match request {
            Request::Write { buffer, .. } => told.fails_writes && buffer.starts_with(b"!!!!!!!!"),
            Request::Read { .. } => {
                told.reads += 1;
                let mine = told.reads_left.as_mut().filter(|(of, _)| *of == thread::current().id());
                mine.is_some_and(|(_, left)| {
                    let is_over = *left == 0;
                    *left = left.saturating_sub(1);
                    is_over
                })
            }
            Request::Flush => {
                told.flushes += 1;
                false
            }
            Request::Discard { .. } => false,
        }
    }
}

impl Device for Failing {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn name(&self) -> &'static str {
        "failing"
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        self.pass(&batch);
        let run = |request: Request| {
            if self.fails(&request) {
                let device = "failing".into();
                let access = request.access();
                request.complete(Err(DeviceError::Short { device, access, done: 0 }))
            } else {
                self.memory.run(request)
            }
        };
        Ticket::completed(batch.into_iter().map(run).collect())
    }
}
