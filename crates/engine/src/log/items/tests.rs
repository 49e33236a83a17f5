//! Tests of parsing items of a log.

use userbtrfs_format::{HoleExtent, InlineExtent, InodeName, Logical, TreeId};

use super::*;

fn key(kind: ItemKind, offset: u64) -> Key {
    Key::new(257, kind, offset)
}

fn damage(key: Key, data: &[u8]) -> LogDamage {
    LogItem::parse(key, data).err().expect("it is damaged")
}

#[test]
fn item_kinds_unused_by_replay_are_skipped() {
    for kind in [ItemKind::DIR_ITEM, ItemKind::DIR_LOG_ITEM, ItemKind::EXTENT_CSUM, ItemKind(0)] {
        assert!(LogItem::parse(key(kind, 7), b"whatever").unwrap().is_none(), "{kind}");
    }
    let mut root = Vec::new();
    InodeName { parent: 257, index: 0, name: b".." }.encode_ref_into(&mut root);
    assert!(LogItem::parse(key(ItemKind::INODE_REF, 257), &root).unwrap().is_none());
}

#[test]
fn impossible_names_are_damage() {
    for name in [&b"a/b"[..], b"a\0b", b".", b".."] {
        let mut data = Vec::new();
        InodeName { parent: 256, index: 7, name }.encode_ref_into(&mut data);
        assert_eq!(damage(key(ItemKind::INODE_REF, 256), &data), LogDamage::Name(name.to_vec()));
        let target = Key::new(300, ItemKind::INODE_ITEM, 0);
        let entry = DirEntry { target, transid: 7, kind: DirEntryKind::Regular, name, data: &[] };
        let found = damage(key(ItemKind::DIR_INDEX, 7), &entry.encode());
        assert_eq!(found, LogDamage::Name(name.to_vec()));
    }
}

#[test]
fn parsed_ranges_are_whole_sectors_within_files() {
    let parse = |offset: u64, kind: FileExtentKind<'_>| {
        let data = FileExtent { generation: 7, compression: None, kind }.encode();
        match LogItem::parse(key(ItemKind::EXTENT_DATA, offset), &data) {
            Ok(Some(LogItem::Extent(extent))) => Ok((extent.start, extent.end)),
            Ok(_) => panic!("an extent"),
            Err(error) => Err(error),
        }
    };
    let hole = |bytes| FileExtentKind::Hole(HoleExtent { bytes, offset: 0, ram_bytes: bytes });
    assert_eq!(parse(8192, hole(4096)), Ok((8192, 12_288)));
    assert_eq!(parse((1 << 63) - 4096, hole(4096)), Ok(((1 << 63) - 4096, 1 << 63)));
    assert!(parse((1 << 63) - 4096, hole(8192)).is_err());
    let inline = |data| FileExtentKind::Inline(InlineExtent { ram_bytes: data_len(data), data });
    assert_eq!(parse(0, inline(b"small")), Ok((0, 4096)));
    assert_eq!(parse(0, inline(&[0; 5000])), Err(LogDamage::Inline(5000)));
}

fn data_len(data: &[u8]) -> u64 {
    data.len() as u64
}

#[test]
fn log_error_names_subvolume_and_item() {
    let error = crate::error::LogError {
        subvolume: Some(TreeId::FS),
        key: Some(key(ItemKind::EXTENT_DATA, 4096)),
        why: LogDamage::ExtentInUse { logical: Logical(1 << 20), len: 4096 },
    };
    let said = error.to_string();
    assert_eq!(
        said,
        "the log of subvolume 5 at item (257 EXTENT_DATA 4096) cannot be replayed: \
         the extent of 4096 bytes at 1048576 lies over others"
    );
}
