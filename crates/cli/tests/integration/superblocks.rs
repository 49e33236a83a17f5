//! Superblocks: missing, damaged and refused ones, and mirrors that replace them.

use std::sync::Arc;

use userbtrfs::device::{Device, MemoryDevice};
use userbtrfs::{
    Error, OpenError, OpenOptions, PendingLog, Physical, SuperblockError, SuperblockMirrorError,
    Warning,
};
use userbtrfs_image_builder::{ImageEditor, field, put_u16, put_u32, put_u64, small_image, u64_at};

use crate::support::golden::Unpacked;
use crate::support::shown::shown;
use crate::support::{assert_says, open, open_bytes, reason, refusal, small};

const PRIMARY: usize = 64 << 10;
const MIRROR: u64 = 64 << 20;

/// Returns the error of opening the image after an edit of its primary superblock, with the
/// checksum made right.
fn refused(edit: impl FnOnce(&mut [u8])) -> Error {
    let mut editor = small();
    editor.edit_superblock(edit);
    refusal(open(&editor))
}

/// Returns the error of the primary superblock that prevents opening the image.
fn primary_error(error: &Error) -> &SuperblockError {
    match error {
        Error::Open(OpenError::Superblock {
            primary: SuperblockMirrorError::Content(primary),
            ..
        }) => primary,
        other => panic!("{other}"),
    }
}

fn is_checksum(error: &SuperblockMirrorError) -> bool {
    matches!(error, SuperblockMirrorError::Content(SuperblockError::Checksum { .. }))
}

#[test]
fn a_file_too_small_for_a_superblock_is_refused() {
    for len in [0, 1, 4096, PRIMARY, PRIMARY + 4095] {
        let error = refusal(open_bytes(small_image()[..len].to_vec()));
        let expected = u64::try_from(len).unwrap();
        assert!(matches!(error, Error::Open(OpenError::TooSmall { len }) if len == expected));
        assert_says(&error, &[&len.to_string(), "too few for a btrfs filesystem"]);
    }
}

#[test]
fn image_without_btrfs_is_refused() {
    let zeros = vec![0; 1 << 20];
    let noise: Vec<u8> =
        (0..1u32 << 18).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let mut ext4 = zeros.clone();
    put_u16(&mut ext4, 1024 + 0x38, 0xef53);
    for image in [zeros, noise, ext4] {
        let error = refusal(open_bytes(image));
        assert!(matches!(primary_error(&error), SuperblockError::Magic(_)));
        assert_says(&error, &["no valid superblock", "not a btrfs superblock"]);
    }
}

#[test]
fn a_truncated_image_is_refused_with_both_lengths() {
    let whole = small_image();
    let need = u64::try_from(whole.len()).unwrap();
    for len in [whole.len() - 1, whole.len() / 2, PRIMARY + 4096] {
        let error = refusal(open_bytes(whole[..len].to_vec()));
        let have = u64::try_from(len).unwrap();
        let Error::Open(OpenError::Truncated { need: n, have: h }) = error else {
            panic!("{error}");
        };
        assert_eq!((n, h), (need, have));
        assert_says(&error, &["truncated", &need.to_string(), &have.to_string()]);
    }
}

#[test]
fn a_truncated_golden_image_is_refused() {
    let golden = Unpacked::new("basic");
    let len = golden.path().metadata().unwrap().len();
    for cut in [len - 1, len / 2] {
        let file = std::fs::OpenOptions::new().write(true).open(golden.path()).unwrap();
        file.set_len(cut).unwrap();
        let error = reason(OpenOptions::new().open(golden.path()));
        assert!(matches!(error, Error::Open(OpenError::Truncated { .. })), "{error}");
    }
}

/// Damages the superblock at an offset of a device.
fn damage(device: &dyn Device, at: u64) {
    let mut bytes = device.read(at, 4096).unwrap();
    bytes[field::GENERATION] ^= 1;
    device.write(at, Arc::new(bytes), false).unwrap();
}

#[test]
fn damaged_primary_is_replaced_by_the_mirror_with_a_notice() {
    let golden = Unpacked::new("basic");
    let options = OpenOptions::new();
    let sound = options.open(golden.path()).unwrap();
    assert_eq!(sound.warnings(), []);
    let generation = sound.superblock().generation;
    damage(&*golden.device(), PRIMARY as u64);

    let mirrored = options.open(golden.path()).unwrap();

    let [warning] = mirrored.warnings() else { panic!("{:?}", mirrored.warnings()) };
    let Warning::Mirror { primary, used, generation: mirror_generation } = warning else {
        panic!("{warning}");
    };
    assert!(is_checksum(primary));
    assert_eq!((*used, *mirror_generation), (Physical(MIRROR), generation));
    assert_says(warning, &["superblock is damaged", "67108864", "read-only"]);
    assert_eq!(shown(&mirrored).unwrap(), shown(&sound).unwrap());
}

