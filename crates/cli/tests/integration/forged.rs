//! Writing to files and directories that are forged: each write is refused or succeeds, and never
//! aborts the filesystem.

use userbtrfs::{Attributes, Error, Filesystem, ItemKind, Key, OpenOptions, TreeId};
use userbtrfs_image_builder::{ImageEditor, put_u64, u64_at};

use crate::support::forging::{edit_leaf, find, inode};
use crate::support::golden::Unpacked;
use crate::support::reason;

/// A directory of the image, one below it, and a file in it with one extent.
const DIR: u64 = 257;
const BELOW: u64 = 258;
const FILE: &str = "/dir/odd";

/// Opens a forged image for writing.
fn forged(forge: impl FnOnce(&mut ImageEditor)) -> (Unpacked, Filesystem) {
    let unpacked = Unpacked::new("nodesize-4k");
    forge(&mut unpacked.editor());
    let filesystem = OpenOptions::new().write(true).open(unpacked.path()).unwrap();
    (unpacked, filesystem)
}

#[test]
fn verity_file_is_not_writable() {
    const FLAGS: usize = 64;
    const VERITY: u64 = 1 << 32;
    let (_unpacked, filesystem) = forged(|editor| {
        let place = find(editor, TreeId::FS, inode(264));
        editor.edit_item(&place, |item| put_u64(item, FLAGS, u64_at(item, FLAGS) | VERITY));
    });
    let before = filesystem.read(FILE).unwrap();
    let file = filesystem.open_file(FILE).unwrap();
    for refused in [file.write_at(b"x", 0).map(drop), file.append(b"x").map(drop), file.set_len(0)]
    {
        assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
    }
    let mode = Attributes { mode: Some(0o600), ..Attributes::default() };
    file.inode().set_attributes(&mode).unwrap();
    assert!(filesystem.read(FILE).unwrap() == before);
    drop(file);
    filesystem.close().unwrap();
}

#[test]
fn directory_in_a_loop_accepts_no_directory() {
    let (_unpacked, filesystem) = forged(|editor| {
        edit_leaf(editor, TreeId::FS, Key::new(BELOW, ItemKind::INODE_REF, DIR), |items| {
            let name = items.remove(&Key::new(BELOW, ItemKind::INODE_REF, DIR)).unwrap();
            items.insert(Key::new(BELOW, ItemKind::INODE_REF, BELOW), name);
        });
    });
    filesystem.create_dir("/other", 0o755).unwrap();
    let moved = reason(filesystem.rename("/other", "/dir/below/other"));
    assert!(matches!(moved, Error::DirectoryLoop(id) if id.number == BELOW), "{moved:?}");
    filesystem.rename("/other", "/empty/other").unwrap();
    filesystem.close().unwrap();
}

#[test]
fn file_of_impossible_length_is_truncated() {
    const LEN: u64 = 1 << 63;
    let (_unpacked, filesystem) = forged(|editor| {
        let place = find(editor, TreeId::FS, Key::new(264, ItemKind::EXTENT_DATA, 0));
        // The fields ram_bytes, disk_num_bytes and num_bytes.
        editor.edit_item(&place, |item| {
            for at in [8, 29, 45] {
                put_u64(item, at, LEN);
            }
        });
    });
    let file = filesystem.open_file(FILE).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(file.len(), 0);
    drop(file);
    // The extent tree has no such extent.
    assert!(filesystem.commit().is_err());
    filesystem.abandon();
}
