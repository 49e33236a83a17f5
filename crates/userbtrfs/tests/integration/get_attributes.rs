//! `get`: attributes that cannot be read, and ACLs that the destination would add.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use userbtrfs::{ItemKind, TreeId, XattrMode};
use userbtrfs_image_builder::{ImageEditor, ItemPlace};
use userbtrfs_testkit::test_env::skip;

use crate::support::command::Bench;
use crate::support::made::Made;
use crate::support::{assert_says, small};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Returns an ACL that grants one more user read, write and execute permission.
fn list() -> Vec<u8> {
    let all = u32::MAX;
    let entries = [(0x01, 7, all), (0x02, 7, 12), (0x04, 5, all), (0x10, 7, all), (0x20, 5, all)];
    let bytes = |(tag, rights, user): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &user.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec()].into_iter().chain(entries.map(bytes)).flatten().collect()
}

fn has(path: &Path, name: &str) -> bool {
    match getxattr(path, name, &mut [0; 256][..]) {
        Ok(_) => true,
        Err(Errno::NODATA) => false,
        Err(error) => panic!("{}: {name}: {error}", path.display()),
    }
}

/// The default ACL of a directory grants another user access to new files; the image does not.
#[test]
fn copy_does_not_inherit_acls_of_the_destination() {
    let bench = Bench::new(&small());
    let copy = bench.at("copy");
    fs::create_dir(&copy).unwrap();
    if setxattr(&copy, DEFAULT, &list(), XattrFlags::empty()).is_err() {
        return skip("no access lists");
    }
    fs::create_dir(copy.join("sub")).unwrap();
    assert!(has(&copy.join("sub"), ACCESS) && has(&copy.join("sub"), DEFAULT));
    bench.get_all("copy").good();
    for name in ["", "small", "large", "pipe", "empty", "sub", "sub/inner"] {
        let path = copy.join(name);
        assert!(!has(&path, ACCESS) && !has(&path, DEFAULT), "{name}");
    }
    assert_eq!(fs::metadata(copy.join("small")).unwrap().mode() & 0o7777, 0o644);
}

/// Damages each leaf that holds only attributes; returns the inodes they belong to.
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
    let number = file.id().number;
    let modified = file.metadata().unwrap().modified;
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
