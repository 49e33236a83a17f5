//! `dump log`: shows what a replay of the pending log would restore.
//!
//! 1. Each line shows one item: an inode, a name, an attribute, a file extent, checksums, a
//!    directory entry, or a range of directory indexes that is logged completely.
//! 2. A damaged block or item is reported, and the rest is still dumped.

use std::io::Write;

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use userbtrfs_format::{
    Expectation, FileExtent, FileExtentKind, InodeItem, InodeName, Item, ItemError, ItemKind, Key,
    Logical, Quoted, RootItem, SECTOR_SIZE, TreeId, csum_count, dir_entries, dir_log_end,
    inode_extrefs, inode_refs,
};
use userbtrfs_volume::{ReadError, TreeBlock, Volume, walk};

use super::{DumpError, Format};
use crate::Counted;

/// The description of an item, as text and as JSON.
struct Description {
    words: String,
    data: Value,
}

/// Dumps the pending log, as JSON an array; returns false, and writes nothing, if there is none.
/// The error of each block that cannot be read is passed to `damaged`.
pub fn dump_log(
    volume: &Volume,
    format: Format,
    out: &mut impl Write,
    damaged: &mut dyn FnMut(&ReadError),
) -> Result<bool, DumpError> {
    let superblock = volume.superblock();
    let Some(logical) = superblock.log_root else { return Ok(false) };
    let generation = superblock.generation.saturating_add(1);
    let expected = expected(superblock.log_root_level, generation);
    let mut roots = Vec::new();
    each_leaf(volume, logical, expected, damaged, &mut |leaf| {
        let items = (0..leaf.len()).map(|slot| leaf.item(slot));
        let roots_in = items.filter(|item| item.key.kind == ItemKind::ROOT_ITEM);
        roots.extend(roots_in.map(|item| {
            (item.key.offset, RootItem::parse(item.data).expect("verified with its block"))
        }));
        Ok(())
    })?;
    let mut documents = Vec::new();
    if format == Format::Text {
        writeln!(out, "log of what was fsynced after generation {}", superblock.generation)?;
    }
    for (subvolume, root) in roots {
        if format == Format::Text {
            writeln!(out, "subvolume {subvolume}")?;
        }
        let expected = self::expected(root.level, root.generation);
        each_leaf(volume, root.logical, expected, damaged, &mut |leaf| {
            for item in (0..leaf.len()).map(|slot| leaf.item(slot)) {
                for mut description in describe(volume, &item) {
                    if format == Format::Text {
                        writeln!(out, "  {}", description.words)?;
                    } else {
                        description.data["subvolume"] = json!(subvolume);
                        documents.push(description.data);
                    }
                }
            }
            Ok(())
        })?;
    }
    if format == Format::Json {
        serde_json::to_writer_pretty(&mut *out, &documents).map_err(std::io::Error::from)?;
        writeln!(out)?;
    }
    Ok(true)
}

fn expected(level: u8, generation: u64) -> Expectation {
    Expectation { owner: TreeId::TREE_LOG, level, generation, first_key: None, end: None }
}

fn each_leaf(
    volume: &Volume,
    logical: Logical,
    expected: Expectation,
    damaged: &mut dyn FnMut(&ReadError),
    each: &mut dyn FnMut(&TreeBlock) -> Result<(), DumpError>,
) -> Result<(), DumpError> {
    let superblock = volume.superblock();
    let bound = superblock.total_bytes / u64::from(superblock.nodesize);
    let mut walk = walk(volume, logical, expected, bound);
    loop {
        match walk.next_leaf() {
            Ok(None) => return Ok(()),
            Ok(Some(leaf)) => each(&leaf)?,
            Err(error @ ReadError::TooManyBlocks { .. }) => {
                damaged(&error);
                return Ok(());
            }
            Err(error) => damaged(&error),
        }
    }
}

/// Returns the descriptions of an item; none if a replay does not use it.
fn describe(volume: &Volume, item: &Item<'_>) -> Vec<Description> {
    let Item { key, data, .. } = *item;
    try_describe(volume, key, data).unwrap_or_else(|error| {
        let words = format!("item {key} is damaged: {error}");
        vec![Description {
            data: json!({ "item": key.to_string(), "damage": error.to_string() }),
            words,
        }]
    })
}

