//! Rewriting of copies that reads found bad, where another copy is good.
//!
//! 1. A read does not write: what it read may be freed, and its place given to another, before it
//!    is done. It notes what was bad, and that is repaired soon, at the latest when the filesystem
//!    is closed.
//! 2. A repair is in a transaction, and the one before is durable. What the extent tree lists then
//!    was there when this transaction began, and does not become free before it is durable: so
//!    nobody else writes there. Nor does who has the extent: what has checksums is never
//!    overwritten.
//! 3. All copies are read anew, and what is good is what the trees say now: of a tree block, the
//!    transaction that wrote it; of data, its checksums.
//! 4. What cannot be repaired harms nobody: the next read finds it again.

use userbtrfs_format::Logical;
use userbtrfs_transaction::HandleKind;
use userbtrfs_volume::{BadMirror, Range};

use crate::data::read::checksums::SectorChecksums;
use crate::data::writeback::context::{SECTOR, WriteContext};
use crate::error::Result;

impl WriteContext {
    /// Repairs what reads found bad until now. No lock is held.
    pub(crate) fn repair(&self) {
        let found = self.transactions.volume().take_bad_copies();
        if !found.is_empty() {
            let _still_bad = self.repair_all(&found);
        }
    }

    fn repair_all(&self, found: &[BadMirror]) -> Result<()> {
        let transaction = self.transactions.start(HandleKind::Writing)?;
        self.transactions.wait_durable(transaction.generation() - 1)?;
        for bad in found {
            let _still_bad = self.repair_one(bad);
        }
        Ok(())
    }

    fn repair_one(&self, bad: &BadMirror) -> Result<()> {
        let (transactions, volume) = (&self.transactions, self.transactions.volume());
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
                    self.repair_data(range)?;
                }
            }
        }
        Ok(())
    }

    fn repair_data(&self, range: Range) -> Result<()> {
        let volume = self.transactions.volume();
        let sums = SectorChecksums::find(self.nodes.tree_roots(), Some(&self.transactions), range)?;
        let len = usize::try_from(SECTOR).expect("a sector is small");
        for sector in (0..range.len / len).filter(|sector| sums.get(*sector).is_some()) {
            let logical = Logical(range.logical.0 + (sector * len) as u64);
            let range = Range { logical, len };
            let repaired = volume.repair(range, |copy| sums.is_good(sector, copy));
            repaired.map_err(userbtrfs_transaction::Error::from)?;
        }
        Ok(())
    }
}
