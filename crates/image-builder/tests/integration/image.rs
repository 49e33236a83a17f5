//! The small image is a valid filesystem.

use std::process::Command;

use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_format::{Expectation, TreeId};
use userbtrfs_image_builder::{ImageEditor, header, small_image, u64_at};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::test_env::{has_program, skip};
use userbtrfs_volume::{Volume, walk};

#[test]
fn every_block_of_every_tree_is_sound() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(small_image()));
    let editor = ImageEditor::over(Arc::clone(&device)).unwrap();
    let volume = Volume::open(vec![device]).unwrap();
    let trees = editor.trees();
    assert_eq!(trees, [3, 1, 2, 4, 5, 7, 9, 256].map(TreeId));
    for tree in trees {
        let root = editor.root(tree).unwrap();
        let block = editor.block(root).unwrap();
        let expected = Expectation {
            owner: tree,
            level: block[header::LEVEL],
            generation: u64_at(&block, header::GENERATION),
            first_key: None,
            end: None,
        };
        let mut leaves = walk(&volume, root, expected, 100);
        while leaves.next_leaf().unwrap_or_else(|error| panic!("{error}")).is_some() {}
    }
}

#[test]
fn btrfs_check_finds_no_errors() {
    if !has_program("btrfs") {
        return skip("no btrfs command");
    }
    let path = std::env::temp_dir().join(format!("forged-{}.img", std::process::id()));
    std::fs::write(&path, small_image()).unwrap();
    let check = Command::new("btrfs").args(["check", "--check-data-csum"]).arg(&path).output();
    std::fs::remove_file(&path).unwrap();
    let check = check.unwrap();
    let text = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success(), "{text}\n{}", String::from_utf8_lossy(&check.stdout));
}
