//! Checksums, block groups and free space.

use userbtrfs_codec::checksum::ChecksumKind;
use userbtrfs_format::{
    BlockGroupItem, FreeSpaceInfo, Item, SECTOR_SIZE, V1SpaceCache, csum_count,
};

use crate::dump::names;
use crate::dump::record::{Described, Named, Record};

pub(super) fn checksums(record: &mut Record, item: &Item<'_>, kind: ChecksumKind) -> Described {
    let count = csum_count(item.data.len(), kind.size())?;
    let length = u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(u64::from(SECTOR_SIZE));
    let start = item.key.offset;
    let line = record.line().words("range").field("start", &start);
    line.field("end", &start.saturating_add(length)).field("length", &length);
    Ok(())
}

pub(super) fn block_group(record: &mut Record, len: u64, data: &[u8]) -> Described {
    let group = BlockGroupItem::parse(len, data)?;
    let line = record.line().words("block group").field("used", &group.used);
    line.field("chunk_objectid", &group.chunk_objectid);
    line.field("flags", &Named(names::block_group(group.flags)));
    Ok(())
}

pub(super) fn free_space_info(record: &mut Record, data: &[u8]) -> Described {
    let info = FreeSpaceInfo::parse(data)?;
    let line = record.line().words("free space info");
    line.labelled("extent count", "extent_count", &info.extent_count).field("flags", &info.flags);
    Ok(())
}

pub(super) fn v1_cache(record: &mut Record, data: &[u8]) -> Described {
    let cache = V1SpaceCache::parse(data)?;
    record.line().labelled("location key", "location", &cache.location);
    let line = record.line().labelled("cache generation", "generation", &cache.generation);
    line.field("entries", &cache.entries).field("bitmaps", &cache.bitmaps);
    Ok(())
}
