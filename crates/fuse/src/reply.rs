//! The reply to one request.
//!
//! 1. Each request that expects an answer is answered once: by its [`Reply`], or with EIO when the
//!    reply is dropped.
//! 2. A reply may be sent from any thread, at any time; nothing else of the request is kept.
//! 3. Bytes are written to the kernel from where they are, without a copy.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::IoSlice;
use std::marker::PhantomData;

use rustix::io::Errno;
use userbtrfs_sync::Arc;
use zerocopy::IntoBytes;

use crate::answer::Answer;
use crate::channel::Channel;
use crate::opcode::Opcode;
use crate::wire;

/// Answers a request with a `T`, or with an error.
#[must_use = "a request whose reply is dropped fails with EIO"]
pub struct Reply<T> {
    pending: Pending,
    /// The maximum size of the answer in bytes, if the request has one.
    size: u32,
    answer: PhantomData<fn(T)>,
}

/// The type of a [`Reply`] to READ and READLINK: bytes.
#[derive(Debug)]
pub enum Bytes {}

/// The type of a [`Reply`] to GETXATTR and LISTXATTR: a value, or all names, each with a NUL.
#[derive(Debug)]
pub enum Value {}

/// The type of a [`Reply`] to IOCTL: the result and the data.
#[derive(Debug)]
pub enum IoctlData {}

/// A request in flight. It fails with EIO if this is dropped without an answer.
struct Pending {
    channel: Arc<Channel>,
    unique: u64,
    opcode: Opcode,
    answered: bool,
}

impl<T> Reply<T> {
    pub(crate) fn new(channel: &Arc<Channel>, unique: u64, opcode: Opcode) -> Self {
        channel.load_estimate().begin();
        let pending = Pending { channel: channel.clone(), unique, opcode, answered: false };
        Self { pending, size: 0, answer: PhantomData }
    }

    /// Sets the maximum size of the answer in bytes.
    pub(crate) fn at_most(mut self, size: u32) -> Self {
        self.size = size;
        self
    }

    /// Answers with an error. One of 512 or more is not accepted by the kernel, and sent as EIO.
    pub fn fail(mut self, error: Errno) {
        self.pending.end();
        self.pending.channel.refuse(self.pending.unique, error);
    }

    /// Calls `act` if the request is interrupted: its caller has a pending signal, which is
    /// delivered once the request is answered. Such a request usually fails with EINTR.
    ///
    /// `act` runs at most once: on a thread that receives, or on this one if the request was
    /// interrupted already. It may run while the answer is being sent, and must tolerate that.
    pub fn on_interrupt(&self, act: impl FnOnce() + Send + 'static) {
        self.pending.channel.interrupts().watch(self.pending.unique, Box::new(act));
    }

    fn send_parts(mut self, parts: &[IoSlice<'_>]) {
        self.pending.end();
        self.pending.channel.answer(self.pending.unique, parts);
    }
}

impl<T: Answer> Reply<T> {
    /// Answers with the result.
    pub fn send(self, answer: Result<T, Errno>) {
        match answer {
            Ok(answer) => self.succeed(&answer),
            Err(error) => self.fail(error),
        }
    }

    /// Answers with success.
    pub fn succeed(self, answer: &T) {
        let opcode = self.pending.opcode;
        let mut reply = Some(self);
        answer.encode(opcode, &mut |bytes| {
            let reply = reply.take().expect("an answer is encoded once");
            reply.send_parts(&[IoSlice::new(bytes)]);
        });
    }
}

impl Reply<Bytes> {
    /// Returns the maximum size of the answer in bytes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Answers with these bytes: at most [`size`](Self::size), and fewer only at the end of a
    /// file.
    pub fn send(self, bytes: Result<&[u8], Errno>) {
        match bytes {
            Ok(bytes) => self.send_slices(&[IoSlice::new(bytes)]),
            Err(error) => self.fail(error),
        }
    }

    /// Answers with the bytes of all slices, fewer than a thousand slices.
    pub fn send_slices(self, slices: &[IoSlice<'_>]) {
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>();
        assert!(u32::try_from(length).is_ok_and(|length| length <= self.size), "asked for");
        self.send_parts(slices);
    }
}

impl Reply<Value> {
    /// Returns the size of the caller's buffer; zero if it asks for the length.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Answers with these bytes, or with their number if the caller asks for the length; ERANGE if
    /// they do not fit.
    pub fn send(self, value: Result<&[u8], Errno>) {
        match value {
            Ok(value) => match (self.size, u32::try_from(value.len())) {
                (0, Ok(length)) => self.send_length(length),
                (size, Ok(length)) if length <= size => self.send_parts(&[IoSlice::new(value)]),
                _ => self.fail(Errno::RANGE),
            },
            Err(error) => self.fail(error),
        }
    }

    /// Answers a request for the length, without the value.
    pub fn send_length(self, length: u32) {
        assert_eq!(self.size, 0, "the value is asked for");
        let out = wire::GetxattrOut { size: length, padding: 0 };
        self.send_parts(&[IoSlice::new(out.as_bytes())]);
    }
}

impl Reply<IoctlData> {
    /// Returns the maximum size of the data in bytes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Answers with the result of ioctl(2), and data for the caller's argument: at most
    /// [`size`](Self::size) bytes.
    pub fn send(self, done: Result<(i32, &[u8]), Errno>) {
        let (result, bytes) = match done {
            Ok(done) => done,
            Err(error) => return self.fail(error),
        };
        let fits = u32::try_from(bytes.len()).is_ok_and(|length| length <= self.size);
        assert!(fits, "no more bytes than were asked for");
        let out = wire::IoctlOut { result, flags: 0, in_iovs: 0, out_iovs: 0 };
        self.send_parts(&[IoSlice::new(out.as_bytes()), IoSlice::new(bytes)]);
    }
}

/// Sends a listing.
pub(crate) fn send_listing<T>(reply: Reply<T>, bytes: &[u8]) {
    reply.send_parts(&[IoSlice::new(bytes)]);
}

/// Returns the maximum size of a listing in bytes.
pub(crate) fn listing_size<T>(reply: &Reply<T>) -> usize {
    usize::try_from(reply.size).expect("a size in memory")
}

impl Pending {
    /// Marks the request answered.
    fn end(&mut self) {
        self.answered = true;
        self.channel.load_estimate().end();
        self.channel.interrupts().end(self.unique);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.answered {
            self.end();
            self.channel.refuse(self.unique, Errno::IO);
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({:?} {})", self.pending.opcode, self.pending.unique)
    }
}
