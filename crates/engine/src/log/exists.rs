//! Logging that inodes exist: what most of them are in a log for, and all that the new entries of
//! a directory lead to.
//!
//! 1. What waits in memory is logged from there. Where nothing waits of an inode, its items are
//!    copied from its tree, and each leaf is come to once for all that stand in it.
//! 2. An inode is noted as in the log, then it is asked what is in memory, then its leaf is looked
//!    at: so the leaf has what it was, and who changes its names later makes it stale.
//! 3. Whoever lost a name, was logged before, is a symbolic link or may have space behind its end
//!    is seen to by itself.

use std::collections::BTreeMap;

use userbtrfs_btree::{Cursor, ReadAhead};
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{
    FileKind, InodeFlags, InodeItem, InodeName, Item, ItemKind, Key, inode_extrefs, inode_refs,
};
use userbtrfs_transaction::FullCommitReason;
use userbtrfs_volume::ReadError;

use super::collect::{InodeLogger, LogResult};
use crate::inode::{InMemory, Inode, LogMode, PreviousLogState, ROOT_DIR};

const SOUND: &str = "verified with its block";

/// A name: its directory and its hash.
type Named = (u64, u32);

/// An inode that is as its tree says.
struct Stored {
    /// Where they are in memory; they may be newer.
    attributes: Option<InodeItem>,
}

impl InodeLogger<'_, '_> {
    /// Logs that inodes exist, with their names.
    pub(super) fn log_existence_of(&mut self, mut numbers: Vec<u64>) -> LogResult<()> {
        numbers.sort_unstable();
        let begun = self.begin(&numbers, LogMode::Exists)?;
        let begun: Vec<_> = numbers.into_iter().zip(begun).collect();
        let stored: Vec<_> = begun.iter().map(|begun| self.find_stored(begun)).collect();
        let Some(first) = stored.iter().position(Option::is_some) else {
            return begun.iter().try_for_each(|(number, before)| self.log_one(*number, before));
        };
        let (tree_roots, failed) = (self.nodes.tree_roots(), |_| FullCommitReason::Failed);
        let tree = tree_roots.tree(self.subvolume).map_err(|_| FullCommitReason::Failed)?;
        let items = tree_roots.cursor(&tree, &inode_key(begun[first].0), ReadAhead::Off);
        let (mut items, mut names) = (items.map_err(|_| FullCommitReason::Failed)?, Vec::new());
        for ((number, before), stored) in begun.iter().zip(stored) {
            let is_copied = match stored {
                Some(stored) => {
                    let then = stored.attributes.as_ref().map(|item| item.sequence);
                    let copied = self.copy(&mut items, *number, stored, &mut names);
                    copied.map_err(failed)? && self.is_of_one_moment(*number, then)?
                }
                None => false,
            };
            if !is_copied {
                self.log_one(*number, before)?;
            }
        }
        self.log_way_to(names)
    }

    /// Looks for an inode that was just noted as in the log for the first time, and of which
    /// nothing waits.
    fn find_stored(&self, (number, before): &(u64, PreviousLogState)) -> Option<Stored> {
        if before.logged.is_some() || before.lost_names || *number == ROOT_DIR {
            return None;
        }
        match self.nodes.in_memory(self.id(*number)) {
            InMemory::Nothing => Some(Stored { attributes: None }),
            InMemory::Attributes(item) => Some(Stored { attributes: Some(item) }),
            InMemory::More => None,
        }
    }

    /// Copies the items that say that an inode exists, and tells its names; unless it has none, or
    /// more is to be logged of it, or one of them may be too large. The cursor stands before them.
    fn copy(
        &mut self,
        items: &mut Cursor<'_>,
        number: u64,
        stored: Stored,
        names: &mut Vec<Named>,
    ) -> Result<bool, ReadError> {
        let key = inode_key(number);
        items.skip_to(&key)?;
        let Some(found) = items.item().filter(|item| item.key == key) else { return Ok(false) };
        let parse = || InodeItem::parse(found.data).expect(SOUND);
        let inode = stored.attributes.unwrap_or_else(parse);
        items.advance()?;
        let is_name = |kind| matches!(kind, ItemKind::INODE_REF | ItemKind::INODE_EXTREF);
        let is_own = |key: Key| key.objectid == number && key.kind <= ItemKind::XATTR_ITEM;
        let is_named = items.item().is_some_and(|next| is_own(next.key) && is_name(next.key.kind));
        if inode.kind == FileKind::Symlink || self.may_keep_space(&inode) || !is_named {
            return Ok(false);
        }
        self.put_item(number, &existing(&inode));
        let is_changed = inode.transid >= self.running && inode.generation < self.running;
        while let Some(item) = items.item().filter(|item| is_own(item.key)) {
            if is_changed && item.data.len() > self.overwriting_max() {
                return Ok(false);
            }
            tell_names(&item, names);
            if is_name(item.key.kind) || item.key.kind == ItemKind::XATTR_ITEM {
                self.drafts.put(item.key, item.data);
            }
            items.advance()?;
        }
        Ok(true)
    }

