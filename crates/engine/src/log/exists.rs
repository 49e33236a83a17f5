//! Logs the existence of inodes: all that is needed of most inodes in a log, and of all that the
//! new entries of a directory point to.
//!
//! 1. Changes pending in memory are logged from memory. If an inode has none, its items are copied
//!    from its tree, and each leaf is visited once for all inodes stored in it.
//! 2. An inode is marked as logged, then looked up in memory, then its leaf is read. So the leaf is
//!    no older than the lookup, and a later change of its names makes the inode stale.
//! 3. An inode that lost a name, was logged before, is a symbolic link or may have space beyond EOF
//!    is logged individually.

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

/// An inode without pending changes: its names and extended attributes are those in its tree.
struct Stored {
    /// The inode item, if it is in memory; it may be newer than that in the tree.
    attributes: Option<InodeItem>,
}

impl InodeLogger<'_, '_> {
    /// Logs the existence of inodes, with their names.
    pub(super) fn log_existence_of(&mut self, mut numbers: Vec<u64>) -> LogResult<()> {
        numbers.sort_unstable();
        let begun = self.begin(&numbers, LogMode::Exists)?;
        let begun: Vec<_> = numbers.into_iter().zip(begun).collect();
        let stored: Vec<_> = begun.iter().map(|begun| self.find_stored(begun)).collect();
        let Some(first) = stored.iter().position(Option::is_some) else {
            return begun.iter().try_for_each(|(number, before)| self.log_one(*number, before));
        };
        let tree_roots = self.nodes.tree_roots();
        let failed = |_| FullCommitReason::Failed;
        let tree = tree_roots.tree(self.subvolume).map_err(|_| FullCommitReason::Failed)?;
        let items = tree_roots.cursor(&tree, &inode_key(begun[first].0), ReadAhead::Off);
        let mut items = items.map_err(|_| FullCommitReason::Failed)?;
        let mut names = Vec::new();
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

    /// Returns an inode that was just marked as logged for the first time and has no pending
    /// changes; `None` for any other.
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

    /// Copies the items that log the existence of an inode, and adds its names to `names`. Returns
    /// false if it has no names, if more of it is to be logged, or if one of the items may be too
    /// large. The cursor must not be past them.
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

    /// Returns whether the items copied of an inode are a consistent snapshot: it did not change
    /// since `find_stored`. If not, discards the copied items.
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

    /// Returns whether a file may have committed space beyond EOF.
    fn may_keep_space(&self, item: &InodeItem) -> bool {
        let is_committed = item.generation < self.running;
        is_committed && item.kind == FileKind::Regular && item.flags.contains(InodeFlags::PREALLOC)
    }

    /// Logs the existence of one inode, with its names.
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
        // A symbolic link is logged with its target: without, it would be empty.
        let is_link = item.kind == FileKind::Symlink;
        self.put_item(number, &if is_link { item.clone() } else { existing(&item) });
        if is_link {
            self.log_target(&inode)?;
        } else if self.may_keep_space(&item) {
            self.log_space_behind_end(&inode)?;
        }
        Ok(())
    }

    /// Logs the attributes of an inode with new names again; content and size stay as the log has
    /// them.
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
        // The extents in the log were logged with checksums or without, according to these flags.
        let of_extents = InodeFlags::NODATASUM | InodeFlags::NODATACOW;
        if logged.nbytes > 0 && flags & of_extents != logged.flags & of_extents {
            return Err(FullCommitReason::Forgotten);
        }
        let flags = flags | (logged.flags & InodeFlags::PREALLOC);
        let item = InodeItem { mode, uid, gid, ctime, flags, ..logged };
        let item = self.with_xattrs_of_its_moment(inode, version, item)?;
        self.put_item(number, &item);
        Ok(())
    }
}

/// Returns the inode item that logs no more of an inode than its existence.
fn existing(item: &InodeItem) -> InodeItem {
    InodeItem { generation: 0, size: 0, ..item.clone() }
}

fn inode_key(number: u64) -> Key {
    Key::new(number, ItemKind::INODE_ITEM, 0)
}

/// Adds the names that an item holds to `names`.
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
