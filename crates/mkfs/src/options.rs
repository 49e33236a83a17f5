//! Options of a new filesystem.

use userbtrfs_codec::checksum::ChecksumKind;
use userbtrfs_format::{CompatRoFlags, IncompatFlags, LABEL_LEN_MAX, Profile, SECTOR_SIZE};
use uuid::Uuid;

use crate::MkfsError;

/// Options of a new filesystem. The defaults are those of `mkfs.btrfs` 6.2.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Options {
    /// Its label: at most 255 bytes, no newline, no NUL.
    pub label: Vec<u8>,
    /// Its id; random if `None`.
    pub fsid: Option<Uuid>,
    /// The user id and group id of the root directory.
    pub owner: (u32, u32),
    /// The checksum algorithm.
    pub checksum: ChecksumKind,
    /// Bytes in a tree block.
    pub nodesize: u32,
    /// The profile of metadata: single or DUP.
    pub metadata: Profile,
    /// The profile of data: single or DUP.
    pub data: Profile,
    /// Data and metadata share block groups: the node size must be 4 KiB and the profiles equal.
    pub mixed: bool,
    /// Block group items are stored in a tree of their own.
    pub block_group_tree: bool,
    /// The filesystem has a free space tree.
    pub free_space_tree: bool,
    /// Existing content of the device may be overwritten.
    pub force: bool,
    /// The whole device is discarded first; an image file becomes a hole.
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
    /// Options for mixed block groups: nodes of 4 KiB, single profiles.
    pub fn mixed() -> Self {
        let metadata = Profile::Single;
        let data = Profile::Single;
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
        if self.label.iter().any(|byte| matches!(byte, b'\n' | 0)) {
            Err(MkfsError::LabelCharacter)
        } else {
            Ok(())
        }
    }

    pub(crate) fn incompat(&self) -> IncompatFlags {
        let always = IncompatFlags::MIXED_BACKREF
            | IncompatFlags::EXTENDED_IREF
            | IncompatFlags::SKINNY_METADATA
            | IncompatFlags::NO_HOLES;
        if self.mixed { always | IncompatFlags::MIXED_GROUPS } else { always }
    }

    pub(crate) fn compat_ro(&self) -> CompatRoFlags {
        let mut flags = CompatRoFlags::empty();
        let free_space = CompatRoFlags::FREE_SPACE_TREE | CompatRoFlags::FREE_SPACE_TREE_VALID;
        flags.set(free_space, self.free_space_tree);
        flags.set(CompatRoFlags::BLOCK_GROUP_TREE, self.block_group_tree);
        flags
    }
}
