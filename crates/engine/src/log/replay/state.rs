//! The replay of one log: what is known of it so far, and what each stage needs.

use std::collections::BTreeSet;

use userbtrfs_format::{FileKind, InodeFlags, ItemKind, Key, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_volume::ReadError;

use super::missing::Missing;
use super::report::{Replayed, SkippedItem};
use crate::error::{Error, InodeId, LogDamage, Result};
use crate::inode::{Inode, Inodes, TreeRoots, ops};
use crate::log::items::LogTree;

/// The replay of one log.
pub(super) struct Replay<'a> {
    pub(super) nodes: &'a Inodes,
    pub(super) log: &'a LogTree,
    /// Whether damaged parts are skipped.
    pub(super) salvage: bool,
    /// Whether contents that are not complete are replayed.
    pub(super) partial: bool,
    /// Whether a part of the log was skipped.
    pub(super) torn: bool,
    /// The contents that cannot be had.
    pub(super) missing: Missing,
    /// Inodes whose contents are left out.
    pub(super) without_contents: BTreeSet<u64>,
    /// Inodes that are left out.
    pub(super) excluded: BTreeSet<u64>,
    /// The flags of the current inode, in the stage of checksums.
    pub(super) flags: InodeFlags,
    /// The current inode, if it is not replayed.
    pub(super) ignored: Option<u64>,
    /// Inodes whose names changed.
    pub(super) renamed: BTreeSet<u64>,
    /// Inodes whose contents changed.
    pub(super) rewritten: BTreeSet<u64>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(nodes: &'a Inodes, log: &'a LogTree, salvage: bool, partial: bool) -> Self {
        Self {
            nodes,
            log,
            salvage,
            partial,
            torn: !log.gaps.is_empty(),
            missing: Missing::of(&log.gaps),
            without_contents: BTreeSet::new(),
            excluded: BTreeSet::new(),
            flags: InodeFlags::empty(),
            ignored: None,
            renamed: BTreeSet::new(),
            rewritten: BTreeSet::new(),
        }
    }

    pub(super) fn tree_roots(&self) -> &'a TreeRoots {
        self.nodes.tree_roots()
    }

    /// Returns the number of bytes of a leaf of the log.
    pub(super) fn leaf_bytes(&self) -> u64 {
        u64::from(self.tree_roots().store().volume().geometry().nodesize)
    }

    /// Returns the number of bytes of all leaves of the log.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.leaf_count().saturating_mul(self.leaf_bytes())
    }

    pub(super) fn id(&self, number: u64) -> InodeId {
        InodeId { subvolume: self.log.subvolume, number }
    }

    /// Skips an item with an error of the log, and reports it once; any other error ends the
    /// replay, as each does without salvage.
    pub(super) fn leave_out(
        &mut self,
        key: Key,
        error: Error,
        report: &mut Replayed,
    ) -> Result<()> {
        if !self.salvage || !is_of_log(&error) {
            return Err(error);
        }
        self.torn = true;
        if key.kind == ItemKind::EXTENT_DATA {
            self.missing.add_range(key.objectid, key.offset..u64::MAX);
        }
        let key = Some(key);
        let subvolume = Some(self.log.subvolume);
        let known = |left_out: &SkippedItem| left_out.key == key && left_out.subvolume == subvolume;
        if !report.left_out.iter().any(known) {
            report.left_out.push(SkippedItem { subvolume, key, inodes: None, error });
        }
        Ok(())
    }

    /// Returns the inode that an item of the log belongs to.
    pub(super) fn logged_inode(&self, key: Key) -> Result<Arc<Inode>> {
        let found = ops::replay_find(self.nodes, self.id(key.objectid))?;
        found.ok_or_else(|| self.log.damage(key, LogDamage::NoInode(key.objectid)))
    }

    /// Checks that an inode is a directory.
    pub(super) fn check_directory(&self, key: Key, inode: &Inode) -> Result<()> {
        match inode.kind() {
            FileKind::Directory => Ok(()),
            _ => Err(self.log.damage(key, LogDamage::NotADirectory(inode.id().number))),
        }
    }
}

/// Returns whether an error means that a log is damaged, or requests the impossible, and nothing
/// else.
fn is_of_log(error: &Error) -> bool {
    match error {
        Error::Log(_) | Error::Overflow | Error::TooManyLinks | Error::NameTooLong => true,
        Error::Read(ReadError::Block { tree, .. }) => *tree == TreeId::TREE_LOG,
        _ => false,
    }
}
