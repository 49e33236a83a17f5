//! Streams a file from start to end: one window is processed while the next is in flight.
//!
//! 1. At most two windows are in memory.
//! 2. Holes cost nothing: a window ends where a long one starts.
//! 3. All data before damage is returned before the error; after an error the stream ends.
//! 4. The data returned is what the file holds at that time: data read from disk is used only if
//!    nothing changed or moved on disk meanwhile, and only up to newer data in memory. The rest is
//!    read again, with the range locked.
//! 5. Data read stays out of the page cache: a long file does not evict what others need.

use userbtrfs_device::{Buffer, Slice};
use userbtrfs_sync::Arc;

use crate::data::backing_extents::BackingExtents;
use crate::data::cache::file_pages::{FilePages, Version};
use crate::data::read::extent_reader::ReadExtents;
use crate::data::read::extent_reader::{ExtentReader, ReadDone};
use crate::data::read::get_extent::ExtentMaps;
use crate::data::read::requests::{ReadRequest, pieces};
use crate::data::units::BLOCK;
use crate::error::{Error, Result};
use crate::inode::{ExtentMap, ExtentMapKind, TreeRoots};
use crate::units::to_usize;

/// The longest uncompressed piece of a stream, in bytes: the largest buffer whose memory is reused,
/// which avoids page faults; it also stays in the processor's cache.
const PIECE_MAX: u64 = BLOCK as u64;

/// Cached data is used if it is this many bytes, or newer than the data on disk.
const HELD_MIN: u64 = 64 << 10;

/// A stream of pieces of a file, in order.
pub(crate) struct Stream {
    tree_roots: Arc<TreeRoots>,
    pages: Arc<FilePages>,
    window: u64,
    /// The end of the data that was returned.
    given: u64,
    /// The start of the next window.
    at: u64,
    end: u64,
    /// The window after the current one.
    next: Option<Window>,
    /// The error that prevented it.
    failed: Option<Error>,
    current: Option<OnDiskStream<ReadDone>>,
    /// The offset up to which data is read with the range locked.
    careful: u64,
}

/// A part of the file that is read at once.
enum Window {
    /// This many bytes from the page cache.
    Held(u64),
    /// Data that is not cached, or is better read together with such data.
    Beneath(OnDiskStream<ExtentReader>),
}

/// Pieces on disk.
struct OnDiskStream<T> {
    pieces: T,
    file: BackingExtents,
    /// Taken before the extents were looked at.
    version: Version,
}

impl Stream {
    /// Returns a stream over a range of a file, which buffers about two windows of `window` bytes.
    pub(crate) fn new(
        tree_roots: Arc<TreeRoots>,
        pages: Arc<FilePages>,
        start: u64,
        end: u64,
        window: u64,
    ) -> Self {
        Self {
            tree_roots,
            pages,
            window,
            given: start,
            at: start,
            end,
            next: None,
            failed: None,
            current: None,
            careful: 0,
        }
    }

    /// Starts to read the next window, if none is in flight.
    pub(crate) fn prefetch(&mut self) -> Result<()> {
        if self.next.is_none() {
            self.next = self.submit()?;
        }
        Ok(())
    }

    /// Returns the offset of the next piece.
    pub(crate) fn position(&self) -> u64 {
        self.given
    }

    /// Continues at `at`, up to `end`, also after an error. Data that was read ahead is dropped,
    /// unless the stream is there already.
    pub(crate) fn seek(&mut self, at: u64, end: u64) {
        if self.given != at || self.end != end {
            self.given = at;
            self.end = end;
            self.go_back(0);
        }
    }

    /// Returns the next piece: its offset, and its bytes.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, ReadExtents)>> {
        loop {
            let more =
                if self.given < self.careful { self.read_carefully() } else { self.advance() };
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

    /// Returns a piece that was read, or takes the next window.
    fn advance(&mut self) -> Result<More> {
        let Some(current) = &mut self.current else { return self.receive() };
        match current.pieces.next(&self.tree_roots, &current.file) {
            Some(Ok((piece, bytes))) => {
                let version = current.version;
                if !current.file.is_current() {
                    return Ok(self.go_back(self.a_block_on()));
                }
                Ok(self.check(version, &piece, bytes))
            }
            // Reading with the range locked shows whether the error is real, and returns the data
            // before it.
            Some(Err(Error::Data { offset, .. })) => Ok(self.go_back(offset.saturating_add(1))),
            Some(Err(_)) => Ok(self.go_back(self.a_block_on())),
            None => {
                self.current = None;
                self.receive()
            }
        }
    }

    /// Returns the part of a piece that is up to date, if its start is.
    fn check(&mut self, version: Version, piece: &ReadRequest, bytes: ReadExtents) -> More {
        let good = self.pages.settled(version, piece.start..piece.end());
        if piece.start != self.given || good == piece.start {
            // If memory has newer data, use that; else the data read may be out of date.
            let newer = self.pages.unfinished_from(self.given) == Some(self.given);
            return self.go_back(if newer { 0 } else { self.a_block_on() });
        }
        if good < piece.end() {
            self.go_back(0);
            self.at = good;
        }
        More::Bytes(bytes.first(good - piece.start))
    }

    /// Drops the windows in flight and restarts after the data that was returned; up to `careful`
    /// the file is then read with the range locked.
    fn go_back(&mut self, careful: u64) -> More {
        (self.at, self.careful) = (self.given, careful);
        (self.next, self.failed, self.current) = (None, None, None);
        More::Later
    }

    fn a_block_on(&self) -> u64 {
        self.given.saturating_add(BLOCK as u64)
    }

    /// Takes the window in flight, and starts to read the one after it.
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
                let mut pieces = pieces.wait(&self.tree_roots, &file);
                pieces.decompress(&self.tree_roots, &file, self.pages.helpers());
                self.current = Some(OnDiskStream { pieces, file, version });
                Ok(More::Later)
            }
        }
    }

    /// Returns bytes that were cached, if they still are.
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
        let version = self.pages.version();
        let file = self.pages.source();
        let newer = self.pages.unfinished_from(self.at).filter(|newer| *newer > self.at);
        let until = self.window_end(&file, end)?.min(newer.unwrap_or(end));
        let pieces = pieces(&self.tree_roots, &file, self.at, until, PIECE_MAX, self.window)?;
        self.at = pieces.last().map_or(until, ReadRequest::end);
        let pieces = ExtentReader::submit(&self.tree_roots, pieces);
        Ok(Some(Window::Beneath(OnDiskStream { pieces, file, version })))
    }

    /// Returns how many bytes from here on are to be taken from the page cache.
    fn held(&self, end: u64) -> Option<u64> {
        let len = (self.pages.held(self.at)?.len() as u64).min(end - self.at);
        let worth_it = len >= HELD_MIN || self.at + len == end;
        let newer = || self.pages.unfinished_from(self.at) == Some(self.at);
        (worth_it || newer()).then_some(len)
    }

    /// Returns the end of a window of bytes that are not holes, or of one whole hole.
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

    /// Returns the end of the stream, given the present size of the file.
    fn end(&self) -> u64 {
        self.end.min(self.file_len())
    }

    /// Returns the present size of the file.
    pub(crate) fn file_len(&self) -> u64 {
        self.pages.inode().item().size
    }

    /// Reads with the range locked: up to the damage, if there is some.
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

/// The result of a step of a stream.
enum More {
    Bytes(ReadExtents),
    /// The next step may return bytes.
    Later,
    Nothing,
}
