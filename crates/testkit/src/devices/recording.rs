//! What is done to a device, remembered.
//!
//! 1. Requests that failed, and reads, are not remembered.
//! 2. A batch is complete when `submit` returns, and its requests stand together in the recording.
//! 3. What is submitted before anything is waited for is in flight together: to wait for all of it
//!    counts as one wait.

use userbtrfs_device::{Completion, Device, DeviceError, Request, Slice, Ticket};
use userbtrfs_sync::{Arc, Class, Mutex};

use super::SparseImage;

/// A request that succeeded.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Slice,
        /// They were durable, alone, on completion.
        fua: bool,
    },
    /// What had completed was made durable.
    Flush {
        /// How many events of the recording, from its start, were durable afterwards.
        covers: usize,
    },
    /// Bytes were given back.
    Discard {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

/// An event, and with which others it was in flight.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What was done.
    pub event: Event,
    /// The number of its batch: the requests of one batch are unordered.
    pub batch: u64,
}

/// All that was done to a device, and what it held before.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What the device held first.
    pub base: SparseImage,
    /// What was done since, in order of completion.
    pub events: Vec<Recorded>,
}

impl Recording {
    fn new(base: SparseImage) -> Self {
        Self { base, events: Vec::new() }
    }

    /// What the device holds after everything.
    pub fn end(&self) -> SparseImage {
        let mut image = self.base.clone();
        self.events.iter().for_each(|recorded| recorded.event.apply(&mut image));
        image
    }
}

impl Event {
    /// Does it again on an image.
    pub fn apply(&self, image: &mut SparseImage) {
        match self {
            Self::Write { offset, bytes, .. } => image.write(*offset, bytes),
            Self::Flush { .. } => {}
            Self::Discard { offset, len } => image.clear(*offset, *len),
        }
    }

    /// What a request will have been; `done` events came before it was submitted.
    fn of(request: &Request, done: usize) -> Option<Self> {
        Some(match request {
            Request::Read { .. } => return None,
            Request::Write { offset, buffer, fua } => {
                Self::Write { offset: *offset, bytes: buffer.clone(), fua: *fua }
            }
            Request::Flush => Self::Flush { covers: done },
            Request::Discard { offset, len } => Self::Discard { offset: *offset, len: *len },
        })
    }
}

/// Passes everything on to another device and remembers it.
pub struct RecordingDevice {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
}

struct State {
    recording: Recording,
    /// How many batches there were.
    batches: u64,
    /// How often the device was waited for, reads apart.
    waits: u64,
    /// Something was submitted that nobody waited for yet.
    is_in_flight: bool,
}

impl RecordingDevice {
    /// Starts from what `inner` holds now; nobody else may change it from here on.
    pub fn new(inner: Arc<dyn Device>) -> Result<Self, DeviceError> {
        let base = SparseImage::copy_of(&*inner)?;
        Ok(Self::from_parts(inner, base))
    }

    /// On a device in memory that holds this image.
    pub fn on(base: &SparseImage) -> Self {
        Self::from_parts(Arc::new(base.to_device()), base.clone())
    }

    fn from_parts(inner: Arc<dyn Device>, base: SparseImage) -> Self {
        let recording = Recording::new(base);
        let state = State { recording, batches: 0, waits: 0, is_in_flight: false };
        Self { inner, state: Mutex::new(Class::DeviceQueue, state) }
    }

    /// What was done so far.
    pub fn log(&self) -> Vec<Recorded> {
        self.state.lock().recording.events.clone()
    }

    /// How many events there were so far.
    pub fn count(&self) -> usize {
        self.state.lock().recording.events.len()
    }

    /// How often somebody waited for what changes the device, for all at once that was in flight.
    /// To be asked about one thread alone.
    pub fn waits(&self) -> u64 {
        self.state.lock().waits
    }

    /// What was done so far, and what was there before.
    pub fn recording(&self) -> Recording {
        self.state.lock().recording.clone()
    }

    /// Takes the recording and starts another, from what the device holds now: to be called when
    /// nothing is in flight, after a flush, for the new one takes all there is as durable.
    pub fn take(&self) -> Recording {
        let mut state = self.state.lock();
        let next = Recording::new(state.recording.end());
        std::mem::replace(&mut state.recording, next)
    }
}

