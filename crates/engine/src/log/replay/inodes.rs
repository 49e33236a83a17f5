//! The first stage: inodes are changed or created, and what they had lost when they were logged is
//! removed.

use userbtrfs_format::{FileKind, InodeItem, Key};
use userbtrfs_sync::Arc;

use super::{Replay, Replayed};
use crate::error::{LogDamage, Result};
use crate::inode::Inode;

impl Replay<'_> {
    /// Changes an inode to what was logged of it, or creates it.
    pub(super) fn inode(
        &mut self,
        key: Key,
        logged: &InodeItem,
        report: &mut Replayed,
    ) -> Result<()> {
        let id = self.id(key.objectid);
        let existing = self.nodes.replay_find(id)?;
        let existing_size = existing.as_ref().map(|inode| inode.item().size);
        if let Some(inode) = existing {
            self.check_kind(key, logged.kind, inode.kind())?;
            if !self.torn {
                self.remove_xattrs(&inode)?;
                self.remove_names(key, &inode, report)?;
            }
        }
        let Some(logged) = self.completed(logged, existing_size, id, report) else {
            return Ok(());
        };
        let inode = self.nodes.replay_inode(id, &logged)?;
        match logged.kind {
            _ if self.without_contents.contains(&id.number) => {}
            FileKind::Regular => {
                // Before extents are added: some may be preallocated beyond EOF.
                self.nodes.replay_cut(&inode)?;
                self.rewritten.insert(id.number);
            }
            FileKind::Symlink => {
                self.rewritten.insert(id.number);
            }
            _ => {}
        }
        self.renamed.insert(id.number);
        report.inodes += 1;
        Ok(())
    }

    fn check_kind(&self, key: Key, logged: FileKind, found: FileKind) -> Result<()> {
        if logged == found {
            return Ok(());
        }
        Err(self.log.damage(key, LogDamage::Kind { inode: key.objectid, logged, found }))
    }

    /// Removes the extended attributes that the log does not have: an inode is always logged with
    /// all of them.
    fn remove_xattrs(&self, inode: &Arc<Inode>) -> Result<()> {
        let id = inode.id();
        for (name, _) in self.nodes.xattrs(id)? {
            if !self.log.has_xattr(self.tree_roots(), id.number, &name)? {
                self.nodes.replay_xattr(inode, &name, None)?;
            }
        }
        Ok(())
    }

    /// Removes the names in the logged ranges of a directory that are not in the log.
    fn remove_names(&mut self, key: Key, dir: &Arc<Inode>, report: &mut Replayed) -> Result<()> {
        if dir.kind() != FileKind::Directory {
            return Ok(());
        }
        for (first, last) in self.log.ranges(self.tree_roots(), key.objectid)? {
            let mut position = Some(first);
            while let Some(from) = position.filter(|from| *from <= last) {
                let (entries, next) = self.nodes.replay_list(dir, from)?;
                for entry in entries.iter().filter(|entry| entry.index <= last) {
                    let (dir_number, index) = (key.objectid, entry.index);
                    if !self.log.has_entry(self.tree_roots(), dir_number, index, &entry.name)? {
                        self.unname(key, dir, entry, report)?;
                    }
                }
                position = next;
            }
        }
        Ok(())
    }
}
