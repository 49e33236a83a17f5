//! A device that can be told to drop all writes from a moment on, without an error (as dm-flakey
//! does with `drop_writes`). For tests of the state after a power failure.
//!
//! ```text
//!            cut                 a write
//!   ON -----------------> CUT -----------------> DROPPED
//!      <-----------------
//!           restore
//! ```
//!
//! 1. Until a write is dropped all requests are passed to the device below; reads take no lock.
//! 2. After the cut nothing is written, flushed or discarded on the device below: changes are kept
//!    in memory, where reads find them. Requests in flight at the cut may still reach it, or not,
//!    as in a power failure.
//! 3. Changes in memory are never written to the device below: their order is not known any more,
//!    and a part of them would be worse than none. So DROPPED is final.
//! 4. The memory is bounded: a write that would exceed the bound fails.

use std::fmt;
use std::thread;
use std::time::Duration;

use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::device::Device;
use crate::error::DeviceError;
use crate::overlay::Overlay;
use crate::request::{Completion, Request};
use crate::ticket::Ticket;

const ON: u8 = 0;
const CUT: u8 = 1;
const DROPPED: u8 = 2;

/// The interval at which [`DropWritesDevice::cut`] checks for submissions in progress.
const PAUSE: Duration = Duration::from_millis(1);

/// A device that drops all writes after [`DropWritesDevice::cut`], without an error.
pub struct DropWritesDevice {
    below: Arc<dyn Device>,
    memory: Overlay,
    state: AtomicU8,
    /// The number of threads that submit writes, or are about to check whether they may.
    submitting: AtomicU64,
    dropped: AtomicU64,
}

impl fmt::Debug for DropWritesDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DropWritesDevice")
            .field("state", &self.state)
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

impl DropWritesDevice {
    /// Creates a device that passes all requests to `below` until it is cut off; changes after
    /// that may take about `bytes_max` bytes of memory.
    pub fn new(below: Arc<dyn Device>, bytes_max: usize) -> Self {
        let memory = Overlay::new(Arc::clone(&below), bytes_max);
        let [submitting, dropped] = [AtomicU64::new(0), AtomicU64::new(0)];
        Self { below, memory, state: AtomicU8::new(ON), submitting, dropped }
    }

    /// Cuts the device off: no write submitted after this returns reaches it. Waits for writes
    /// that are being submitted, but not for their completion.
    pub fn cut(&self) {
        // Fails if the device is cut off already, which is fine.
        let _ = self.state.compare_exchange(ON, CUT, Ordering::SeqCst, Ordering::SeqCst);
        while self.submitting.load(Ordering::SeqCst) > 0 {
            thread::sleep(PAUSE);
        }
    }

    /// Lets writes reach the device again, unless some were dropped; returns whether they reach it.
    #[must_use = "it may be too late"]
    pub fn restore(&self) -> bool {
        let restored = self.state.compare_exchange(CUT, ON, Ordering::SeqCst, Ordering::SeqCst);
        restored.map_or_else(|state| state == ON, |_| true)
    }

    /// Returns whether the device is cut off.
    pub fn is_cut(&self) -> bool {
        self.state.load(Ordering::SeqCst) != ON
    }

    /// Returns the number of writes, flushes and discards that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Returns whether writes still reach the device; if not, the state is DROPPED from now on.
    fn reaches(&self) -> bool {
        loop {
            match self.state.load(Ordering::SeqCst) {
                ON => return true,
                DROPPED => return false,
                _ => {
                    // Another thread may have done it, or restored the device.
                    let now = CUT;
                    let then = DROPPED;
                    let _ =
                        self.state.compare_exchange(now, then, Ordering::SeqCst, Ordering::SeqCst);
                }
            }
        }
    }
}

/// A thread that submits writes.
struct SubmitGuard<'a>(&'a AtomicU64);

