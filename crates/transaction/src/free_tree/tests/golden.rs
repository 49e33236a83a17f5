//! The free space tree and the extent tree agree in images that Linux and mkfs wrote.

use std::ops::ControlFlow;

use tempfile::TempDir;
use userbtrfs_device::{FileDevice, FileOptions};
use userbtrfs_format::CompatRoFlags;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::golden::Golden;
use userbtrfs_volume::Volume;

use super::*;
use crate::editor::TreeItems;
use crate::roots::TreeRoots;

/// Returns the block groups of a filesystem.
fn groups(tree_roots: &TreeRoots) -> Vec<Range<u64>> {
    let superblock = tree_roots.store().volume().superblock();
    let own = superblock.compat_ro.contains(CompatRoFlags::BLOCK_GROUP_TREE);
    let tree = if own { TreeId::BLOCK_GROUP } else { TreeId::EXTENT };
    let mut groups = Vec::new();
    let items = TreeItems::new(tree_roots, tree).expect("there is one");
    let all = items.visit(&Key::MIN, &mut |key, _| {
        if key.kind == ItemKind::BLOCK_GROUP_ITEM {
            groups.push(key.objectid..key.objectid + key.offset);
        }
        ControlFlow::Continue(())
    });
    all.expect("readable");
    groups
}

#[test]
fn golden_free_space_is_what_no_extent_uses() {
    let mut ranges = 0;
    let mut bitmaps = 0;
    for golden in Golden::all().expect("there are some") {
        let folder = TempDir::new().expect("room");
        let image = folder.path().join("image");
        golden.unpack(&image).expect("room");
        let device = FileDevice::open(&image, FileOptions::default()).expect("an image");
        let Ok(volume) = Volume::open(vec![Arc::new(device)]) else { continue };
        let superblock = volume.superblock();
        let valid = superblock.compat_ro.contains(CompatRoFlags::FREE_SPACE_TREE_VALID);
        let nodesize = superblock.nodesize;
        let tree_roots = TreeRoots::new(Arc::new(volume), 1 << 20);
        let extents = TreeItems::new(&tree_roots, TreeId::EXTENT).expect("there is one");
        for group in groups(&tree_roots).into_iter().filter(|_| valid) {
            let items = TreeItems::new(&tree_roots, TreeId::FREE_SPACE).expect("there is one");
            check_group(&items, &extents, &group, nodesize);
            let info = info(&items, &group).expect("there is one");
            let form = if info.flags == USING_BITMAPS { &mut bitmaps } else { &mut ranges };
            *form += 1;
        }
    }
    assert!(ranges > 0 && bitmaps > 0, "{ranges} groups with ranges, {bitmaps} with bitmaps");
}
