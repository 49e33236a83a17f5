//! Clones a range of a file: the target gets the extents of the source (Linux: FICLONERANGE).
//!
//! 1. The target ends up with the bytes that the source had at one moment, unless space or memory
//!    is short: then the source may change between two steps.
//! 2. Regular extents, preallocated ones and holes are shared as they are, compressed extents too.
//!    Inline data is copied: as inline data if it is all that the target holds, else as bytes.
//! 3. An error leaves a prefix of the range cloned, as on Linux; the target grows step by step.

use userbtrfs_sync::Arc;

use crate::data::cache::file_pages::FilePages;
use crate::data::ops::delalloc::MayExtend;
use crate::data::ops::extend::settle_end;
use crate::data::ops::file_ops::FileOps;
use crate::data::ops::share::{
    Applied, FilePair, MORE_ITEMS, Next, Purpose, ShareRange, Step, extents_of,
};
use crate::data::units::{Times, end_of};
use crate::error::{Error, Result};
use crate::inode::{TreeRoots, ops};
use crate::units::{SECTOR, to_usize};

impl FileOps {
    /// Clones a range of a file into another file, or to another place of the same file. A length
    /// of 0 means up to the end of the source.
    pub(crate) fn clone_range(
        &self,
        source: &Arc<FilePages>,
        target: &Arc<FilePages>,
        range: ShareRange,
        times: Times,
    ) -> Result<()> {
        self.context.transactions.check()?;
        let pair = FilePair { source, target };
        let _operations = pair.lock_operations();
        let Some(range) = checked(&pair, range)? else { return Ok(()) };
        // Meanwhile the target is not written inline: extents may be put behind that.
        let _growing = target.grow();
        let _end = settle_end(&self.delalloc, target, range.to)?;
        let mut done = 0;
        while done < range.sectors() {
            done = self.clone_steps(&pair, &range, done, times)?;
        }
        Ok(())
    }

    /// Clones as much of a range, from `done` on, as one hold of the locks allows; returns up to
    /// where it is done.
    fn clone_steps(
        &self,
        pair: &FilePair<'_>,
        range: &ShareRange,
        mut done: u64,
        times: Times,
    ) -> Result<u64> {
        let context = &self.context;
        let purpose = Purpose::Clone(times);
        // The dirty data of the target that is replaced was written, if the clone fails half-way.
        self.write_back(pair.target)?;
        self.write_back(pair.source)?;
        let wanted = |done: u64| extents_of(range.sectors() - done);
        let mut space = ops::reserve_for_clone(&context.nodes, wanted(done), MORE_ITEMS)?;
        let locked = pair.lock(range.target());
        self.writeback().write_locked_range(pair.source)?;
        loop {
            let (reservation, most) = space;
            match Step::next(context, pair, range, done, most, purpose)? {
                Next::Step(step) => {
                    let end = step.done;
                    match step.apply(context, pair.target, range, purpose, reservation)? {
                        Applied::Done => done = end,
                        Applied::Outdated(reservation) => {
                            space = (reservation, most);
                            continue;
                        }
                    }
                }
                Next::CopyInline => {
                    drop((locked, reservation));
                    return self.copy_first_sector(pair, range, times);
                }
            }
            if done == range.sectors() {
                return Ok(done);
            }
            match ops::try_reserve_for_clone(&context.nodes, wanted(done), MORE_ITEMS) {
                Some(next) => space = next,
                None => return Ok(done),
            }
        }
    }

    /// Writes the bytes of the first sector of the source, which are inline data, into the target.
    fn copy_first_sector(
        &self,
        pair: &FilePair<'_>,
        range: &ShareRange,
        times: Times,
    ) -> Result<u64> {
        let mut bytes = vec![0; to_usize(range.len.min(SECTOR))];
        pair.source.read(self.context.tree_roots(), 0, &mut bytes, 0)?;
        let place = range.to..range.to + bytes.len() as u64;
        let write = |tree_roots: &TreeRoots| pair.target.write(tree_roots, range.to, &bytes);
        self.delalloc.change(pair.target, place, MayExtend::Allowed, times, write)?;
        Ok(SECTOR)
    }
}

/// Returns a range with its length, if it may be cloned; `None` if there is nothing to do.
fn checked(pair: &FilePair<'_>, range: ShareRange) -> Result<Option<ShareRange>> {
    pair.check_checksums()?;
    let beyond = || Error::Invalid("a range beyond the end");
    let left = pair.source.size().checked_sub(range.from).ok_or_else(beyond)?;
    let len = if range.len == 0 { left } else { range.len };
    if len == 0 {
        return Ok(None);
    }
    let range = ShareRange { len, ..range };
    // Before the sectors of a range are counted.
    let end = end_of(range.to, len).map_err(|_| beyond())?;
    if len > left {
        return Err(beyond());
    }
    range.check(pair)?;
    // A partial sector is cloned only from the end of a file to the end of one.
    if !len.is_multiple_of(SECTOR) && (len < left || end < pair.target.size()) {
        return Err(Error::Invalid("a range that does not end at a sector"));
    }
    Ok(Some(range))
}
