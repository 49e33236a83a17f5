//! Helpers for the tests of this module.

use std::collections::{BTreeMap, HashMap};

use userbtrfs_btree::ReadAhead;
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{
    DirEntryKind, ExtentFlags, ExtentItem, FileKind, InlineRef, InodeFlags, InodeItem, ItemKind,
    Key, KeyedRef, Timestamp, TreeId,
};
use userbtrfs_sync::Arc;

use super::{Entry, EntryTarget, Inodes, TreeRoots};
use crate::error::{InodeId, Result};

/// Returns the attributes of an inode.
pub(super) fn item_of(inodes: &Inodes, id: InodeId) -> Result<InodeItem> {
    Ok(inodes.inode(id)?.item())
}

/// Returns an entry of a regular file.
pub(super) fn entry(index: u64, name: &[u8], number: u64) -> Arc<Entry> {
    let kind = DirEntryKind::Regular;
    let target = EntryTarget::Inode(number);
    Arc::new(Entry { index, name: name.into(), kind, target, transid: 7 })
}

/// Returns the attributes of an empty inode.
pub(super) fn item(kind: FileKind) -> InodeItem {
    let time = Timestamp::default();
    InodeItem {
        generation: 7,
        transid: 7,
        size: 0,
        nbytes: 0,
        block_group: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        mode: kind.to_mode() | 0o755,
        kind,
        rdev: 0,
        flags: InodeFlags::empty(),
        sequence: 0,
        atime: time,
        ctime: time,
        mtime: time,
        otime: time,
    }
}

/// Returns two names with the same hash.
pub(super) fn alike() -> [Vec<u8>; 2] {
    let mut seen = HashMap::new();
    for number in 0..u64::MAX {
        let name = format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
        if let Some(before) = seen.insert(name_hash(&name), name.clone()) {
            return [before, name];
        }
    }
    unreachable!("there are fewer hashes than numbers")
}

/// Returns four bytes which, appended to `start`, make a name with this hash.
pub(super) fn ending_alike(start: &[u8], hash: u32) -> [u8; 4] {
    let with = |end: u32| name_hash(&[start, &end.to_le_bytes()].concat());
    // Each bit of the end flips the same bits of the hash, independently of the other bits.
    let mut end = 0;
    let mut left = with(0) ^ hash;
    let mut rows: Vec<(u32, u32)> =
        (0..32).map(|bit| (with(1 << bit) ^ with(0), 1 << bit)).collect();
    for bit in 0..32 {
        let at = rows.iter().position(|(turned, _)| turned >> bit & 1 == 1);
        let (turned, bits) = rows.swap_remove(at.expect("all hashes can be had"));
        for row in rows.iter_mut().filter(|(other, _)| other >> bit & 1 == 1) {
            *row = (row.0 ^ turned, row.1 ^ bits);
        }
        if left >> bit & 1 == 1 {
            (left, end) = (left ^ turned, end ^ bits);
        }
    }
    end.to_le_bytes()
}

/// Returns the backrefs of a file in the extent tree, by extent address and by the offset in the
/// file at which the extent would start. Asserts that there are no others.
pub(super) fn references(tree_roots: &TreeRoots, id: InodeId) -> BTreeMap<(u64, u64), u32> {
    let tree = tree_roots.tree(TreeId::EXTENT).unwrap();
    let mut cursor = tree_roots.cursor(&tree, &Key::MIN, ReadAhead::Off).unwrap();
    let mut found = BTreeMap::new();
    while let Some(item) = cursor.item() {
        let inline = match item.key.kind {
            ItemKind::EXTENT_ITEM => {
                let extent = ExtentItem::parse(item.key, item.data).unwrap();
                assert!(extent.flags.contains(ExtentFlags::DATA));
                extent.inline
            }
            ItemKind::EXTENT_DATA_REF => match KeyedRef::parse(item.key.kind, item.data).unwrap() {
                KeyedRef::ExtentData(inline) => vec![inline],
                _ => unreachable!("a reference of a file"),
            },
            _ => Vec::new(),
        };
        for inline in inline {
            let InlineRef::ExtentData { root, inode, offset, count } = inline else {
                unreachable!("nothing is shared");
            };
            assert_eq!((root, inode), (id.subvolume, id.number));
            let before = found.insert((item.key.objectid, offset), count);
            assert_eq!(before, None);
        }
        cursor.advance().unwrap();
    }
    found
}
