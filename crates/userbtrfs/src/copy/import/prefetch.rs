//! A source that is read ahead of its use, by a thread of its own.
//!
//! 1. Steps come in batches, each with the bytes of files that are in it.
//! 2. Batches go round between the two threads: their number and their size bound the memory.
//! 3. A file is given to the batch in whole sectors, as far as it has them.
//! 4. A file that was given up is not read on.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::ImportError;
use super::event::{Node, TreeEvent};

/// Batches that go round.
const BATCHES: usize = 4;

/// Bytes of files in a batch, and how few may be left for more to be read into it.
const BYTES: usize = 1 << 20;
const ROOM_MIN: usize = 64 << 10;

/// Steps in a batch.
const STEPS: usize = 512;

const SECTOR: usize = 4096;

/// What is copied.
pub(super) trait Source {
    type Content: Content;

    /// The next step. It is no data, and where a file begins, its content comes along.
    fn next(&mut self) -> Option<Next<Self::Content>>;
}

/// What a source gives.
pub(super) enum Next<C> {
    Step(TreeEvent),
    File(Node, C),
}

/// The content of a file.
pub(super) trait Content {
    /// Reads the next bytes into the front of `room`, which is not empty.
    fn read(&mut self, room: &mut [u8]) -> Result<Piece, ImportError>;
}

/// A piece of the content of a file.
pub(super) enum Piece {
    Data {
        offset: u64,
        len: usize,
    },
    End {
        size: u64,
        /// What is to be said of the file, which is kept.
        remark: Option<ImportError>,
    },
}

/// Steps, and the bytes that are in them.
pub(super) struct Batch {
    steps: Vec<TreeEvent>,
    bytes: Vec<u8>,
    used: usize,
}

/// How many files had begun when one was given up.
#[derive(Default)]
pub(super) struct Cancelled(AtomicU64);

impl Cancelled {
    /// Gives up the file that was the `begun`-th to begin.
    pub(super) fn give_up(&self, begun: u64) {
        self.0.store(begun, Ordering::Relaxed);
    }

    fn is(&self, begun: u64) -> bool {
        self.0.load(Ordering::Relaxed) == begun
    }
}

/// Calls `take` for each step of a source and the bytes that come with it, until it says no.
///
/// Fails, before the first step, if the thread that reads cannot be started.
pub(super) fn each_step<S: Source + Send>(
    source: S,
    given_up: &Cancelled,
    mut take: impl FnMut(TreeEvent, &[u8]) -> bool,
) -> io::Result<()> {
    let (full, batches) = sync_channel(BATCHES);
    let (back, empty) = sync_channel(BATCHES);
    for _ in 0..BATCHES {
        back.send(Batch::new()).expect("the other end is here");
    }
    thread::scope(|scope| {
        let fill = move || Filler::new(source, given_up).run(&empty, &full);
        thread::Builder::new().spawn_scoped(scope, fill)?;
        // Both ends go when this ends, and the other thread ends with them.
        let (batches, back) = (batches, back);
        for mut batch in &batches {
            let Batch { steps, bytes, .. } = &mut batch;
            if !steps.drain(..).all(|step| take(step, bytes)) {
                return Ok(());
            }
            // Where the source has ended, there is no one to fill it.
            let _ = back.send(batch);
        }
        Ok(())
    })
}

impl Batch {
    fn new() -> Self {
        Self { steps: Vec::with_capacity(STEPS), bytes: vec![0; BYTES], used: 0 }
    }

    fn is_full(&self) -> bool {
        self.steps.len() >= STEPS || self.bytes.len() - self.used < ROOM_MIN
    }

    /// Where the next bytes go: whole sectors.
    fn room(&mut self) -> &mut [u8] {
        let len = (self.bytes.len() - self.used) / SECTOR * SECTOR;
        &mut self.bytes[self.used..][..len]
    }

    /// Adds the bytes at the front of the room, which are data of a file.
    fn add_data(&mut self, offset: u64, len: usize) {
        let bytes = self.used..self.used + len;
        self.used = bytes.end;
        self.steps.push(TreeEvent::Data { offset, bytes });
    }
}

/// The thread that reads.
struct Filler<'a, S: Source> {
    source: S,
    content: Option<S::Content>,
    /// Files that have begun.
    begun: u64,
    given_up: &'a Cancelled,
}

impl<'a, S: Source> Filler<'a, S> {
    fn new(source: S, given_up: &'a Cancelled) -> Self {
        Self { source, content: None, begun: 0, given_up }
    }

