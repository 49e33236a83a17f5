//! Filesystems that can and cannot be opened for writing.

use userbtrfs_format::{
    CompatRoFlags, IncompatFlags, ItemKind, Key, Logical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE,
    Superblock, SuperblockFlags, TreeId,
};
use userbtrfs_image_builder::{IMAGE_LEN, ImageEditor, put_u64, small_image};
use userbtrfs_sync::Arc;
use userbtrfs_volume::{OpenError, Volume, WriteError};

use crate::support::{Recorder, image, image_with_room_for_a_mirror, open};

fn refusal(image: Vec<u8>) -> OpenError {
    let open = Volume::open_for_writing(vec![Arc::new(Recorder::over(image))]);
    open.err().expect("it is refused")
}

fn unwritable(change: impl FnOnce(&mut Superblock)) -> Vec<String> {
    match refusal(image(change)) {
        OpenError::Unwritable(names) | OpenError::Features(names) => names,
        other => panic!("{other}"),
    }
}

#[test]
fn open_for_writing_known_features_succeeds() {
    let known = image(|superblock| {
        superblock.compat_ro = CompatRoFlags::all();
        superblock.incompat |= IncompatFlags::COMPRESS_ZSTD | IncompatFlags::RAID56;
        superblock.flags = SuperblockFlags::WRITTEN | SuperblockFlags::METADUMPS;
    });
    let (volume, _) = open(Recorder::over(known));
    assert!(volume.is_writable());
}

#[test]
fn features_and_states_are_refused_by_name() {
    let bit = |n: u32| CompatRoFlags::from_bits_retain(1 << n);
    assert_eq!(
        unwritable(|s| s.compat_ro |= bit(4) | bit(63)),
        ["compat-ro bit 4", "compat-ro bit 63"]
    );
    assert_eq!(unwritable(|s| s.incompat |= IncompatFlags::SIMPLE_QUOTA), ["simple-quota"]);
    assert_eq!(unwritable(|s| s.incompat |= IncompatFlags::ZONED), ["zoned"]);
    assert_eq!(unwritable(|s| s.flags |= SuperblockFlags::SEEDING), ["state seeding"]);
    assert_eq!(unwritable(|s| s.flags |= SuperblockFlags::ERROR), ["state error"]);
    assert_eq!(unwritable(|s| s.flags |= SuperblockFlags::CHANGING_FSID), ["changing-fsid"]);
    assert_eq!(
        unwritable(|s| s.flags |= SuperblockFlags::from_bits_retain(1 << 50)),
        ["state bit 50"]
    );
    let group_tree = ["block-group-tree without free-space-tree and no-holes"];
    let all = CompatRoFlags::all();
    assert_eq!(unwritable(|s| s.compat_ro = all - CompatRoFlags::FREE_SPACE_TREE), group_tree);
    let without_no_holes = unwritable(|s| {
        s.compat_ro = all;
        s.incompat -= IncompatFlags::NO_HOLES;
    });
    assert_eq!(without_no_holes, group_tree);
}

#[test]
fn superblock_fields_that_linux_refuses_are_refused_by_name() {
    let field = |change: fn(&mut Superblock)| match refusal(image(change)) {
        OpenError::UnwritableField { field, value } => (field, value),
        other => panic!("{other}"),
    };
    assert_eq!(field(|s| s.stripesize = 0), ("stripesize", 0));
    assert_eq!(field(|s| s.stripesize = 65536), ("stripesize", 65536));
    assert_eq!(field(|s| s.bytes_used = 6 * 4096 - 1), ("bytes_used", 6 * 4096 - 1));
    assert_eq!(field(|s| s.generation = u64::MAX), ("generation", u64::MAX));
    let error = refusal(image(|s| s.total_bytes -= 4096));
    assert!(matches!(error, OpenError::UnwritableTotal { total, device }
        if total + 4096 == device && device == IMAGE_LEN));
    open(Recorder::over(image(|s| s.total_bytes = IMAGE_LEN + 4096)));
}

#[test]
fn device_size_is_taken_from_chunk_tree() {
    let listed = |len: u64| {
        let mut editor = ImageEditor::from_bytes(small_image()).unwrap();
        let key = Key::new(1, ItemKind::DEV_ITEM, 1);
        let place = editor.find_item(TreeId::CHUNK, key).unwrap();
        editor.edit_item(&place, |item| put_u64(item, 8, len));
        editor.image().unwrap()
    };
    let (volume, _) = open(Recorder::over(listed(IMAGE_LEN - 4096)));
    assert_eq!(volume.superblock().device.total_bytes, IMAGE_LEN - 4096);
    let error = refusal(listed(IMAGE_LEN + 4096));
    assert!(matches!(error, OpenError::UnwritableDeviceSize { id: 1, listed, have: IMAGE_LEN }
        if listed == IMAGE_LEN + 4096));
    assert!(Volume::open(vec![Arc::new(Recorder::over(listed(IMAGE_LEN + 4096)))]).is_ok());
}

#[test]
fn a_pending_log_is_refused_by_its_generation() {
    let error = refusal(image(|s| s.log_root = Some(Logical(0x20_a000))));
    let generation = Recorder::over(image(|_| {})).superblock(0).generation;
    assert!(
        matches!(error, OpenError::UnwritableBeforeReplay { generation: g } if g == generation)
    );
}

#[test]
fn a_device_open_for_reading_is_refused_by_its_name() {
    let device = Arc::new(Recorder::over(image(|_| {})).read_only());
    let error = Volume::open_for_writing(vec![device]).err().unwrap();
    assert_eq!(error.to_string(), "cannot be written: recorder is open for reading only");
}

#[test]
fn open_for_writing_from_mirror_fails() {
    let mut image = image_with_room_for_a_mirror();
    let [primary, mirror, _] = SUPERBLOCK_OFFSETS;
    let at = usize::try_from(primary.0).unwrap();
    let superblock = Superblock::parse(&image[at..], primary).unwrap();
    let mirror_at = usize::try_from(mirror.0).unwrap();
    image[mirror_at..].copy_from_slice(&superblock.encode(mirror));
    image[at..at + SUPERBLOCK_SIZE].fill(0xee);
    assert!(Volume::open(vec![Arc::new(Recorder::over(image.clone()))]).is_ok());
    let error = refusal(image);
    assert!(matches!(error, OpenError::UnwritableFromMirror { used, .. } if used == mirror));
}

#[test]
fn a_volume_opened_for_reading_changes_nothing() {
    let device = Arc::new(Recorder::over(image(|_| {})));
    let volume = Volume::open(vec![Arc::clone(&device) as _]).unwrap();
    let results = [
        volume.write_blocks([]),
        volume.flush(),
        volume.discard(Logical(0x40_0000), 4096),
        volume.write_superblock(&volume.superblock()),
    ];
    for result in results {
        assert!(matches!(result, Err(WriteError::ReadOnly { .. })), "{result:?}");
    }
    assert_eq!(device.changes(), []);
}
