//! The superblock, field by field.

use std::io::{self, Write};

use serde_json::json;
use userbtrfs_format::{
    BackupRoot, DeviceItem, ItemKind, Key, Logical, Quoted, Superblock, sys_chunk_array,
};

use super::Format;
use super::flags::Flags;
use super::item;
use super::record::{Record, Show};

/// The column at which values begin in text.
const VALUES: usize = 24;

/// Width of a tab.
const TAB: usize = 8;

/// Object id of chunks.
const FIRST_CHUNK_TREE: u64 = 256;

/// Dumps the superblock of `device`; if `full`, with its system chunks and backup roots.
pub fn dump_super(
    superblock: &Superblock,
    device: &str,
    full: bool,
    format: Format,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut record = Record::new(format);
    describe(&mut record, superblock);
    describe_device(&mut record, &superblock.device);
    if full {
        system_chunks(&mut record, superblock);
        backups(&mut record, superblock);
    }
    match format {
        Format::Text => {
            let at = superblock.physical;
            let device = Quoted(device.as_bytes());
            writeln!(out, "superblock: bytenr={at}, device={device}")?;
            writeln!(out, "{}{}", "-".repeat(57), record.into_text())
        }
        Format::Json => {
            serde_json::to_writer(&mut *out, &json!({ "superblock": record.into_json() }))?;
            writeln!(out)
        }
    }
}

fn row<'a>(record: &'a mut Record, label: &str, value: &impl Show) -> &'a mut Record {
    named_row(record, label, label, value)
}

/// Adds a line with a label and, in the column of values, a value.
fn named_row<'a>(
    record: &'a mut Record,
    label: &str,
    name: &str,
    value: &impl Show,
) -> &'a mut Record {
    let tabs = (VALUES / TAB).saturating_sub(label.len() / TAB).max(1);
    let label = format!("{label}{}", "\t".repeat(tabs));
    record.line_at(0).labelled(&label, name, value)
}

fn describe(record: &mut Record, superblock: &Superblock) {
    let kind = superblock.checksum_kind;
    let name = match kind.name() {
        "blake2b" => "blake2",
        name => name,
    };
    row(record, "csum_type", &kind.to_disk()).words(&format!("({name})"));
    row(record, "csum_size", &kind.size());
    row(record, "csum", &&*superblock.checksum.to_string()).words("[match]");
    row(record, "bytenr", &superblock.physical.0);
    flags(record, "flags", &superblock.flags);
    row(record, "magic", &"_BHRfS_M").words("[match]");
    row(record, "fsid", &superblock.fsid);
    row(record, "metadata_uuid", &superblock.metadata_uuid);
    record.line_at(0).bytes("label\t\t\t", "label", &superblock.label);
    row(record, "generation", &superblock.generation);
    row(record, "root", &superblock.root);
    row(record, "sys_array_size", &superblock.sys_chunk_array.len());
    row(record, "chunk_root_generation", &superblock.chunk_root_generation);
    row(record, "root_level", &superblock.root_level);
    row(record, "chunk_root", &superblock.chunk_root);
    row(record, "chunk_root_level", &superblock.chunk_root_level);
    row(record, "log_root", &superblock.log_root.unwrap_or(Logical(0)));
    let transid = &superblock.log_root_transid;
    named_row(record, "log_root_transid (deprecated)", "log_root_transid", transid);
    row(record, "log_root_level", &superblock.log_root_level);
    row(record, "total_bytes", &superblock.total_bytes);
    row(record, "bytes_used", &superblock.bytes_used);
    row(record, "sectorsize", &superblock.sectorsize);
    row(record, "nodesize", &superblock.nodesize);
    named_row(record, "leafsize (deprecated)", "leafsize", &superblock.nodesize);
    row(record, "stripesize", &superblock.stripesize);
    row(record, "root_dir", &superblock.root_dir_objectid);
    row(record, "num_devices", &superblock.num_devices);
    row(record, "compat_flags", &Bits(superblock.compat));
    flags(record, "compat_ro_flags", &superblock.compat_ro);
    flags(record, "incompat_flags", &superblock.incompat);
    row(record, "cache_generation", &superblock.cache_generation);
    row(record, "uuid_tree_generation", &superblock.uuid_tree_generation);
}

/// Bits that have no names.
struct Bits(u64);

impl Show for Bits {
    fn text(&self) -> String {
        format!("{:#x}", self.0)
    }

    fn json(&self) -> serde_json::Value {
        json!(self.0)
    }
}

