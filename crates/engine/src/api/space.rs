//! What space is used for.

use userbtrfs_format::{
    BlockGroupFlags, BlockGroupItem, Chunk, CompatRoFlags, ItemKind, Key, Profile, TreeId,
};

use super::Filesystem;
use crate::error::{Error, Result};

/// Space of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUse {
    /// What it holds: data, metadata, system, or data and metadata.
    pub flags: BlockGroupFlags,
    /// How it spreads over devices.
    pub profile: Profile,
    /// Bytes of its block groups.
    pub total: u64,
    /// Bytes of them that are allocated.
    pub used: u64,
}

/// Space of all kinds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// Size of the device in bytes, as the filesystem uses it.
    pub device_size: u64,
    /// Bytes of the device that chunks hold.
    pub device_allocated: u64,
    /// By kind: data, system, metadata.
    pub kinds: Vec<SpaceUse>,
}

impl Filesystem {
    /// How much space there is, and what it is used for.
    pub fn usage(&self) -> Result<Usage> {
        let superblock = self.superblock();
        let mut kinds: Vec<SpaceUse> = Vec::new();
        for chunk in self.volume().chunks() {
            let used = self.block_group(&chunk)?.used;
            let flags = chunk.flags.intersection(BlockGroupFlags::TYPES);
            let same = |kind: &&mut SpaceUse| kind.flags == flags && kind.profile == chunk.profile;
            if let Some(kind) = kinds.iter_mut().find(same) {
                kind.total += chunk.len;
                kind.used += used;
            } else {
                let (profile, total) = (chunk.profile, chunk.len);
                kinds.push(SpaceUse { flags, profile, total, used });
            }
        }
        kinds.sort_by_key(|kind| (kind.flags, kind.profile));
        Ok(Usage {
            device_size: superblock.device.total_bytes,
            device_allocated: superblock.device.bytes_used,
            kinds,
        })
    }

    fn block_group(&self, chunk: &Chunk) -> Result<BlockGroupItem> {
        let own_tree = self.superblock().compat_ro.contains(CompatRoFlags::BLOCK_GROUP_TREE);
        let id = if own_tree { TreeId::BLOCK_GROUP } else { TreeId::EXTENT };
        let forest = self.inner.forest();
        let tree = forest.tree(id)?;
        let key = Key::new(chunk.logical.0, ItemKind::BLOCK_GROUP_ITEM, chunk.len);
        let position = tree.search(forest.store(), &key)?;
        if !position.exact {
            return Err(Error::NoBlockGroup(chunk.logical));
        }
        let item = position.leaf.item(position.slot);
        Ok(BlockGroupItem::parse(chunk.len, item.data).expect("verified with its block"))
    }
}
