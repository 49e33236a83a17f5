//! Compresses data that is written (Linux: compress_file_range).
//!
//! 1. Data is compressed in chunks that end at multiples of [`MAX_CONTENT`] in the file. Each chunk
//!    becomes an extent of its own, which is kept only if it is a sector shorter on disk, or more.
//! 2. A file that is overwritten in place, has no checksums or has preallocated extents is not
//!    compressed.
//! 3. A chunk of which a sample looks incompressible is not compressed, unless that is forced or a
//!    defragmentation asks for it, as in Linux (inode_need_compress). If a chunk is compressed in
//!    vain, the file is marked: it is not compressed any more, unless that is forced or its flags
//!    ask for it.
//! 4. The feature bit of an algorithm is set before data that needs it is submitted.
//! 5. Bytes behind the end of the file, up to the end of its last sector, are zeros, and are
//!    compressed too.

use std::borrow::Cow;
use std::iter;

use userbtrfs_codec::compress::looks_compressible;
use userbtrfs_codec::{Compression, CompressionMethod, MAX_CONTENT};
use userbtrfs_device::{Buffer, Slice};
use userbtrfs_format::{IncompatFlags, InodeFlags, InodeItem};

use crate::compression::Recompress;
use crate::data::cache::dirty::DirtyRun;
use crate::data::cache::file_pages::FilePages;
use crate::data::writeback::context::WriteContext;
use crate::inode::InlineData;
use crate::inode::ops;
use crate::units::{SECTOR, SECTOR_LEN};

/// The flags of a file that is not compressed, whatever is asked for.
const NEVER: InodeFlags =
    InodeFlags::NODATACOW.union(InodeFlags::NODATASUM).union(InodeFlags::PREALLOC);

/// How the data of a file is compressed.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct FileCompression {
    method: CompressionMethod,
    /// A chunk is compressed only if a sample of it looks compressible.
    is_sampled: bool,
    /// The file is not marked if data is compressed in vain.
    is_forced: bool,
}

/// A part of a run that becomes one extent if it is compressed.
pub(in crate::data) struct Chunk {
    /// The index of the file in its batch.
    pub(in crate::data) file: usize,
    pub(in crate::data) run: DirtyRun,
    how: FileCompression,
}

/// The result of compressing a chunk.
pub(in crate::data) enum Compressed {
    /// It is stored as it is.
    Plain,
    /// The same, after an attempt.
    Incompressible,
    /// The stream, padded with zeros to whole sectors.
    Stream(Compression, Slice),
}

/// The result of compressing a file of at most a sector.
pub(in crate::data) enum CompressedInline {
    /// It was not tried, or does not become short enough to be inline.
    Plain,
    /// It does not become shorter.
    Incompressible,
    /// The inline data.
    Data(InlineData),
}

/// Returns how data of a file is compressed; `None` if it is not.
pub(in crate::data) fn compression_of(
    context: &WriteContext,
    pages: &FilePages,
    item: &InodeItem,
) -> Option<FileCompression> {
    let option = context.compress();
    let is_forced = option.is_some_and(|option| option.force);
    let has_flag = item.flags.contains(InodeFlags::COMPRESS);
    let is_refused = item.flags.contains(InodeFlags::NOCOMPRESS);
    if item.flags.intersects(NEVER) || !(is_forced || !is_refused && (has_flag || option.is_some()))
    {
        return None;
    }
    // If the property cannot be read, the usual algorithm is as good.
    let own = || ops::compression(&context.nodes, pages.inode()).ok().flatten();
    let algorithm = if has_flag { own() } else { None };
    let usual = option.map_or(Compression::Zlib.into(), |option| option.method);
    let algorithm = algorithm.unwrap_or(usual.algorithm);
    let method = CompressionMethod { algorithm, ..usual };
    Some(FileCompression { method, is_sampled: !is_forced, is_forced })
}

/// Returns how data of a file is compressed that is rewritten; `None` if it is not. Preallocated
/// extents do not prevent it: the data is not written into them.
pub(in crate::data) fn recompression_of(
    context: &WriteContext,
    pages: &FilePages,
    item: &InodeItem,
    how: Recompress,
) -> Option<FileCompression> {
    let flags = item.flags - InodeFlags::PREALLOC;
    match how {
        Recompress::Usual => compression_of(context, pages, &InodeItem { flags, ..*item }),
        Recompress::With(method) if !flags.intersects(NEVER) => {
            let is_forced = context.compress().is_some_and(|option| option.force);
            Some(FileCompression { method, is_sampled: false, is_forced })
        }
        Recompress::Never | Recompress::With(_) => None,
    }
}

