//! A copy-on-write overlay: its changes stay in memory, over a device that is only read.
//!
//! 1. The device below is never written to, flushed or discarded from.
//! 2. A page that was written to is in memory whole; every other one is as on the device below.
//! 3. The memory is bounded: a write that would exceed the bound fails, and changes nothing.
//! 4. A batch that only reads unchanged pages is passed to the device below as it is.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use userbtrfs_sync::{Arc, Class, Mutex};

use crate::device::Device;
use crate::error::{Access, DeviceError};
use crate::request::{Completion, Request};
use crate::ticket::Ticket;

/// Bytes in a page.
const PAGE: usize = 4096;

/// A device whose changes stay in memory, over one that is only read.
pub struct Overlay {
    below: Arc<dyn Device>,
    /// The changed pages, by page number.
    pages: Mutex<HashMap<u64, Box<[u8]>>>,
    pages_max: usize,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("pages_max", &self.pages_max).finish_non_exhaustive()
    }
}

/// A part of a request that lies in one page.
struct Part {
    page: u64,
    /// Its range in the page.
    within: Range<usize>,
    /// Its range in the request.
    of_request: Range<usize>,
}

impl Overlay {
    /// Creates an overlay over `below`; its changes may take about `bytes_max` bytes of memory.
    pub fn new(below: Arc<dyn Device>, bytes_max: usize) -> Self {
        let pages = Mutex::new(Class::DeviceQueue, HashMap::new());
        Self { below, pages, pages_max: bytes_max / PAGE }
    }

    /// Returns the number of bytes of memory that the changes take.
    pub fn bytes(&self) -> usize {
        self.pages.lock().len() * PAGE
    }

    /// Returns whether the device below can do the whole batch: it only reads unchanged pages.
    fn is_below(&self, batch: &[Request]) -> bool {
        let pages = self.pages.lock();
        let has = |access: Access| pages_of(access).any(|page| pages.contains_key(&page));
        let is_below = |request: &Request| match request {
            Request::Read { .. } => pages.is_empty() || !has(request.access()),
            Request::Write { .. } | Request::Flush | Request::Discard { .. } => false,
        };
        batch.iter().all(is_below)
    }

    fn perform(&self, mut request: Request) -> Completion {
        let result = self.apply(&mut request);
        request.complete(result)
    }

    fn apply(&self, request: &mut Request) -> Result<(), DeviceError> {
        let access = request.access();
        access.check(self.name(), self.len(), false)?;
        match request {
            Request::Read { offset, buffer } => {
                self.below.read_into(*offset, buffer)?;
                self.patch(access, buffer);
                Ok(())
            }
            Request::Write { buffer, .. } => self.write_over(access, buffer),
            Request::Flush | Request::Discard { .. } => Ok(()),
        }
    }

    /// Overwrites bytes read from the device below with the changed pages.
    fn patch(&self, access: Access, bytes: &mut [u8]) {
        let pages = self.pages.lock();
        for Part { page, within, of_request } in parts(access) {
            if let Some(page) = pages.get(&page) {
                bytes[of_request].copy_from_slice(&page[within]);
            }
        }
    }

    fn write_over(&self, access: Access, bytes: &[u8]) -> Result<(), DeviceError> {
        let below = self.read_partial(access)?;
        let mut pages = self.pages.lock();
        let new = pages_of(access).filter(|page| !pages.contains_key(page)).count();
        if pages.len() + new > self.pages_max {
            let device = self.name().into();
            let max = self.pages_max * PAGE;
            return Err(DeviceError::OverlayFull { device, access, max });
        }
        for Part { page, within, of_request } in parts(access) {
            let blank = || below.get(&page).cloned().unwrap_or_else(|| vec![0; PAGE].into());
            pages.entry(page).or_insert_with(blank)[within].copy_from_slice(&bytes[of_request]);
        }
        Ok(())
    }

    /// Reads the unchanged pages that the access writes only in part.
    fn read_partial(&self, access: Access) -> Result<HashMap<u64, Box<[u8]>>, DeviceError> {
        let partial = parts(access).filter(|part| part.within.len() < PAGE);
        let missing: Vec<u64> = {
            let pages = self.pages.lock();
            partial.map(|part| part.page).filter(|page| !pages.contains_key(page)).collect()
        };
        let read = |page: u64| {
            let start = page * PAGE as u64;
            let len = (self.len() - start).min(PAGE as u64);
            let mut bytes = vec![0; PAGE];
            self.below.read_into(start, &mut bytes[..to_usize(len)])?;
            Ok((page, bytes.into()))
        };
        missing.into_iter().map(read).collect()
    }
}

