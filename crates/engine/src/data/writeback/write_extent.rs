//! A range of a file that is written to one extent.

use smallvec::SmallVec;
use userbtrfs_codec::Compression;
use userbtrfs_codec::checksum::ChecksumKind;
use userbtrfs_format::{Logical, RegularExtent};
use userbtrfs_transaction::{Handle, NocowGuard, TransactionManager};
use userbtrfs_volume::Slice;

use crate::data::cache::dirty::DirtyRun;
use crate::inode::{ExtentMap, ExtentMapKind, FileChange, InlineData};
use crate::units::SECTOR_LEN;

/// The target of a range of a file.
#[derive(Clone, Debug)]
pub(in crate::data) enum WriteTarget {
    /// Inline in the tree: all bytes of the file.
    Inline(InlineData),
    /// Newly allocated space (copy on write).
    New(Logical),
    /// Newly allocated space, for the data in compressed form.
    Compressed { logical: Logical, algorithm: Compression, stream: Slice },
    /// This part of a preallocated extent.
    Prealloc { extent: RegularExtent, _hold: NocowGuard },
    /// The data on disk, overwritten in place (nocow).
    Same { logical: Logical, _hold: NocowGuard },
}

/// A range of a file and its target.
pub(in crate::data) struct WriteExtent {
    pub(in crate::data) run: DirtyRun,
    pub(in crate::data) place: WriteTarget,
    /// The checksums of the sectors, as stored; empty if there are none.
    sums: SmallVec<[u8; 64]>,
}

/// Extents to be written of one file.
pub(in crate::data) type WriteExtents = SmallVec<[WriteExtent; 1]>;

/// The targets of a run: the end of each part, and its target, or `None` if it needs allocation.
pub(in crate::data) type WriteTargets = SmallVec<[(u64, Option<WriteTarget>); 1]>;

/// Runs that need allocation.
pub(in crate::data) type NeedsAllocation = SmallVec<[DirtyRun; 1]>;

impl WriteTarget {
    fn logical(&self) -> Option<Logical> {
        match self {
            Self::Inline(_) => None,
            Self::New(logical) | Self::Compressed { logical, .. } | Self::Same { logical, .. } => {
                Some(*logical)
            }
            Self::Prealloc { extent, .. } => Some(Logical(extent.disk.0 + extent.offset)),
        }
    }
}

impl WriteExtent {
    pub(in crate::data) fn new(run: DirtyRun, place: WriteTarget) -> Self {
        Self { run, place, sums: SmallVec::new() }
    }

    /// Returns the bytes that are stored, in whole sectors.
    fn stored(&self) -> &[Slice] {
        match &self.place {
            WriteTarget::Compressed { stream, .. } => std::slice::from_ref(stream),
            _ => &self.run.parts,
        }
    }

    /// Returns the newly allocated space.
    pub(in crate::data) fn allocated(&self) -> Option<(Logical, u64)> {
        match &self.place {
            WriteTarget::New(logical) => Some((*logical, self.run.len())),
            WriteTarget::Compressed { logical, stream, .. } => {
                Some((*logical, stream.len() as u64))
            }
            WriteTarget::Inline(_) | WriteTarget::Prealloc { .. } | WriteTarget::Same { .. } => {
                None
            }
        }
    }

    /// Returns the slices to write, with their logical addresses.
    pub(in crate::data) fn parts(&self) -> impl Iterator<Item = (Logical, Slice)> + '_ {
        let mut at = self.place.logical();
        self.stored().iter().map_while(move |part| {
            let here = at?;
            at = Some(Logical(here.0 + part.len() as u64));
            Some((here, part.clone()))
        })
    }

    pub(in crate::data) fn compute_sums(&mut self, kind: ChecksumKind) {
        if matches!(self.place, WriteTarget::Inline(_) | WriteTarget::Same { .. }) {
            return;
        }
        let mut sums = SmallVec::new();
        let sectors: usize = self.stored().iter().map(|part| part.len() / SECTOR_LEN).sum();
        sums.reserve(sectors * kind.size());
        for part in self.stored() {
            kind.compute_blocks(part, SECTOR_LEN, |sum| sums.extend_from_slice(sum.as_bytes()));
        }
        self.sums = sums;
    }

    /// Returns the checksums, as stored, and the address of the first sector that they cover.
    pub(in crate::data) fn sums(&self) -> Option<(Logical, &[u8])> {
        let logical = self.place.logical().filter(|_| !self.sums.is_empty())?;
        Some((logical, &self.sums))
    }

    pub(in crate::data) fn add_sums(&self, transactions: &TransactionManager, handle: &Handle<'_>) {
        if let Some((logical, sums)) = self.sums() {
            transactions.add_checksums(handle, logical, sums);
        }
    }

    /// Returns the extent that is added to the file; `None` if the present one stays.
    pub(in crate::data) fn extent(&self) -> Option<ExtentMap> {
        let bytes = self.run.len();
        let kind = match &self.place {
            WriteTarget::Same { .. } => return None,
            WriteTarget::Inline(data) => ExtentMapKind::Inline(data.clone()),
            WriteTarget::Prealloc { extent, .. } => ExtentMapKind::Regular(*extent, None),
            WriteTarget::New(disk) => ExtentMapKind::Regular(whole_extent(*disk, bytes), None),
            WriteTarget::Compressed { logical, algorithm, stream } => {
                let disk_bytes = stream.len() as u64;
                let extent = RegularExtent { disk_bytes, ..whole_extent(*logical, bytes) };
                ExtentMapKind::Regular(extent, Some(*algorithm))
            }
        };
        Some(ExtentMap { start: self.run.start, end: self.run.end, kind })
    }

    /// Puts the extent into the file. `replaced` is the bytes that the file counts for what it
    /// replaces.
    pub(in crate::data) fn put(&self, change: &mut FileChange<'_>, replaced: u64) {
        let Some(ExtentMap { start, end, kind }) = self.extent() else {
            return change.overwritten();
        };
        let holds = match &self.place {
            WriteTarget::Inline(data) => data.ram_bytes(),
            _ => end - start,
        };
        let is_new = self.allocated().is_some();
        change.put(start, end, kind, is_new);
        change.add_bytes(difference(holds, replaced));
    }
}

/// Splits a run by its targets, which are given by their ends. Parts without a target become runs
/// that need allocation.
pub(in crate::data) fn cut(
    mut run: DirtyRun,
    places: WriteTargets,
    placed: &mut WriteExtents,
    needs_allocation: &mut NeedsAllocation,
) {
    for (end, place) in places {
        let rest = (end < run.end).then(|| run.split_off(end));
        match place {
            Some(place) => placed.push(WriteExtent::new(run, place)),
            None => needs_allocation.push(run),
        }
        let Some(rest) = rest else { return };
        run = rest;
    }
    unreachable!("the last place ends where the run does");
}

/// Returns the reference to all of an uncompressed extent.
pub(in crate::data) fn whole_extent(disk: Logical, bytes: u64) -> RegularExtent {
    RegularExtent { disk, disk_bytes: bytes, offset: 0, bytes, ram_bytes: bytes }
}

/// Returns `to - from`. Saturates each, since the extents of an image may be beyond all sizes.
pub(in crate::data) fn difference(to: u64, from: u64) -> i64 {
    let size = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    size(to) - size(from)
}