/// Splits a run of the file with this index into chunks.
pub(in crate::data) fn split(
    file: usize,
    mut run: DirtyRun,
    how: FileCompression,
    chunks: &mut Vec<Chunk>,
) {
    const CHUNK: u64 = MAX_CONTENT as u64;
    loop {
        let end = (run.start + 1).next_multiple_of(CHUNK);
        let rest = (end < run.end).then(|| run.split_off(end));
        chunks.push(Chunk { file, run, how });
        let Some(rest) = rest else { return };
        run = rest;
    }
}

/// Compresses chunks, in several threads; returns their results, in order.
pub(in crate::data) fn compress(context: &WriteContext, chunks: &[Chunk]) -> Vec<Compressed> {
    // To judge a chunk takes less time than to start a thread and to wait for it.
    let first = chunks.iter().position(Chunk::is_worth_it).unwrap_or(chunks.len());
    let streams = context.cache.helpers().map(&chunks[first..], Chunk::compress);
    let plain = iter::repeat_with(|| Stream::Plain).take(first);
    let padded = plain.chain(streams).map(|stream| match stream {
        Stream::Plain => Compressed::Plain,
        Stream::Incompressible => Compressed::Incompressible,
        Stream::Padded(algorithm, buffer) => Compressed::Stream(algorithm, Slice::from(buffer)),
    });
    let results: Vec<_> = padded.collect();
    for algorithm in Compression::ALL {
        let uses =
            |result: &Compressed| matches!(result, Compressed::Stream(by, _) if *by == algorithm);
        if results.iter().any(uses) {
            require_feature(context, algorithm);
        }
    }
    results
}

/// Compresses a file of at most a sector to be stored inline, in at most `len_max` bytes. As in
/// Linux, the zeros behind its end are part of the sample, and not of the data.
pub(in crate::data) fn compress_inline(
    context: &WriteContext,
    sector: &[u8],
    size: usize,
    how: FileCompression,
    len_max: u64,
) -> CompressedInline {
    if !how.is_worth_it(&[sector]) {
        return CompressedInline::Plain;
    }
    let Some(stream) = how.stream(&sector[..size]) else { return CompressedInline::Plain };
    let algorithm = how.method.algorithm;
    // Linux asks LZO for a gain only after 8 KiB, and keeps what it makes of less.
    if stream.len() >= size && algorithm != Compression::Lzo {
        return CompressedInline::Incompressible;
    }
    if stream.len() as u64 > len_max {
        return CompressedInline::Plain;
    }
    require_feature(context, algorithm);
    CompressedInline::Data(InlineData::compressed(stream, algorithm, size as u64))
}

/// Adds the feature of an algorithm to the filesystem.
fn require_feature(context: &WriteContext, algorithm: Compression) {
    let feature = match algorithm {
        Compression::Zlib => return,
        Compression::Lzo => IncompatFlags::COMPRESS_LZO,
        Compression::Zstd => IncompatFlags::COMPRESS_ZSTD,
    };
    context.transactions.volume().add_incompat(feature);
}

/// The result of compressing a chunk, before it is shared.
enum Stream {
    Plain,
    Incompressible,
    Padded(Compression, Buffer),
}

impl Chunk {
    fn parts(&self) -> Vec<&[u8]> {
        self.run.parts.iter().map(|part| &part[..]).collect()
    }

    /// Returns true if the chunk is worth an attempt. A single sector cannot become shorter.
    fn is_worth_it(&self) -> bool {
        self.run.len() > SECTOR && self.how.is_worth_it(&self.parts())
    }

    fn compress(&self) -> Stream {
        if !self.is_worth_it() {
            return Stream::Plain;
        }
        let parts = self.parts();
        let bytes = match parts[..] {
            [part] => Cow::Borrowed(part),
            _ => Cow::Owned(parts.concat()),
        };
        let Some(stream) = self.how.stream(&bytes) else { return Stream::Plain };
        let len = stream.len().next_multiple_of(SECTOR_LEN);
        if len + SECTOR_LEN > bytes.len() {
            return Stream::Incompressible;
        }
        let mut buffer = Buffer::zeroed(len);
        buffer[..stream.len()].copy_from_slice(&stream);
        Stream::Padded(self.how.method.algorithm, buffer)
    }
}

impl FileCompression {
    /// Returns true if data of the file goes on to be compressed after an attempt in vain.
    pub(in crate::data) fn goes_on(self) -> bool {
        !self.is_sampled
    }

    /// Returns true if a file is marked after an attempt in vain.
    pub(in crate::data) fn marks_files(self) -> bool {
        !self.is_forced
    }

    /// Returns true if data in these parts is worth an attempt, by a sample.
    fn is_worth_it(self, parts: &[&[u8]]) -> bool {
        !self.is_sampled || looks_compressible(parts.iter().copied())
    }

    /// Returns data, compressed; `None` if that failed.
    fn stream(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let CompressionMethod { algorithm, level } = self.method;
        let mut stream = Vec::new();
        algorithm.compress(level, bytes, &mut stream).ok()?;
        Some(stream)
    }
}
