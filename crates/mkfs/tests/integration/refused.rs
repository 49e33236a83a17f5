//! Options and devices that are refused before anything is written.

use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_format::SUPERBLOCK_OFFSETS;
use userbtrfs_mkfs::{MkfsError, Options, Profile, make};

use crate::MIB;

const LEN: usize = 64 << 20;

#[track_caller]
fn refused(options: &Options, matches: fn(&MkfsError) -> bool) {
    let device = MemoryDevice::from_bytes(vec![0xff; LEN]);
    let error = make(&device, options).unwrap_err();
    assert!(matches(&error), "{error}");
    assert_eq!(error.errno(), 22, "{error}");
    assert!(device.snapshot() == vec![0xff; LEN], "something was written");
}

#[test]
fn options_that_do_not_fit() {
    let plain = Options::default;
    for nodesize in [0, 2048, 5000, 128 << 10] {
        let options = Options { nodesize, ..plain() };
        refused(&options, |error| matches!(error, MkfsError::NodeSize(_)));
    }
    refused(&Options { mixed: true, ..plain() }, |e| matches!(e, MkfsError::MixedNodeSize(16384)));
    let profiles = Options { data: Profile::Dup, ..Options::mixed() };
    refused(&profiles, |error| matches!(error, MkfsError::MixedProfiles { .. }));
    let raid = Options { metadata: Profile::Raid1, ..plain() };
    refused(&raid, |error| matches!(error, MkfsError::Profile(Profile::Raid1)));
    let groups = Options { block_group_tree: true, free_space_tree: false, ..plain() };
    refused(&groups, |error| matches!(error, MkfsError::BlockGroupTree));
    let long = Options { label: vec![b'a'; 256], ..plain() };
    refused(&long, |error| matches!(error, MkfsError::LabelLength(256)));
    for label in [b"a\nb", b"a\0b"] {
        let options = Options { label: label.to_vec(), ..plain() };
        refused(&options, |error| matches!(error, MkfsError::LabelCharacter));
    }
}

#[test]
fn devices_that_are_too_small() {
    for len in [0, 1, 4096, 57 * MIB - 1] {
        let device = MemoryDevice::new(usize::try_from(len).unwrap());
        let error = make(&device, &Options::default()).unwrap_err();
        assert!(matches!(error, MkfsError::TooSmall { need, .. } if need == 57 * MIB), "{error}");
        assert_eq!(error.errno(), 28);
    }
}

#[test]
fn an_existing_filesystem_unless_forced() {
    let device = MemoryDevice::new(65 << 20);
    let first = make(&device, &Options::default()).unwrap();
    let before = device.snapshot();
    let again = make(&device, &Options::default()).unwrap_err();
    assert!(matches!(again, MkfsError::NotEmpty { .. }), "{again}");
    assert_eq!(again.errno(), 17);
    assert!(device.snapshot() == before);
    let second = make(&device, &Options { force: true, ..Options::default() }).unwrap();
    assert_ne!(first.fsid, second.fsid);
}

#[test]
fn remaining_mirror_of_existing_filesystem() {
    let device = MemoryDevice::new(65 << 20);
    make(&device, &Options::default()).unwrap();
    let zeros = userbtrfs_device::Buffer::zeroed(4096);
    device.write(SUPERBLOCK_OFFSETS[0].0, zeros.into(), false).unwrap();
    let again = make(&device, &Options::default()).unwrap_err();
    assert!(matches!(again, MkfsError::NotEmpty { .. }), "{again}");
}
