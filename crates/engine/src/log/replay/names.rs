//! The second stage, and what the third one does to names.
//!
//! 1. A name and a place belong to one entry of a directory: who gets them takes them from whoever
//!    has them.
//! 2. An entry and the name of the inode that it leads to come and go together.
//! 3. Nothing goes before it is known that something comes in its place.

use userbtrfs_codec::hash::extref_hash;
use userbtrfs_format::{FileKind, ItemKind, Key};
use userbtrfs_sync::Arc;

use super::{Replay, Replayed};
use crate::error::{LogDamage, Result};
use crate::inode::{Entry, EntryTarget, Inode, Link, NamesItem};
use crate::log::items::LoggedEntry;

impl Replay<'_> {
    /// An entry of a directory is there, if what it leads to is, and does not have that name in
    /// the log: then it comes with that.
    pub(super) fn entry(
        &mut self,
        key: Key,
        logged: &LoggedEntry<'_>,
        report: &mut Replayed,
    ) -> Result<()> {
        let dir = self.logged_inode(key)?;
        self.check_directory(key, &dir)?;
        // The name of a subvolume comes and goes with a commit, never with a log.
        let EntryTarget::Inode(number) = logged.target else { return Ok(()) };
        let there = self.nodes.replay_entry_at(&dir, logged.index)?;
        let is_same = |there: &Arc<Entry>| {
            (&*there.name, there.target, there.kind) == (logged.name, logged.target, logged.kind)
        };
        if there.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        let Some(inode) = self.nodes.replay_find(self.id(number))? else { return Ok(()) };
        if self.comes_with_inode(number, key.objectid, logged.name)? {
            return Ok(());
        }
        if let Some(there) = there {
            self.unname(key, &dir, &there, report)?;
        }
        self.free_name(key, &dir, logged.name, report)?;
        self.leave_places(&inode, report)?;
        self.name(&dir, &inode, logged.index, logged.name, report)
    }

    /// Whether the log has this name of an inode in a directory, as far as it can be read.
    fn comes_with_inode(&self, inode: u64, dir: u64, name: &[u8]) -> Result<bool> {
        for item in [NamesItem::Ref(dir), NamesItem::Extref(extref_hash(dir, name))] {
            let logged = match self.log.names(self.tree_roots(), inode, item) {
                Err(_) if self.torn => None,
                logged => logged?,
            };
            if logged.is_some_and(|names| has(&names, dir, name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The names that an inode has in an item are those logged.
    pub(super) fn names(
        &mut self,
        key: Key,
        item: NamesItem,
        logged: &[Link],
        report: &mut Replayed,
    ) -> Result<()> {
        let inode = self.logged_inode(key)?;
        for link in self.nodes.replay_names(&inode, item)? {
            if !has(logged, link.dir, &link.name) {
                self.remove_link(key, &link, report)?;
            }
        }
        for link in logged {
            self.link(key, &inode, link, report)?;
        }
        Ok(())
    }

    /// An inode has a name. Where its directory is not there, it was not logged: then the name is
    /// not, either.
    fn link(
        &mut self,
        key: Key,
        inode: &Arc<Inode>,
        link: &Link,
        report: &mut Replayed,
    ) -> Result<()> {
        let Some(dir) = self.nodes.replay_find(self.id(link.dir))? else { return Ok(()) };
        self.check_directory(key, &dir)?;
        let there = self.nodes.replay_entry_at(&dir, link.index)?;
        let target = EntryTarget::Inode(key.objectid);
        if there.as_ref().is_some_and(|there| (&*there.name, there.target) == (&*link.name, target))
        {
            return Ok(());
        }
        if let Some(there) = there {
            self.unname(key, &dir, &there, report)?;
        }
        self.free_name(key, &dir, &link.name, report)?;
        self.leave_places(inode, report)?;
        self.name(&dir, inode, link.index, &link.name, report)
    }

    /// A directory that gets a name leaves the place where it was, if that did not go by itself:
    /// it is in one place.
    fn leave_places(&mut self, inode: &Arc<Inode>, report: &mut Replayed) -> Result<()> {
        if !self.torn || inode.kind() != FileKind::Directory {
            return Ok(());
        }
        let key = Key::new(inode.id().number, ItemKind::INODE_ITEM, 0);
        for link in self.nodes.names(inode.id())? {
            self.remove_link(key, &link, report)?;
        }
        Ok(())
    }

    /// A name of an inode goes, which the log no longer has.
    fn remove_link(&mut self, key: Key, link: &Link, report: &mut Replayed) -> Result<()> {
        let dir = self.nodes.replay_find(self.id(link.dir))?;
        let dir = dir.ok_or_else(|| self.log.damage(key, LogDamage::NoInode(link.dir)))?;
        let entry = self.nodes.replay_entry_at(&dir, link.index)?;
        let of_inode = |entry: &Arc<Entry>| entry.target == EntryTarget::Inode(key.objectid);
        match entry.filter(of_inode) {
            Some(entry) => self.unname(key, &dir, &entry, report),
            None => Ok(()),
        }
    }

    /// No entry of a directory has this name any more.
    fn free_name(
        &mut self,
        key: Key,
        dir: &Arc<Inode>,
        name: &[u8],
        report: &mut Replayed,
    ) -> Result<()> {
        let Some(target) = self.nodes.lookup(dir.id(), name)?.map(|found| found.target) else {
            return Ok(());
        };
        self.check_target(key, dir, name, target)?;
        match self.nodes.replay_entry(dir, name)? {
            Some(entry) => self.unname(key, dir, &entry, report),
            None => Ok(()),
        }
    }

    fn check_target(&self, key: Key, dir: &Inode, name: &[u8], target: EntryTarget) -> Result<()> {
        let (dir, name) = (dir.id().number, name.to_vec());
        match target {
            EntryTarget::Inode(_) => Ok(()),
            EntryTarget::Subvolume(_) => {
                Err(self.log.damage(key, LogDamage::Subvolume { dir, name }))
            }
        }
    }

    fn name(
        &mut self,
        dir: &Arc<Inode>,
        inode: &Arc<Inode>,
        index: u64,
        name: &[u8],
        report: &mut Replayed,
    ) -> Result<()> {
        self.nodes.replay_name(dir, inode, index, name)?;
        self.renamed.insert(inode.id().number);
        report.names_added += 1;
        Ok(())
    }

    /// An entry goes, and with it the name of what it leads to.
    pub(super) fn unname(
        &mut self,
        key: Key,
        dir: &Arc<Inode>,
        entry: &Arc<Entry>,
        report: &mut Replayed,
    ) -> Result<()> {
        self.check_target(key, dir, &entry.name, entry.target)?;
        let inode = self.nodes.replay_unname(dir, entry)?;
        self.renamed.insert(inode.id().number);
        report.names_removed += 1;
        Ok(())
    }

    /// Attributes of an inode have the values logged.
    pub(super) fn xattrs(&self, key: Key, logged: &[(&[u8], &[u8])]) -> Result<()> {
        let inode = self.logged_inode(key)?;
        for (name, value) in logged {
            if self.nodes.xattr(inode.id(), name)?.as_deref() != Some(*value) {
                self.nodes.replay_xattr(&inode, name, Some(value))?;
            }
        }
        Ok(())
    }
}

fn has(names: &[Link], dir: u64, name: &[u8]) -> bool {
    names.iter().any(|link| link.dir == dir && link.name == name)
}
