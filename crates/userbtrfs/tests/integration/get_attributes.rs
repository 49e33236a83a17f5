//! `get`: attributes that cannot be read.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use userbtrfs::{ItemKind, TreeId, XattrMode};
use userbtrfs_forge::{ImageEditor, ItemPlace};

use crate::support::assert_says;
use crate::support::made::Made;

/// Damages each leaf that holds nothing but attributes, and tells of which inodes.
fn damage_attributes(image: &Path) -> BTreeSet<u64> {
    let mut editor = ImageEditor::open(image).unwrap();
    let items = editor.items(TreeId::FS);
    let is_other = |place: &&ItemPlace| place.key.kind != ItemKind::XATTR_ITEM;
    let others: BTreeSet<_> = items.iter().filter(is_other).map(|place| place.logical).collect();
    let alone = items.iter().filter(|place| !others.contains(&place.logical));
    alone
        .map(|place| {
            // The lengths of its name and of its value.
            editor.edit_item(place, |item| item[25..29].fill(0xff));
            place.key.objectid
        })
        .collect()
}

#[test]
fn a_file_whose_attributes_cannot_be_read_is_copied_without_them() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.write("/file", b"content").unwrap();
    let file = filesystem.lookup("/file").unwrap();
    for name in ["user.a", "user.b", "user.c", "user.d"] {
        file.set_xattr(name.as_bytes(), &[1; 9000], XattrMode::Either).unwrap();
    }
    let (number, modified) = (file.id().number, file.metadata().unwrap().modified);
    drop(file);
    filesystem.close().unwrap();
    made.does("chmod", &["751", "/file"]);
    assert_eq!(damage_attributes(&made.image()), BTreeSet::from([number]));

    let copy = made.at("copy");
    let said = made.verb("get -q", &["/file", copy.to_str().unwrap()]).bad();

    assert_says(&said, &["get: ", "copy: tree block"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    let copied = fs::metadata(&copy).unwrap();
    assert_eq!((copied.mode() & 0o7777, copied.mtime()), (0o751, modified.sec));
    assert_eq!(fs::read(copy).unwrap(), b"content");
}
