//! Names that changed so that more than their inodes is logged, or all is committed.

use std::collections::HashMap;

use userbtrfs_format::FileKind;

use super::{LogTracker, NameRemoval, RemovedName, Table};
use crate::error::InodeId;

impl LogTracker {
    /// Notes that a committed inode gained or lost a name.
    pub(crate) fn note_changed_names(&self, running: u64, inode: InodeId) {
        let mut table = self.table.lock();
        let trace = table.of(running).and_then(|table| table.inodes.get_mut(&inode));
        if let Some(logged) = trace.and_then(|trace| trace.logged.as_mut()) {
            logged.names_changed = true;
        }
    }

    /// Returns whether a log of all of a directory needs a commit instead.
    pub(crate) fn needs_commit(&self, running: u64, dir: InodeId) -> bool {
        let mut table = self.table.lock();
        let entries = table.of(running).and_then(|table| table.entries_of(dir));
        entries.is_some_and(|entries| entries.needs_commit)
    }

    /// Returns whether two or more inodes that the log does not have changed their committed names
    /// in a directory in a circle. These are the names that inodes have now, by hash.
    pub(crate) fn is_circle(&self, running: u64, dir: InodeId, names: &[(u32, u64)]) -> bool {
        let mut table = self.table.lock();
        let Some(table) = table.of(running) else { return false };
        let lost_name = |number: u64| {
            let trace = table.inodes.get(&InodeId { number, ..dir })?;
            let is_here = |lost: &&RemovedName| lost.committed && lost.dir == dir.number;
            trace.lost.iter().find(is_here).filter(|_| trace.logged.is_none()).map(|it| it.hash)
        };
        let lost = names.iter().filter_map(|(_, inode)| Some((*inode, lost_name(*inode)?)));
        let lost: HashMap<_, _> = lost.collect();
        lost.len() > 1 && has_circle(&lost, &names.iter().copied().collect())
    }
}

impl Table {
    /// Notes of which directories no log of all will do.
    pub(super) fn note_move(&mut self, name_removal: &NameRemoval, dir: InodeId, is_known: bool) {
        let Some(kind) = name_removal.moved_away else { return };
        let of_dir = (!is_known).then_some(dir);
        let of_inode = (kind == FileKind::Directory).then_some(name_removal.inode);
        for id in of_dir.into_iter().chain(of_inode).filter(|_| !self.forgotten) {
            self.inodes.entry(id).or_default().entries().needs_commit = true;
        }
    }
}

/// Returns whether inodes that each lost a name, by hash, hold these names of each other in a
/// circle. An inode that has its own name again is none.
fn has_circle(lost: &HashMap<u64, u32>, holders: &HashMap<u32, u64>) -> bool {
    let mut rounds = HashMap::new();
    for (round, first) in lost.keys().enumerate() {
        let mut next = Some(*first);
        while let Some(inode) = next {
            if let Some(before) = rounds.insert(inode, round) {
                if before == round {
                    return true;
                }
                break;
            }
            let holder = lost.get(&inode).and_then(|hash| holders.get(hash));
            next = holder.copied().filter(|holder| *holder != inode);
        }
    }
    false
}
