//! The file cache: contents of files in blocks of 128 KiB, verified and decompressed.
//!
//! 1. Blocks stand at multiples of their size; the last one of a file may be shorter.
//! 2. Memory is bounded in bytes, but for blocks in use.
//! 3. A reader that goes through a file in order is given more at a time: what it will ask for
//!    next is fetched together with what it asked for.
//! 4. A read fails only for what it asked for: where fetching more does, it is fetched alone.

use userbtrfs_btree::Cache;
use userbtrfs_device::Buffer;
use userbtrfs_sync::Arc;

use super::{Fetched, FileSource, Piece, fetch, pieces};
use crate::error::{InodeId, Result};
use crate::node::Forest;

/// Bytes in a block.
pub(crate) const BLOCK: u64 = 128 << 10;

/// The most blocks that are read ahead at a time.
const AHEAD_MAX: u64 = 16;

/// The most bytes of memory that are in flight for one read.
const FETCH_MAX: u64 = 2 << 20;

/// A file, the version of its content, and the block.
type BlockId = (InodeId, u64, u64);

/// Contents of files, in blocks.
pub(crate) struct FileCache {
    blocks: Cache<BlockId, Buffer>,
    /// The most blocks that one read ahead may bring, so that it does not drive itself out.
    ahead_max: u64,
}

impl FileCache {
    /// An empty cache of about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let ahead_max = (bytes_max as u64 / BLOCK / 8).clamp(1, AHEAD_MAX);
        Self { blocks: Cache::new(bytes_max), ahead_max }
    }

    /// Copies bytes of a file to `target`, which lies within its size. `ahead` is how many
    /// blocks after them will be wanted soon.
    pub(crate) fn read(
        &self,
        forest: &Forest,
        file: &FileSource,
        offset: u64,
        target: &mut [u8],
        ahead: u64,
    ) -> Result<()> {
        let mut done = 0;
        while done < target.len() {
            let at = offset + done as u64;
            let index = at / BLOCK;
            let left = (target.len() - done) as u64 + at % BLOCK;
            let blocks = left.div_ceil(BLOCK) + ahead;
            let loaded = match self.blocks.get((file.id, file.version, index)) {
                Some(block) => Ok(block),
                None => self.load(forest, file, index, blocks),
            };
            let Ok(block) = loaded else {
                return read_alone(forest, file, at, &mut target[done..]);
            };
            let skip = to_usize(at % BLOCK);
            let len = (block.len() - skip).min(target.len() - done);
            target[done..][..len].copy_from_slice(&block[skip..][..len]);
            done += len;
        }
        Ok(())
    }

    /// Brings `count` blocks from `first` on, as far as there is room, and gives the first.
    fn load(
        &self,
        forest: &Forest,
        file: &FileSource,
        first: u64,
        count: u64,
    ) -> Result<Arc<Buffer>> {
        let count = count.min(self.ahead_max);
        let start = first * BLOCK;
        let end = start.saturating_add(count * BLOCK).min(file.size);
        let mut fetched = Vec::new();
        let mut at = start;
        while at < end {
            let group = pieces(forest, file, at, end, BLOCK, FETCH_MAX)?;
            at = group.last().map_or(end, Piece::end);
            fetched.extend(fetch(forest, file, group)?);
        }
        let mut blocks = assemble(&fetched, start, end).into_iter().zip(first..);
        let (wanted, _) = blocks.next().expect("the range is not empty");
        self.insert((file.id, file.version, first), Arc::clone(&wanted));
        for (block, index) in blocks {
            self.insert((file.id, file.version, index), block);
        }
        Ok(wanted)
    }

    fn insert(&self, id: BlockId, block: Arc<Buffer>) {
        let bytes = block.len();
        self.blocks.insert(id, block, bytes);
    }
}

/// Copies bytes of a file to `target` past the cache, and fetches nothing beside them.
fn read_alone(forest: &Forest, file: &FileSource, offset: u64, target: &mut [u8]) -> Result<()> {
    let end = offset + target.len() as u64;
    let mut at = offset;
    while at < end {
        let group = pieces(forest, file, at, end, BLOCK, FETCH_MAX)?;
        at = group.last().map_or(end, Piece::end);
        for (piece, fetched) in fetch(forest, file, group)? {
            let place = &mut target[to_usize(piece.start - offset)..][..to_usize(piece.len)];
            match fetched.bytes() {
                Some(bytes) => place.copy_from_slice(bytes),
                None => place.fill(0),
            }
        }
    }
    Ok(())
}

/// Makes blocks of pieces. A piece that is a whole block gives its buffer away.
fn assemble(fetched: &[(Piece, Fetched)], start: u64, end: u64) -> Vec<Arc<Buffer>> {
    let starts = (start..end).step_by(to_usize(BLOCK));
    starts.map(|at| assemble_block(fetched, at, at.saturating_add(BLOCK).min(end))).collect()
}

fn assemble_block(fetched: &[(Piece, Fetched)], start: u64, end: u64) -> Arc<Buffer> {
    let first = fetched.partition_point(|(piece, _)| piece.end() <= start);
    if let Some((piece, Fetched::Bytes { buffer, skip: 0, len })) = fetched.get(first) {
        let whole = piece.start == start && *len as u64 == end - start && *len == buffer.len();
        if whole {
            return Arc::clone(buffer);
        }
    }
    let mut block = Buffer::zeroed(to_usize(end - start));
    for (piece, bytes) in fetched[first..].iter().take_while(|(piece, _)| piece.start < end) {
        let Some(bytes) = bytes.bytes() else { continue };
        let from = piece.start.max(start);
        let until = piece.end().min(end);
        let (to, skip) = (to_usize(from - start), to_usize(from - piece.start));
        let len = to_usize(until - from);
        block[to..][..len].copy_from_slice(&bytes[skip..][..len]);
    }
    Arc::new(block)
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).expect("within a block or a window")
}
