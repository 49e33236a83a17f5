//! A device that fails, or holds still, as it is told.

use std::thread::{self, ThreadId};

use userbtrfs_device::{DeviceError, Operation, Request, Ticket};
use userbtrfs_sync::{Class, Condvar, Mutex};

use super::*;

/// See the module's text.
pub(super) struct Failing {
    pub(super) memory: MemoryDevice,
    told: Mutex<What>,
    changed: Condvar,
}

/// What it was told.
#[derive(Default)]
struct What {
    /// Data that starts with `!!!!!!!!` cannot be written.
    fails_writes: bool,
    /// Whose reads fail, after so many that still succeed.
    reads_left: Option<(ThreadId, u64)>,
    /// Reads until now.
    reads: u64,
    /// Flushes until now.
    flushes: u64,
    /// Batches with such a request wait.
    holds: Option<(Operation, Which)>,
    /// How many do.
    held: usize,
}

/// Which batches wait: all, the first one alone, or the first one for this place alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    First,
    All,
    At(u64),
}

impl Failing {
    /// One of so many MiB, with an empty filesystem of small nodes.
    pub(super) fn new(mib: usize) -> Arc<Self> {
        Self::of(mib, &Options { nodesize: 4096, ..Options::default() })
    }

    /// The same, with a filesystem as it is told.
    pub(super) fn of(mib: usize, options: &Options) -> Arc<Self> {
        let memory = MemoryDevice::new(mib << 20);
        userbtrfs_mkfs::make(&memory, options).unwrap();
        let told = Mutex::new(Class::DeviceQueue, What::default());
        Arc::new(Self { memory, told, changed: Condvar::new() })
    }

    pub(super) fn open(self: &Arc<Self>, memory: u64) -> Filesystem {
        open(Arc::clone(self) as Arc<dyn Device>, memory)
    }

    /// Whether data that starts with `!!!!!!!!` cannot be written.
    pub(super) fn fail_writes(&self, fails: bool) {
        self.told.lock().fails_writes = fails;
    }

    /// From now on so many reads of this thread succeed, and no more.
    pub(super) fn allow_reads(&self, left: u64) {
        self.told.lock().reads_left = Some((thread::current().id(), left));
    }

    /// All reads succeed again.
    pub(super) fn allow_all_reads(&self) {
        self.told.lock().reads_left = None;
    }

    /// How many reads there were.
    pub(super) fn reads(&self) -> u64 {
        self.told.lock().reads
    }

    /// How many flushes there were.
    pub(super) fn flushes(&self) -> u64 {
        self.told.lock().flushes
    }

    /// From now on who asks for such a thing waits.
    pub(super) fn hold(&self, operation: Operation, which: Which) {
        self.told.lock().holds = Some((operation, which));
    }

    /// Waits until somebody waits.
    pub(super) fn wait_until_held(&self) {
        let mut told = self.told.lock();
        self.changed.wait_while(&mut told, |told| told.held == 0);
    }

    /// All go on.
    pub(super) fn release(&self) {
        let mut told = self.told.lock();
        (told.holds, told.held) = (None, 0);
        self.changed.notify_all();
    }

    /// Waits while it is to wait.
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
        let run = |request: Request| match self.fails(&request) {
            true => {
                let (device, access) = ("failing".into(), request.access());
                request.complete(Err(DeviceError::Short { device, access, done: 0 }))
            }
            false => self.memory.run(request),
        };
        Ticket::completed(batch.into_iter().map(run).collect())
    }
}