    /// Whether what was copied of an inode is of one moment: nothing of it changed since it was
    /// looked for. Otherwise it is as if nothing had been copied.
    fn is_of_one_moment(&mut self, number: u64, then: Option<u64>) -> LogResult<bool> {
        let is_same = match self.nodes.in_memory(self.id(number)) {
            InMemory::Nothing => then.is_none(),
            InMemory::Attributes(now) => then == Some(now.sequence),
            InMemory::More => false,
        };
        if !is_same {
            let copied = self.keys(number, ItemKind::INODE_ITEM..=ItemKind::XATTR_ITEM)?;
            self.drafts.replace(copied, BTreeMap::new());
        }
        Ok(is_same)
    }

    /// Whether space behind the end of a file may be committed.
    fn may_keep_space(&self, item: &InodeItem) -> bool {
        let is_committed = item.generation < self.running;
        is_committed && item.kind == FileKind::Regular && item.flags.contains(InodeFlags::PREALLOC)
    }

    /// Logs that an inode exists, and its names.
    fn log_one(&mut self, number: u64, before: &PreviousLogState) -> LogResult<()> {
        if before.logged.is_some() && !before.was_stale {
            return Ok(());
        }
        let Some(inode) = self.inode(number)? else { return self.withdraw(number, before) };
        if !self.log_names(&inode, before)? {
            return Ok(());
        }
        if let Some(logged) = before.logged {
            if logged.mode == LogMode::All && inode.kind() == FileKind::Directory {
                self.log_departures(&inode);
            }
            return self.log_attributes_again(&inode, before);
        }
        let version = inode.xattrs_version();
        self.log_xattrs(&inode, true)?;
        let item = self.with_xattrs_of_its_moment(&inode, version, inode.item_to_log())?;
        // A target is logged with its link: it would be empty.
        let is_link = item.kind == FileKind::Symlink;
        self.put_item(number, &if is_link { item.clone() } else { existing(&item) });
        if is_link {
            self.log_target(&inode)?;
        } else if self.may_keep_space(&item) {
            self.log_space_behind_end(&inode)?;
        }
        Ok(())
    }

    /// Logs the attributes of an inode again whose new names are logged, beside the content and
    /// the size that the log has.
    fn log_attributes_again(&mut self, inode: &Inode, before: &PreviousLogState) -> LogResult<()> {
        let number = inode.id().number;
        let log = self.writer.tree(self.subvolume).map(|log| &**log);
        let content = self.drafts.content(self.nodes.tree_roots(), log, inode_key(number));
        let content =
            content.map_err(|_| FullCommitReason::Failed)?.ok_or(FullCommitReason::Failed)?;
        let logged = InodeItem::parse(&content).map_err(|_| FullCommitReason::Failed)?;
        let version = inode.xattrs_version();
        if before.xattrs_changed {
            self.log_xattrs(inode, false)?;
        }
        let InodeItem { mode, uid, gid, ctime, flags, .. } = inode.item_to_log();
        // The extents that the log has are with checksums, or without.
        let of_extents = InodeFlags::NODATASUM | InodeFlags::NODATACOW;
        if logged.nbytes > 0 && flags & of_extents != logged.flags & of_extents {
            return Err(FullCommitReason::Failed);
        }
        let flags = flags | (logged.flags & InodeFlags::PREALLOC);
        let item = InodeItem { mode, uid, gid, ctime, flags, ..logged };
        let item = self.with_xattrs_of_its_moment(inode, version, item)?;
        self.put_item(number, &item);
        Ok(())
    }
}

/// The attributes of an inode of which nobody shall be told more than that it exists.
fn existing(item: &InodeItem) -> InodeItem {
    InodeItem { generation: 0, size: 0, ..item.clone() }
}

fn inode_key(number: u64) -> Key {
    Key::new(number, ItemKind::INODE_ITEM, 0)
}

/// Tells the names that an item holds.
fn tell_names(item: &Item<'_>, names: &mut Vec<Named>) {
    let mut tell = |name: InodeName<'_>| names.push((name.parent, name_hash(name.name)));
    match item.key.kind {
        ItemKind::INODE_REF => {
            inode_refs(item.key.offset, item.data).for_each(|name| tell(name.expect(SOUND)));
        }
        ItemKind::INODE_EXTREF => {
            inode_extrefs(item.data).for_each(|name| tell(name.expect(SOUND)));
        }
        _ => {}
    }
}
