//! Logs the contents of files.
//!
//! 1. The ranges that the running transaction changed and that the log does not have yet are logged
//!    as they are now; holes among them get items, so that replay makes them. Without NO_HOLES,
//!    these ranges include the holes made by extending the file.
//! 2. Preallocated space beyond EOF is always logged: replay truncates a file at its size, even one
//!    that must merely exist. For such a file the committed space is logged; if that changed, a
//!    full commit is needed.
//! 3. An item of the log that overlaps such a range is removed as a whole, and all of its range is
//!    logged again: no item is split.
//! 4. An extent that is logged has its checksums in the log.
//! 5. Data in flight is logged as if its writes had completed; the log commit waits for them.
//! 6. The extents of the file do not change meanwhile: its writeback lock is held until the data in
//!    flight is written and added to the file.

use smallvec::SmallVec;
use userbtrfs_btree::Cursor;
use userbtrfs_format::{
    FileExtent, IncompatFlags, InodeFlags, InodeItem, ItemKind, Key, Logical, RegularExtent,
};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{FullCommitReason, RangeSet};
use userbtrfs_volume::Range;

use super::collect::{InodeLogger, LogResult};
use super::draft::keys_of;
use crate::data::{BackingExtents, ExtentMaps, OrderedExtents, SectorChecksums};
use crate::inode::ops;
use crate::inode::{EXTENTS_MAX, ExtentMap, ExtentMapKind, Inode};
use crate::units::{SECTOR, sector_end};

/// Bytes of data whose checksums are looked up at once.
const SUMMED_MAX: u64 = 16 << 20;

impl InodeLogger<'_, '_> {
    /// Logs the changed ranges of a file as if its data in flight were written; returns the inode
    /// item that matches them. If the file `was_logged`, the log has the other ranges.
    pub(super) fn log_content(
        &mut self,
        data: &OrderedExtents<'_>,
        was_logged: bool,
    ) -> LogResult<InodeItem> {
        let inode = data.pages().inode();
        // Read before the changed ranges: a merge adds to those before it updates the stored size.
        let known =
            self.holes_have_items().then(|| ops::stored_size(self.nodes, inode)).transpose();
        let known = known.map_err(|_| FullCommitReason::Failed)?;
        let changed = inode.take_changed(self.running);
        let mut item = inode.item_to_log();
        if !data.is_empty() {
            (item.size, item.transid) = (item.size.max(data.size()), self.running);
        }
        let mut ranges = changed.unwrap_or_else(RangeSet::all);
        data.ranges().for_each(|range| ranges.insert(range));
        if let Some(known) = known.filter(|known| *known < item.size) {
            ranges.insert(sector_end(known)..sector_end(item.size));
        }
        if item.flags.contains(InodeFlags::PREALLOC) {
            ranges.insert(sector_end(item.size)..u64::MAX);
        }
        #[cfg(feature = "experiments")]
        self.add_extents_of_leaf(inode, &mut ranges)?;
        if was_logged {
            self.widen(inode.id().number, &mut ranges)?;
        }
        for (logical, sums) in data.sums() {
            self.writer.add_checksums(self.subvolume, logical, sums)?;
        }
        let source = data.source();
        self.log_ranges(&source, &ranges, item.size)?;
        // Holes beyond EOF get no items now; they need them when the file grows over them.
        let end = sector_end(item.size);
        for range in ranges.iter().filter(|range| range.end > end) {
            inode.put_back_changed(self.running, range.start.max(end)..range.end);
        }
        Ok(item)
    }

    /// Logs the committed space beyond EOF of a file whose content is not logged.
    pub(super) fn log_space_behind_end(&mut self, inode: &Arc<Inode>) -> LogResult<()> {
        let size = inode.committed_size(self.running).ok_or(FullCommitReason::SpaceBehindEnd)?;
        let source = BackingExtents { size: u64::MAX, ..BackingExtents::new(inode, None) };
        let mut behind = RangeSet::default();
        behind.insert(sector_end(size)..u64::MAX);
        self.log_ranges(&source, &behind, size)?;
        // Checked again: the ranges may have changed while they were read.
        inode.committed_size(self.running).map(drop).ok_or(FullCommitReason::SpaceBehindEnd)
    }

    /// Logs the target of a symbolic link.
    pub(super) fn log_target(&mut self, link: &Arc<Inode>) -> LogResult<()> {
        let source = BackingExtents { size: u64::MAX, ..BackingExtents::new(link, None) };
        self.log_ranges(&source, &RangeSet::all(), link.item().size)
    }

