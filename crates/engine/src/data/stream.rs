//! A file from start to end: one window is worked on while the next is on its way.
//!
//! 1. At most two windows are in memory.
//! 2. Holes cost nothing: a window ends where a long one starts.

use std::collections::VecDeque;

use userbtrfs_sync::Arc;

use super::fetch::Fetch;
use super::{Fetched, FileSource, Piece, Segment, SegmentKind, Segments, pieces};
use crate::error::Result;
use crate::node::Forest;

/// The longest uncompressed piece of a stream, in bytes.
const PIECE_MAX: u64 = 512 << 10;

/// Pieces of a file, in order.
pub(crate) struct Stream {
    forest: Arc<Forest>,
    file: FileSource,
    window: u64,
    /// Where the next window starts.
    at: u64,
    end: u64,
    in_flight: Option<Fetch>,
    ready: VecDeque<(Piece, Fetched)>,
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
        let ready = VecDeque::new();
        Self { forest, file, window, at: start, end, in_flight: None, ready }
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
            if let Some((piece, bytes)) = self.ready.pop_front() {
                return Ok(Some((piece.start, bytes)));
            }
            let current = match self.in_flight.take() {
                Some(fetch) => fetch,
                None => match self.submit()? {
                    Some(fetch) => fetch,
                    None => return Ok(None),
                },
            };
            self.in_flight = self.submit()?;
            self.ready = current.finish(&self.forest, &self.file)?.into();
        }
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
