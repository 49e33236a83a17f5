//! Replays the contents of files.
//!
//! 1. An extent that a log refers to is either in the extent tree as a whole, or all of its space
//!    is free and is taken for it before anything else is allocated.
//! 2. Space that was taken is counted with the first file that refers to it, and given back if none
//!    does.
//! 3. Checksums of an extent are added with the range that refers to it; existing ones are replaced
//!    by those that the log has for the same sectors.

use std::collections::{BTreeMap, BTreeSet};

use userbtrfs_btree::Extent;
use userbtrfs_format::{FileKind, InodeFlags, Key, Logical, RegularExtent};
use userbtrfs_transaction::{TransactionManager, refs};

use super::report::Replayed;
use super::state::Replay;
use crate::error::{LogDamage, Result};
use crate::inode::ops;
use crate::inode::{ExtentMap, ExtentMapKind, Inode};
use crate::log::items::LogItem;

/// The bytes of pending checksums above which they are merged into the tree.
const CHECKSUMS_MAX: usize = 1 << 20;

/// The extents that were taken out of free space.
#[derive(Default)]
pub(super) struct Extents {
    /// By address: length, and whether a file refers to it.
    taken: BTreeMap<u64, (u64, bool)>,
    /// Addresses and lengths of extents that cannot be taken: ranges that refer to them are
    /// skipped.
    refused: BTreeSet<(u64, u64)>,
    /// Bytes of checksums since the last merge.
    checksums: usize,
}

impl Extents {
    /// Takes the space of an extent that the log names, if the extent tree does not have it.
    pub(super) fn take(&mut self, replay: &Replay<'_>, key: Key, extent: &ExtentMap) -> Result<()> {
        let Some(extent) = extent.kind.on_disk() else { return Ok(()) };
        self.take_space(replay, key, extent).inspect_err(|_| {
            self.refused.insert((extent.disk.0, extent.disk_bytes));
        })
    }

    fn take_space(&mut self, replay: &Replay<'_>, key: Key, extent: &RegularExtent) -> Result<()> {
        let &RegularExtent { disk: logical, disk_bytes: len, .. } = extent;
        let in_use = || replay.log.damage(key, LogDamage::ExtentInUse { logical, len });
        match self.taken.get(&logical.0) {
            Some((taken, _)) if *taken == len => return Ok(()),
            Some(_) => return Err(in_use()),
            None => {}
        }
        let transactions = replay.nodes.transactions()?;
        if refs::lookup(transactions.tree_roots(), &Extent::Data { logical, len })?.is_some() {
            return Ok(());
        }
        if transactions.space().take_data_at(transactions.tree_roots(), logical, len)? {
            self.taken.insert(logical.0, (len, false));
            Ok(())
        } else {
            Err(in_use())
        }
    }

    fn is_refused(&self, extent: &RegularExtent) -> bool {
        self.refused.contains(&(extent.disk.0, extent.disk_bytes))
    }

    /// Returns true for the first reference to space that was taken, which is noted.
    fn is_first(&mut self, extent: &RegularExtent) -> bool {
        let taken = self.taken.get_mut(&extent.disk.0);
        taken.is_some_and(|(_, counted)| !std::mem::replace(counted, true))
    }

    /// Gives back the space that no file refers to.
    pub(super) fn give_back_rest(self, transactions: &TransactionManager) {
        for (logical, (len, counted)) in self.taken {
            if !counted {
                transactions.give_back_logged_data(Logical(logical), len);
            }
        }
    }
}

/// Finds the contents whose checksums the log should have, and which cannot be read. An inode
/// comes before its extents.
pub(super) fn check_checksums(replay: &mut Replay<'_>, key: Key, item: &LogItem<'_>) {
    match item {
        LogItem::Inode(inode) => replay.flags = inode.flags,
        LogItem::Extent(extent) => {
            if let ExtentMapKind::Regular(on_disk, compression) = &extent.kind
                && checksums_of(replay, key, replay.flags, on_disk, compression.is_some()).is_err()
            {
                replay.missing.add_range(key.objectid, extent.start..extent.end);
            }
        }
        _ => {}
    }
}

/// Sets the content of a range of a file. `data` is the item.
pub(super) fn replay_extent(
    replay: &mut Replay<'_>,
    key: Key,
    logged: ExtentMap,
    data: &[u8],
    extents: &mut Extents,
    report: &mut Replayed,
) -> Result<()> {
    let inode = replay.logged_inode(key)?;
    check_contents(replay, key, &inode)?;
    replay.rewritten.insert(key.objectid);
    report.extents += 1;
    let ExtentMap { start, end, kind } = logged;
    let Some(on_disk) = kind.on_disk().copied() else {
        return ops::replay_file(replay.nodes, &inode, |file| file.put(start, end, kind, false));
    };
    // A refused extent was reported before; the existing content stays.
    if extents.is_refused(&on_disk)
        || ops::replay_has_extent(replay.nodes, &inode, start, end, data)?
    {
        return Ok(());
    }
    let checksums = match kind {
        ExtentMapKind::Regular(_, compression) => {
            checksums_of(replay, key, inode.item().flags, &on_disk, compression.is_some())?
        }
        _ => Vec::new(),
    };
    let fresh = extents.is_first(&on_disk);
    let transactions = replay.nodes.transactions()?;
    ops::replay_file(replay.nodes, &inode, |file| {
        for (logical, stored) in &checksums {
            transactions.add_checksums(file.handle(), *logical, stored);
        }
        file.put(start, end, kind, fresh);
    })?;
    extents.checksums += checksums.iter().map(|(_, stored)| stored.len()).sum::<usize>();
    if extents.checksums > CHECKSUMS_MAX {
        extents.checksums = 0;
        transactions.merge_pending()?;
    }
    Ok(())
}

fn check_contents(replay: &Replay<'_>, key: Key, inode: &Inode) -> Result<()> {
    match inode.kind() {
        FileKind::Regular | FileKind::Symlink => Ok(()),
        _ => Err(replay.log.damage(key, LogDamage::NoContents(key.objectid))),
    }
}

/// Returns the checksums that the log has for a range of an extent, or for all of it if it is
/// compressed.
pub(super) fn checksums_of(
    replay: &Replay<'_>,
    key: Key,
    flags: InodeFlags,
    extent: &RegularExtent,
    is_compressed: bool,
) -> Result<Vec<(Logical, Vec<u8>)>> {
    if flags.contains(InodeFlags::NODATASUM) {
        return Ok(Vec::new());
    }
    let (skip, bytes) =
        if is_compressed { (0, extent.disk_bytes) } else { (extent.offset, extent.bytes) };
    // Cannot overflow: the extent lies in the address space, and the range in the extent.
    let start = extent.disk.0 + skip;
    let found = replay.log.checksums(replay.tree_roots(), start, start + bytes);
    found.map_err(|_| replay.log.damage(key, LogDamage::Checksums(extent.disk)))
}