impl<'a> SubmitGuard<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for SubmitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Device for DropWritesDevice {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn measure(&self) -> Result<u64, DeviceError> {
        self.below.measure()
    }

    fn set_len(&self, len: u64) -> Result<bool, DeviceError> {
        if self.reaches() { self.below.set_len(len) } else { Ok(false) }
    }

    fn name(&self) -> &str {
        self.below.name()
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn mark_closing(&self) {
        self.below.mark_closing();
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let changes = batch.iter().filter(|one| !matches!(one, Request::Read { .. })).count();
        if changes == 0 {
            // The state becomes DROPPED before the first change is kept in memory.
            let has_dropped = self.state.load(Ordering::SeqCst) == DROPPED;
            return if has_dropped { self.memory.submit(batch) } else { self.below.submit(batch) };
        }
        let submitting = SubmitGuard::new(&self.submitting);
        if self.reaches() {
            return self.below.submit(batch);
        }
        drop(submitting);
        self.dropped.fetch_add(changes as u64, Ordering::SeqCst);
        self.memory.submit(batch)
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.below.wait(ticket)
    }

    fn is_ready(&self, ticket: &Ticket) -> bool {
        self.below.is_ready(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::memory::MemoryDevice;

    const PAGE: usize = 4096;

    fn switched() -> (Arc<MemoryDevice>, DropWritesDevice) {
        let below = Arc::new(MemoryDevice::from_bytes(vec![0; 8 * PAGE]));
        (Arc::clone(&below), DropWritesDevice::new(below, 2 * PAGE))
    }

    fn write(device: &DropWritesDevice, page: usize, byte: u8) -> Result<(), DeviceError> {
        let bytes = Arc::new(Buffer::from(&[byte; PAGE][..]));
        device.write((page * PAGE) as u64, bytes, true)
    }

    fn bytes_of_pages(device: &dyn Device) -> Vec<u8> {
        device.read(0, 8 * PAGE).unwrap().chunks(PAGE).map(|page| page[7]).collect()
    }

    #[test]
    fn writes_after_the_cut_are_read_back_and_do_not_reach_the_device() {
        let (below, device) = switched();
        write(&device, 0, 1).unwrap();
        write(&device, 1, 1).unwrap();
        device.cut();
        write(&device, 1, 2).unwrap();
        write(&device, 2, 2).unwrap();
        device.discard(0, PAGE as u64).unwrap();
        device.flush().unwrap();
        assert_eq!(bytes_of_pages(&device), [1, 2, 2, 0, 0, 0, 0, 0]);
        assert_eq!(bytes_of_pages(&*below), [1, 1, 0, 0, 0, 0, 0, 0]);
        assert!(device.is_cut() && device.dropped() == 4);
        let full = write(&device, 3, 3).unwrap_err();
        assert!(matches!(full, DeviceError::OverlayFull { .. }), "{full}");
    }

    #[test]
    fn restore_succeeds_until_a_write_is_dropped() {
        let (below, device) = switched();
        assert!(device.restore());
        device.cut();
        assert_eq!(bytes_of_pages(&device), [0; 8]);
        assert!(device.is_cut() && device.restore() && !device.is_cut());
        write(&device, 0, 1).unwrap();
        assert_eq!(bytes_of_pages(&*below)[0], 1);
        device.cut();
        device.cut();
        device.flush().unwrap();
        assert!(!device.restore());
        write(&device, 0, 2).unwrap();
        assert!(!device.restore() && device.is_cut());
        assert_eq!((bytes_of_pages(&device)[0], bytes_of_pages(&*below)[0]), (2, 1));
    }

    /// A write during the cut has either reached the device when `cut` returns, or never does.
    #[test]
    fn no_write_reaches_the_device_after_the_cut() {
        for _ in 0..50 {
            let (below, device) = switched();
            std::thread::scope(|scope| {
                for page in 0..2 {
                    let device = &device;
                    scope.spawn(move || {
                        (1..=100).for_each(|byte| write(device, page, byte).unwrap());
                    });
                }
                device.cut();
                let left = bytes_of_pages(&*below);
                let writers = scope.spawn(|| (1..=100).for_each(|_| device.flush().unwrap()));
                writers.join().unwrap();
                assert_eq!(bytes_of_pages(&*below), left);
            });
            assert_eq!(bytes_of_pages(&device)[..2], [100, 100]);
        }
    }
}
