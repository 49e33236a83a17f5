//! Checks before a filesystem is opened for writing: those that Linux makes when it mounts, and
//! that no operation is in progress that only Linux can continue.
//!
//! 1. A filesystem that fails a check is not opened for writing: Linux could not read a change, and
//!    the change might hide what is left to repair.
//! 2. Only root blocks are checked, as in Linux: damage below them is an error where it is used.

use userbtrfs_btree::{ReadAhead, Tree};
use userbtrfs_format::{CompatRoFlags, DevReplaceItem, ItemKind, Key, TreeId};

use crate::error::{Error, Result};
use crate::roots::TreeRoots;
use crate::units::VERIFIED;

/// The object id of the item that records a balance (-4).
const BALANCE: u64 = u64::MAX - 3;

/// The item of a device replacement, in the device tree.
const REPLACEMENT: Key = Key::new(0, ItemKind::DEV_REPLACE, 0);

/// States of a replacement that is not in progress: never started, finished, cancelled.
const REPLACEMENT_RESTS: [u64; 3] = [0, 2, 3];

/// The trees without which Linux does not mount.
const REQUIRED: [TreeId; 5] =
    [TreeId::EXTENT, TreeId::DEV, TreeId::CSUM, TreeId::FS, TreeId::DATA_RELOC];

/// Refuses filesystems in the middle of an operation that only Linux can continue, and those that
/// Linux does not mount.
pub(crate) fn check_writable(tree_roots: &TreeRoots) -> Result<()> {
    check_roots(tree_roots)?;
    let roots = tree_roots.roots();
    if has(tree_roots, roots, Key::new(BALANCE, ItemKind::TEMPORARY_ITEM, 0))? {
        return Err(Error::Unwritable("a balance is running"));
    }
    if has(tree_roots, roots, Key::new(TreeId::TREE_RELOC.0, ItemKind::ROOT_ITEM, 0))? {
        return Err(Error::Unwritable("a relocation is running"));
    }
    if replaces_device(tree_roots)? {
        return Err(Error::Unwritable("a device is being replaced"));
    }
    Ok(())
}

/// Returns true if a tree has an item of this object and kind.
fn has(tree_roots: &TreeRoots, tree: &Tree, key: Key) -> Result<bool> {
    let cursor = tree_roots.cursor(tree, &key, ReadAhead::Off)?;
    let of = |key: Key| (key.objectid, key.kind);
    Ok(cursor.item().is_some_and(|item| of(item.key) == of(key)))
}

/// Returns true if a device replacement is in progress.
fn replaces_device(tree_roots: &TreeRoots) -> Result<bool> {
    let tree = tree_roots.tree(TreeId::DEV)?;
    let cursor = tree_roots.cursor(&tree, &REPLACEMENT, ReadAhead::Off)?;
    let found = cursor.item().filter(|item| item.key == REPLACEMENT);
    let state = found.map(|item| DevReplaceItem::parse(item.data).expect(VERIFIED).state);
    Ok(state.is_some_and(|state| !REPLACEMENT_RESTS.contains(&state)))
}

/// Checks that Linux can read the roots of the trees that it reads at mount.
fn check_roots(tree_roots: &TreeRoots) -> Result<()> {
    let compat_ro = tree_roots.store().volume().superblock().compat_ro;
    let with = |flag, tree| compat_ro.contains(flag).then_some(tree);
    let free_space = CompatRoFlags::FREE_SPACE_TREE | CompatRoFlags::FREE_SPACE_TREE_VALID;
    let by_feature = [
        with(free_space, TreeId::FREE_SPACE),
        with(CompatRoFlags::BLOCK_GROUP_TREE, TreeId::BLOCK_GROUP),
        tree_roots.root_item(TreeId::UUID)?.map(|_| TreeId::UUID),
    ];
    REQUIRED
        .into_iter()
        .chain(by_feature.into_iter().flatten())
        .try_for_each(|id| check_root(tree_roots, id))
}

fn check_root(tree_roots: &TreeRoots, id: TreeId) -> Result<()> {
    let tree = tree_roots.tree(id)?;
    tree.load_root(tree_roots.store()).map_err(|source| Error::Root { tree: id, source })?;
    if id == TreeId::FS && tree.root().level == 0 {
        check_owners(tree_roots, &tree)
    } else {
        Ok(())
    }
}

/// Checks that each item of an inode follows the inode item or another item of that inode: Linux
/// rejects a leaf with items of an inode cache, or of a file, that has lost its inode.
fn check_owners(tree_roots: &TreeRoots, tree: &Tree) -> Result<()> {
    let mut cursor = tree_roots.cursor(tree, &Key::MIN, ReadAhead::Off)?;
    let mut before: Option<u64> = None;
    while let Some(item) = cursor.item() {
        let key = item.key;
        if OF_INODE.contains(&key.kind) && before.is_some_and(|before| before != key.objectid) {
            return Err(Error::NoOwner { tree: tree.id(), key });
        }
        before = Some(key.objectid);
        cursor.advance()?;
    }
    Ok(())
}

/// The kinds of items that follow their inode.
const OF_INODE: [ItemKind; 6] = [
    ItemKind::INODE_REF,
    ItemKind::INODE_EXTREF,
    ItemKind::XATTR_ITEM,
    ItemKind::DIR_ITEM,
    ItemKind::DIR_INDEX,
    ItemKind::EXTENT_DATA,
];
