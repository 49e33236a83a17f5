//! The first stage: inodes are changed or created, and what they had lost when they were logged is
//! removed.

use userbtrfs_format::{FileKind, InodeItem, Key};
use userbtrfs_sync::Arc;

use super::report::{IncompleteFile, Replayed};
use super::state::Replay;
use crate::error::{InodeId, LogDamage, Result};
use crate::inode::Inode;
use crate::inode::ops;

impl Replay<'_> {
    /// Changes an inode to what was logged of it, or creates it.
    pub(super) fn inode(
        &mut self,
        key: Key,
        logged: &InodeItem,
        report: &mut Replayed,
    ) -> Result<()> {
        let id = self.id(key.objectid);
        let existing = ops::replay_find(self.nodes, id)?;
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
        let inode = ops::replay_inode(self.nodes, id, &logged)?;
        match logged.kind {
            _ if self.without_contents.contains(&id.number) => {}
            FileKind::Regular => {
                // Before extents are added: some may be preallocated beyond EOF.
                ops::replay_cut(self.nodes, &inode)?;
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
        for (name, _) in ops::list_xattrs(self.nodes, id)? {
            if !self.log.has_xattr(self.tree_roots(), id.number, &name)? {
                ops::replay_xattr(self.nodes, inode, &name, None)?;
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
                let (entries, next) = ops::replay_list(self.nodes, dir, from)?;
                for entry in entries.iter().filter(|entry| entry.index <= last) {
                    let dir_number = key.objectid;
                    let index = entry.index;
                    if !self.log.has_entry(self.tree_roots(), dir_number, index, &entry.name)? {
                        self.unname(key, dir, entry, report)?;
                    }
                }
                position = next;
            }
        }
        Ok(())
    }

    /// Returns the item that an inode of the log is to become. If its contents are not complete it
    /// is reported, and its size stays. Returns `None` if the inode is left out.
    fn completed(
        &mut self,
        logged: &InodeItem,
        existing_size: Option<u64>,
        inode: InodeId,
        report: &mut Replayed,
    ) -> Option<InodeItem> {
        let missing = self.missing.in_file(inode.number, logged.size);
        let has_contents = matches!(logged.kind, FileKind::Regular | FileKind::Symlink);
        if missing.is_empty() || !has_contents {
            return Some(logged.clone());
        }
        // Half a target is none.
        let is_partial = self.partial && logged.kind == FileKind::Regular;
        let size = logged.size;
        report.incomplete.push(IncompleteFile { inode, size, missing, is_partial });
        if is_partial {
            return Some(logged.clone());
        }
        self.without_contents.insert(inode.number);
        if logged.kind == FileKind::Symlink && existing_size.is_none() {
            self.excluded.insert(inode.number);
            return None;
        }
        Some(InodeItem { size: existing_size.unwrap_or(0), ..logged.clone() })
    }
}
