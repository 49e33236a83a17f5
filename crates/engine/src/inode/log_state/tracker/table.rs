//! The table of one transaction: which inodes are logged, and which names they lost.

use super::{Entries, InodeLogState, NOTES_MAX, NameRemoval, Table};
use crate::error::InodeId;
use crate::inode::log_state::few::Few;

impl Table {
    /// Returns the table if it belongs to this transaction.
    pub(super) fn of(&mut self, running: u64) -> Option<&mut Self> {
        (self.transaction == running).then_some(self)
    }

    /// Resets the table if it belongs to an earlier transaction. Returns true if it belongs to this
    /// one and did not overflow.
    pub(super) fn is_of(&mut self, running: u64) -> bool {
        if self.transaction < running {
            *self = Self { transaction: running, ..Self::default() };
        }
        self.transaction == running && !self.forgotten
    }

    pub(super) fn entries_of(&self, dir: InodeId) -> Option<&Entries> {
        self.inodes.get(&dir)?.entries.as_deref()
    }

    pub(super) fn left(&mut self, dir: InodeId, hash: u32) -> Vec<u64> {
        let Some(all) = self.entries_of(dir).and_then(|entries| entries.left.get(&hash)) else {
            return Vec::new();
        };
        let mut over = 0;
        let mut unseen = Vec::new();
        for number in all.iter().copied() {
            let inode = InodeId { number, ..dir };
            match self.inodes.get(&inode) {
                Some(trace) if trace.is_over => over += 1,
                Some(trace) if trace.is_as_logged() && !self.moving.contains(&inode) => {}
                _ => unseen.push(number),
            }
        }
        if over > 0 {
            self.forget_left(dir, hash);
            self.notes = self.notes.saturating_sub(over);
        }
        unseen
    }

    /// Drops the inodes that are over from those that left a name of this hash.
    pub(super) fn forget_left(&mut self, dir: InodeId, hash: u32) {
        let entries = self.inodes.get_mut(&dir).and_then(|trace| trace.entries.as_mut());
        let Some(all) = entries.and_then(|entries| entries.left.remove(&hash)) else { return };
        let is_over = |number| self.inodes.get(&number).is_some_and(|trace| trace.is_over);
        let rest = all.iter().copied().filter(|&number| !is_over(InodeId { number, ..dir }));
        let rest: Few<u64> = rest.collect();
        if let Some(trace) = self.inodes.get_mut(&dir).filter(|_| !rest.is_empty()) {
            trace.entries().left.insert(hash, rest);
        }
    }

    pub(super) fn note(&mut self, name_removal: &NameRemoval) {
        let NameRemoval { inode, lost, survives, .. } = *name_removal;
        let dir = InodeId { number: lost.dir, ..inode };
        let is_logged = self.inodes.get(&inode).is_some_and(|trace| trace.logged.is_some());
        // An inode that left a directory must not be removed with it by replay.
        let survives = survives || self.entries_of(inode).is_some_and(|it| !it.left.is_empty());
        let is_listed = self.inodes.get(&dir).is_some_and(InodeLogState::has_entries);
        self.note_move(name_removal, dir, is_logged || is_listed);
        if self.forgotten {
            return;
        }
        if !(lost.committed || is_logged || is_listed) {
            if survives && !name_removal.is_new {
                // Only the fact that it lost a name is kept.
                let trace = self.inodes.entry(inode).or_default();
                trace.lost_before = trace.lost_before.saturating_add(1);
            }
            return;
        }
        let entries = self.inodes.entry(dir).or_default().entries();
        let runs = entries.gone.count();
        entries.gone.insert(lost.index..lost.index + 1);
        self.notes += entries.gone.count().saturating_sub(runs);
        if survives || is_logged {
            entries.leave(lost.hash, inode.number);
            self.inodes.entry(inode).or_default().lost.push(lost);
            self.notes += 2;
        }
        self.make_stale(inode);
        if is_listed {
            self.make_stale(dir);
        }
    }

    /// Notes that the entry of a name is removed: the log may have read it after its loss was
    /// noted.
    pub(super) fn leave(&mut self, name_removal: &NameRemoval) {
        let NameRemoval { inode, lost, .. } = *name_removal;
        let dir = InodeId { number: lost.dir, ..inode };
        let Some(trace) = self.inodes.get_mut(&dir).filter(|trace| trace.has_entries()) else {
            return;
        };
        trace.entries().gone.insert(lost.index..lost.index + 1);
        self.make_stale(dir);
    }

    /// Notes the new owner of a name that replay may remove: it must be logged, too.
    pub(super) fn follow(&mut self, name_removal: &NameRemoval) {
        let NameRemoval { inode, lost, follower, .. } = *name_removal;
        let dir = InodeId { number: lost.dir, ..inode };
        let Some((follower, trace)) = follower.zip(self.inodes.get_mut(&dir)) else { return };
        if trace.has_entries() || trace.has_left(lost.hash) {
            trace.entries().leave(lost.hash, follower);
            self.notes += 1;
        }
    }

    pub(super) fn forget_too_much(&mut self, inodes_max: usize) {
        if self.notes > NOTES_MAX || self.inodes.len() > inodes_max {
            *self = Self { transaction: self.transaction, forgotten: true, ..Self::default() };
        }
    }

    pub(super) fn make_stale(&mut self, inode: InodeId) {
        let Some(trace) = self.inodes.get_mut(&inode) else { return };
        if trace.logged.is_some() && !std::mem::replace(&mut trace.is_stale, true) {
            self.stale.push(inode);
        }
    }
}
