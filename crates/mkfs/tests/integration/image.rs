//! New image files.

use userbtrfs_device::{Device, DeviceError, FileDevice, FileOptions};
use userbtrfs_mkfs::{MkfsError, Options, content, make_image};

use crate::MIB;

#[test]
fn image_is_made_of_a_path_and_a_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.img");
    let made = make_image(&path, 128 * MIB, &Options::default()).unwrap();
    assert_eq!(made.total_bytes, 128 * MIB);
    let device = FileDevice::open(&path, FileOptions::default()).unwrap();
    assert_eq!(device.len(), 128 * MIB);
    assert!(content(&device).unwrap().is_some());
}

#[test]
fn file_that_exists_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "content").unwrap();
    let error = make_image(&path, 128 * MIB, &Options::default()).unwrap_err();
    assert_eq!(error.errno(), 17);
    let MkfsError::Device(DeviceError::Open { source, .. }) = error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
}

#[test]
fn no_file_is_left_if_no_filesystem_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.img");
    assert!(matches!(make_image(&path, MIB, &Options::default()), Err(MkfsError::TooSmall { .. })));
    let odd = Options { nodesize: 5000, ..Options::default() };
    assert!(matches!(make_image(&path, 128 * MIB, &odd), Err(MkfsError::NodeSize(5000))));
    // No file can be so long.
    let error = make_image(&path, 1 << 63, &Options::default()).unwrap_err();
    assert!(matches!(error, MkfsError::Device(DeviceError::Open { .. })), "{error}");
    assert!(!path.exists());
}
