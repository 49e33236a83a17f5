//! A device that fails on demand.
//!
//! 1. A request that fails with [`How::Eio`] does not reach the inner device.
//! 2. Requests are counted in their order in a batch, batches in their order of submission, whether
//!    they fail or not. The other requests of a batch in which one fails are executed.
//! 3. Under [`unseen`](FaultyDevice::unseen) no request fails, and none is counted.

use std::io;

use rustix::io::Errno;
use userbtrfs_device::{Access, Buffer, Completion, Device, DeviceError};
use userbtrfs_device::{Operation, Request, Ticket};
use userbtrfs_sync::{Arc, Class, Mutex};

use super::layered::{Layer, LayeredDevice};

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// With EIO.
    Eio,
    /// After half of its bytes.
    Short,
    /// After half of its bytes, with ENOSPC: like a sparse image file on a full disk.
    NoSpace,
}

/// Which request fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of request.
    pub operation: Operation,
    /// The number of requests of this kind that still succeed.
    pub after: u64,
    /// How it fails.
    pub how: How,
    /// Whether all later requests of this kind fail, too.
    pub lasting: bool,
}

#[derive(Default)]
struct State {
    fault: Option<Fault>,
    /// The number of requests of each kind ([`index`]).
    counts: [u64; 4],
    failed: u64,
    is_unseen: bool,
}

impl State {
    /// Counts a request; returns how it fails, if it does.
    fn verdict(&mut self, operation: Operation) -> Option<How> {
        if self.is_unseen {
            return None;
        }
        self.counts[index(operation)] += 1;
        let fault = self.fault.as_mut().filter(|fault| fault.operation == operation)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        let Fault { how, lasting, .. } = *fault;
        if !lasting {
            self.fault = None;
        }
        self.failed += 1;
        Some(how)
    }
}

fn index(operation: Operation) -> usize {
    match operation {
        Operation::Read => 0,
        Operation::Write => 1,
        Operation::Flush => 2,
        Operation::Discard => 3,
    }
}

/// A layer that executes requests on the device below, except those that are to fail.
pub struct Faults {
    state: Mutex<State>,
}

/// A device with requests that fail.
pub type FaultyDevice = LayeredDevice<Faults>;

impl FaultyDevice {
    /// Wraps a device; no request fails until [`arm`](Self::arm) is called.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        let state = Mutex::new(Class::DeviceQueue, State::default());
        Self::on_device(inner, Faults { state })
    }

    /// Sets the fault; it replaces an earlier one.
    pub fn arm(&self, fault: Fault) {
        self.layer().state.lock().fault = Some(fault);
    }

    /// Removes the fault.
    pub fn disarm(&self) {
        self.layer().state.lock().fault = None;
    }

    /// Returns the number of requests of this kind so far.
    pub fn count(&self, operation: Operation) -> u64 {
        self.layer().state.lock().counts[index(operation)]
    }

    /// Returns the number of requests that failed because of a fault.
    pub fn failed(&self) -> u64 {
        self.layer().state.lock().failed
    }

    /// Calls `act`; meanwhile no request fails and none is counted.
    pub fn unseen<T>(&self, act: impl FnOnce() -> T) -> T {
        self.layer().state.lock().is_unseen = true;
        let done = act();
        self.layer().state.lock().is_unseen = false;
        done
    }
}

/// Fails a request.
fn fail<D: Device + ?Sized>(below: &D, mut request: Request, how: How) -> Completion {
    let device = below.name().into();
    let access = request.access();
    let error = match how {
        How::Eio => io_error(device, access, Errno::IO),
        How::Short => match half(below, &mut request) {
            Ok(done) => DeviceError::Short { device, access, done },
            Err(error) => error,
        },
        How::NoSpace => match half(below, &mut request) {
            Ok(_) => io_error(device, access, Errno::NOSPC),
            Err(error) => error,
        },
    };
    request.complete(Err(error))
}

/// Executes half of a request; returns the number of bytes of that half.
fn half<D: Device + ?Sized>(below: &D, request: &mut Request) -> Result<u64, DeviceError> {
    match request {
        Request::Read { offset, buffer } => {
            let half = buffer.len() / 2;
            below.read_into(*offset, &mut buffer[..half])?;
            Ok(half as u64)
        }
        Request::Write { offset, buffer, fua } => {
            let half = &buffer[..buffer.len() / 2];
            below.write(*offset, Arc::new(Buffer::from(half)), *fua)?;
            Ok(half.len() as u64)
        }
        Request::Flush => Ok(0),
        Request::Discard { offset, len } => {
            below.discard(*offset, *len / 2)?;
            Ok(*len / 2)
        }
    }
}

