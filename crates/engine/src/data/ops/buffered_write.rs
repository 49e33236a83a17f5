//! Buffered writes to the page cache.
//!
//! 1. Sectors that are written in part are read first. Beyond the size of the file they are zeros.
//! 2. All that can fail is done before anything is changed.

use userbtrfs_device::Buffer;

use crate::data::cache::dirty::Delta;
use crate::data::cache::file_pages::FilePages;
use crate::data::units::{BLOCK, sectors};
use crate::error::Result;
use crate::inode::TreeRoots;
use crate::units::{SECTOR, SECTOR_LEN, to_usize};

/// The caller holds the range exclusively, extended to sector boundaries. Each method returns what
/// it newly made dirty. After an error nothing was changed.
impl FilePages {
    /// Writes bytes from `offset` on. The caller changes the size of the inode afterwards, if
    /// needed.
    pub(crate) fn write(&self, tree_roots: &TreeRoots, offset: u64, bytes: &[u8]) -> Result<Delta> {
        if let Some(delta) = self.copy_over(offset, bytes) {
            self.shrink();
            return Ok(delta);
        }
        let edges = self.edges(tree_roots, offset, offset + bytes.len() as u64)?;
        let mut delta = Delta::default();
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let len = (BLOCK - to_usize(at % BLOCK as u64)).min(bytes.len() - done);
            delta = delta.plus(self.copy_in(at, &bytes[done..][..len], &edges));
            done += len;
        }
        self.shrink();
        Ok(delta)
    }

    /// Writes zeros.
    pub(crate) fn write_zeros(
        &self,
        tree_roots: &TreeRoots,
        start: u64,
        end: u64,
    ) -> Result<Delta> {
        let zeros = Buffer::zeroed(to_usize((end - start).min(BLOCK as u64)));
        let edges = self.edges(tree_roots, start, end)?;
        let mut delta = Delta::default();
        let mut at = start;
        while at < end {
            let len = (BLOCK as u64 - at % BLOCK as u64).min(end - at);
            delta = delta.plus(self.copy_in(at, &zeros[..to_usize(len)], &edges));
            at += len;
        }
        self.shrink();
        Ok(delta)
    }

    /// Makes the sectors that a range touches dirty, unchanged: at most a block.
    pub(crate) fn redirty(&self, tree_roots: &TreeRoots, start: u64, end: u64) -> Result<Delta> {
        let sectors = sectors(start, end);
        let offset = sectors.start * SECTOR;
        let len = to_usize(sectors.end - sectors.start) * SECTOR_LEN;
        self.modify(tree_roots, offset, len, |_| {})
    }

    /// Passes at most a block's worth of bytes to `change` and writes them back. `change` may
    /// block: only the range is locked.
    pub(crate) fn modify(
        &self,
        tree_roots: &TreeRoots,
        offset: u64,
        len: usize,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<Delta> {
        assert!(len <= BLOCK, "no more than a block at once");
        let mut bytes = Buffer::unspecified(len);
        self.read_locked(tree_roots, offset, &mut bytes)?;
        change(&mut bytes);
        self.write(tree_roots, offset, &bytes)
    }

    /// Reads the first and the last sector of a range, if the range covers only a part of them.
    fn edges(&self, tree_roots: &TreeRoots, start: u64, end: u64) -> Result<Vec<(u64, Buffer)>> {
        let size = self.inode().item().size;
        let partial = |at: u64| at * SECTOR < start || end < (at + 1) * SECTOR;
        let mut edges = Vec::new();
        for at in [start / SECTOR, end.saturating_sub(1) / SECTOR] {
            if start == end || !partial(at) || edges.last().is_some_and(|(last, _)| *last == at) {
                continue;
            }
            let mut edge = Buffer::zeroed(SECTOR_LEN);
            let left = (at * SECTOR).min(size)..start.min(size);
            let right = end.min(size)..((at + 1) * SECTOR).min(size);
            if left.start < left.end || right.start < right.end {
                self.read_locked(tree_roots, at * SECTOR, &mut edge)?;
            }
            edges.push((at, edge));
        }
        Ok(edges)
    }
}