#[test]
fn error_without_a_good_mirror_names_each() {
    let golden = Unpacked::new("basic");
    damage(&*golden.device(), PRIMARY as u64);
    damage(&*golden.device(), MIRROR);

    let error = reason(OpenOptions::new().open(golden.path()));

    let Error::Open(OpenError::Superblock { primary, mirrors }) = &error else {
        panic!("{error}");
    };
    let [(Physical(MIRROR), mirror)] = &mirrors[..] else { panic!("{error}") };
    assert!(is_checksum(primary) && is_checksum(mirror));
    assert_says(&error, &["primary: superblock checksum is", "copy at 67108864: superblock"]);
}

/// A superblock is invalid at the offset of another mirror.
#[test]
fn a_superblock_in_the_wrong_place_is_refused() {
    let error = refused(|bytes| put_u64(bytes, field::BYTENR, MIRROR));
    let expected = SuperblockError::Address { at: Physical(PRIMARY as u64), found: MIRROR };
    assert_eq!(*primary_error(&error), expected);
}

#[test]
fn an_unknown_checksum_kind_is_named() {
    let error = refused(|bytes| put_u16(bytes, field::CSUM_TYPE, 9));
    assert_eq!(*primary_error(&error), SuperblockError::ChecksumKind(9));
    assert_says(&error, &["unknown checksum type 9"]);
}

#[test]
fn impossible_sizes_are_named() {
    for size in [0, 512, 2048, 8192, 65536, 4097] {
        let error = refused(|bytes| put_u32(bytes, field::SECTORSIZE, size));
        assert_eq!(*primary_error(&error), SuperblockError::SectorSize(size));
        assert_says(&error, &[&format!("sector size {size} is not supported")]);
    }
    for size in [0, 1, 2048, 4095, 12288, 131_072, u32::MAX] {
        let error = refused(|bytes| {
            put_u32(bytes, field::NODESIZE, size);
            put_u32(bytes, field::LEAFSIZE, size);
        });
        assert_eq!(*primary_error(&error), SuperblockError::NodeSize(size));
        assert_says(&error, &[&format!("bad node size {size}")]);
    }
    for size in [0, 96, 2049, u32::MAX] {
        let error = refused(|bytes| put_u32(bytes, field::SYS_CHUNK_ARRAY_SIZE, size));
        assert_eq!(*primary_error(&error), SuperblockError::SysChunkArraySize(size));
    }
}

#[test]
fn impossible_roots_are_named() {
    for (at, tree) in [(field::ROOT, "root tree"), (field::CHUNK_ROOT, "chunk tree")] {
        for address in [0, 1, 0x20_0001] {
            let error = refused(|bytes| put_u64(bytes, at, address));
            assert_says(&error, &[tree, &address.to_string(), "not aligned"]);
        }
    }
    for (at, tree) in [(field::ROOT_LEVEL, "root tree"), (field::CHUNK_ROOT_LEVEL, "chunk tree")] {
        let error = refused(|bytes| bytes[at] = 8);
        assert_says(&error, &[tree, "level 8"]);
    }
    let error = refused(|bytes| put_u64(bytes, field::CHUNK_ROOT_GENERATION, 8));
    assert_eq!(*primary_error(&error), SuperblockError::ChunkGeneration { chunk: 8, own: 7 });
}

/// A root that is in no chunk is an error of the read, not of the superblock.
#[test]
fn roots_outside_every_chunk_are_named() {
    let error = refused(|bytes| put_u64(bytes, field::ROOT, 0x900_0000));
    assert_says(&error, &["150994944", "lies in no chunk"]);
    let error = refused(|bytes| put_u64(bytes, field::CHUNK_ROOT, 0x900_0000));
    assert_says(&error, &["chunk tree", "150994944", "lies in no chunk"]);
}

fn features(error: &Error) -> &[String] {
    match error {
        Error::Open(OpenError::Features(features)) => features,
        other => panic!("{other}"),
    }
}

