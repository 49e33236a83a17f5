//! The last stage: link counts and byte counts are corrected.
//!
//! 1. The entries of a directory without a name are removed, and so on recursively, before any
//!    names are counted.
//! 2. The link count of an inode whose names changed becomes the number of its names. An inode
//!    without any is listed to be deleted. A directory with more than one is damage.
//! 3. The byte count of a file whose contents changed becomes that of its extents.

use std::collections::BTreeSet;

use userbtrfs_format::{FileKind, ItemKind, Key};
use userbtrfs_sync::Arc;

use super::report::Replayed;
use super::state::Replay;
use crate::error::{LogDamage, Result};
use crate::inode::dir;
use crate::inode::ops;
use crate::inode::{Inode, ROOT_DIR};

impl Replay<'_> {
    /// Ends the replay of a log.
    pub(super) fn settle(&mut self, report: &mut Replayed) -> Result<()> {
        for number in self.empty_nameless(report)? {
            let key = inode_key(number);
            let done = self.settle_links(key, report);
            done.or_else(|error| self.leave_out(key, error, report))?;
        }
        self.nodes.transactions()?.merge_pending()?;
        for number in std::mem::take(&mut self.rewritten) {
            if let Some(inode) = ops::replay_find(self.nodes, self.id(number))? {
                ops::replay_bytes(self.nodes, &inode)?;
            }
        }
        Ok(())
    }

    /// Empties directories without a name; returns all inodes whose names changed.
    fn empty_nameless(&mut self, report: &mut Replayed) -> Result<BTreeSet<u64>> {
        let mut seen = BTreeSet::new();
        while let Some(number) = self.renamed.pop_first() {
            seen.insert(number);
            let key = inode_key(number);
            let done = self.empty_if_nameless(key, report);
            done.or_else(|error| self.leave_out(key, error, report))?;
        }
        Ok(seen)
    }

    fn empty_if_nameless(&mut self, key: Key, report: &mut Replayed) -> Result<()> {
        match self.renamed_inode(key)? {
            Some((dir, 0)) if dir.kind() == FileKind::Directory => self.empty(key, &dir, report),
            _ => Ok(()),
        }
    }

    /// Returns an inode and the number of its names; `None` if it does not exist, or is the root
    /// directory.
    fn renamed_inode(&self, key: Key) -> Result<Option<(Arc<Inode>, usize)>> {
        // The name of a subvolume's root is not in the subvolume.
        if key.objectid == ROOT_DIR {
            return Ok(None);
        }
        let Some(inode) = ops::replay_find(self.nodes, self.id(key.objectid))? else {
            return Ok(None);
        };
        let names = dir::names(self.nodes, inode.id())?.len();
        Ok(Some((inode, names)))
    }

    fn settle_links(&self, key: Key, report: &mut Replayed) -> Result<()> {
        let Some((inode, names)) = self.renamed_inode(key)? else { return Ok(()) };
        if inode.kind() == FileKind::Directory && names > 1 {
            let why = LogDamage::DirectoryNames { inode: key.objectid, names };
            return Err(self.log.damage(key, why));
        }
        report.deleted += u64::from(names == 0);
        let links = u32::try_from(names).expect("names stand in items, which are few for an inode");
        ops::replay_links(self.nodes, &inode, links)
    }

    /// Removes all entries of a directory.
    fn empty(&mut self, key: Key, dir: &Arc<Inode>, report: &mut Replayed) -> Result<()> {
        let mut position = Some(0);
        while let Some(from) = position {
            let (entries, next) = ops::replay_list(self.nodes, dir, from)?;
            for entry in &entries {
                self.unname(key, dir, entry, report)?;
            }
            position = next;
        }
        Ok(())
    }
}

fn inode_key(number: u64) -> Key {
    Key::new(number, ItemKind::INODE_ITEM, 0)
}
