//! Devices, chunks, and state of them that outlives a mount: statistics, replacement, balance.

use userbtrfs_format::{
    BalanceArgs, BalanceItem, Chunk, DevReplaceItem, DevStats, DeviceExtent, DeviceItem, Key,
};

use crate::dump::names;
use crate::dump::record::{Described, Named, Record};

pub(super) fn device(record: &mut Record, data: &[u8]) -> Described {
    let device = DeviceItem::parse(data)?;
    let line = record.line().field("devid", &device.id);
    line.field("total_bytes", &device.total_bytes).field("bytes_used", &device.bytes_used);
    let line = record.line().field("io_align", &device.io_align);
    line.field("io_width", &device.io_width).field("sector_size", &device.sector_size);
    line.field("type", &device.kind);
    let line = record.line().field("generation", &device.generation);
    line.field("start_offset", &device.start_offset).field("dev_group", &device.group);
    let line = record.line().field("seek_speed", &device.seek_speed);
    line.field("bandwidth", &device.bandwidth);
    record.line().field("uuid", &device.uuid);
    record.line().field("fsid", &device.fsid);
    Ok(())
}

pub(super) fn extent(record: &mut Record, data: &[u8]) -> Described {
    let extent = DeviceExtent::parse(data)?;
    record.line().words("dev extent").field("chunk_tree", &extent.chunk_tree);
    let line = record.line().field("chunk_objectid", &extent.chunk_objectid);
    line.field("chunk_offset", &extent.chunk).field("length", &extent.len);
    record.line().field("chunk_tree_uuid", &extent.chunk_tree_uuid);
    Ok(())
}

pub(super) fn chunk_item(record: &mut Record, key: Key, data: &[u8]) -> Described {
    chunk(record, &Chunk::parse(key, data)?);
    Ok(())
}

/// Describes a chunk, as it is stored in the chunk tree and in the superblock.
pub(in crate::dump) fn chunk(record: &mut Record, chunk: &Chunk) {
    let line = record.line().field("length", &chunk.len).field("owner", &chunk.owner);
    line.field("stripe_len", &chunk.stripe_len);
    line.field("type", &Named(names::block_group(chunk.flags)));
    let line = record.line().field("io_align", &chunk.io_align);
    line.field("io_width", &chunk.io_width).field("sector_size", &chunk.sector_size);
    let line = record.line().field("num_stripes", &chunk.stripes.len());
    line.field("sub_stripes", &chunk.sub_stripes);
    record.list("stripes", chunk.stripes.iter().enumerate(), |record, (number, stripe)| {
        let line = record.line_at(3).field("stripe", &number).field("devid", &stripe.device);
        line.field("offset", &stripe.physical.0);
        record.line_at(3).field("dev_uuid", &stripe.device_uuid);
    });
}

/// Describes a persistent item; only statistics of devices are known.
pub(super) fn persistent(record: &mut Record, key: Key, data: &[u8]) -> Described {
    let object = names::key_object(key);
    record.line().words(&format!("persistent item objectid {object} offset {}", key.offset));
    if key.objectid != 0 {
        record.line().words(&format!("unknown persistent item objectid {}", key.objectid));
        return Ok(());
    }
    let stats = DevStats::parse(data)?;
    record.line().words("device stats");
    let line = record.line().field("write_errs", &stats.write_errors);
    line.field("read_errs", &stats.read_errors).field("flush_errs", &stats.flush_errors);
    line.field("corruption_errs", &stats.corruption_errors);
    line.field("generation", &stats.generation_errors);
    Ok(())
}

/// Describes a temporary item, which the next mount may remove; only a balance status is known.
pub(super) fn temporary(record: &mut Record, key: Key, data: &[u8]) -> Described {
    let object = names::key_object(key);
    record.line().words(&format!("temporary item objectid {object} offset {}", key.offset));
    if key.objectid != BalanceItem::OBJECTID {
        record.line().words(&format!("unknown temporary item objectid {}", key.objectid));
        return Ok(());
    }
    let balance = BalanceItem::parse(data)?;
    record.line().words("balance status").field("flags", &balance.flags);
    let types = ["DATA", "METADATA", "SYSTEM"];
    record.list("args", types.iter().zip(&balance.args), |record, (kind, args)| {
        record.line().bare("type", kind);
        balance_args(record, args);
    });
    Ok(())
}

fn balance_args(record: &mut Record, args: &BalanceArgs) {
    let [usage_min, usage_max] = args.usage;
    let [limit_min, limit_max] = args.limit;
    let [stripes_min, stripes_max] = args.stripes;
    let line = record.line().field("profiles", &args.profiles).field("devid", &args.device);
    line.field("target", &args.target).field("flags", &args.flags);
    let line = record.line().field("usage_min", &usage_min).field("usage_max", &usage_max);
    line.field("pstart", &args.physical[0]).field("pend", &args.physical[1]);
    let line = record.line().field("vstart", &args.logical[0]).field("vend", &args.logical[1]);
    line.field("limit_min", &limit_min).field("limit_max", &limit_max);
    let line = record.line().field("stripes_min", &stripes_min);
    line.field("stripes_max", &stripes_max);
}

pub(super) fn replace(record: &mut Record, data: &[u8]) -> Described {
    let replace = DevReplaceItem::parse(data)?;
    let line = record.line().words("dev replace").labelled("src devid", "source", &replace.source);
    line.field("cursor_left", &replace.cursor_left).field("cursor_right", &replace.cursor_right);
    line.field("mode", &replace.mode);
    let line = record.line().field("state", &replace.state);
    line.field("started", &replace.started).field("stopped", &replace.stopped);
    let line = record.line().field("write_errors", &replace.write_errors);
    line.field("uncorrectable_read_errors", &replace.uncorrectable_read_errors);
    Ok(())
}
