//! Name changes that need more inodes to be logged, or a commit.

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

    /// Returns true if a commit is needed in place of a log of all of a directory.
    pub(crate) fn needs_commit(&self, running: u64, dir: InodeId) -> bool {
        let mut table = self.table.lock();
        let entries = table.of(running).and_then(|table| table.entries_of(dir));
        entries.is_some_and(|entries| entries.needs_commit)
    }

    /// Returns true if two or more unlogged inodes exchanged their committed names in a directory
    /// in a circle. `names` are the current names, by hash, and their inodes.
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
    /// Marks the directories that need a commit in place of a log of all of them.
    pub(super) fn note_move(&mut self, name_removal: &NameRemoval, dir: InodeId, is_known: bool) {
        let Some(kind) = name_removal.moved_away else { return };
        let of_dir = (!is_known).then_some(dir);
        let of_inode = (kind == FileKind::Directory).then_some(name_removal.inode);
        for id in of_dir.into_iter().chain(of_inode).filter(|_| !self.forgotten) {
            self.inodes.entry(id).or_default().entries().needs_commit = true;
        }
    }
}

/// Returns true if inodes that each lost a name, by hash, hold these names in a circle. An inode
/// that has its own name again is not a circle.
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
