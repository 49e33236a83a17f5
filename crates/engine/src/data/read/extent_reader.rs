//! Reads pieces: submits all, verifies each, replaces bad sectors from another mirror,
//! decompresses.
//!
//! 1. A sector that fails on the first mirror is read from another one that is good, and recorded
//!    for repair: see `repair`.
//! 2. The memory kept of a compressed extent is at most twice what the piece needs.

use userbtrfs_codec::compress::Compression;
use userbtrfs_device::{Buffer, Slice};
use userbtrfs_format::Logical;
use userbtrfs_sync::Arc;
use userbtrfs_volume::{BadMirror, PendingReads, Range, ReadError};

use crate::data::backing_extents::BackingExtents;
use crate::data::helpers::Helpers;
use crate::data::read::checksums::SectorChecksums;
use crate::data::read::requests::{ReadRequest, ReadSource};
use crate::error::{DataError, Error, Result};
use crate::inode::TreeRoots;
use crate::units::{SECTOR_LEN, to_usize};

/// Bytes of a piece, verified and decompressed.
#[derive(Clone, Debug)]
pub(crate) enum ReadExtents {
    /// This many zeros.
    Zeros(u64),
    /// A part of a buffer.
    Bytes { buffer: Arc<Buffer>, skip: usize, len: usize },
}

impl From<Slice> for ReadExtents {
    fn from(slice: Slice) -> Self {
        let (buffer, range) = slice.into_parts();
        Self::Bytes { buffer, skip: range.start, len: range.len() }
    }
}

impl ReadExtents {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Zeros(len) => *len,
            Self::Bytes { len, .. } => *len as u64,
        }
    }

    /// Returns at most the first `len` bytes.
    pub(in crate::data) fn first(self, len: u64) -> Self {
        let len = len.min(self.len());
        match self {
            Self::Zeros(_) => Self::Zeros(len),
            Self::Bytes { buffer, skip, .. } => Self::Bytes { buffer, skip, len: to_usize(len) },
        }
    }

    /// Returns the bytes after the first `count`, which must not be more than all.
    pub(crate) fn after(self, count: u64) -> Self {
        match self {
            Self::Zeros(len) => Self::Zeros(len - count),
            Self::Bytes { buffer, skip, len } => {
                let count = to_usize(count);
                Self::Bytes { buffer, skip: skip + count, len: len - count }
            }
        }
    }

    /// Returns the bytes; `None` if they are zeros.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Zeros(_) => None,
            Self::Bytes { buffer, skip, len } => Some(&buffer[*skip..][..*len]),
        }
    }
}

/// Pieces in flight from the device.
pub(crate) struct ExtentReader {
    pieces: Vec<ReadRequest>,
    reads: PendingReads,
}

impl ExtentReader {
    /// Starts to read `pieces`.
    pub(crate) fn submit(tree_roots: &TreeRoots, pieces: Vec<ReadRequest>) -> Self {
        let ranges: Vec<Range> = reads_of(&pieces).collect();
        let reads = tree_roots.store().volume().submit(&ranges);
        Self { pieces, reads }
    }

    /// Waits for the pieces.
    pub(crate) fn wait(self, tree_roots: &TreeRoots, file: &BackingExtents) -> ReadDone {
        let sums = self.find_checksums(tree_roots, file);
        let reads = tree_roots.store().volume().wait(self.reads);
        let mut reads =
            reads.into_iter().zip(sums).map(|(bytes, sums)| Read::Stored(Stored { bytes, sums }));
        let pieces = self.pieces.into_iter().map(|piece| {
            let on_disk = matches!(piece.source, ReadSource::Disk { .. });
            let read = on_disk.then(|| reads.next().expect("a read for each that needs one"));
            (piece, read)
        });
        ReadDone { pieces: pieces.collect::<Vec<_>>().into_iter() }
    }

    /// Looks up checksums while the data is in flight.
    fn find_checksums(
        &self,
        tree_roots: &TreeRoots,
        file: &BackingExtents,
    ) -> Vec<Result<Option<SectorChecksums>>> {
        let find = |range| {
            if file.checksummed {
                SectorChecksums::find(tree_roots, file.transactions.as_deref(), range).map(Some)
            } else {
                Ok(None)
            }
        };
        reads_of(&self.pieces).map(find).collect()
    }
}

/// Pieces that were read. Each is verified and decompressed on demand, so that its bytes are still
/// in the processor's caches when the caller uses them; [`ReadDone::decompress`] does it for
/// several at once.
pub(crate) struct ReadDone {
    pieces: std::vec::IntoIter<(ReadRequest, Option<Read>)>,
}

/// The bytes of a piece on disk.
enum Read {
    /// As they were read.
    Stored(Stored),
    /// Verified and decompressed.
    Done(Result<ReadExtents>),
}

