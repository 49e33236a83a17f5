//! Shares the extents of ranges that hold the same bytes (Linux: FIDEDUPERANGE).
//!
//! 1. The bytes are compared while both ranges are locked, and shared under the same locks. If
//!    space or memory is short, the locks are released between steps, and the rest of the range is
//!    compared again.
//! 2. Neither size nor times change. Inline data, and what is shared already, stays.
//! 3. The length is not limited; Linux shares at most 16 MiB at a time, one after the other.

use std::ops::Range;

use userbtrfs_sync::Arc;

use crate::data::cache::file_pages::FilePages;
use crate::data::ops::file_ops::FileOps;
use crate::data::ops::share::{
    Applied, FilePair, MORE_ITEMS, Next, Purpose, ShareRange, Step, extents_of,
};
use crate::error::{Error, Result};
use crate::inode::ops;
use crate::units::{sector_start, to_usize};

/// The most bytes that are compared in one go.
const PART: u64 = 1 << 20;

/// The result of a request to share what is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deduped {
    /// The ranges are equal, and shared.
    Same {
        /// The bytes that are equal: the length of the request, or less if that ends within a
        /// sector before the end of a file.
        len: u64,
        /// The bytes of the target whose extents were replaced by those of the source.
        shared: u64,
    },
    /// The ranges differ, and nothing was changed.
    Differs,
}

/// Progress of a request.
struct Progress {
    done: u64,
    shared: u64,
}

impl FileOps {
    /// Shares the extents of a range with those of an equal range of another file, or of the same
    /// file.
    pub(crate) fn dedupe_range(
        &self,
        source: &Arc<FilePages>,
        target: &Arc<FilePages>,
        range: ShareRange,
    ) -> Result<Deduped> {
        self.context.transactions.check()?;
        let pair = FilePair { source, target };
        let _operations = pair.lock_operations();
        let range = checked(&pair, range)?;
        let mut progress = Progress { done: 0, shared: 0 };
        while progress.done < range.sectors() {
            if self.dedupe_steps(&pair, &range, &mut progress)? {
                continue;
            }
            if progress.done == 0 {
                return Ok(Deduped::Differs);
            }
            return Ok(Deduped::Same { len: progress.done, shared: progress.shared });
        }
        Ok(Deduped::Same { len: range.len, shared: progress.shared })
    }

    /// Compares the rest of a range, and shares as much of it as one hold of the locks allows.
    /// Returns false if the rest differs.
    fn dedupe_steps(
        &self,
        pair: &FilePair<'_>,
        range: &ShareRange,
        progress: &mut Progress,
    ) -> Result<bool> {
        let context = &self.context;
        self.write_back(pair.target)?;
        self.write_back(pair.source)?;
        let wanted = |done: u64| extents_of(range.sectors() - done);
        let mut space = ops::reserve_for_clone(&context.nodes, wanted(progress.done), MORE_ITEMS)?;
        let _locked = pair.lock(range.target());
        if !self.is_equal(pair, range, progress.done..range.len)? {
            return Ok(false);
        }
        self.writeback().write_locked_range(pair.source)?;
        while progress.done < range.sectors() {
            let (reservation, most) = space;
            let next = Step::next(context, pair, range, progress.done, most, Purpose::Dedupe)?;
            let Next::Step(step) = next else { unreachable!("inline data stays") };
            let end = step.done;
            let bytes = step.bytes();
            if !step.is_empty()
                && let Applied::Outdated(reservation) =
                    step.apply(context, pair.target, range, Purpose::Dedupe, reservation)?
            {
                space = (reservation, most);
                continue;
            }
            progress.done = end;
            progress.shared += bytes;
            let next =
                ops::try_reserve_for_clone(&context.nodes, wanted(progress.done), MORE_ITEMS);
            let Some(next) = next else { break };
            space = next;
        }
        Ok(true)
    }

    /// Returns true if a part of both ranges holds the same bytes. The caller holds both ranges.
    fn is_equal(&self, pair: &FilePair<'_>, range: &ShareRange, part: Range<u64>) -> Result<bool> {
        let len = to_usize((part.end - part.start).min(PART));
        let mut ours = vec![0; len];
        let mut theirs = vec![0; len];
        let tree_roots = self.context.tree_roots();
        let mut at = part.start;
        while at < part.end {
            let len = to_usize((part.end - at).min(PART));
            pair.source.read_locked(tree_roots, range.from + at, &mut ours[..len])?;
            pair.target.read_locked(tree_roots, range.to + at, &mut theirs[..len])?;
            if ours[..len] != theirs[..len] {
                return Ok(false);
            }
            at += len as u64;
        }
        Ok(true)
    }
}

/// Returns a range, shortened to whole sectors unless both of its parts end with their files.
fn checked(pair: &FilePair<'_>, range: ShareRange) -> Result<ShareRange> {
    let left = |pages: &FilePages, start: u64| {
        let left = pages.size().checked_sub(start).filter(|left| *left >= range.len);
        left.ok_or(Error::Invalid("a range beyond the end"))
    };
    let ours = left(pair.source, range.from)?;
    if range.len == 0 {
        return Ok(range);
    }
    let theirs = left(pair.target, range.to)?;
    let is_end = ours == range.len && theirs == range.len;
    let len = if is_end { range.len } else { sector_start(range.len) };
    let range = ShareRange { len, ..range };
    pair.check_checksums()?;
    range.check(pair)?;
    Ok(range)
}
