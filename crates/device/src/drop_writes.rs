//! A device with a switch in its power line: from a moment on nothing that is written reaches it,
//! and who writes does not notice. For tests of what a cut of the power leaves.
//!
//! ```text
//!            cut                 a write
//!   ON -----------------> CUT -----------------> DROPPED
//!      <-----------------
//!           restore
//! ```
//!
//! 1. Until something is dropped everything goes to the device as it is: who reads takes no lock
//!    for that.
//! 2. After the cut nothing is written, flushed or discarded there: what is changed is in memory,
//!    where reads find it. What was on its way may still arrive, or not, as at any cut.
//! 3. What has changed in memory never comes to the device: in which order it had to is not known
//!    any more, and half of it would be worse than nothing. So there is no way back from DROPPED.
//! 4. What is in memory is bounded: a write that would exceed that fails.

use std::thread;
use std::time::Duration;

use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::device::Device;
use crate::overlay::Overlay;
use crate::request::{Completion, Request};
use crate::ticket::Ticket;

const ON: u8 = 0;
const CUT: u8 = 1;
const DROPPED: u8 = 2;

/// How often it is looked whether nobody submits any more.
const PAUSE: Duration = Duration::from_millis(1);

/// See the module's text.
pub struct DropWritesDevice {
    below: Arc<dyn Device>,
    memory: Overlay,
    state: AtomicU8,
    /// How many threads submit writes, or are about to look whether they may.
    submitting: AtomicU64,
    dropped: AtomicU64,
}

impl DropWritesDevice {
    /// A device that is `below` until it is cut off; what is changed after that may take about
    /// `bytes_max` bytes of memory.
    pub fn new(below: Arc<dyn Device>, bytes_max: usize) -> Self {
        let memory = Overlay::new(Arc::clone(&below), bytes_max);
        let [submitting, dropped] = [AtomicU64::new(0), AtomicU64::new(0)];
        Self { below, memory, state: AtomicU8::new(ON), submitting, dropped }
    }

    /// Cuts the device off: what is written after this returns does not reach it. Waits while
    /// others hand writes to the device, but not for these to arrive.
    pub fn cut(&self) {
        // Where it is cut already, that stays.
        let _ = self.state.compare_exchange(ON, CUT, Ordering::SeqCst, Ordering::SeqCst);
        while self.submitting.load(Ordering::SeqCst) > 0 {
            thread::sleep(PAUSE);
        }
    }

    /// Lets writes reach the device again, unless some have not: says whether it does.
    #[must_use = "it may be too late"]
    pub fn restore(&self) -> bool {
        let restored = self.state.compare_exchange(CUT, ON, Ordering::SeqCst, Ordering::SeqCst);
        restored.map_or_else(|state| state == ON, |_| true)
    }

    /// Whether the device is cut off.
    pub fn is_cut(&self) -> bool {
        self.state.load(Ordering::SeqCst) != ON
    }

    /// How many writes, flushes and discards did not reach the device.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Whether what changes something still reaches the device; where not, it is dropped.
    fn reaches(&self) -> bool {
        loop {
            match self.state.load(Ordering::SeqCst) {
                ON => return true,
                DROPPED => return false,
                _ => {
                    // Another one may have done it, or restored the power.
                    let (now, then) = (CUT, DROPPED);
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

    fn name(&self) -> &str {
        self.below.name()
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn closing(&self) {
        self.below.closing();
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let changes = batch.iter().filter(|one| !matches!(one, Request::Read { .. })).count();
        if changes == 0 {
            // What is in memory came there after it was said that it would.
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
    use crate::error::DeviceError;
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
    fn what_is_written_after_the_cut_is_seen_and_does_not_arrive() {
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
    fn power_comes_back_while_nothing_was_dropped() {
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

    /// Whoever writes while the power is cut has either reached the device or has not when that
    /// returns: nothing of it arrives later.
    #[test]
    fn nothing_arrives_after_the_cut() {
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