/// Executes a batch in which some requests fail.
fn do_others<D: Device + ?Sized>(
    below: &D,
    batch: Vec<Request>,
    verdicts: Vec<Option<How>>,
) -> Vec<Completion> {
    let mut failing = Vec::new();
    let mut others = Vec::new();
    for (index, (request, verdict)) in batch.into_iter().zip(verdicts).enumerate() {
        match verdict {
            Some(how) => failing.push((index, request, how)),
            None => others.push(request),
        }
    }
    let mut completions = below.wait(below.submit(others));
    for (index, request, how) in failing {
        completions.insert(index, fail(below, request, how));
    }
    completions
}

fn io_error(device: Box<str>, access: Access, errno: Errno) -> DeviceError {
    let source = io::Error::from_raw_os_error(errno.raw_os_error());
    DeviceError::Io { device, access, source }
}

impl Layer for Faults {
    fn submit<D: Device + ?Sized>(&self, below: &D, batch: Vec<Request>) -> Ticket {
        let verdicts: Vec<_> = {
            let mut state = self.state.lock();
            batch.iter().map(|request| state.verdict(request.access().operation)).collect()
        };
        if verdicts.iter().all(Option::is_none) {
            return below.submit(batch);
        }
        Ticket::completed(do_others(below, batch, verdicts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::SparseDevice;

    fn device() -> FaultyDevice {
        FaultyDevice::new(Arc::new(SparseDevice::new(100)))
    }

    fn fault(operation: Operation, after: u64, how: How) -> Fault {
        Fault { operation, after, how, lasting: false }
    }

    fn write(device: &FaultyDevice, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        device.write(offset, Arc::new(bytes.into()), false)
    }

    #[test]
    fn the_chosen_write_fails_and_does_nothing() {
        let device = device();
        device.arm(fault(Operation::Write, 1, How::Eio));
        write(&device, 0, b"aa").unwrap();
        device.flush().unwrap();
        let error = write(&device, 2, b"bb").unwrap_err();
        let DeviceError::Io { source, access, .. } = error else { panic!("{error}") };
        assert_eq!(Errno::from_io_error(&source), Some(Errno::IO));
        assert_eq!((access.operation, access.offset, access.len), (Operation::Write, 2, 2));
        write(&device, 4, b"cc").unwrap();
        assert_eq!(&device.read(0, 6).unwrap()[..], b"aa\0\0cc");
        let counts = [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard];
        assert_eq!(counts.map(|operation| device.count(operation)), [1, 3, 1, 0]);
        assert_eq!(device.failed(), 1);
    }

    #[test]
    fn a_short_write_does_half() {
        let device = device();
        device.arm(fault(Operation::Write, 0, How::Short));
        assert!(matches!(write(&device, 1, b"abcd"), Err(DeviceError::Short { done: 2, .. })));
        assert_eq!(&device.read(0, 6).unwrap()[..], b"\0ab\0\0\0");
        device.arm(fault(Operation::Read, 0, How::Short));
        assert!(matches!(device.read(0, 6), Err(DeviceError::Short { done: 3, .. })));
    }

    #[test]
    fn a_write_without_space_does_half() {
        let device = device();
        device.arm(fault(Operation::Write, 0, How::NoSpace));
        let error = write(&device, 1, b"abcd").unwrap_err();
        let DeviceError::Io { source, .. } = error else { panic!("{error}") };
        assert_eq!(Errno::from_io_error(&source), Some(Errno::NOSPC));
        assert_eq!(&device.read(0, 6).unwrap()[..], b"\0ab\0\0\0");
    }

    #[test]
    fn a_lasting_fault_hits_every_later_flush_until_disarmed() {
        let device = device();
        device.arm(Fault { lasting: true, ..fault(Operation::Flush, 1, How::Eio) });
        let ends: Vec<_> = (0..4).map(|_| device.flush().is_ok()).collect();
        assert_eq!(ends, [true, false, false, false]);
        device.disarm();
        device.flush().unwrap();
        assert_eq!((device.failed(), device.count(Operation::Flush)), (3, 5));
    }

    #[test]
    fn requests_under_unseen_meet_no_fault_and_are_not_counted() {
        let device = device();
        device.arm(fault(Operation::Write, 0, How::Eio));
        device.unseen(|| write(&device, 0, b"aa")).unwrap();
        assert_eq!((device.failed(), device.count(Operation::Write)), (0, 0));
        write(&device, 0, b"bb").unwrap_err();
        assert_eq!(device.failed(), 1);
    }

    #[test]
    fn the_others_of_a_batch_are_done() {
        let device = device();
        device.arm(fault(Operation::Write, 1, How::Eio));
        let bytes = [b"a", b"b", b"c"].map(|byte| Buffer::from(&byte[..]).into());
        let request = |(offset, buffer)| Request::Write { offset, buffer, fua: false };
        let ticket = device.submit((0..).zip(bytes).map(request).collect());
        let ends: Vec<_> = device.wait(ticket).iter().map(|end| end.result.is_ok()).collect();
        assert_eq!(ends, [true, false, true]);
        assert_eq!(&device.read(0, 3).unwrap()[..], b"a\0c");
    }
}
