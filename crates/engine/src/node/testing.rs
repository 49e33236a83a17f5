//! What tests of this module share.

use std::collections::HashMap;

use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{DirEntryKind, FileKind, InodeFlags, InodeItem, Timestamp};
use userbtrfs_sync::Arc;

use super::{Entry, EntryTarget};

/// An entry that leads to a file.
pub(super) fn entry(index: u64, name: &[u8], number: u64) -> Arc<Entry> {
    let (kind, target) = (DirEntryKind::Regular, EntryTarget::Inode(number));
    Arc::new(Entry { index, name: name.into(), kind, target, transid: 7 })
}

/// The attributes of an empty inode.
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

/// Two names that hash alike.
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
