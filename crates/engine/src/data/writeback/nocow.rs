//! Which data is written where it is, or into the tree, and not into new space.
//!
//! 1. Space that was allocated ahead is written in place, and data of a file that is not copied
//!    on write: each only where nobody else refers to the extent.
//! 2. A file that is small, and all dirty, goes into the tree, unless it is about to get something
//!    behind its first sector.
//! 3. Everything else is copied on write.

use smallvec::smallvec;
use userbtrfs_codec::compress::Compression;
use userbtrfs_format::{InodeFlags, InodeItem, Logical, RegularExtent, item_len_max};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::NocowGuard;

use crate::data::writeback::context::{SECTOR, WriteContext};
use crate::data::writeback::write_extent::{WriteTarget, WriteTargets};
use crate::data::{DirtyRun, ExtentMap, ExtentMapKind, ExtentMaps, FilePages};
use crate::error::Result;
use crate::inode::reference;

/// The longest file that is kept in the tree, in bytes, as Linux does it by default.
pub(in crate::data) const INLINE_MAX: u64 = 2048;

/// Bytes of an EXTENT_DATA before inline data.
const INLINE_HEAD: u64 = 21;

/// What a file has that is not copied on write: checksums would not fit what is there.
const IN_PLACE: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);

/// The extent that was asked about last, which is held if the file is its only user.
type NocowCheck = Option<(Logical, Option<NocowGuard>)>;

impl WriteContext {
    /// Whether something of a file may be written in place.
    pub(in crate::data) fn may_be_in_place(item: &InodeItem) -> bool {
        item.flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC)
    }

    /// Cuts a run of a file by where it goes: the end of each part, and its place, where that is
    /// not newly allocated. With the run the file has this size, or more soon. The writeback lock
    /// is held.
    pub(in crate::data) fn places(
        &self,
        pages: &FilePages,
        item: &InodeItem,
        run: &DirtyRun,
        size: u64,
    ) -> Result<WriteTargets> {
        if Self::may_be_in_place(item) {
            return self.places_in_extents(pages, item, run.start, run.end);
        }
        let inline = self.inline(pages, run, size)?;
        Ok(smallvec![(run.end, inline.map(WriteTarget::Inline))])
    }

    /// The bytes of a file of this size that is kept in the tree from now on.
    fn inline(&self, pages: &FilePages, run: &DirtyRun, size: u64) -> Result<Option<Arc<[u8]>>> {
        if run.start > 0 || run.end > SECTOR || pages.is_growing() {
            return Ok(None);
        }
        if !(1..=INLINE_MAX.min(self.inline_fits())).contains(&size) {
            return Ok(None);
        }
        let source = pages.beneath();
        let mut behind = ExtentMaps::new(self.nodes.tree_roots(), &source, SECTOR, u64::MAX);
        let alone = behind.next()?.is_none_or(|segment| {
            matches!(segment.kind, ExtentMapKind::Hole) && segment.end == u64::MAX
        });
        let size = usize::try_from(size).expect("below a sector");
        Ok(alone.then(|| run.parts[0][..size].into()))
    }

    /// The most bytes that can be inline data at all: less than a sector, and what fits into a
    /// leaf.
    pub(in crate::data) fn inline_fits(&self) -> u64 {
        let nodesize = self.transactions.volume().geometry().nodesize;
        (SECTOR - 1).min(item_len_max(nodesize) as u64 - INLINE_HEAD)
    }

    /// As `places`, for a file that may have extents to be written in place.
    pub(in crate::data) fn places_in_extents(
        &self,
        pages: &FilePages,
        item: &InodeItem,
        start: u64,
        end: u64,
    ) -> Result<WriteTargets> {
        let source = pages.beneath();
        let mut segments = ExtentMaps::new(self.nodes.tree_roots(), &source, start, end);
        let mut places = WriteTargets::new();
        let mut asked = None;
        while let Some(segment) = segments.next()? {
            let place = self.place_in(pages, item, &segment, &mut asked)?;
            match places.last_mut() {
                Some((end, None)) if place.is_none() => *end = segment.end,
                _ => places.push((segment.end, place)),
            }
        }
        Ok(places)
    }

    /// The place for what is written over a segment.
    fn place_in(
        &self,
        pages: &FilePages,
        item: &InodeItem,
        segment: &ExtentMap,
        asked: &mut NocowCheck,
    ) -> Result<Option<WriteTarget>> {
        let extent = match &segment.kind {
            ExtentMapKind::Prealloc(extent) => *extent,
            ExtentMapKind::Regular { extent, compression: None::<Compression>, skip }
                if item.flags.contains(IN_PLACE) =>
            {
                RegularExtent { offset: extent.offset + skip, ..*extent }
            }
            _ => return Ok(None),
        };
        let extent = RegularExtent { bytes: segment.end - segment.start, ..extent };
        let hold = self.hold_if_only_user(pages, segment.start, &extent, asked)?;
        Ok(hold.map(|hold| match segment.kind {
            ExtentMapKind::Prealloc(_) => WriteTarget::Prealloc { extent, _hold: hold },
            _ => WriteTarget::Same { logical: Logical(extent.disk.0 + extent.offset), _hold: hold },
        }))
    }

    /// Holds an extent to which nobody but this file refers, where the part of it starts at
    /// `start`.
    fn hold_if_only_user(
        &self,
        pages: &FilePages,
        start: u64,
        extent: &RegularExtent,
        asked: &mut NocowCheck,
    ) -> Result<Option<NocowGuard>> {
        if let Some((_, hold)) = asked.as_ref().filter(|(disk, _)| *disk == extent.disk) {
            return Ok(hold.clone());
        }
        let hold = self.transactions.hold_if_only_user(&reference(pages.id(), start, extent))?;
        *asked = Some((extent.disk, hold.clone()));
        Ok(hold)
    }
}
