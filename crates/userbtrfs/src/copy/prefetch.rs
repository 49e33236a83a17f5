//! Reads a source ahead of its use, in a thread of its own.
//!
//! 1. Events are passed in batches, each with the file data of its events.
//! 2. Batches circulate between the two threads: their number and their size bound the memory.
//! 3. A file is read into a batch in whole sectors, as far as it has them.
//! 4. A cancelled file is not read any further.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::error::CopyError;
use super::shared::SharedData;
use super::source::{Content, ContentReader, Event, Piece, Source};

/// The number of batches.
const BATCHES: usize = 4;

/// The size of a batch's data buffer, and the least free space in it for another read.
const BYTES: usize = 1 << 20;
const ROOM_MIN: usize = 64 << 10;

/// The number of steps in a full batch.
const STEPS: usize = 512;

/// The number of steps in a full batch that hold a file open, since descriptors are scarce.
const SHARED_MAX: usize = 32;

const SECTOR: usize = 4096;

/// An event of the source, or a part of the file that has begun.
#[expect(clippy::large_enum_variant, reason = "an allocation for each event costs more")]
pub(super) enum Step {
    /// An event; the content of a file follows it.
    Event(Event<()>),
    /// Data of the file that has begun.
    Data {
        /// Its offset in the file.
        offset: u64,
        /// Its range in the bytes that are passed with the step.
        bytes: Range<usize>,
    },
    /// Data of the file that has begun that was copied before, with another file.
    Shared(SharedData),
    /// The file that has begun is complete.
    End {
        /// Its size in bytes.
        size: u64,
        /// True if files that follow may share data with it.
        shares: bool,
    },
    /// The file that has begun cannot be read.
    Failed(CopyError),
}

/// Steps, and the file data that they refer to.
struct Batch {
    steps: Vec<Step>,
    bytes: Vec<u8>,
    used: usize,
    /// The number of steps that hold a file open.
    shared: usize,
}

/// The number of the file that was cancelled last: files are numbered from 1 as they begin.
#[derive(Default)]
pub(super) struct Cancelled(AtomicU64);

impl Cancelled {
    /// Cancels the `begun`-th file.
    pub(super) fn cancel(&self, begun: u64) {
        self.0.store(begun, Ordering::Relaxed);
    }

    fn is(&self, begun: u64) -> bool {
        self.0.load(Ordering::Relaxed) == begun
    }
}

/// Calls `take` with each step of a source and the file data of its batch, until it returns false.
///
/// Fails, before the first step, if the thread that reads cannot be started.
pub(super) fn each_step<S: Source<Content: Content> + Send>(
    source: S,
    cancelled: &Cancelled,
    mut take: impl FnMut(Step, &[u8]) -> bool,
) -> io::Result<()> {
    let (full, batches) = sync_channel(BATCHES);
    let (back, empty) = sync_channel(BATCHES);
    for _ in 0..BATCHES {
        back.send(Batch::new()).expect("the other end is here");
    }
    // Both ends here are dropped when this closure returns, which ends the other thread.
    thread::scope(move |scope| {
        let fill = move || Filler::new(source, cancelled).run(&empty, &full);
        thread::Builder::new().spawn_scoped(scope, fill)?;
        for mut batch in &batches {
            let Batch { steps, bytes, .. } = &mut batch;
            if !steps.drain(..).all(|step| take(step, bytes)) {
                return Ok(());
            }
            // This fails if the other thread has ended with its source.
            let _ = back.send(batch);
        }
        Ok(())
    })
}

impl Batch {
    fn new() -> Self {
        Self { steps: Vec::with_capacity(STEPS), bytes: vec![0; BYTES], used: 0, shared: 0 }
    }

    fn is_full(&self) -> bool {
        self.steps.len() >= STEPS
            || self.shared >= SHARED_MAX
            || self.bytes.len() - self.used < ROOM_MIN
    }

    /// Returns the free space for the next bytes: whole sectors.
    fn room(&mut self) -> &mut [u8] {
        let len = (self.bytes.len() - self.used) / SECTOR * SECTOR;
        &mut self.bytes[self.used..][..len]
    }

    /// Adds a step for the first `len` bytes of the free space, which are data of a file.
    fn add_data(&mut self, offset: u64, len: usize) {
        let bytes = self.used..self.used + len;
        self.used = bytes.end;
        self.steps.push(Step::Data { offset, bytes });
    }
}

/// The state of the thread that reads.
struct Filler<'a, S: Source<Content: Content>> {
    source: S,
    content: Option<<S::Content as Content>::Reader>,
    /// The number of files that have begun.
    begun: u64,
    cancelled: &'a Cancelled,
}

impl<'a, S: Source<Content: Content>> Filler<'a, S> {
    fn new(source: S, cancelled: &'a Cancelled) -> Self {
        Self { source, content: None, begun: 0, cancelled }
    }

    fn run(mut self, empty: &Receiver<Batch>, full: &SyncSender<Batch>) {
        for mut batch in empty {
            batch.used = 0;
            batch.shared = 0;
            let more = self.fill(&mut batch);
            if full.send(batch).is_err() || !more {
                return;
            }
        }
    }

    /// Fills a batch; returns true if the source has more.
    fn fill(&mut self, batch: &mut Batch) -> bool {
        while !batch.is_full() {
            if self.content.is_some() {
                self.read(batch);
                continue;
            }
            match self.source.next() {
                None => return false,
                Some(event) => self.add(batch, event),
            }
        }
        true
    }

