//! Roots of trees and the names of subvolumes.

use userbtrfs_format::Logical;
use uuid::Uuid;

use crate::bytes::Bytes;
use crate::{GENERATION, InodeSpec};

/// The fields of a ROOT_ITEM.
#[derive(Clone, Copy, Debug)]
pub struct RootSpec {
    /// The root block.
    pub logical: Logical,
    /// Its level.
    pub level: u8,
    /// The transaction that wrote it.
    pub generation: u64,
    /// The generation in the long structure, which is valid only if it equals `generation`.
    pub generation_v2: u64,
    /// 256 in subvolumes, 0 elsewhere.
    pub dirid: u64,
    /// The total size of its blocks in bytes.
    pub bytes_used: u64,
    /// The subvolume's UUID.
    pub uuid: Uuid,
}

impl RootSpec {
    /// The root of a tree without files.
    pub fn new(logical: Logical) -> Self {
        Self {
            logical,
            level: 0,
            generation: GENERATION,
            generation_v2: GENERATION,
            dirid: 0,
            bytes_used: 4096,
            uuid: Uuid::nil(),
        }
    }

    /// The root of a subvolume.
    pub fn subvolume(logical: Logical, uuid: Uuid) -> Self {
        Self { dirid: 256, uuid, ..Self::new(logical) }
    }

    /// Builds the short structure, 239 bytes.
    pub fn build_short(&self) -> Vec<u8> {
        let inode = InodeSpec { nbytes: 4096, ..InodeSpec::new(0o40_755, 3) };
        Bytes::new()
            .raw(&inode.build())
            .u64(self.generation)
            .u64(self.dirid)
            .u64(self.logical.0)
            .u64(0)
            .u64(self.bytes_used)
            .u64(0)
            .u64(0)
            .u32(1)
            .zeros(18)
            .u8(self.level)
            .build()
    }

    /// Builds the long structure, 439 bytes.
    pub fn build(&self) -> Vec<u8> {
        let head = Bytes::new()
            .raw(&self.build_short())
            .u64(self.generation_v2)
            .raw(self.uuid.as_bytes())
            .zeros(32)
            .u64(GENERATION)
            .u64(GENERATION - 1)
            .zeros(16);
        let times = head.u64(1_700_000_000).u32(6).u64(1_600_000_000).u32(7).zeros(24);
        times.zeros(64).build()
    }
}

/// A ROOT_REF or ROOT_BACKREF.
pub fn root_ref(dirid: u64, sequence: u64, name: &[u8]) -> Vec<u8> {
    Bytes::new().u64(dirid).u64(sequence).len16(name).raw(name).build()
}