/// Bytes as they were read, and their checksums.
struct Stored {
    bytes: Result<Buffer, ReadError>,
    sums: Result<Option<SectorChecksums>>,
}

impl ReadDone {
    /// Returns the next piece and its bytes.
    pub(crate) fn next(
        &mut self,
        tree_roots: &TreeRoots,
        file: &BackingExtents,
    ) -> Option<Result<(ReadRequest, ReadExtents)>> {
        let (piece, read) = self.pieces.next()?;
        let bytes = match (&piece.source, read) {
            (_, Some(Read::Stored(stored))) => verified(tree_roots, file, &piece, stored)
                .and_then(|bytes| content(file, &piece, bytes)),
            (_, Some(Read::Done(bytes))) => bytes,
            (ReadSource::Inline { .. }, None) => inline(file, &piece),
            (_, None) => Ok(ReadExtents::Zeros(piece.len)),
        };
        Some(bytes.map(|bytes| (piece, bytes)))
    }

    /// Verifies and decompresses all compressed pieces now if there are several: each by one of
    /// the threads.
    pub(in crate::data) fn decompress(
        &mut self,
        tree_roots: &TreeRoots,
        file: &BackingExtents,
        helpers: &Helpers,
    ) {
        let pieces = self.pieces.as_mut_slice();
        if pieces.iter().filter(|(piece, _)| piece.is_compressed()).count() < 2 {
            return;
        }
        let mut streams = Vec::new();
        for (index, (piece, read)) in pieces.iter_mut().enumerate() {
            let is_due = |read: &mut Read| piece.is_compressed() && matches!(read, Read::Stored(_));
            if let Some(Read::Stored(stored)) = read.take_if(is_due) {
                match verified(tree_roots, file, piece, stored) {
                    Ok(stream) => streams.push((index, stream)),
                    Err(error) => *read = Some(Read::Done(Err(error))),
                }
            }
        }
        let plain =
            |(index, stream): &(usize, Buffer)| decompressed(file, &pieces[*index].0, stream);
        let done = helpers.map(&streams, plain);
        for ((index, _), bytes) in streams.into_iter().zip(done) {
            pieces[index].1 = Some(Read::Done(bytes));
        }
    }
}

/// Returns the device reads of pieces: one for each that is on disk.
fn reads_of(pieces: &[ReadRequest]) -> impl Iterator<Item = Range> {
    pieces.iter().filter_map(|piece| match piece.source {
        ReadSource::Disk { range, .. } => Some(range),
        _ => None,
    })
}

fn part(buffer: Buffer, skip: u64, len: u64) -> ReadExtents {
    let skip = to_usize(skip);
    let len = to_usize(len);
    assert!(skip + len <= buffer.len(), "a piece lies within its extent");
    if len * 2 < buffer.len() {
        let buffer = Arc::new(Buffer::from(&buffer[skip..][..len]));
        return ReadExtents::Bytes { buffer, skip: 0, len };
    }
    ReadExtents::Bytes { buffer: Arc::new(buffer), skip, len }
}

/// Reads pieces and waits for them.
pub(crate) fn fetch(
    tree_roots: &TreeRoots,
    file: &BackingExtents,
    pieces: Vec<ReadRequest>,
) -> Result<Vec<(ReadRequest, ReadExtents)>> {
    let mut arrived = ExtentReader::submit(tree_roots, pieces).wait(tree_roots, file);
    std::iter::from_fn(|| arrived.next(tree_roots, file)).collect()
}

fn inline(file: &BackingExtents, piece: &ReadRequest) -> Result<ReadExtents> {
    let ReadSource::Inline { data, skip } = &piece.source else {
        unreachable!("called for inline pieces")
    };
    let len = to_usize(data.ram_bytes());
    let mut buffer = Buffer::zeroed(len.next_multiple_of(SECTOR_LEN));
    match data.compression() {
        None => buffer[..len].copy_from_slice(data.stored()),
        Some(how) => decompress(file, piece, Logical(0), how, data.stored(), &mut buffer[..len])?,
    }
    Ok(part(buffer, *skip, piece.len))
}

/// Returns the verified bytes on disk of a piece.
fn verified(
    tree_roots: &TreeRoots,
    file: &BackingExtents,
    piece: &ReadRequest,
    Stored { bytes, sums }: Stored,
) -> Result<Buffer> {
    OnDisk { tree_roots, file, piece, sums: sums? }.verified(bytes)
}

/// Returns the content of a piece, given its verified bytes on disk.
fn content(file: &BackingExtents, piece: &ReadRequest, bytes: Buffer) -> Result<ReadExtents> {
    match piece.source {
        ReadSource::Disk { compression: None, skip, .. } => Ok(part(bytes, skip, piece.len)),
        _ => decompressed(file, piece, &bytes),
    }
}

