//! A file from start to end: one window is worked on while the next is on its way.
//!
//! 1. At most two windows are in memory.
//! 2. Holes cost nothing: a window ends where a long one starts.
//! 3. All that comes before damage is given before the error; after an error the stream ends.

use std::collections::VecDeque;

use userbtrfs_sync::Arc;

use super::fetch::{Arrived, Fetch, fetch};
use super::{Fetched, FileSource, Piece, Segment, SegmentKind, Segments, pieces};
use crate::error::{Error, Result};
use crate::node::Forest;

/// The longest uncompressed piece of a stream, in bytes.
const PIECE_MAX: u64 = 512 << 10;

/// Pieces of a file, in order.
pub(crate) struct Stream {
    forest: Arc<Forest>,
    file: FileSource,
    window: u64,
    /// Where what was given ends.
    given: u64,
    /// Where the next window starts.
    at: u64,
    end: u64,
    in_flight: Option<Fetch>,
    /// What cannot be read after the window that arrived.
    failed: Option<Error>,
    arrived: Arrived,
    /// Pieces before an error, and the error.
    last: VecDeque<Result<(Piece, Fetched)>>,
}

impl Stream {
    /// A stream over a range of a file, which holds about two windows of so many bytes.
    pub(crate) fn new(
        forest: Arc<Forest>,
        file: FileSource,
        start: u64,
        end: u64,
        window: u64,
    ) -> Self {
        let end = end.min(file.size);
        Self {
            forest,
            file,
            window,
            given: start,
            at: start,
            end,
            in_flight: None,
            failed: None,
            arrived: Arrived::empty(),
            last: VecDeque::new(),
        }
    }

    /// Starts to read the next window, if none is on its way.
    pub(crate) fn prefetch(&mut self) -> Result<()> {
        if self.in_flight.is_none() {
            self.in_flight = self.submit()?;
        }
        Ok(())
    }

    /// The next piece: where it starts, and its bytes.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Fetched)>> {
        loop {
            if let Some(last) = self.last.pop_front() {
                return last.map(|(piece, bytes)| Some((piece.start, bytes)));
            }
            match self.arrived.next(&self.forest, &self.file) {
                Some(Ok((piece, bytes))) => {
                    self.given = piece.end();
                    return Ok(Some((piece.start, bytes)));
                }
                Some(Err(error)) => self.give_before(error)?,
                None => match self.receive() {
                    Ok(true) => {}
                    Ok(false) => return Ok(None),
                    Err(error) => self.give_before(error)?,
                },
            }
        }
    }

    /// Waits for the window on its way, and starts to read the one after it.
    fn receive(&mut self) -> Result<bool> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let current = match self.in_flight.take() {
            Some(fetch) => fetch,
            None => match self.submit()? {
                Some(fetch) => fetch,
                None => return Ok(false),
            },
        };
        match self.submit() {
            Ok(next) => self.in_flight = next,
            Err(error) => self.failed = Some(error),
        }
        self.arrived = current.wait(&self.forest, &self.file);
        Ok(true)
    }

    /// Ends the stream with an error, once what comes before it in its piece was given.
    fn give_before(&mut self, error: Error) -> Result<()> {
        (self.at, self.in_flight, self.failed) = (self.end, None, None);
        self.arrived = Arrived::empty();
        let Error::Data { offset, .. } = error else { return Err(error) };
        if offset <= self.given {
            return Err(error);
        }
        let good = pieces(&self.forest, &self.file, self.given, offset, PIECE_MAX, u64::MAX)?;
        self.last.extend(fetch(&self.forest, &self.file, good)?.into_iter().map(Ok));
        self.last.push_back(Err(error));
        Ok(())
    }

    /// Starts to read the next window.
    fn submit(&mut self) -> Result<Option<Fetch>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let until = self.window_end()?;
        let (forest, file) = (&self.forest, &self.file);
        let pieces = pieces(forest, file, self.at, until, PIECE_MAX, self.window)?;
        self.at = pieces.last().map_or(until, Piece::end);
        Ok(Some(Fetch::submit(&self.forest, pieces)))
    }

    /// A window's worth of bytes that are not holes, or one whole hole.
    fn window_end(&self) -> Result<u64> {
        let mut segments = Segments::new(&self.forest, &self.file, self.at, self.end)?;
        let until = self.at.saturating_add(self.window).min(self.end);
        match segments.next()? {
            Some(Segment { end, kind: SegmentKind::Hole | SegmentKind::Prealloc(_), .. }) => {
                Ok(end)
            }
            _ => Ok(until),
        }
    }
}
