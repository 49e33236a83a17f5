//! Decides where data is written: in place, inline in the tree, or copied on write (Linux:
//! run_delalloc_nocow).
//!
//! 1. Preallocated space, and data of a file that is not copied on write, is written in place,
//!    provided that the file is the only user of the extent.
//! 2. A small file of which all is dirty is written inline, compressed if that is shorter, unless
//!    it is about to grow beyond its first sector.
//! 3. Everything else is copied on write.
//! 4. A relocation waits for the guards of extents that are written in place. Addresses that one
//!    moved before they were guarded are looked up again.

use smallvec::smallvec;
use userbtrfs_format::{InodeFlags, InodeItem, Logical, RegularExtent, item_len_max};
use userbtrfs_transaction::NocowGuard;

use crate::data::cache::dirty::DirtyRun;
use crate::data::cache::file_pages::FilePages;
use crate::data::read::get_extent::ExtentMaps;
use crate::data::writeback::compress::{CompressedInline, FileCompression, compress_inline};
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::write_extent::{WriteTarget, WriteTargets};
use crate::error::Result;
use crate::inode::{ExtentMap, ExtentMapKind, InlineData, reference};
use crate::units::{SECTOR, SECTOR_LEN};

/// The most bytes that are stored inline: the default of Linux.
const INLINE_MAX: u64 = 2048;

/// Bytes of an EXTENT_DATA before inline data.
const INLINE_HEAD: u64 = 21;

/// The flags of a file that is overwritten in place: with checksums, the old ones would not match.
const IN_PLACE: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);

/// The targets of a run.
pub(in crate::data) struct RunTargets {
    pub(in crate::data) targets: WriteTargets,
    /// Whether data was compressed in vain.
    pub(in crate::data) is_incompressible: bool,
}

/// The extent that was checked last, with a guard if the file is its only user.
type NocowCheck = Option<(Logical, Option<NocowGuard>)>;

/// Returns true if data of a file may be written in place.
pub(in crate::data) fn may_be_in_place(item: &InodeItem) -> bool {
    item.flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC)
}

/// Splits a run of a file by its targets: the end of each part, and its target, or `None` if it
/// needs allocation. `size` is the size of the file including the run, and `how` tells how its data
/// is compressed. The caller holds the writeback lock.
pub(in crate::data) fn targets(
    context: &WriteContext,
    pages: &FilePages,
    item: &InodeItem,
    run: &DirtyRun,
    size: u64,
    how: Option<FileCompression>,
) -> Result<RunTargets> {
    if may_be_in_place(item) {
        let targets = targets_in_extents(context, pages, item, run.start, run.end)?;
        return Ok(RunTargets { targets, is_incompressible: false });
    }
    targets_elsewhere(context, pages, run, size, how)
}

/// Like `targets`, but nothing is overwritten in place.
pub(in crate::data) fn targets_elsewhere(
    context: &WriteContext,
    pages: &FilePages,
    run: &DirtyRun,
    size: u64,
    how: Option<FileCompression>,
) -> Result<RunTargets> {
    let mut is_incompressible = false;
    let inline = inline(context, pages, run, size, how, &mut is_incompressible)?;
    let targets = smallvec![(run.end, inline.map(WriteTarget::Inline))];
    Ok(RunTargets { targets, is_incompressible })
}

