//! A device that can be paused.

use std::path::Path;

use userbtrfs_device::{Device, DeviceError, FileDevice, FileOptions, Request, Ticket};
use userbtrfs_sync::{Arc, Class, Condvar, Mutex};

use super::layered::{Layer, LayeredDevice};

/// A layer that executes requests on the device below. While it is paused, submitting blocks for
/// one class of batches, for example all that write or flush.
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// A device that can be paused.
pub type PausedDevice = LayeredDevice<Gate>;

#[derive(Default)]
struct State {
    held: Option<What>,
    waiting: usize,
}

/// The class of batches that is blocked.
#[derive(Clone, Copy)]
enum What {
    All,
    /// The next batch that does not only read.
    Next,
    /// No further batch; the one that `Next` blocked stays blocked.
    NoMore,
    /// Batches with a write of this byte.
    WriteOf(u64),
    /// Batches that only read.
    Reads,
    /// Batches with a discard.
    Discards,
}

impl What {
    fn has(self, batch: &[Request]) -> bool {
        let writes = |byte: u64, request: &Request| match request {
            Request::Write { offset, buffer, .. } => {
                (*offset..offset + buffer.len() as u64).contains(&byte)
            }
            _ => false,
        };
        match self {
            Self::All | Self::Next => !only_reads(batch),
            Self::NoMore => false,
            Self::WriteOf(byte) => batch.iter().any(|request| writes(byte, request)),
            Self::Reads => only_reads(batch),
            Self::Discards => batch.iter().any(|one| matches!(one, Request::Discard { .. })),
        }
    }
}

fn only_reads(batch: &[Request]) -> bool {
    batch.iter().all(|request| matches!(request, Request::Read { .. }))
}

impl PausedDevice {
    /// Wraps a device; nothing is blocked yet.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        let state = Mutex::new(Class::DeviceQueue, State::default());
        Self::on_device(inner, Gate { state, changed: Condvar::new() })
    }

    /// Opens a block device that is mounted, and so claimed by the mount. Nothing is blocked yet.
    pub fn mounted(path: &Path) -> Result<Self, DeviceError> {
        let options = FileOptions { writable: true, claim: false, ..FileOptions::default() };
        Ok(Self::new(Arc::new(FileDevice::open(path, options)?)))
    }

    /// Blocks all batches that write, flush or discard from now on.
    pub fn hold(&self) {
        self.layer().state.lock().held = Some(What::All);
    }

    /// Blocks the next batch that writes, flushes or discards; others pass.
    pub fn hold_next(&self) {
        self.layer().state.lock().held = Some(What::Next);
    }

    /// Blocks writes of this byte from now on.
    pub fn hold_write_of(&self, byte: u64) {
        self.layer().state.lock().held = Some(What::WriteOf(byte));
    }

    /// Blocks reads from now on.
    pub fn hold_reads(&self) {
        self.layer().state.lock().held = Some(What::Reads);
    }

    /// Blocks discards from now on.
    pub fn hold_discards(&self) {
        self.layer().state.lock().held = Some(What::Discards);
    }

    /// Unblocks everything.
    pub fn release(&self) {
        self.layer().state.lock().held = None;
        self.layer().changed.notify_all();
    }

    /// Returns whether any batch is blocked.
    pub fn is_waited_for(&self) -> bool {
        self.waiting() > 0
    }

    /// Returns the number of blocked batches.
    pub fn waiting(&self) -> usize {
        self.layer().state.lock().waiting
    }
}

impl Layer for Gate {
    fn submit<D: Device + ?Sized>(&self, below: &D, batch: Vec<Request>) -> Ticket {
        let mut state = self.state.lock();
        if !state.held.is_some_and(|held| held.has(&batch)) && only_reads(&batch) {
            drop(state);
            return below.submit(batch);
        }
        state.waiting += 1;
        let is_next = matches!(state.held, Some(What::Next));
        if is_next {
            state.held = Some(What::NoMore);
        }
        while state.held.is_some_and(|held| is_next || held.has(&batch)) {
            self.changed.wait_idle(&mut state);
        }
        state.waiting -= 1;
        drop(state);
        Ticket::completed(below.wait(below.submit(batch)))
    }
}