    /// Adds an event of the source, and begins with the content of a file.
    fn add(&mut self, batch: &mut Batch, event: Event<S::Content>) {
        if let Event::Enter(entry) | Event::Other(entry) | Event::File(entry, _) = &event {
            // Read here, ahead of their use.
            entry.xattrs.get();
        }
        batch.steps.push(Step::Event(match event {
            Event::File(entry, content) => {
                self.begun += 1;
                self.content = Some(content.into_reader());
                Event::File(entry, ())
            }
            Event::Enter(entry) => Event::Enter(entry),
            Event::Leave => Event::Leave,
            Event::Other(entry) => Event::Other(entry),
            Event::Failed(error) => Event::Failed(error),
        }));
    }

    /// Reads more of the file that has begun.
    fn read(&mut self, batch: &mut Batch) {
        let Some(content) = &mut self.content else { return };
        if self.cancelled.is(self.begun) {
            self.content = None;
            return;
        }
        match content.read(batch.room()) {
            Ok(Piece::Data { offset, len }) => return batch.add_data(offset, len),
            Ok(Piece::Shared(data)) => {
                batch.shared += 1;
                return batch.steps.push(Step::Shared(data));
            }
            Ok(Piece::End { size, shares, remark }) => {
                batch.steps.push(Step::End { size, shares });
                batch.steps.extend(remark.map(|error| Step::Event(Event::Failed(error))));
            }
            Err(error) => batch.steps.push(Step::Failed(error)),
        }
        self.content = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::source::{Attributes, Entry, Kind, Origin, Xattrs};

    /// A source of files of these sizes, last first, or without an end.
    struct Files {
        sizes: Vec<u64>,
        endless: bool,
    }

    struct Bytes {
        at: u64,
        size: u64,
        endless: bool,
    }

    impl Source for Files {
        type Content = Bytes;

        fn next(&mut self) -> Option<Event<Bytes>> {
            let size = self.sizes.pop()?;
            // A size of 0 is an event without content.
            if size == 0 {
                return Some(Event::Leave);
            }
            let content = Bytes { at: 0, size, endless: self.endless };
            Some(Event::File(entry(size), content))
        }
    }

    impl Content for Bytes {
        type Reader = Self;

        fn into_reader(self) -> Self {
            self
        }
    }

    impl ContentReader for Bytes {
        fn read(&mut self, room: &mut [u8]) -> Result<Piece, CopyError> {
            assert!(!room.is_empty() && room.len().is_multiple_of(SECTOR));
            let left = if self.endless { u64::MAX } else { self.size - self.at };
            let len = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if len == 0 {
                return Ok(Piece::End { size: self.size, shares: false, remark: None });
            }
            room[..len].fill(u8::try_from(self.size % 251).unwrap());
            let offset = self.at;
            self.at += len as u64;
            Ok(Piece::Data { offset, len })
        }
    }

    fn entry(size: u64) -> Entry {
        let never = userbtrfs_engine::api::Timestamp::default();
        Entry {
            name: Vec::new(),
            path: size.to_string().into(),
            kind: Kind::File,
            attributes: Attributes { mode: 0, uid: 0, gid: 0, accessed: never, modified: never },
            xattrs: Xattrs::default().into(),
            origin: Origin::Host(0, size),
            has_links: false,
        }
    }

    #[test]
    fn events_and_data_arrive_in_order() {
        let sizes: Vec<u64> =
            (0..3000).map(|file| file % 7 * 700).chain([10 << 20, 0, 1]).collect();
        let source = Files { sizes: sizes.iter().rev().copied().collect(), endless: false };
        let mut seen = Vec::new();
        let mut at = 0;
        each_step(source, &Cancelled::default(), |step, bytes| {
            match step {
                Step::Event(Event::File(..)) => at = 0,
                Step::Event(Event::Leave) => seen.push(0),
                Step::Data { offset, bytes: range } => {
                    assert_eq!(offset, at);
                    at += range.len() as u64;
                    assert!(bytes[range].windows(2).all(|pair| pair[0] == pair[1]));
                }
                Step::End { size, .. } => {
                    assert_eq!(at, size);
                    seen.push(size);
                }
                _ => unreachable!("the source has no other steps"),
            }
            true
        })
        .unwrap();
        assert_eq!(seen, sizes);
    }

    #[test]
    fn cancelled_file_is_not_read_further() {
        let cancelled = Cancelled::default();
        let mut begun = 0;
        let mut left = 0;
        let source = Files { sizes: vec![0, 5, 6], endless: true };
        each_step(source, &cancelled, |step, _| {
            match step {
                Step::Event(Event::File(..)) => {
                    begun += 1;
                    cancelled.cancel(begun);
                }
                Step::Event(Event::Leave) => left += 1,
                _ => {}
            }
            true
        })
        .unwrap();
        assert_eq!((begun, left), (2, 1));
    }

    #[test]
    fn each_step_ends_when_take_returns_false() {
        for last in [0, 1, 100] {
            let mut steps = 0;
            let source = Files { sizes: vec![5], endless: true };
            each_step(source, &Cancelled::default(), |_, _| {
                steps += 1;
                steps <= last
            })
            .unwrap();
            assert_eq!(steps, last + 1);
        }
    }
}
