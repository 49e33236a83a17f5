//! Extents of files.

use userbtrfs_codec::compress::Compression;
use userbtrfs_format::{FileExtent, FileExtentKind, Logical, RegularExtent};

use crate::dump::record::{Described, Record, Show};

pub(super) fn describe(record: &mut Record, file_offset: u64, data: &[u8]) -> Described {
    let extent = FileExtent::parse(file_offset, data)?;
    record.line().field("generation", &extent.generation).field("type", &kind(extent.kind));
    let compression = compression(extent.compression);
    match extent.kind {
        FileExtentKind::Inline(inline) => {
            let line = record.line().words("inline extent data");
            line.field("size", &inline.data.len()).field("ram_bytes", &inline.ram_bytes);
            line.field("compression", &compression);
        }
        FileExtentKind::Regular(extent) => {
            regular(record, &extent);
            record.line().words("extent").field("compression", &compression);
        }
        FileExtentKind::Hole(hole) => {
            let bytes = hole.bytes;
            let offset = hole.offset;
            let ram_bytes = hole.ram_bytes;
            let disk = Logical(0);
            regular(record, &RegularExtent { disk, disk_bytes: 0, offset, bytes, ram_bytes });
            record.line().words("extent").field("compression", &compression);
        }
        FileExtentKind::Prealloc(extent) => {
            on_disk(record, "prealloc data", &extent);
            record.silent("ram_bytes", &extent.ram_bytes);
        }
    }
    Ok(())
}

fn regular(record: &mut Record, extent: &RegularExtent) {
    on_disk(record, "extent data", extent);
    record.labelled("ram", "ram_bytes", &extent.ram_bytes);
}

fn on_disk(record: &mut Record, what: &str, extent: &RegularExtent) {
    let line = record.line().words(what).labelled("disk byte", "disk_bytenr", &extent.disk);
    line.labelled("nr", "disk_num_bytes", &extent.disk_bytes);
    let line = record.line().words(what).field("offset", &extent.offset);
    line.labelled("nr", "num_bytes", &extent.bytes);
}

/// A number and its name.
struct Named(u8, &'static str);

impl Show for Named {
    fn text(&self) -> String {
        format!("{} ({})", self.0, self.1)
    }

    fn json(&self) -> serde_json::Value {
        self.1.json()
    }
}

fn kind(kind: FileExtentKind<'_>) -> Named {
    match kind {
        FileExtentKind::Inline(_) => Named(0, "inline"),
        FileExtentKind::Regular(_) | FileExtentKind::Hole(_) => Named(1, "regular"),
        FileExtentKind::Prealloc(_) => Named(2, "prealloc"),
    }
}

fn compression(compression: Option<Compression>) -> Named {
    match compression {
        None => Named(0, "none"),
        Some(Compression::Zlib) => Named(1, "zlib"),
        Some(Compression::Lzo) => Named(2, "lzo"),
        Some(Compression::Zstd) => Named(3, "zstd"),
    }
}