impl Device for RecordingDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn closing(&self) {
        self.inner.closing();
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let done = self.state.lock().recording.events.len();
        let events: Vec<_> = batch.iter().map(|request| Event::of(request, done)).collect();
        let completions = self.inner.wait(self.inner.submit(batch));
        let ends = completions.iter().map(|completion| completion.result.is_ok());
        let succeeded: Vec<_> =
            events.into_iter().zip(ends).filter_map(|(event, ok)| event.filter(|_| ok)).collect();
        let mut state = self.state.lock();
        let number = state.batches;
        state.batches += 1;
        state.is_in_flight |= !succeeded.is_empty();
        state
            .recording
            .events
            .extend(succeeded.into_iter().map(|event| Recorded { event, batch: number }));
        drop(state);
        Ticket::completed(completions)
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        let mut state = self.state.lock();
        state.waits += u64::from(std::mem::take(&mut state.is_in_flight));
        drop(state);
        ticket.wait()
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_device::Buffer;

    use super::*;

    fn write(offset: u64, bytes: &[u8]) -> Request {
        Request::Write { offset, buffer: Buffer::from(bytes).into(), fua: false }
    }

    #[test]
    fn remembers_what_changed_the_device_and_nothing_else() {
        let device = RecordingDevice::on(&SparseImage::from_bytes(b"0123456789"));
        device.run(write(2, b"ab")).result.unwrap();
        assert_eq!(&device.read(0, 4).unwrap()[..], b"01ab");
        assert!(device.run(write(9, b"ab")).result.is_err());
        device.discard(8, 2).unwrap();
        device.write(0, Arc::new(b"z"[..].into()), true).unwrap();
        let recording = device.recording();
        assert_eq!(recording.base.to_bytes(), b"0123456789");
        assert_eq!(recording.end().to_bytes(), b"z1ab4567\0\0");
        let batches: Vec<_> = recording.events.iter().map(|recorded| recorded.batch).collect();
        assert_eq!(batches, [0, 3, 4], "a batch of its own for each request");
        assert!(matches!(recording.events[0].event, Event::Write { offset: 2, fua: false, .. }));
        assert!(matches!(recording.events[1].event, Event::Discard { offset: 8, len: 2 }));
        assert!(matches!(recording.events[2].event, Event::Write { offset: 0, fua: true, .. }));
    }

    #[test]
    fn what_is_in_flight_together_is_waited_for_once() {
        let device = RecordingDevice::on(&SparseImage::new(100));
        let tickets = [device.submit(vec![write(0, b"a")]), device.submit(vec![write(1, b"b")])];
        for ticket in tickets {
            device.wait(ticket);
        }
        assert_eq!(device.waits(), 1);
        let first = device.submit(vec![write(2, b"c")]);
        device.read(0, 1).unwrap();
        device.wait(first);
        device.flush().unwrap();
        assert_eq!(device.waits(), 3);
        device.read(0, 1).unwrap();
        assert_eq!(device.waits(), 3, "a read is none");
    }

    #[test]
    fn a_flush_covers_nothing_of_its_batch() {
        let device = RecordingDevice::new(Arc::new(SparseImage::new(100).to_device())).unwrap();
        device.run(write(0, b"first")).result.unwrap();
        let batch = vec![write(5, b"second"), Request::Flush];
        assert!(device.submit(batch).wait().iter().all(|completion| completion.result.is_ok()));
        device.flush().unwrap();
        let log = device.log();
        assert!(matches!(log[2].event, Event::Flush { covers: 1 }));
        assert!(matches!(log[3].event, Event::Flush { covers: 3 }));
        assert_eq!((log[1].batch, log[2].batch, log[3].batch), (1, 1, 2));
    }

    #[test]
    fn a_taken_recording_is_followed_by_one_from_its_end() {
        let device = RecordingDevice::on(&SparseImage::new(4));
        device.run(write(0, b"ab")).result.unwrap();
        let first = device.take();
        device.run(write(1, b"cd")).result.unwrap();
        device.flush().unwrap();
        let second = device.take();
        assert_eq!((first.events.len(), second.events.len()), (1, 2));
        assert_eq!((first.end(), second.end().to_bytes()), (second.base, b"acd\0".to_vec()));
        assert!(matches!(second.events[1].event, Event::Flush { covers: 1 }));
        assert!(device.log().is_empty());
    }
}