/// Adds flags, and their names below, each on a line.
fn flags<F: bitflags::Flags<Bits = u64>>(record: &mut Record, label: &str, flags: &F) {
    let named = Flags::of(flags);
    let unknown = flags.bits() & !F::all().bits();
    let mut names: Vec<String> = named.names.iter().map(|&name| name.to_owned()).collect();
    if unknown != 0 {
        names.push(format!("unknown flag: {unknown:#x}"));
    }
    let tabs = "\t".repeat(VALUES / TAB - label.len() / TAB);
    let text = |flags: &Flags| format!("{label}{tabs}{:#x}", flags.bits);
    record.line_at(0).shown(label, &named, text);
    if !names.is_empty() {
        record.line_at(VALUES / TAB).words(&format!("( {} )", names.join(" |\n\t\t\t  ")));
    }
}

fn describe_device(record: &mut Record, device: &DeviceItem) {
    record.object("dev_item", |record| {
        named_row(record, "dev_item.uuid", "uuid", &device.uuid);
        named_row(record, "dev_item.fsid", "fsid", &device.fsid).words("[match]");
        named_row(record, "dev_item.type", "type", &device.kind);
        named_row(record, "dev_item.total_bytes", "total_bytes", &device.total_bytes);
        named_row(record, "dev_item.bytes_used", "bytes_used", &device.bytes_used);
        named_row(record, "dev_item.io_align", "io_align", &device.io_align);
        named_row(record, "dev_item.io_width", "io_width", &device.io_width);
        named_row(record, "dev_item.sector_size", "sector_size", &device.sector_size);
        named_row(record, "dev_item.devid", "devid", &device.id);
        named_row(record, "dev_item.dev_group", "dev_group", &device.group);
        named_row(record, "dev_item.seek_speed", "seek_speed", &device.seek_speed);
        named_row(record, "dev_item.bandwidth", "bandwidth", &device.bandwidth);
        named_row(record, "dev_item.generation", "generation", &device.generation);
    });
}

fn system_chunks(record: &mut Record, superblock: &Superblock) {
    record.line_at(0).words("sys_chunk_array[2048]:");
    match sys_chunk_array(&superblock.sys_chunk_array) {
        Ok(chunks) => {
            let chunks = chunks.iter().enumerate();
            record.list("sys_chunk_array", chunks, |record, (number, chunk)| {
                let key = Key::new(FIRST_CHUNK_TREE, ItemKind::CHUNK_ITEM, chunk.logical.0);
                record.line_at(1).words(&format!("item {number}")).field("key", &key);
                item::chunk(record, chunk);
            });
        }
        Err(error) => {
            record.line_at(1).labelled("error", "sys_chunk_array_error", &&*error.to_string());
        }
    }
}

fn backups(record: &mut Record, superblock: &Superblock) {
    record.line_at(0).words("backup_roots[4]:");
    let backups = superblock.backup_roots.iter().enumerate();
    record.list("backup_roots", backups, |record, (number, backup)| {
        record.line_at(1).words(&format!("backup {number}:"));
        describe_backup(record, backup);
        record.line_at(0);
    });
}

fn describe_backup(record: &mut Record, backup: &BackupRoot) {
    let [tree, chunk, extent, fs, dev, csum] = backup.levels;
    let roots = [
        ("tree_root", backup.tree_root, backup.tree_root_generation, tree),
        ("chunk_root", backup.chunk_root, backup.chunk_root_generation, chunk),
        ("extent_root", backup.extent_root, backup.extent_root_generation, extent),
        ("fs_root", backup.fs_root, backup.fs_root_generation, fs),
        ("dev_root", backup.dev_root, backup.dev_root_generation, dev),
        ("csum_root", backup.csum_root, backup.csum_root_generation, csum),
    ];
    for (name, logical, generation, level) in roots {
        let prefix = if name == "csum_root" { "" } else { "backup_" };
        record.object(name, |record| {
            record.line_at(2).words(&format!("{prefix}{name}:\t")).bare("bytenr", &logical);
            record.labelled("\tgen:", "generation", &generation);
            record.labelled("\tlevel:", "level", &level);
        });
    }
    for (name, value) in [
        ("total_bytes", backup.total_bytes),
        ("bytes_used", backup.bytes_used),
        ("num_devices", backup.num_devices),
    ] {
        record.line_at(2).labelled(&format!("backup_{name}:\t"), name, &value);
    }
}
