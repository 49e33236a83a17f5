//! Looks up the checksums of data on disk.
//!
//! 1. The result has a checksum for each sector of a range, or the fact that it has none.
//! 2. Pending checksums take precedence over those in the tree, and are looked up before the tree.

use userbtrfs_btree::{Cursor, ReadAhead};
use userbtrfs_codec::checksum::{Checksum, ChecksumKind};
use userbtrfs_format::{ItemKind, Key, Logical, TreeId};
use userbtrfs_transaction::TransactionManager;
use userbtrfs_volume::Range;

use crate::error::Result;
use crate::inode::TreeRoots;
use crate::units::{SECTOR, SECTOR_LEN};

/// The object id of checksum items (-10).
const CSUM_OBJECTID: u64 = u64::MAX - 9;

/// The checksums of a range of sectors.
pub(crate) struct SectorChecksums {
    kind: ChecksumKind,
    /// One checksum after the other, as stored.
    stored: Vec<u8>,
    present: Vec<bool>,
}

impl SectorChecksums {
    /// Looks up the checksums of `range`. Without a transaction manager none are pending.
    pub(crate) fn find(
        tree_roots: &TreeRoots,
        transactions: Option<&TransactionManager>,
        range: Range,
    ) -> Result<Self> {
        let kind = tree_roots.store().volume().geometry().checksum_kind;
        let pending = transactions.map(|transactions| Self::pending(transactions, kind, range));
        let Some(pending) = pending else { return Self::in_tree(tree_roots, kind, range) };
        if !pending.present.contains(&false) {
            return Ok(pending);
        }
        let mut sums = Self::in_tree(tree_roots, kind, range)?;
        sums.overlay(&pending);
        Ok(sums)
    }

    fn none(kind: ChecksumKind, range: Range) -> Self {
        let sectors = range.len / SECTOR_LEN;
        Self { kind, stored: vec![0; sectors * kind.size()], present: vec![false; sectors] }
    }

    /// Looks up the pending checksums.
    fn pending(transactions: &TransactionManager, kind: ChecksumKind, range: Range) -> Self {
        let mut sums = Self::none(kind, range);
        let sectors = sums.present.len() as u64;
        transactions.pending_checksums(range.logical, sectors, |sector, stored| {
            sums.set(to_index(sector), stored);
        });
        sums
    }

    fn in_tree(tree_roots: &TreeRoots, kind: ChecksumKind, range: Range) -> Result<Self> {
        let mut sums = Self::none(kind, range);
        let tree = tree_roots.tree(TreeId::CSUM)?;
        let key = Key::new(CSUM_OBJECTID, ItemKind::EXTENT_CSUM, range.logical.0);
        let mut cursor = Cursor::seek_back(tree_roots.store(), &tree, &key, ReadAhead::Off)?;
        let end = range.logical.0 + range.len as u64;
        while let Some(item) = cursor.item() {
            if item.key.kind == ItemKind::EXTENT_CSUM && item.key.offset < end {
                sums.take(range.logical, item.key.offset, item.data);
            } else if item.key >= key {
                break;
            }
            cursor.advance()?;
        }
        Ok(sums)
    }

    fn set(&mut self, sector: usize, stored: &[u8]) {
        let size = self.kind.size();
        self.stored[sector * size..][..size].copy_from_slice(stored);
        self.present[sector] = true;
    }

    fn overlay(&mut self, other: &Self) {
        let size = self.kind.size();
        for (sector, stored) in other.stored.chunks_exact(size).enumerate() {
            if other.present[sector] {
                self.set(sector, stored);
            }
        }
    }

    /// Takes the checksums that an item at `at` has for the range at `start`.
    fn take(&mut self, start: Logical, at: u64, data: &[u8]) {
        let size = self.kind.size();
        let first = at.max(start.0);
        let from = to_index((first - at) / SECTOR);
        let to = to_index((first - start.0) / SECTOR);
        let count = (data.len() / size).saturating_sub(from).min(self.present.len() - to);
        if count == 0 {
            return;
        }
        self.stored[to * size..][..count * size]
            .copy_from_slice(&data[from * size..][..count * size]);
        self.present[to..][..count].fill(true);
    }

    /// Returns the runs of sectors that have checksums: the index of the first sector, and the
    /// checksums as stored.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let size = self.kind.size();
        let mut at = 0;
        self.present.chunk_by(|a, b| a == b).filter_map(move |run| {
            let first = at;
            at += run.len();
            run[0].then(|| (first as u64, &self.stored[first * size..at * size]))
        })
    }

    /// Returns the checksum of a sector, counted from the start of the range.
    pub(crate) fn get(&self, sector: usize) -> Option<Checksum> {
        let size = self.kind.size();
        let stored = &self.stored[sector * size..][..size];
        self.present[sector].then(|| Checksum::from_slice(stored).expect("of the right size"))
    }

    /// Returns the first sector of `bytes` whose checksum is missing or different: its index, and
    /// the computed checksum.
    pub(crate) fn first_bad(&self, bytes: &[u8], from: usize) -> Option<(usize, Checksum)> {
        let sectors = bytes.chunks_exact(SECTOR_LEN).enumerate().skip(from);
        sectors.map(|(sector, bytes)| (sector, self.kind.compute(bytes))).find(|(sector, found)| {
            let stored = &self.stored[sector * self.kind.size()..][..self.kind.size()];
            !self.present[*sector] || found.as_bytes() != stored
        })
    }

    /// Returns true if `bytes` match the checksum of a sector.
    pub(crate) fn is_good(&self, sector: usize, bytes: &[u8]) -> bool {
        self.get(sector) == Some(self.kind.compute(bytes))
    }
}

fn to_index(n: u64) -> usize {
    usize::try_from(n).expect("an index within a range in memory")
}
