//! The use of space.

use userbtrfs_format::{
    BlockGroupFlags, BlockGroupItem, Chunk, CompatRoFlags, ItemKind, Key, Profile, TreeId,
};
use userbtrfs_transaction::{CHUNK_LEN_MIN, DEVICE_START, SpaceKind, TransactionManager};

use super::Filesystem;
use crate::error::{Error, Result};

/// The trees that Linux keeps its global reserve for, besides the root tree.
const RESERVED_FOR: [TreeId; 4] =
    [TreeId::EXTENT, TreeId::CSUM, TreeId::FREE_SPACE, TreeId::BLOCK_GROUP];
/// The items that Linux reserves to unlink a file.
const UNLINK_ITEMS: u64 = 6;
/// The tree blocks that Linux reserves to insert an item: a path of the highest tree, each block
/// split.
const INSERTION_BLOCKS: u64 = 16;
/// The largest global reserve of Linux, in bytes.
const GLOBAL_RESERVE_MAX: u64 = 512 << 20;

/// The space of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUse {
    /// The content: data, metadata, system, or data and metadata.
    pub flags: BlockGroupFlags,
    /// The profile: how it is spread over devices.
    pub profile: Profile,
    /// The bytes of its block groups.
    pub total: u64,
    /// The allocated bytes of its block groups.
    pub used: u64,
}

impl SpaceUse {
    /// Returns the bytes of the device that its chunks take.
    pub fn device_total(&self) -> u64 {
        self.total.saturating_mul(copies(self.profile))
    }

    /// Returns the bytes of the device that its allocated bytes take.
    pub fn device_used(&self) -> u64 {
        self.used.saturating_mul(copies(self.profile))
    }
}

/// The space of all kinds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// The id of the device.
    pub device_id: u64,
    /// The size of the device in bytes, as the filesystem uses it.
    pub device_size: u64,
    /// The bytes of the device in chunks.
    pub device_allocated: u64,
    /// The bytes of the device beyond those that the filesystem uses.
    pub device_slack: u64,
    /// The bytes of metadata that are kept for commits and removals: by the allocator if the
    /// filesystem is writable; otherwise the number that Linux would keep.
    pub global_reserve: u64,
    /// By kind: data, system, metadata.
    pub kinds: Vec<SpaceUse>,
}

/// The total and the free space, in bytes of content: data in two copies counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// The capacity of the empty device.
    pub total: u64,
    /// The space that neither data nor trees use.
    pub free: u64,
    /// About what files can still take.
    pub available: u64,
}

/// The used bytes of the device, and the bytes that files can still take: in existing data chunks,
/// and in chunks that could be allocated.
struct Room {
    used: u64,
    data_free: u64,
    chunks_free: u64,
}

impl Filesystem {
    /// Returns how much space is left, counting reservations of dirty data as used.
    pub fn space_left(&self) -> Result<StatFs> {
        let copies = self.copies(BlockGroupFlags::DATA);
        let room = match &self.inner.transactions {
            Some(transactions) => self.room_now(transactions),
            None => room_of(&self.usage()?, copies),
        };
        let total = self.superblock().device.total_bytes / copies;
        let free = total.saturating_sub(room.used / copies);
        let available = room.data_free.saturating_add(room.chunks_free).min(free);
        Ok(StatFs { total, free, available })
    }

    fn room_now(&self, transactions: &TransactionManager) -> Room {
        let space = transactions.space();
        let kinds = [
            (SpaceKind::Data, BlockGroupFlags::DATA),
            (SpaceKind::Metadata, BlockGroupFlags::METADATA),
            (SpaceKind::System, BlockGroupFlags::SYSTEM),
        ];
        let counted =
            kinds.iter().filter(|(kind, _)| *kind != SpaceKind::Metadata || !space.is_mixed());
        let used = counted.map(|(kind, flags)| space.usage(*kind).allocated * self.copies(*flags));
        let data = space.usage(SpaceKind::Data);
        // Reservations of metadata are worst cases, and are released.
        let global = if space.is_mixed() { data.global } else { 0 };
        let taken = [data.allocated, data.reserved_for_data, global];
        let data_free = data.total.saturating_sub(taken.iter().sum());
        Room { used: used.sum(), data_free, chunks_free: space.unallocated_for_data() }
    }

    /// Returns the number of copies of a kind of content.
    fn copies(&self, flags: BlockGroupFlags) -> u64 {
        self.volume().chunk_with(flags).map_or(1, |chunk| copies(chunk.profile))
    }