/// Returns the numbers of the pages that an access touches.
fn pages_of(access: Access) -> impl Iterator<Item = u64> {
    let page = PAGE as u64;
    let end = access.offset.saturating_add(access.len);
    access.offset / page..end.div_ceil(page)
}

/// Splits an access, which lies on the device, into pages.
fn parts(access: Access) -> impl Iterator<Item = Part> {
    let end = access.offset + access.len;
    pages_of(access).map(move |page| {
        let start = page * PAGE as u64;
        let from = access.offset.max(start);
        let to = end.min(start + PAGE as u64);
        let within = to_usize(from - start)..to_usize(to - start);
        let of_request = to_usize(from - access.offset)..to_usize(to - access.offset);
        Part { page, within, of_request }
    })
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a part of something in memory")
}

impl Device for Overlay {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn name(&self) -> &str {
        self.below.name()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        if self.is_below(&batch) {
            self.below.submit(batch)
        } else {
            Ticket::completed(batch.into_iter().map(|one| self.perform(one)).collect())
        }
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

    fn over(bytes: Vec<u8>, max: usize) -> (Arc<MemoryDevice>, Overlay) {
        let below = Arc::new(MemoryDevice::from_bytes(bytes));
        (Arc::clone(&below), Overlay::new(below, max))
    }

    fn write(overlay: &Overlay, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        overlay.write(offset, Arc::new(Buffer::from(bytes)), true)
    }

    #[test]
    fn changes_are_seen_and_stay_in_memory() {
        let bytes: Vec<u8> = (0..=250).cycle().take(5 * PAGE).collect();
        let (below, overlay) = over(bytes.clone(), 1 << 20);
        let mut expected = bytes.clone();
        for (offset, len, fill) in
            [(10_usize, 20, 1), (4090, 10, 2), (4096, 8192, 3), (9000, 5000, 4)]
        {
            write(&overlay, offset as u64, &vec![fill; len]).unwrap();
            expected[offset..offset + len].fill(fill);
            assert_eq!(overlay.read(0, bytes.len()).unwrap()[..], expected);
        }
        overlay.flush().unwrap();
        overlay.discard(0, 4096).unwrap();
        assert_eq!(overlay.read(4000, 9000).unwrap()[..], expected[4000..13_000]);
        assert_eq!(below.snapshot(), bytes);
        assert_eq!(overlay.bytes(), 4 * PAGE);
    }

    #[test]
    fn batch_may_mix_changed_and_unchanged_pages() {
        let (_, overlay) = over(vec![9; 4 * PAGE], 1 << 20);
        write(&overlay, 4096, &[1; PAGE]).unwrap();
        let read = |offset| Request::Read { offset, buffer: Buffer::zeroed(PAGE) };
        let ticket = overlay.submit(vec![read(0), read(4096), read(2048)]);
        let found = overlay.wait(ticket).into_iter().map(|one| one.into_buffer().unwrap());
        let found: Vec<_> = found.map(|one| (one[0], one[PAGE - 1])).collect();
        assert_eq!(found, [(9, 9), (1, 1), (9, 1)]);
        let untouched = overlay.submit(vec![read(8192)]);
        assert!(overlay.is_ready(&untouched));
        assert_eq!(overlay.wait(untouched).pop().unwrap().into_buffer().unwrap()[..], [9; PAGE]);
    }

    #[test]
    fn memory_is_bounded() {
        let (_, overlay) = over(vec![0; 8 * PAGE], 2 * PAGE);
        write(&overlay, 100, &[1; PAGE]).unwrap();
        let full = write(&overlay, 3 * PAGE as u64, &[2]).unwrap_err();
        assert!(matches!(full, DeviceError::OverlayFull { max: 8192, .. }), "{full}");
        assert_eq!(overlay.read(3 * PAGE as u64, 1).unwrap()[..], [0]);
        write(&overlay, 200, &[3; 10]).unwrap();
        assert_eq!(overlay.read(200, 10).unwrap()[..], [3; 10]);
    }

    #[test]
    fn overlay_has_the_length_of_the_device_below() {
        let (_, overlay) = over(vec![7; PAGE + 10], 1 << 20);
        write(&overlay, PAGE as u64 + 5, &[1; 5]).unwrap();
        assert_eq!(overlay.read(PAGE as u64, 10).unwrap()[..], [7, 7, 7, 7, 7, 1, 1, 1, 1, 1]);
        let beyond = write(&overlay, PAGE as u64, &[0; 11]).unwrap_err();
        assert!(matches!(beyond, DeviceError::BeyondEnd { .. }));
        let wild = overlay.read(u64::MAX - 1, 1).unwrap_err();
        assert!(matches!(wild, DeviceError::BeyondEnd { .. }));
    }
}
