//! Splits a read into pieces: parts of a file that are read in one go.
//!
//! 1. A piece is a part of one segment.
//! 2. An uncompressed piece has at most the given length, and ends on a multiple of it, so that
//!    windows and cache blocks consist of whole pieces.
//! 3. A compressed piece covers all of the window that its extent holds: reading any of it costs
//!    the whole extent.

use userbtrfs_codec::compress::Compression;
use userbtrfs_format::Logical;
use userbtrfs_volume::Range;

use crate::data::backing_extents::BackingExtents;
use crate::data::read::get_extent::ExtentMaps;
use crate::error::Result;
use crate::inode::{ExtentMap, ExtentMapKind, InlineData, TreeRoots};
use crate::units::{SECTOR, to_usize};

/// A piece: a part of a file that is read in one go.
#[derive(Clone, Debug)]
pub(crate) struct ReadRequest {
    /// The start in the file, in bytes.
    pub(crate) start: u64,
    /// The length in bytes.
    pub(crate) len: u64,
    /// The source of its bytes.
    pub(crate) source: ReadSource,
}

/// The source of the bytes of a piece.
#[derive(Clone, Debug)]
pub(crate) enum ReadSource {
    /// No data: the bytes are zeros.
    Zeros,
    /// Inline data, `skip` bytes in.
    Inline { data: InlineData, skip: u64 },
    /// The device.
    Disk {
        /// The range to read: whole sectors.
        range: Range,
        /// The compression, and the uncompressed length.
        compression: Option<(Compression, u64)>,
        /// The start of the piece in the bytes read (and decompressed).
        skip: u64,
    },
}

impl ReadRequest {
    /// Returns the end in the file.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Returns true if it is compressed on disk.
    pub(in crate::data) fn is_compressed(&self) -> bool {
        matches!(self.source, ReadSource::Disk { compression: Some(_), .. })
    }

    /// Returns the bytes of memory needed to read it.
    pub(in crate::data) fn cost(&self) -> u64 {
        match &self.source {
            ReadSource::Zeros => 0,
            ReadSource::Inline { .. } => self.len,
            ReadSource::Disk { range, compression, .. } => {
                range.len as u64 + compression.map_or(0, |(_, ram_bytes)| ram_bytes)
            }
        }
    }
}

/// Returns the pieces of a range of a file, each uncompressed one of at most `len_max` bytes; only
/// the first ones, if reading all would take more than `memory` bytes.
pub(crate) fn pieces(
    tree_roots: &TreeRoots,
    file: &BackingExtents,
    start: u64,
    end: u64,
    len_max: u64,
    memory: u64,
) -> Result<Vec<ReadRequest>> {
    let mut found = Vec::new();
    let mut segments = ExtentMaps::new(tree_roots, file, start, end);
    let mut cost = 0;
    while cost < memory {
        let segment = match segments.next() {
            Ok(Some(segment)) => segment,
            Ok(None) => break,
            // The caller meets the error again when it asks for what comes after these.
            Err(_) if !found.is_empty() => break,
            Err(error) => return Err(error),
        };
        let before = found.len();
        // A long extent is not cut into more pieces than can be used.
        let end = segment.end.min(segment.start.saturating_add(memory));
        let cut = end < segment.end && matches!(segment.kind, ExtentMapKind::Regular(..));
        let segment = if cut { segment.part(segment.start, end) } else { segment };
        split(&segment, len_max, &mut found);
        cost += found[before..].iter().map(ReadRequest::cost).sum::<u64>();
        if cut {
            break;
        }
    }
    Ok(found)
}

fn split(segment: &ExtentMap, len_max: u64, found: &mut Vec<ReadRequest>) {
    let ExtentMap { start, end, kind } = segment;
    let start = *start;
    let len = end - start;
    let source = match kind {
        ExtentMapKind::Hole | ExtentMapKind::Prealloc(_) => ReadSource::Zeros,
        ExtentMapKind::Inline(data) => ReadSource::Inline { data: data.clone(), skip: start },
        ExtentMapKind::Regular(extent, Some(compression)) => ReadSource::Disk {
            range: Range { logical: extent.disk, len: to_usize(extent.disk_bytes) },
            compression: Some((*compression, extent.ram_bytes)),
            skip: extent.offset,
        },
        ExtentMapKind::Regular(extent, None) => {
            let disk = extent.disk.0 + extent.offset;
            return split_plain(start, len, disk, len_max, found);
        }
    };
    found.push(ReadRequest { start, len, source });
}

fn split_plain(start: u64, len: u64, disk: u64, len_max: u64, found: &mut Vec<ReadRequest>) {
    let mut done = 0;
    while done < len {
        let at = start + done;
        let len = (len_max - at % len_max).min(len - done);
        let from = (disk + done) / SECTOR * SECTOR;
        let skip = (disk + done) % SECTOR;
        let range =
            Range { logical: Logical(from), len: to_usize((skip + len).next_multiple_of(SECTOR)) };
        found.push(ReadRequest {
            start: at,
            len,
            source: ReadSource::Disk { range, compression: None, skip },
        });
        done += len;
    }
}
