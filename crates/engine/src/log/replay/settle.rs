//! The last stage: what is counted agrees with what there is.
//!
//! 1. The link count of an inode whose names changed is how many it has. One without any is listed
//!    to be deleted; if it is a directory, what is in it loses its name first.
//! 2. No directory has more than one name.
//! 3. The bytes of a file whose contents changed are those of its extents.

use userbtrfs_format::{FileKind, ItemKind, Key};
use userbtrfs_sync::Arc;

use super::{Replay, Replayed};
use crate::error::{LogDamage, Result};
use crate::node::{Inode, ROOT_DIR};

impl Replay<'_> {
    /// Ends the replay of a log.
    pub(super) fn settle(&mut self, report: &mut Replayed) -> Result<()> {
        while let Some(number) = self.renamed.pop_first() {
            let key = Key::new(number, ItemKind::INODE_ITEM, 0);
            let done = self.settle_links(key, report);
            done.or_else(|error| self.leave_out(Some(key), error, Some(&mut *report)))?;
        }
        self.put_items()?;
        for number in std::mem::take(&mut self.rewritten) {
            if let Some(inode) = self.nodes.replay_find(self.id(number))? {
                self.nodes.replay_bytes(&inode)?;
            }
        }
        Ok(())
    }

    fn settle_links(&mut self, key: Key, report: &mut Replayed) -> Result<()> {
        // The root of a subvolume has its name elsewhere.
        if key.objectid == ROOT_DIR {
            return Ok(());
        }
        let Some(inode) = self.nodes.replay_find(self.id(key.objectid))? else { return Ok(()) };
        let names = self.nodes.names(inode.id())?.len();
        let is_directory = inode.kind() == FileKind::Directory;
        if is_directory && names > 1 {
            let why = LogDamage::DirectoryNames { inode: key.objectid, names };
            return Err(self.log.damage(key, why));
        }
        if names == 0 {
            report.deleted += 1;
            if is_directory {
                self.empty(key, &inode, report)?;
            }
        }
        let links = u32::try_from(names).expect("names stand in items, which are few for an inode");
        self.nodes.replay_links(&inode, links)
    }

    /// All entries of a directory go.
    fn empty(&mut self, key: Key, dir: &Arc<Inode>, report: &mut Replayed) -> Result<()> {
        let mut position = Some(0);
        while let Some(from) = position {
            let (entries, next) = self.nodes.replay_list(dir, from)?;
            for entry in &entries {
                self.unname(key, dir, entry, report)?;
            }
            position = next;
        }
        Ok(())
    }
}
