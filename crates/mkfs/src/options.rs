//! What kind of filesystem is made.

use userbtrfs_codec::checksum::ChecksumKind;
use userbtrfs_format::{CompatRoFlags, IncompatFlags, LABEL_LEN_MAX, Profile, SECTOR_SIZE};
use uuid::Uuid;

use crate::MkfsError;

/// What kind of filesystem is made. The default is that of `mkfs.btrfs` 6.2.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Options {
    /// Its label: at most 255 bytes, no newline, no NUL.
    pub label: Vec<u8>,
    /// Its id; a random one where there is none.
    pub fsid: Option<Uuid>,
    /// The owner and the group of the root directory, by number.
    pub owner: (u32, u32),
    /// How everything is checksummed.
    pub checksum: ChecksumKind,
    /// Bytes in a tree block.
    pub nodesize: u32,
    /// How tree blocks are kept: single or DUP.
    pub metadata: Profile,
    /// How data is kept: single or DUP.
    pub data: Profile,
    /// Whether data and metadata share block groups. Node size and profiles must fit.
    pub mixed: bool,
    /// Whether block group items have a tree of their own.
    pub block_group_tree: bool,
    /// Whether there is a free space tree.
    pub free_space_tree: bool,
    /// Whether what is on the device may be overwritten.
    pub force: bool,
    /// Whether all that is on the device is given back to it first: an image file gets one hole.
    pub discard: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            label: Vec::new(),
            fsid: None,
            owner: (0, 0),
            checksum: ChecksumKind::Crc32c,
            nodesize: 16 << 10,
            metadata: Profile::Dup,
            data: Profile::Single,
            mixed: false,
            block_group_tree: false,
            free_space_tree: true,
            force: false,
            discard: false,
        }
    }
}

impl Options {
    /// Mixed block groups, and what fits to them: nodes of 4 KiB, one copy of everything.
    pub fn mixed() -> Self {
        let (metadata, data) = (Profile::Single, Profile::Single);
        Self { mixed: true, nodesize: SECTOR_SIZE, metadata, data, ..Self::default() }
    }

    pub(crate) fn check(&self) -> Result<(), MkfsError> {
        let Self { nodesize, metadata, data, .. } = *self;
        if !nodesize.is_power_of_two() || !(SECTOR_SIZE..=64 << 10).contains(&nodesize) {
            return Err(MkfsError::NodeSize(nodesize));
        }
        for profile in [metadata, data] {
            if !matches!(profile, Profile::Single | Profile::Dup) {
                return Err(MkfsError::Profile(profile));
            }
        }
        if self.mixed && nodesize != SECTOR_SIZE {
            return Err(MkfsError::MixedNodeSize(nodesize));
        }
        if self.mixed && metadata != data {
            return Err(MkfsError::MixedProfiles { data, metadata });
        }
        if self.block_group_tree && !self.free_space_tree {
            return Err(MkfsError::BlockGroupTree);
        }
        if self.label.len() > LABEL_LEN_MAX {
            return Err(MkfsError::LabelLength(self.label.len()));
        }
        match self.label.iter().any(|byte| matches!(byte, b'\n' | 0)) {
            true => Err(MkfsError::LabelCharacter),
            false => Ok(()),
        }
    }

    pub(crate) fn incompat(&self) -> IncompatFlags {
        let always = IncompatFlags::MIXED_BACKREF
            | IncompatFlags::EXTENDED_IREF
            | IncompatFlags::SKINNY_METADATA
            | IncompatFlags::NO_HOLES;
        match self.mixed {
            true => always | IncompatFlags::MIXED_GROUPS,
            false => always,
        }
    }

    pub(crate) fn compat_ro(&self) -> CompatRoFlags {
        let mut flags = CompatRoFlags::empty();
        let free_space = CompatRoFlags::FREE_SPACE_TREE | CompatRoFlags::FREE_SPACE_TREE_VALID;
        flags.set(free_space, self.free_space_tree);
        flags.set(CompatRoFlags::BLOCK_GROUP_TREE, self.block_group_tree);
        flags
    }
}
