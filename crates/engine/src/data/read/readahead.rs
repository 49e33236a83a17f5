//! A file from start to end: one window is worked on while the next is on its way.
//!
//! 1. At most two windows are in memory.
//! 2. Holes cost nothing: a window ends where a long one starts.
//! 3. All that comes before damage is given before the error; after an error the stream ends.
//! 4. What is given is what the file holds when it is given: what was fetched counts only where
//!    nothing changed beneath meanwhile, and as far as memory does not know better. What does not
//!    count is read again, with the range locked.
//! 5. What is read stays with the reader: a long file does not drive out what others need.

use userbtrfs_device::{Buffer, Slice};
use userbtrfs_sync::Arc;

use crate::data::cache::file_pages::{BLOCK, FilePages, Version};
use crate::data::read::extent_reader::{ExtentReader, ReadDone};
use crate::data::{
    BackingExtents, ExtentMap, ExtentMapKind, ExtentMaps, ReadExtents, ReadRequest, pieces,
};
use crate::error::{Error, Result};
use crate::inode::TreeRoots;

/// The longest uncompressed piece of a stream, in bytes: the largest for which there is memory that
/// was used before, which spares the faults of its pages, and it stays in the processor's cache.
const PIECE_MAX: u64 = BLOCK as u64;

/// What is in memory is taken from there if it is so many bytes, or newer than what is beneath.
const HELD_MIN: u64 = 64 << 10;

/// Pieces of a file, in order.
pub(crate) struct Stream {
    tree_roots: Arc<TreeRoots>,
    pages: Arc<FilePages>,
    window: u64,
    /// Where what was given ends.
    given: u64,
    /// Where the next window starts.
    at: u64,
    end: u64,
    /// The window after the one that is worked on.
    next: Option<Window>,
    /// Why there is none.
    failed: Option<Error>,
    current: Option<OnDiskStream<ReadDone>>,
    /// How far the range is locked to read what comes next.
    careful: u64,
}

/// What is read at once.
enum Window {
    /// So many bytes that were in memory.
    Held(u64),
    /// What was not, or is better read together with what was not.
    Beneath(OnDiskStream<ExtentReader>),
}

/// Pieces from beneath.
struct OnDiskStream<T> {
    pieces: T,
    file: BackingExtents,
    /// Of before the extents were looked at.
    version: Version,
}

impl Stream {
    /// A stream over a range of a file, which holds about two windows of so many bytes.
    pub(crate) fn new(
        tree_roots: Arc<TreeRoots>,
        pages: Arc<FilePages>,
        start: u64,
        end: u64,
        window: u64,
    ) -> Self {
        let (next, failed, current) = (None, None, None);
        let (given, at, careful) = (start, start, 0);
        Self { tree_roots, pages, window, given, at, end, next, failed, current, careful }
    }

    /// Starts to read the next window, if none is on its way.
    pub(crate) fn prefetch(&mut self) -> Result<()> {
        if self.next.is_none() {
            self.next = self.submit()?;
        }
        Ok(())
    }