    fn holes_have_items(&self) -> bool {
        let superblock = self.nodes.tree_roots().store().volume().superblock();
        !superblock.incompat.contains(IncompatFlags::NO_HOLES)
    }

    /// Removes the items of the log that overlap `ranges`, and widens the ranges to cover them.
    fn widen(&mut self, number: u64, ranges: &mut RangeSet) -> LogResult<()> {
        for range in ranges.iter().collect::<SmallVec<[_; 2]>>() {
            let found = self.logged_extents(number, range.start, range.end);
            for (start, end) in found.map_err(|_| FullCommitReason::Failed)? {
                self.drafts.remove(Key::new(number, ItemKind::EXTENT_DATA, start));
                ranges.insert(start..end);
            }
        }
        Ok(())
    }

    /// Returns the start and end of each extent of a file in the log that overlaps a range.
    fn logged_extents(
        &self,
        number: u64,
        start: u64,
        end: u64,
    ) -> crate::error::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        let Some(log) = self.writer.tree(self.subvolume) else { return Ok(found) };
        let keys = keys_of(number, ItemKind::EXTENT_DATA..=ItemKind::EXTENT_DATA);
        let first = Key::new(number, ItemKind::EXTENT_DATA, start);
        let store = self.nodes.tree_roots().store();
        let off = userbtrfs_btree::ReadAhead::Off;
        let mut cursor = Cursor::seek_back(store, log, &first, off)?;
        while let Some(item) = cursor.item().filter(|item| item.key <= *keys.end()) {
            let at = item.key.offset;
            if item.key >= *keys.start() {
                let extent = FileExtent::parse(at, item.data).expect("verified with its block");
                let to = sector_end(at.saturating_add(extent.file_bytes()));
                if at >= end {
                    break;
                }
                found.extend((to > start).then_some((at, to)));
            }
            cursor.advance()?;
        }
        Ok(found)
    }

    /// Logs ranges of a file of this size.
    fn log_ranges(
        &mut self,
        source: &BackingExtents,
        ranges: &RangeSet,
        size: u64,
    ) -> LogResult<()> {
        let failed = |_| FullCommitReason::Failed;
        let nodes = self.nodes;
        let mut count = 0;
        for range in ranges.iter() {
            let mut segments = ExtentMaps::new(nodes.tree_roots(), source, range.start, range.end);
            while let Some(segment) = segments.next().map_err(failed)? {
                count += 1;
                if count > EXTENTS_MAX {
                    return Err(FullCommitReason::TooManyExtents);
                }
                self.log_segment(source, &segment, size)?;
            }
        }
        Ok(())
    }

    fn log_segment(
        &mut self,
        source: &BackingExtents,
        segment: &ExtentMap,
        size: u64,
    ) -> LogResult<()> {
        let shorter;
        let segment = match &segment.kind {
            ExtentMapKind::Hole => {
                let end = segment.end.min(sector_end(size));
                if end <= segment.start {
                    return Ok(());
                }
                shorter = segment.part(segment.start, end);
                &shorter
            }
            ExtentMapKind::Regular(extent, compression) if source.checksummed => {
                self.log_sums(source, extent, compression.is_some())?;
                segment
            }
            _ => segment,
        };
        let key = Key::new(source.id.number, ItemKind::EXTENT_DATA, segment.start);
        let item = segment.to_item(self.running);
        self.drafts.put_with(key, |content| item.encode_into(content));
        Ok(())
    }

    /// Logs the checksums of a part of an extent, or of all of it if it is compressed.
    fn log_sums(
        &mut self,
        source: &BackingExtents,
        part: &RegularExtent,
        is_compressed: bool,
    ) -> LogResult<()> {
        let (mut at, end) = if is_compressed {
            (part.disk.0, part.disk.0 + part.disk_bytes)
        } else {
            (part.disk.0 + part.offset, part.disk.0 + part.offset + part.bytes)
        };
        while at < end {
            let len = (end - at).min(SUMMED_MAX);
            if self.writer.has_checksums(self.subvolume, Logical(at), Logical(at + len)) {
                at += len;
                continue;
            }
            let bytes = usize::try_from(len).expect("of data that is summed at once");
            let range = Range { logical: Logical(at), len: bytes };
            let sums = SectorChecksums::find(
                self.nodes.tree_roots(),
                source.transactions.as_deref(),
                range,
            );
            let sums = sums.map_err(|_| FullCommitReason::Failed)?;
            for (sector, stored) in sums.runs() {
                let logical = Logical(at + sector * SECTOR);
                self.writer.add_checksums(self.subvolume, logical, stored)?;
            }
            at += len;
        }
        Ok(())
    }
}
