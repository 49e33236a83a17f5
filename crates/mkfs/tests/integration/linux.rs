//! New filesystems, checked by btrfs-progs and used by Linux.

use std::fs;
use std::path::Path;

use userbtrfs_testkit::linux::{Linux, btrfs_check};
use userbtrfs_testkit::skip_unless_linux;

use crate::{Case, Image, cases};

/// Mounts a filesystem in Linux: it must be empty, and files written must be read back.
fn use_it(linux: &Linux, image: &Path, name: &str) {
    let mount = linux.mount(image, "noatime").unwrap();
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0, "{name}: not empty");
    let file = mount.path().join("file");
    fs::create_dir(mount.path().join("directory")).unwrap();
    fs::write(mount.path().join("directory/small"), b"small").unwrap();
    fs::write(&file, vec![7; 300 << 10]).unwrap();
    drop(mount);
    let mount = linux.mount(image, "noatime").unwrap();
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), vec![7; 300 << 10], "{name}");
    assert_eq!(fs::read(mount.path().join("directory/small")).unwrap(), b"small", "{name}");
}

fn judge(linux: &Linux, case: &Case) {
    let image = Image::empty(case.len);
    image.make(&case.options).unwrap();
    let check = |when: &str| {
        let said =
            btrfs_check(&image.path()).unwrap_or_else(|e| panic!("{}: {when}: {e:#}", case.name));
        assert!(!said.to_lowercase().contains("warning"), "{}: {when}: {said}", case.name);
    };
    check("when made");
    use_it(linux, &image.path(), case.name);
    check("when used");
    linux.assert_no_complaints().unwrap_or_else(|e| panic!("{}: {e:#}", case.name));
}

#[test]
fn every_filesystem_passes_btrfs_check_and_mounts_in_linux() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    for case in cases() {
        judge(&linux, &case);
    }
}