fn try_describe(volume: &Volume, key: Key, data: &[u8]) -> Result<Vec<Description>, ItemError> {
    let one = |description: Description| Ok(vec![description]);
    match key.kind {
        ItemKind::INODE_ITEM => one(inode(key, &InodeItem::parse(data)?)),
        ItemKind::INODE_REF => {
            inode_refs(key.offset, data).map(|found| Ok(name(key.objectid, &found?))).collect()
        }
        ItemKind::INODE_EXTREF => {
            inode_extrefs(data).map(|found| Ok(name(key.objectid, &found?))).collect()
        }
        ItemKind::XATTR_ITEM => dir_entries(data)
            .map(|entry| entry.map(|entry| attribute(key, entry.name, entry.data.len())))
            .collect(),
        ItemKind::DIR_LOG_INDEX => one(range(key, dir_log_end(data)?)),
        ItemKind::DIR_INDEX => dir_entries(data)
            .map(|found| found.map(|found| entry(key, found.name, found.target.objectid)))
            .collect(),
        ItemKind::EXTENT_DATA => one(extent(key, &FileExtent::parse(key.offset, data)?)),
        ItemKind::EXTENT_CSUM => {
            let size = volume.geometry().checksum_kind.size();
            one(checksums(key.offset, csum_count(data.len(), size)?))
        }
        _ => Ok(Vec::new()),
    }
}

fn inode(key: Key, item: &InodeItem) -> Description {
    let number = key.objectid;
    let size = item.size;
    let links = item.nlink;
    let kind = format!("{:?}", item.kind).to_lowercase();
    let how = match (links, item.generation) {
        (0, _) => "without a name: not replayed",
        (_, 0) => "only that it exists",
        _ => "with all its attributes",
    };
    let bytes = Counted(size, "byte");
    let names = Counted(links.into(), "name");
    let words = format!("inode {number}: {kind}, {bytes}, {names}; {how}");
    let data = json!({
        "inode": number, "kind": kind, "size": size, "nlink": links,
        "exists_only": item.generation == 0,
    });
    Description { words, data }
}

fn name(inode: u64, name: &InodeName<'_>) -> Description {
    let dir = name.parent;
    let index = name.index;
    let data = json!({ "inode": inode, "dir": dir, "index": index });
    let data = with_name(data, "name", name.name);
    let name = Quoted(name.name);
    let words = format!("inode {inode} has the name \"{name}\" in directory {dir}, place {index}");
    Description { words, data }
}

/// Returns an object with a name in it; one that is not UTF-8 has its bytes beside it.
fn with_name(mut data: Value, key: &str, name: &[u8]) -> Value {
    if let Ok(text) = std::str::from_utf8(name) {
        data[key] = json!(text);
    } else {
        data[key] = json!(Quoted(name).to_string());
        data[format!("{key}_hex")] = json!(HEXLOWER.encode(name));
    }
    data
}

fn attribute(key: Key, name: &[u8], len: usize) -> Description {
    let inode = key.objectid;
    let bytes = Counted(len as u64, "byte");
    let words = format!("inode {inode} has the attribute {} of {bytes}", Quoted(name));
    let data = with_name(json!({ "inode": inode, "length": len }), "xattr", name);
    Description { words, data }
}

fn range(key: Key, last: u64) -> Description {
    let dir = key.objectid;
    let first = key.offset;
    let words =
        format!("directory {dir}: places {first} to {last} hold what is listed, and no more");
    Description { data: json!({ "dir": dir, "first": first, "last": last }), words }
}

fn entry(key: Key, name: &[u8], target: u64) -> Description {
    let dir = key.objectid;
    let index = key.offset;
    let shown = Quoted(name);
    let words = format!("directory {dir}: \"{shown}\" at place {index} is inode {target}");
    let data = with_name(json!({ "dir": dir, "index": index, "target": target }), "entry", name);
    Description { words, data }
}

fn extent(key: Key, extent: &FileExtent<'_>) -> Description {
    let inode = key.objectid;
    let offset = key.offset;
    let bytes = extent.file_bytes();
    let (kind, place) = match &extent.kind {
        FileExtentKind::Inline(_) => ("inline data", None),
        FileExtentKind::Hole(_) => ("a hole", None),
        FileExtentKind::Prealloc(found) => ("preallocated", Some(found.disk.0)),
        FileExtentKind::Regular(found) => ("data", Some(found.disk.0)),
    };
    let at = place.map_or_else(String::new, |place| format!(" at {place}"));
    let counted = Counted(bytes, "byte");
    let words = format!("inode {inode}: {counted} from {offset}: {kind}{at}");
    let data = json!({
        "inode": inode, "offset": offset, "bytes": bytes, "extent": kind, "disk": place,
    });
    Description { words, data }
}

fn checksums(start: u64, sectors: usize) -> Description {
    let counted = Counted(sectors as u64, "sector");
    let words = format!("checksums of {counted} of {SECTOR_SIZE} bytes from {start} on");
    Description { data: json!({ "checksums": sectors, "disk": start }), words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_equal_are_told_apart() {
        let data = |name: &[u8]| with_name(json!({}), "name", name);
        assert_eq!(data(br"\xff"), json!({ "name": r"\xff" }));
        assert_eq!(data(b"\xff"), json!({ "name": r"\xff", "name_hex": "ff" }));
    }
}
