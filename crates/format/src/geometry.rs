//! The properties that all tree blocks of a filesystem share.

use userbtrfs_codec::checksum::ChecksumKind;
use uuid::Uuid;

use crate::superblock::Superblock;

/// The properties that all tree blocks of a filesystem share.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// The checksum algorithm.
    pub checksum_kind: ChecksumKind,
    /// Bytes in a block.
    pub nodesize: u32,
    /// The filesystem id in block headers.
    pub fsid: Uuid,
}

impl From<&Superblock> for Geometry {
    fn from(superblock: &Superblock) -> Self {
        Self {
            checksum_kind: superblock.checksum_kind,
            nodesize: superblock.nodesize,
            fsid: superblock.metadata_uuid,
        }
    }
}
