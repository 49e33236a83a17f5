//! Checks before a filesystem is opened for writing: those that Linux makes when it mounts, and
//! that no operation is in progress that only Linux can continue.
//!
//! 1. A filesystem that fails a check is not opened for writing: Linux could not read a change, and
//!    the change might hide what is left to repair.
//! 2. Only root blocks are checked, as in Linux: damage below them is an error where it is used.

use userbtrfs_btree::{ReadAhead, Tree};
use userbtrfs_format::{
    CompatRoFlags, DevReplaceItem, FileKind, IncompatFlags, InodeFlags, InodeItem, ItemKind, Key,
    RootFlags, RootItem, TreeId,
};

use crate::error::{Error, Result};
use crate::roots::TreeRoots;
use crate::units::VERIFIED;

/// The object id of the item that records a balance (-4).
const BALANCE: u64 = u64::MAX - 3;

/// The item of a device replacement, in the device tree.
const REPLACEMENT: Key = Key::new(0, ItemKind::DEV_REPLACE, 0);

/// States of a replacement that is not in progress: never started, finished, cancelled.
const REPLACEMENT_RESTS: [u64; 3] = [0, 2, 3];

/// The key of the root directory of the top level.
const TOP_DIRECTORY: Key = Key::new(256, ItemKind::INODE_ITEM, 0);

/// The trees without which Linux does not mount.
const REQUIRED: [TreeId; 5] =
    [TreeId::EXTENT, TreeId::DEV, TreeId::CSUM, TreeId::FS, TreeId::DATA_RELOC];

/// Refuses filesystems in the middle of an operation that only Linux can continue, and those that
/// Linux does not mount.
pub(crate) fn check_writable(tree_roots: &TreeRoots) -> Result<()> {
    check_roots(tree_roots)?;
    check_top_directory(tree_roots)?;
    check_skinny(tree_roots)?;
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
    check_root_flags(tree_roots)?;
    REQUIRED
        .into_iter()
        .chain(by_feature.into_iter().flatten())
        .try_for_each(|id| check_root(tree_roots, id))
}

fn check_root(tree_roots: &TreeRoots, id: TreeId) -> Result<()> {
    let tree = tree_roots.tree(id)?;
    tree.load_root(tree_roots.store()).map_err(|source| Error::Root { tree: id, source })?;
    if id == TreeId::FS && tree.root().level == 0 {
        check_inodes(tree_roots, &tree)
    } else {
        Ok(())
    }
}

/// Checks the flags of trees: Linux rejects a leaf that holds a tree with unknown ones. Of a root
/// tree with several leaves, it reads those with the required trees.
fn check_root_flags(tree_roots: &TreeRoots) -> Result<()> {
    let check = |tree: TreeId, flags: RootFlags| {
        if RootFlags::all().contains(flags) {
            Ok(())
        } else {
            Err(Error::RootFlags { tree, flags: flags.bits() })
        }
    };
    let roots = tree_roots.roots();
    if roots.root().level > 0 {
        let items = REQUIRED.into_iter().map(|id| (id, tree_roots.root_item(id)));
        let mut found = items.filter_map(|(id, item)| Some((id, item.transpose()?)));
        return found.try_for_each(|(id, item)| check(id, item?.flags));
    }
    let mut cursor = tree_roots.cursor(roots, &Key::MIN, ReadAhead::Off)?;
    while let Some(item) = cursor.item() {
        if item.key.kind == ItemKind::ROOT_ITEM {
            let flags = RootItem::parse(item.data).expect(VERIFIED).flags;
            check(TreeId(item.key.objectid), flags)?;
        }
        cursor.advance()?;
    }
    Ok(())
}

/// Checks that the root of the top level is a directory, which Linux opens when it mounts.
fn check_top_directory(tree_roots: &TreeRoots) -> Result<()> {
    let tree = tree_roots.tree(TreeId::FS)?;
    let cursor = tree_roots.cursor(&tree, &TOP_DIRECTORY, ReadAhead::Off)?;
    let found = cursor.item().filter(|item| item.key == TOP_DIRECTORY);
    match found.map(|item| InodeItem::parse(item.data).expect(VERIFIED).kind) {
        Some(FileKind::Directory) => Ok(()),
        Some(_) => Err(Error::Unwritable("the root of the top level is no directory")),
        None => Err(Error::Unwritable("the top level has no root directory")),
    }
}

/// Checks that the extent tree has no METADATA_ITEMs, by that of its own root, if the feature that
/// allows them is missing.
fn check_skinny(tree_roots: &TreeRoots) -> Result<()> {
    if tree_roots.store().volume().superblock().incompat.contains(IncompatFlags::SKINNY_METADATA) {
        return Ok(());
    }
    let tree = tree_roots.tree(TreeId::EXTENT)?;
    let key = Key::new(tree.root().logical.0, ItemKind::METADATA_ITEM, 0);
    if has(tree_roots, &tree, key)? {
        return Err(Error::Unwritable("METADATA_ITEMs without the feature skinny-metadata"));
    }
    Ok(())
}

/// Checks that each item of an inode follows the inode item or another item of that inode, and that
/// the flags of inodes are known: Linux rejects a leaf with items of an inode cache, or of a file,
/// that has lost its inode, and one with an inode of unknown flags.
fn check_inodes(tree_roots: &TreeRoots, tree: &Tree) -> Result<()> {
    let mut cursor = tree_roots.cursor(tree, &Key::MIN, ReadAhead::Off)?;
    let mut before: Option<u64> = None;
    while let Some(item) = cursor.item() {
        let key = item.key;
        if OF_INODE.contains(&key.kind) && before.is_some_and(|before| before != key.objectid) {
            return Err(Error::NoOwner { tree: tree.id(), key });
        }
        if key.kind == ItemKind::INODE_ITEM {
            let flags = InodeItem::parse(item.data).expect(VERIFIED).flags;
            if !InodeFlags::all().contains(flags) {
                let tree = tree.id();
                let inode = key.objectid;
                let flags = flags.bits();
                return Err(Error::InodeFlags { tree, inode, flags });
            }
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
