//! Searches trees for items and looks up the paths of inodes, for callers with all rights
//! (`rights`).
//!
//! `struct btrfs_ioctl_search_args` and `btrfs_ioctl_ino_lookup_args` of `linux/btrfs.h`. A search
//! reads the trees: changes that are not committed may be missing.

use userbtrfs_engine::api::{Error, Filesystem, Inode, InodeId, ItemKind, Key, TreeId};
use userbtrfs_fuse::{Caller, Errno};

use super::path::{ROOT_DIR, ReversePath, links};
use super::record::{Reader, Writer};
use crate::errno;
use crate::rights::admit;

/// The size of the search key, and of the arguments: the key, followed by the items found.
const SEARCH_KEY_BYTES: usize = 104;
const SEARCH_BYTES: usize = 4096;
/// The offset of the number of items in the arguments.
const COUNT_AT: usize = 64;
/// The size of the header before each item.
const HEADER_BYTES: usize = 32;

/// The size of a path, with the terminating NUL.
const PATH_BYTES: usize = 4080;

/// The key of a search.
struct Search {
    tree: TreeId,
    first: Key,
    last: Key,
    /// The transactions that last changed the leaf of an item.
    transactions: std::ops::RangeInclusive<u64>,
    /// The most items to return; at least one.
    count: u32,
}

impl Search {
    fn parse(input: &[u8], own: TreeId) -> Result<Self, Errno> {
        let mut reader = Reader(input);
        let tree = reader.u64()?;
        let objectids = reader.u64()?..=reader.u64()?;
        let offsets = reader.u64()?..=reader.u64()?;
        let transactions = reader.u64()?..=reader.u64()?;
        let kinds = reader.u32()?..=reader.u32()?;
        Ok(Self {
            tree: if tree == 0 { own } else { TreeId(tree) },
            first: Key::new(*objectids.start(), item_kind(*kinds.start()), *offsets.start()),
            last: Key::new(*objectids.end(), item_kind(*kinds.end()), *offsets.end()),
            transactions,
            count: reader.u32()?.max(1),
        })
    }
}

/// Returns the lowest byte of a kind, which is what Linux uses.
fn item_kind(kind: u32) -> ItemKind {
    let [lowest, ..] = kind.to_le_bytes();
    ItemKind(lowest)
}

/// The result of a search: headers and items, as many as fit.
struct Found {
    bytes: Vec<u8>,
    count: u32,
}

impl Found {
    /// Adds an item. Returns whether there may be more.
    fn add(&mut self, key: &Key, transaction: u64, data: &[u8]) -> bool {
        let room = SEARCH_BYTES - SEARCH_KEY_BYTES;
        // An item that never fits is returned without its content.
        let never_fits = HEADER_BYTES + data.len() > room;
        let data = if never_fits && self.count == 0 { &[] } else { data };
        if self.bytes.len() + HEADER_BYTES + data.len() > room {
            return false;
        }
        let mut writer = Writer::default();
        let len = u32::try_from(data.len()).expect("an item is shorter than its block");
        writer.u64(transaction).u64(key.objectid).u64(key.offset);
        writer.u32(u32::from(key.kind.0)).u32(len).bytes(data);
        self.bytes.extend(writer.finish());
        self.count += 1;
        !never_fits
    }
}

/// Returns the items of a tree in a range of keys.
pub(super) fn tree_search(
    filesystem: &Filesystem,
    caller: &Caller,
    inode: &Inode,
    input: &[u8],
) -> Result<Vec<u8>, Errno> {
    admit(caller)?;
    if input.len() != SEARCH_BYTES {
        return Err(Errno::INVAL);
    }
    let search = Search::parse(input, inode.id().subvolume)?;
    let mut found = Found { bytes: Vec::new(), count: 0 };
    let show = |key: &Key, transaction, data: &[u8]| {
        if *key > search.last || found.count >= search.count {
            return false;
        }
        !search.transactions.contains(&transaction) || found.add(key, transaction, data)
    };
    match filesystem.show_items(search.tree, &search.first, show) {
        Err(Error::NoTree(_)) => Err(Errno::NOENT),
        done => done.map_err(errno),
    }?;
    // Fields that are not filled stay as they were sent.
    let mut answer = input.to_vec();
    answer[COUNT_AT..COUNT_AT + 4].copy_from_slice(&found.count.to_le_bytes());
    answer[SEARCH_KEY_BYTES..][..found.bytes.len()].copy_from_slice(&found.bytes);
    Ok(answer)
}

/// Returns the path of an inode in its subvolume, with a slash after each name; of several
/// paths, the last.
pub(super) fn ino_lookup(
    filesystem: &Filesystem,
    caller: &Caller,
    inode: &Inode,
    input: &[u8],
) -> Result<Vec<u8>, Errno> {
    let mut reader = Reader(input);
    let tree = reader.u64()?;
    let number = reader.u64()?;
    let subvolume = if tree == 0 { inode.id().subvolume } else { TreeId(tree) };
    // The path of a root is empty, whether the subvolume exists or not; so every caller can
    // learn which subvolume an inode is in.
    let path = if number == ROOT_DIR {
        Vec::new()
    } else {
        admit(caller)?;
        path_in_subvolume(filesystem, InodeId { subvolume, number })?
    };
    let mut writer = Writer::default();
    writer.u64(subvolume.0).u64(number);
    Ok(writer.text(&path, PATH_BYTES).finish())
}

fn path_in_subvolume(filesystem: &Filesystem, id: InodeId) -> Result<Vec<u8>, Errno> {
    filesystem.subvolume_root(id.subvolume).map_err(errno)?;
    let mut path = ReversePath::new(PATH_BYTES);
    let mut inode = filesystem.inode(id);
    while inode.id().number != ROOT_DIR {
        // The first name in the last of its directories.
        let last = links(&inode)?.into_iter().rev().max_by_key(|(dir, _)| dir.id().number);
        let (dir, name) = last.ok_or(Errno::NOENT)?;
        path.push(&name)?;
        inode = dir;
    }
    Ok(path.finish())
}
