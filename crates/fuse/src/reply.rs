//! The way back of one request.
//!
//! 1. Each request that can be answered is answered once: by its [`Reply`], or with EIO when that
//!    is dropped.
//! 2. A reply may be sent from any thread, at any time; nothing else of the request lives on.
//! 3. Bytes go to the kernel from where they stand.

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
    /// The most bytes that the kernel takes, where the request says so.
    size: u32,
    answer: PhantomData<fn(T)>,
}

/// In a [`Reply`]: bytes, as READ and READLINK want.
#[derive(Debug)]
pub enum Bytes {}

/// In a [`Reply`]: the value of an extended attribute, or the names of all, each with a NUL.
#[derive(Debug)]
pub enum Value {}

/// In a [`Reply`]: the result of an ioctl and its bytes.
#[derive(Debug)]
pub enum IoctlData {}

/// The request is answered when this ends.
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

    /// At most this many bytes.
    pub(crate) fn at_most(mut self, size: u32) -> Self {
        self.size = size;
        self
    }

    /// Answers with an error. One of 512 or more is none of the system's, and goes as EIO.
    pub fn fail(mut self, error: Errno) {
        self.pending.end();
        self.pending.channel.refuse(self.pending.unique, error);
    }

    /// Calls `act` if somebody no longer wants to wait for the answer: a signal has come, which is
    /// served once the answer is there. EINTR is what such a request mostly fails with.
    ///
    /// `act` runs on a thread that receives, or on this one if the signal was faster; once at
    /// most. It may come while the answer is just being sent, and must bear to find nothing to do.
    pub fn on_interrupt(&self, act: impl FnOnce() + Send + 'static) {
        self.pending.channel.interrupts().watch(self.pending.unique, Box::new(act));
    }

    fn send_parts(mut self, parts: &[IoSlice<'_>]) {
        self.pending.end();
        self.pending.channel.answer(self.pending.unique, parts);
    }
}

impl<T: Answer> Reply<T> {
    /// Answers.
    pub fn send(self, answer: Result<T, Errno>) {
        match answer {
            Ok(answer) => self.succeed(&answer),
            Err(error) => self.fail(error),
        }
    }

    /// Answers that it is done.
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
    /// The most bytes to send.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Answers with these bytes: no more than [`size`](Self::size), and less only at the end of a
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
    /// Room for how many bytes the caller has; zero: it asks how many there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Answers with these bytes, or with how many they are where that is asked; ERANGE if they do
    /// not fit.
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

    /// Answers a question for the length alone, without the value at hand.
    pub fn send_length(self, length: u32) {
        assert_eq!(self.size, 0, "the value is asked for");
        let out = wire::GetxattrOut { size: length, padding: 0 };
        self.send_parts(&[IoSlice::new(out.as_bytes())]);
    }
}

impl Reply<IoctlData> {
    /// The most bytes to send.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Answers with what ioctl(2) returns, and bytes for the caller's argument: no more than
    /// [`size`](Self::size).
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

/// What listings send.
pub(crate) fn send_listing<T>(reply: Reply<T>, bytes: &[u8]) {
    reply.send_parts(&[IoSlice::new(bytes)]);
}

/// How many bytes a listing may have.
pub(crate) fn listing_size<T>(reply: &Reply<T>) -> usize {
    usize::try_from(reply.size).expect("a size in memory")
}

impl Pending {
    /// The request counts as answered from now on.
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