/// Returns an edit that sets more bits in a field.
fn with_bits(at: usize, bits: u64) -> impl Fn(&mut [u8]) {
    move |bytes| put_u64(bytes, at, u64_at(bytes, at) | bits)
}

#[test]
fn unknown_features_are_named_by_their_bits() {
    let error = refused(with_bits(field::INCOMPAT, 1 << 15 | 1 << 40 | 1 << 63));
    assert_eq!(features(&error), ["bit 15", "bit 40", "bit 63"]);
    assert_says(&error, &["unsupported features: bit 15, bit 40, bit 63"]);
    assert_eq!(error.errno(), 95);
}

#[test]
fn each_refused_feature_is_named() {
    for (at, bit, name) in [
        (field::INCOMPAT, 12, "zoned"),
        (field::INCOMPAT, 13, "extent-tree-v2"),
        (field::INCOMPAT, 14, "raid-stripe-tree"),
        (field::FLAGS, 35, "changing-fsid"),
        (field::FLAGS, 36, "changing-fsid-v2"),
        (field::FLAGS, 38, "changing-bg-tree"),
        (field::FLAGS, 39, "changing-data-csum"),
        (field::FLAGS, 40, "changing-meta-csum"),
    ] {
        let error = refused(with_bits(at, 1 << bit));
        assert_eq!(features(&error), [name]);
        assert_says(&error, &[&format!("unsupported feature: {name}")]);
    }
    let error = refused(|bytes| bytes[field::INCOMPAT] &= !1);
    assert_eq!(features(&error), ["no mixed-backref"]);
}

/// An image can be read with RAID bits that outlived their block groups, with any `compat_ro` bit,
/// and with the flags of a metadata dump.
#[test]
fn features_that_only_writing_needs_do_not_prevent_reading() {
    let metadumps = 1 << 33 | 1 << 34;
    for (at, bits) in [
        (field::INCOMPAT, 1 << 7 | 1 << 11),
        (field::COMPAT_RO, 1 << 50),
        (field::FLAGS, metadumps),
    ] {
        let mut editor = small();
        editor.edit_superblock(with_bits(at, bits));
        assert_eq!(open(&editor).unwrap().read("/small").unwrap(), b"hello\n");
    }
}

#[test]
fn more_devices_than_one_are_refused() {
    let error = refused(|bytes| put_u64(bytes, field::NUM_DEVICES, 2));
    assert!(matches!(error, Error::Open(OpenError::Devices { count: 2 })));
    assert_says(&error, &["2 devices, only one is supported"]);
    let two = vec![small().device().clone(), small().device().clone()];
    let error = refusal(OpenOptions::new().open_devices(two));
    assert!(matches!(error, Error::Open(OpenError::Devices { count: 2 })));
    let error = refusal(OpenOptions::new().open_devices(vec![]));
    assert!(matches!(error, Error::Open(OpenError::Devices { count: 0 })));
}

#[test]
fn golden_images_that_are_refused_are_refused_by_name() {
    for (name, why) in [
        ("raid1", "2 devices"),
        ("sectorsize-16k", "sector size 16384 is not supported"),
        ("raid-stripe-tree", "unsupported feature: raid-stripe-tree"),
    ] {
        let golden = Unpacked::new(name);
        assert_says(&reason(OpenOptions::new().open(golden.path())), &[why]);
    }
}

#[test]
fn pending_log_gives_a_notice() {
    let mut editor = small();
    editor.edit_superblock(|bytes| put_u64(bytes, field::LOG_ROOT, 0x20_9000));
    let mut options = OpenOptions::new();
    let device = Arc::clone(editor.device());
    let filesystem = options.pending_log(PendingLog::Leave).open_devices(vec![device]).unwrap();
    assert_eq!(filesystem.warnings(), [Warning::PendingLog { generation: 7 }]);
    assert_says(&filesystem.warnings()[0], &["log is pending after generation 7", "not replayed"]);
    assert_eq!(filesystem.read("/small").unwrap(), b"hello\n");
}

/// No byte of the superblock makes opening panic, whatever it is changed to.
#[test]
fn changed_superblock_byte_causes_no_panic() {
    let image = small_image();
    for at in (0x20..0x1000).filter(|at| !(field::LABEL..field::CACHE_GENERATION).contains(at)) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut editor =
                ImageEditor::over(Arc::new(MemoryDevice::from_bytes(image.clone()))).unwrap();
            editor.edit_superblock(|bytes| bytes[at] = value);
            if let Ok(filesystem) = open(&editor) {
                let _ = filesystem.read("/small");
            }
        }
    }
}
