//! A device that records the requests that change it.
//!
//! 1. Failed requests, and reads, are not recorded.
//! 2. A batch is complete when `submit` returns, and its requests are adjacent in the recording.
//! 3. Batches submitted before any of them is waited for are in flight together: waiting for all of
//!    them counts as one wait.
//! 4. A crash point that is reached is recorded with the number of events before it: all later ones
//!    come after a power cut there.

use userbtrfs_device::{Completion, CrashPoint, Device, DeviceError, Request, Slice, Ticket};
use userbtrfs_sync::{Arc, Class, Mutex};

use super::SparseImage;
use super::layered::{Layer, LayeredDevice};

/// A request that succeeded.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Slice,
        /// Whether they, and nothing else, were durable on completion.
        fua: bool,
    },
    /// All completed events were made durable.
    Flush {
        /// The number of events, from the start of the recording, that were durable afterwards.
        covers: usize,
    },
    /// Bytes were discarded.
    Discard {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

/// An event and its batch.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The event.
    pub event: Event,
    /// The number of its batch: the requests of one batch are unordered.
    pub batch: u64,
}

/// All events of a device, and its content before them.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The initial content of the device.
    pub base: SparseImage,
    /// The events since then, in order of completion.
    pub events: Vec<Recorded>,
    /// The crash points that were reached, in order, each with the number of events before it.
    pub reached: Vec<(CrashPoint, usize)>,
}

impl Recording {
    fn new(base: SparseImage) -> Self {
        Self { base, events: Vec::new(), reached: Vec::new() }
    }

    /// Returns the content of the device after all events.
    pub fn end(&self) -> SparseImage {
        let mut image = self.base.clone();
        self.events.iter().for_each(|recorded| recorded.event.apply(&mut image));
        image
    }
}

impl Event {
    /// Applies the event to an image.
    pub fn apply(&self, image: &mut SparseImage) {
        match self {
            Self::Write { offset, bytes, .. } => image.write(*offset, bytes),
            Self::Flush { .. } => {}
            Self::Discard { offset, len } => image.clear(*offset, *len),
        }
    }

    /// Returns the event of a request, `None` for a read; `done` events precede its submission.
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

/// A layer that executes every request on the device below, and records it.
pub struct Recorder {
    state: Mutex<State>,
}

/// A device whose changes are recorded.
pub type RecordingDevice = LayeredDevice<Recorder>;

struct State {
    recording: Recording,
    /// The number of batches so far.
    batches: u64,
    /// The number of waits so far, not counting reads.
    waits: u64,
    /// Whether a submitted batch was not waited for yet.
    is_in_flight: bool,
}

impl RecordingDevice {
    /// Starts from the current content of `inner`, which nothing else may change from now on.
    pub fn new(inner: Arc<dyn Device>) -> Result<Self, DeviceError> {
        let base = SparseImage::copy_of(&*inner)?;
        Ok(Self::from_parts(inner, base))
    }

    /// Records on a new device in memory that holds this image.
    pub fn on(base: &SparseImage) -> Self {
        Self::from_parts(Arc::new(base.to_device()), base.clone())
    }

    fn from_parts(inner: Arc<dyn Device>, base: SparseImage) -> Self {
        let recording = Recording::new(base);
        let state = State { recording, batches: 0, waits: 0, is_in_flight: false };
        Self::on_device(inner, Recorder { state: Mutex::new(Class::DeviceQueue, state) })
    }

    /// Returns the events so far.
    pub fn log(&self) -> Vec<Recorded> {
        self.layer().state.lock().recording.events.clone()
    }

    /// Returns the number of events so far.
    pub fn count(&self) -> usize {
        self.layer().state.lock().recording.events.len()
    }

    /// Returns the number of waits for writes, flushes and discards; one wait for everything in
    /// flight counts once. Only meaningful if a single thread uses the device.
    pub fn waits(&self) -> u64 {
        self.layer().state.lock().waits
    }

    /// Returns the recording so far.
    pub fn recording(&self) -> Recording {
        self.layer().state.lock().recording.clone()
    }

    /// Takes the recording and starts another from the current content of the device. Call it after
    /// a flush with nothing in flight: the new recording treats all content as durable.
    pub fn take(&self) -> Recording {
        let mut state = self.layer().state.lock();
        let next = Recording::new(state.recording.end());
        std::mem::replace(&mut state.recording, next)
    }
}

impl Layer for Recorder {
    fn submit<D: Device + ?Sized>(&self, below: &D, batch: Vec<Request>) -> Ticket {
        let done = self.state.lock().recording.events.len();
        let events: Vec<_> = batch.iter().map(|request| Event::of(request, done)).collect();
        let completions = below.wait(below.submit(batch));
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

    fn wait<D: Device + ?Sized>(&self, _: &D, ticket: Ticket) -> Vec<Completion> {
        let mut state = self.state.lock();
        state.waits += u64::from(std::mem::take(&mut state.is_in_flight));
        drop(state);
        ticket.wait()
    }

    fn reached(&self, point: CrashPoint) {
        let recording = &mut self.state.lock().recording;
        recording.reached.push((point, recording.events.len()));
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
    fn batches_in_flight_together_count_as_one_wait() {
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