    /// Returns the total space, and its use: the current one if the filesystem is writable.
    pub fn usage(&self) -> Result<Usage> {
        let superblock = self.superblock();
        let mut kinds: Vec<SpaceUse> = Vec::new();
        for (chunk, used) in self.chunk_usage()? {
            let flags = chunk.flags.intersection(BlockGroupFlags::TYPES);
            let same = |kind: &&mut SpaceUse| kind.flags == flags && kind.profile == chunk.profile;
            if let Some(kind) = kinds.iter_mut().find(same) {
                kind.total += chunk.len;
                kind.used += used;
            } else {
                let profile = chunk.profile;
                let total = chunk.len;
                kinds.push(SpaceUse { flags, profile, total, used });
            }
        }
        kinds.sort_by_key(|kind| (kind.flags, kind.profile));
        let device_size = superblock.device.total_bytes;
        Ok(Usage {
            device_id: superblock.device.id,
            device_size,
            device_allocated: kinds.iter().map(SpaceUse::device_total).sum(),
            device_slack: self.volume().device().len().saturating_sub(device_size),
            global_reserve: self.global_reserve()?,
            kinds,
        })
    }

    /// Returns the chunks, each with the allocated bytes of its block group.
    fn chunk_usage(&self) -> Result<Vec<(Chunk, u64)>> {
        if let Some(transactions) = &self.inner.transactions {
            return Ok(transactions.space().chunk_usage());
        }
        let with_use = |chunk: Chunk| self.block_group(&chunk).map(|it| (chunk, it.used));
        self.volume().chunks().into_iter().map(with_use).collect()
    }

    /// Returns the global reserve: the allocator's, or that which Linux would have.
    fn global_reserve(&self) -> Result<u64> {
        if let Some(transactions) = &self.inner.transactions {
            return Ok(transactions.space().usage(SpaceKind::Metadata).global);
        }
        let superblock = self.superblock();
        let mut trees: u64 = 1;
        let mut bytes: u64 = 0;
        for id in RESERVED_FOR {
            if let Some(item) = self.inner.tree_roots().root_item(id)? {
                trees += 1;
                bytes = bytes.saturating_add(item.bytes_used);
            }
        }
        let has_free_tree = superblock.compat_ro.contains(CompatRoFlags::FREE_SPACE_TREE);
        let references = if has_free_tree { 2 * UNLINK_ITEMS } else { UNLINK_ITEMS };
        let insertion = u64::from(superblock.nodesize) * INSERTION_BLOCKS;
        let least = (trees + UNLINK_ITEMS + references) * insertion;
        Ok(bytes.max(least).min(GLOBAL_RESERVE_MAX))
    }

    fn block_group(&self, chunk: &Chunk) -> Result<BlockGroupItem> {
        let own_tree = self.superblock().compat_ro.contains(CompatRoFlags::BLOCK_GROUP_TREE);
        let id = if own_tree { TreeId::BLOCK_GROUP } else { TreeId::EXTENT };
        let tree_roots = self.inner.tree_roots();
        let tree = tree_roots.tree(id)?;
        let key = Key::new(chunk.logical.0, ItemKind::BLOCK_GROUP_ITEM, chunk.len);
        let position = tree.search(tree_roots.store(), &key)?;
        if !position.exact {
            return Err(Error::NoBlockGroup(chunk.logical));
        }
        let item = position.leaf.item(position.slot);
        Ok(BlockGroupItem::parse(chunk.len, item.data).expect("verified with its block"))
    }
}

/// Computes the room of a filesystem that does not change, with `data_copies` copies of data.
fn room_of(usage: &Usage, data_copies: u64) -> Room {
    let of_files = |row: &&SpaceUse| row.flags.contains(BlockGroupFlags::DATA);
    let free = |row: &SpaceUse| row.total.saturating_sub(row.used);
    let device_free = usage.device_size.saturating_sub(usage.device_allocated);
    let for_chunks = device_free.saturating_sub(DEVICE_START);
    let chunks = if for_chunks < CHUNK_LEN_MIN { 0 } else { for_chunks };
    Room {
        used: usage.kinds.iter().map(SpaceUse::device_used).fold(0, u64::saturating_add),
        data_free: usage.kinds.iter().filter(of_files).map(free).fold(0, u64::saturating_add),
        chunks_free: chunks / data_copies,
    }
}

fn copies(profile: Profile) -> u64 {
    if profile == Profile::Dup { 2 } else { 1 }
}