/// Returns the content of a compressed piece, given its verified bytes on disk.
fn decompressed(file: &BackingExtents, piece: &ReadRequest, bytes: &[u8]) -> Result<ReadExtents> {
    let ReadSource::Disk { range, compression: Some((how, ram_bytes)), skip } = piece.source else {
        unreachable!("called for compressed pieces")
    };
    // Decompression fills the whole buffer, with zeros if the stream is short.
    let mut plain = Buffer::unspecified(to_usize(ram_bytes));
    decompress(file, piece, range.logical, how, bytes, &mut plain)?;
    Ok(part(plain, skip, piece.len))
}

fn decompress(
    file: &BackingExtents,
    piece: &ReadRequest,
    logical: Logical,
    how: Compression,
    from: &[u8],
    to: &mut [u8],
) -> Result<()> {
    let failed = |error| DataError::Decompress { logical, error };
    match how.decompress(from, to) {
        Ok(_) => Ok(()),
        Err(error) => Err(data_error(file, piece.start, failed(error))),
    }
}

fn data_error(file: &BackingExtents, offset: u64, error: DataError) -> Error {
    Error::Data { file: file.id, offset, error }
}

/// A piece that was read from the device.
struct OnDisk<'a> {
    tree_roots: &'a TreeRoots,
    file: &'a BackingExtents,
    piece: &'a ReadRequest,
    sums: Option<SectorChecksums>,
}

impl OnDisk<'_> {
    /// Returns the bytes on disk, if they are those that the checksums are of.
    fn verified(&self, read: Result<Buffer, ReadError>) -> Result<Buffer> {
        let ReadSource::Disk { range, .. } = self.piece.source else {
            unreachable!("made for pieces on disk")
        };
        let mut bytes = self.readable(range, read)?;
        if let Some(sums) = &self.sums {
            self.verify(range, sums, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Returns the bytes of the first mirror that can be read.
    fn readable(&self, range: Range, first: Result<Buffer, ReadError>) -> Result<Buffer> {
        let failed = match first {
            Ok(bytes) => return Ok(bytes),
            Err(ReadError::Device(error)) => error,
            Err(other) => return Err(self.error(0, DataError::Range(other))),
        };
        let volume = self.tree_roots.store().volume();
        for copy in 1.. {
            match volume.read(range, copy) {
                Ok(Some(bytes)) => {
                    if self.sums.is_some() {
                        self.note(range);
                    }
                    return Ok(bytes);
                }
                Err(ReadError::Device(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        Err(self.error(0, DataError::Device(failed)))
    }

    /// Verifies each sector, and replaces a bad one from another mirror.
    fn verify(&self, range: Range, sums: &SectorChecksums, bytes: &mut [u8]) -> Result<()> {
        let mut from = 0;
        while let Some((sector, found)) = sums.first_bad(bytes, from) {
            let logical = Logical(range.logical.0 + (sector * SECTOR_LEN) as u64);
            let Some(expected) = sums.get(sector) else {
                return Err(self.error(sector, DataError::NoChecksum(logical)));
            };
            let place = &mut bytes[sector * SECTOR_LEN..][..SECTOR_LEN];
            let copies = self.replace(logical, sector, sums, place)?;
            if let Some(copies) = copies {
                let error = DataError::Checksum { logical, expected, found, copies };
                return Err(self.error(sector, error));
            }
            from = sector + 1;
        }
        Ok(())
    }

    /// Reads a good mirror of a sector; returns the number of mirrors if none is good.
    fn replace(
        &self,
        logical: Logical,
        sector: usize,
        sums: &SectorChecksums,
        place: &mut [u8],
    ) -> Result<Option<usize>> {
        let volume = self.tree_roots.store().volume();
        for copy in 0.. {
            match volume.read(Range { logical, len: SECTOR_LEN }, copy) {
                Ok(Some(bytes)) if sums.is_good(sector, &bytes) => {
                    place.copy_from_slice(&bytes);
                    self.note(Range { logical, len: SECTOR_LEN });
                    return Ok(None);
                }
                Ok(Some(_)) | Err(ReadError::Device(_)) => {}
                Ok(None) => return Ok(Some(copy)),
                Err(other) => return Err(self.error(sector, DataError::Range(other))),
            }
        }
        unreachable!("a range has finitely many copies")
    }

    fn note(&self, range: Range) {
        self.tree_roots.store().volume().note_bad_copy(BadMirror::Data(range));
    }

    /// Returns an error at a sector of the piece, as an offset in the file. For a compressed extent
    /// that is the start of the piece.
    fn error(&self, sector: usize, error: DataError) -> Error {
        let ReadSource::Disk { compression, skip, .. } = self.piece.source else {
            unreachable!("made for pieces on disk")
        };
        let within = match compression {
            None => ((sector * SECTOR_LEN) as u64).saturating_sub(skip),
            Some(_) => 0,
        };
        data_error(self.file, self.piece.start + within, error)
    }
}