    fn run(mut self, empty: &Receiver<Batch>, full: &SyncSender<Batch>) {
        for mut batch in empty {
            batch.used = 0;
            let more = self.fill(&mut batch);
            if full.send(batch).is_err() || !more {
                return;
            }
        }
    }

    /// Fills a batch, and tells whether there is more.
    fn fill(&mut self, batch: &mut Batch) -> bool {
        while !batch.is_full() {
            if self.content.is_some() {
                self.read(batch);
                continue;
            }
            match self.source.next() {
                None => return false,
                Some(Next::Step(step)) => batch.steps.push(step),
                Some(Next::File(node, content)) => {
                    self.begun += 1;
                    self.content = Some(content);
                    batch.steps.push(TreeEvent::Begin(node));
                }
            }
        }
        true
    }

    /// Reads on in the file that has begun.
    fn read(&mut self, batch: &mut Batch) {
        let Some(content) = &mut self.content else { return };
        if self.given_up.is(self.begun) {
            self.content = None;
            return;
        }
        match content.read(batch.room()) {
            Ok(Piece::Data { offset, len }) => return batch.add_data(offset, len),
            Ok(Piece::End { size, remark }) => {
                batch.steps.push(TreeEvent::End { size });
                batch.steps.extend(remark.map(TreeEvent::Failed));
            }
            Err(error) => batch.steps.push(TreeEvent::Failed(error)),
        }
        self.content = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of so many bytes each, last first; or without an end.
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

        fn next(&mut self) -> Option<Next<Bytes>> {
            let size = self.sizes.pop()?;
            // Every file is followed by a step without content.
            if size == 0 {
                return Some(Next::Step(TreeEvent::Leave));
            }
            let content = Bytes { at: 0, size, endless: self.endless };
            Some(Next::File(node(size), content))
        }
    }

    impl Content for Bytes {
        fn read(&mut self, room: &mut [u8]) -> Result<Piece, ImportError> {
            assert!(!room.is_empty() && room.len().is_multiple_of(SECTOR));
            let left = if self.endless { u64::MAX } else { self.size - self.at };
            let len = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if len == 0 {
                return Ok(Piece::End { size: self.size, remark: None });
            }
            room[..len].fill(u8::try_from(self.size % 251).unwrap());
            let offset = self.at;
            self.at += len as u64;
            Ok(Piece::Data { offset, len })
        }
    }

    fn node(size: u64) -> Node {
        use crate::copy::import::event::{Attributes, Kind, Origin, Xattrs};
        let never = userbtrfs_engine::api::Timestamp::default();
        Node {
            name: None,
            path: size.to_string().into(),
            kind: Kind::File,
            attributes: Attributes { mode: 0, uid: 0, gid: 0, accessed: never, modified: never },
            xattrs: Xattrs::default(),
            origin: Origin::Machine(0, size),
            several: false,
        }
    }

    #[test]
    fn steps_and_bytes_come_in_order() {
        let sizes: Vec<u64> =
            (0..3000).map(|file| file % 7 * 700).chain([10 << 20, 0, 1]).collect();
        let source = Files { sizes: sizes.iter().rev().copied().collect(), endless: false };
        let mut seen = Vec::new();
        let mut at = 0;
        each_step(source, &Cancelled::default(), |step, bytes| {
            match step {
                TreeEvent::Begin(_) => at = 0,
                TreeEvent::Leave => seen.push(0),
                TreeEvent::Data { offset, bytes: range } => {
                    assert_eq!(offset, at);
                    at += range.len() as u64;
                    assert!(bytes[range].windows(2).all(|pair| pair[0] == pair[1]));
                }
                TreeEvent::End { size } => {
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
    fn a_file_that_was_given_up_is_not_read_on() {
        let given_up = Cancelled::default();
        let (mut begun, mut left) = (0, 0);
        let source = Files { sizes: vec![0, 5, 6], endless: true };
        each_step(source, &given_up, |step, _| {
            match step {
                TreeEvent::Begin(_) => {
                    begun += 1;
                    given_up.give_up(begun);
                }
                TreeEvent::Leave => left += 1,
                _ => {}
            }
            true
        })
        .unwrap();
        assert_eq!((begun, left), (2, 1));
    }

    #[test]
    fn who_uses_the_steps_may_end_at_any_time() {
        for last in [0, 1, 100] {
            let (mut steps, source) = (0, Files { sizes: vec![5], endless: true });
            each_step(source, &Cancelled::default(), |_, _| {
                steps += 1;
                steps <= last
            })
            .unwrap();
            assert_eq!(steps, last + 1);
        }
    }
}