    /// The next piece: where it starts, and its bytes.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, ReadExtents)>> {
        loop {
            let more = match self.given < self.careful {
                true => self.read_carefully(),
                false => self.advance(),
            };
            match more {
                Ok(More::Bytes(bytes)) => {
                    let start = self.given;
                    self.given += bytes.len();
                    return Ok(Some((start, bytes)));
                }
                Ok(More::Later) => {}
                Ok(More::Nothing) => return Ok(None),
                Err(error) => {
                    self.end = self.given;
                    self.go_back(0);
                    return Err(error);
                }
            }
        }
    }

    /// Gives a piece that arrived, or sees to it that one arrives.
    fn advance(&mut self) -> Result<More> {
        let Some(current) = &mut self.current else { return self.receive() };
        match current.pieces.next(&self.tree_roots, &current.file) {
            Some(Ok((piece, bytes))) => {
                let version = current.version;
                Ok(self.check(version, &piece, bytes))
            }
            // Whether the error counts, and what comes before it, shows with the range locked.
            Some(Err(Error::Data { offset, .. })) => Ok(self.go_back(offset.saturating_add(1))),
            Some(Err(_)) => Ok(self.go_back(self.a_block_on())),
            None => {
                self.current = None;
                self.receive()
            }
        }
    }

    /// What of a piece the file holds, if it does of its start.
    fn check(&mut self, version: Version, piece: &ReadRequest, bytes: ReadExtents) -> More {
        let good = self.pages.settled(version, piece.start..piece.end());
        if piece.start != self.given || good == piece.start {
            // Where memory knows better it is asked; else what was read may be out of date.
            let newer = self.pages.unfinished_from(self.given) == Some(self.given);
            return self.go_back(if newer { 0 } else { self.a_block_on() });
        }
        if good < piece.end() {
            self.go_back(0);
            self.at = good;
        }
        More::Bytes(bytes.first(good - piece.start))
    }

    /// Forgets what is on its way: what comes next is what comes after what was given, and as far
    /// as `careful` it is read with its range locked.
    fn go_back(&mut self, careful: u64) -> More {
        (self.at, self.careful) = (self.given, careful);
        (self.next, self.failed, self.current) = (None, None, None);
        More::Later
    }

    fn a_block_on(&self) -> u64 {
        self.given.saturating_add(BLOCK as u64)
    }

    /// Takes the window on its way, and starts to read the one after it.
    fn receive(&mut self) -> Result<More> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let window = match self.next.take() {
            Some(window) => window,
            None => match self.submit()? {
                Some(window) => window,
                None => return Ok(More::Nothing),
            },
        };
        match self.submit() {
            Ok(next) => self.next = next,
            Err(error) => self.failed = Some(error),
        }
        match window {
            Window::Held(len) => Ok(self.take_held(len)),
            Window::Beneath(OnDiskStream { pieces, file, version }) => {
                let pieces = pieces.wait(&self.tree_roots, &file);
                self.current = Some(OnDiskStream { pieces, file, version });
                Ok(More::Later)
            }
        }
    }

    /// Bytes that were in memory, if they still are.
    fn take_held(&mut self, len: u64) -> More {
        let left = self.end().saturating_sub(self.given);
        let held = self.pages.held(self.given).map(ReadExtents::from);
        match held.map(|held| held.first(len.min(left))) {
            Some(bytes) if bytes.len() == len => More::Bytes(bytes),
            Some(_) | None => self.go_back(0),
        }
    }

    /// Starts to read the next window.
    fn submit(&mut self) -> Result<Option<Window>> {
        let end = self.end();
        if self.at >= end {
            return Ok(None);
        }
        if let Some(len) = self.held(end) {
            self.at += len;
            return Ok(Some(Window::Held(len)));
        }
        let (version, file) = (self.pages.version(), self.pages.source());
        let newer = self.pages.unfinished_from(self.at).filter(|newer| *newer > self.at);
        let until = self.window_end(&file, end)?.min(newer.unwrap_or(end));
        let pieces = pieces(&self.tree_roots, &file, self.at, until, PIECE_MAX, self.window)?;
        self.at = pieces.last().map_or(until, ReadRequest::end);
        let pieces = ExtentReader::submit(&self.tree_roots, pieces);
        Ok(Some(Window::Beneath(OnDiskStream { pieces, file, version })))
    }

    /// How many bytes from here on are to be taken from memory.
    fn held(&self, end: u64) -> Option<u64> {
        let len = (self.pages.held(self.at)?.len() as u64).min(end - self.at);
        let worth_it = len >= HELD_MIN || self.at + len == end;
        let newer = || self.pages.unfinished_from(self.at) == Some(self.at);
        (worth_it || newer()).then_some(len)
    }

    /// A window's worth of bytes that are not holes, or one whole hole.
    fn window_end(&self, file: &BackingExtents, end: u64) -> Result<u64> {
        let mut segments = ExtentMaps::new(&self.tree_roots, file, self.at, end);
        let until = self.at.saturating_add(self.window).min(end);
        match segments.next()? {
            Some(ExtentMap {
                end, kind: ExtentMapKind::Hole | ExtentMapKind::Prealloc(_), ..
            }) => Ok(end),
            _ => Ok(until),
        }
    }

    /// Where it ends, as the file is now.
    fn end(&self) -> u64 {
        self.end.min(self.pages.inode().item().size)
    }

    /// Reads with the range locked: what is before damage, if there is some.
    fn read_carefully(&mut self) -> Result<More> {
        let left = self.end().saturating_sub(self.given);
        if left == 0 {
            return Ok(More::Nothing);
        }
        let len = left.min(BLOCK as u64 - self.given % BLOCK as u64);
        let mut bytes = Buffer::unspecified(to_usize(len));
        match self.pages.read(&self.tree_roots, self.given, &mut bytes, 0) {
            Ok(()) => {}
            Err(Error::Data { offset, .. })
                if (self.given + 1..self.given + len).contains(&offset) =>
            {
                bytes.truncate(to_usize(offset - self.given));
                self.pages.read(&self.tree_roots, self.given, &mut bytes, 0)?;
            }
            Err(error) => return Err(error),
        }
        self.at = self.given + bytes.len() as u64;
        Ok(More::Bytes(ReadExtents::from(Slice::from(bytes))))
    }
}

/// What a step of a stream comes to.
enum More {
    Bytes(ReadExtents),
    /// The next step tells.
    Later,
    Nothing,
}

fn to_usize(len: u64) -> usize {
    usize::try_from(len).expect("at most a block")
}