/// Returns the data of a file of this size if it can be stored inline. Compressed data may be of
/// all bytes of a sector, others not. Records if it was compressed in vain.
fn inline(
    context: &WriteContext,
    pages: &FilePages,
    run: &DirtyRun,
    size: u64,
    how: Option<FileCompression>,
    is_incompressible: &mut bool,
) -> Result<Option<InlineData>> {
    let fits = INLINE_MAX.min(inline_fits(context));
    let size_max = if how.is_some() { SECTOR } else { fits };
    if run.start > 0 || run.end > SECTOR || !(1..=size_max).contains(&size) || pages.is_growing() {
        return Ok(None);
    }
    let source = pages.backing_extents();
    let mut behind = ExtentMaps::new(context.tree_roots(), &source, SECTOR, u64::MAX);
    let alone = behind.next()?.is_none_or(|segment| {
        matches!(segment.kind, ExtentMapKind::Hole) && segment.end == u64::MAX
    });
    if !alone {
        return Ok(None);
    }
    let sector = &run.parts[0][..SECTOR_LEN];
    let len = usize::try_from(size).expect("at most a sector");
    match how.map(|how| compress_inline(context, sector, len, how, fits)) {
        Some(CompressedInline::Data(data)) => return Ok(Some(data)),
        Some(CompressedInline::Incompressible) => *is_incompressible = true,
        Some(CompressedInline::Plain) | None => {}
    }
    Ok((size <= fits).then(|| InlineData::plain(&sector[..len])))
}

/// Returns the most bytes of inline data: less than a sector, and at most what fits into a
/// leaf.
pub(in crate::data) fn inline_fits(context: &WriteContext) -> u64 {
    let nodesize = context.transactions.volume().geometry().nodesize;
    (SECTOR - 1).min(item_len_max(nodesize) as u64 - INLINE_HEAD)
}

/// Like `targets`, for a file that may have extents to be written in place.
pub(in crate::data) fn targets_in_extents(
    context: &WriteContext,
    pages: &FilePages,
    item: &InodeItem,
    start: u64,
    end: u64,
) -> Result<WriteTargets> {
    loop {
        let source = pages.backing_extents();
        let segments = ExtentMaps::new(context.tree_roots(), &source, start, end);
        let targets = targets_of(context, pages, item, segments);
        if source.is_current() {
            return targets;
        }
        drop(targets);
        source.wait_for_epoch()?;
    }
}

/// Returns the targets of data written over segments.
fn targets_of(
    context: &WriteContext,
    pages: &FilePages,
    item: &InodeItem,
    mut segments: ExtentMaps<'_>,
) -> Result<WriteTargets> {
    let mut targets = WriteTargets::new();
    let mut asked = None;
    while let Some(segment) = segments.next()? {
        let target = target_in(context, pages, item, &segment, &mut asked)?;
        match targets.last_mut() {
            Some((end, None)) if target.is_none() => *end = segment.end,
            _ => targets.push((segment.end, target)),
        }
    }
    Ok(targets)
}

/// Returns the target of data written over a segment; `None` if it must be allocated.
fn target_in(
    context: &WriteContext,
    pages: &FilePages,
    item: &InodeItem,
    segment: &ExtentMap,
    asked: &mut NocowCheck,
) -> Result<Option<WriteTarget>> {
    let extent = match &segment.kind {
        ExtentMapKind::Prealloc(extent) => *extent,
        ExtentMapKind::Regular(extent, None) if item.flags.contains(IN_PLACE) => *extent,
        _ => return Ok(None),
    };
    let hold = hold_if_only_user(context, pages, segment.start, &extent, asked)?;
    Ok(hold.map(|hold| match segment.kind {
        ExtentMapKind::Prealloc(_) => WriteTarget::Prealloc { extent, _hold: hold },
        _ => WriteTarget::Same { logical: Logical(extent.disk.0 + extent.offset), _hold: hold },
    }))
}

/// Returns a guard of an extent if this file is its only user. `start` is the file offset of
/// the part.
fn hold_if_only_user(
    context: &WriteContext,
    pages: &FilePages,
    start: u64,
    extent: &RegularExtent,
    asked: &mut NocowCheck,
) -> Result<Option<NocowGuard>> {
    if let Some((_, hold)) = asked.as_ref().filter(|(disk, _)| *disk == extent.disk) {
        return Ok(hold.clone());
    }
    let hold = context.transactions.hold_if_exclusive(&reference(pages.id(), start, extent))?;
    *asked = Some((extent.disk, hold.clone()));
    Ok(hold)
}
