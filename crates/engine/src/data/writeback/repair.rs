//! Repair of bad mirrors that reads found, from a good mirror.
//!
//! 1. A read does not write: before it is done, the extent that it read may be freed and its space
//!    reused. It records the bad mirror, which is repaired soon, at the latest when the filesystem
//!    is closed.
//! 2. A repair runs in a transaction, after the previous one is durable. An extent that the extent
//!    tree lists then existed when this transaction began, and its space is not reused before this
//!    transaction is durable: so no other extent is written there. Nor does the owner of the extent
//!    write there: data with checksums is never overwritten.
//! 3. All mirrors are read again, and the trees decide which is good: for a tree block, the
//!    generation that wrote it; for data, its checksums.
//! 4. A failed repair does no harm: the next read finds the bad mirror again.

use userbtrfs_format::Logical;
use userbtrfs_transaction::HandleKind;
use userbtrfs_volume::{BadMirror, Range};

use crate::data::read::checksums::SectorChecksums;
use crate::data::writeback::context::WriteContext;
use crate::error::Result;
use crate::units::SECTOR_LEN;

/// Repairs the bad mirrors that reads have found. The caller holds no lock.
pub(in crate::data) fn repair(context: &WriteContext) {
    let found = context.transactions.volume().take_bad_copies();
    if !found.is_empty() {
        let _still_bad = repair_all(context, &found);
    }
}

fn repair_all(context: &WriteContext, found: &[BadMirror]) -> Result<()> {
    let transaction = context.transactions.start(HandleKind::Writing)?;
    context.transactions.wait_durable(transaction.generation() - 1)?;
    for bad in found {
        let _still_bad = repair_one(context, bad);
    }
    Ok(())
}

fn repair_one(context: &WriteContext, bad: &BadMirror) -> Result<()> {
    let transactions = &context.transactions;
    let volume = context.transactions.volume();
    match *bad {
        BadMirror::Block(logical, expected) => {
            if transactions.lists_block(logical, expected.level, expected.generation)? {
                volume
                    .repair_block(logical, &expected)
                    .map_err(userbtrfs_transaction::Error::from)?;
            }
        }
        BadMirror::Data(range) => {
            if transactions.lists_range(range.logical, range.len as u64)? {
                repair_data(context, range)?;
            }
        }
    }
    Ok(())
}

fn repair_data(context: &WriteContext, range: Range) -> Result<()> {
    let volume = context.transactions.volume();
    let sums = SectorChecksums::find(context.tree_roots(), Some(&context.transactions), range)?;
    for sector in (0..range.len / SECTOR_LEN).filter(|sector| sums.get(*sector).is_some()) {
        let logical = Logical(range.logical.0 + (sector * SECTOR_LEN) as u64);
        let range = Range { logical, len: SECTOR_LEN };
        let repaired = volume.repair(range, |copy| sums.is_good(sector, copy));
        repaired.map_err(userbtrfs_transaction::Error::from)?;
    }
    Ok(())
}
