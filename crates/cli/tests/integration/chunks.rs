//! Chunks: those that cannot be mapped are refused at open, with an error that names them.

use userbtrfs::{Error, ItemError, ItemKind, Key, Logical, OpenError, Physical, Profile, TreeId};
use userbtrfs_image_builder::{
    Bytes, ChunkSpec, IMAGE_LEN, ImageEditor, device_item, field, put_u32, put_u64,
};

use crate::support::forging::{Items, edit_leaf};
use crate::support::{assert_says, open, refusal, small};

const DEVICE: Key = Key::new(1, ItemKind::DEV_ITEM, 1);

/// Offsets of the device id and the physical address of the first stripe.
const STRIPE_DEVICE: usize = 0x30;
const STRIPE_PHYSICAL: usize = 0x38;

/// Returns the error of opening the image after an edit of its chunk tree.
fn refused(edit: impl FnOnce(&mut Items)) -> OpenError {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::CHUNK, DEVICE, edit);
    open_error(&editor)
}

fn open_error(editor: &ImageEditor) -> OpenError {
    match refusal(open(editor)) {
        Error::Open(error) => error,
        other => panic!("{other}"),
    }
}

/// Changes the data chunk.
fn with_data(change: impl FnOnce(&mut ChunkSpec)) -> impl FnOnce(&mut Items) {
    |items| {
        let mut chunk = ChunkSpec::data();
        items.remove(&chunk.key());
        change(&mut chunk);
        items.insert(chunk.key(), chunk.build());
    }
}

#[test]
fn overlapping_chunks_are_refused() {
    let data = ChunkSpec::data().logical;
    for (start, len) in [(0x40_1000, 4096), (0x3f_0000, 0x1_1000), (0x3f_0000, 0x4_0000)] {
        let error = refused(|items| {
            let logical = Logical(start);
            let stripes = vec![0x1_0000];
            let extra = ChunkSpec { logical, len, stripes, ..ChunkSpec::data() };
            items.insert(extra.key(), extra.build());
        });
        let OpenError::ChunkOverlap { logical, other, .. } = error else { panic!("{error}") };
        let first = data.min(Logical(start));
        let second = data.max(Logical(start));
        assert_eq!((logical, other), (second, first));
        assert_says(&error, &[&logical.to_string(), "overlaps the chunk at", &other.to_string()]);
    }
}

#[test]
fn a_stripe_outside_the_device_is_refused() {
    for physical in [IMAGE_LEN, IMAGE_LEN - 4096, 1 << 60] {
        let error = refused(with_data(|chunk| chunk.stripes = vec![physical]));
        let OpenError::StripeOutside { physical: found, device: 1, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(found, Physical(physical));
        assert_says(&error, &["chunk at 4194304", &physical.to_string(), "outside device 1"]);
    }
    let error = refused(with_data(|chunk| chunk.stripes = vec![0u64.wrapping_sub(4096)]));
    assert_says(&error, &["overflows"]);
}

#[test]
fn a_stripe_on_a_missing_device_is_refused() {
    let error = refused(|items| {
        let chunk = items.get_mut(&ChunkSpec::data().key()).unwrap();
        put_u64(chunk, STRIPE_DEVICE, 2);
    });
    assert!(matches!(error, OpenError::StripeDevice { device: 2, .. }), "{error}");
    assert_says(&error, &["chunk at 4194304 is on device 2, which is missing"]);
}

/// A device with the right number and another UUID is another device.
#[test]
fn a_stripe_on_a_device_of_another_id_is_refused() {
    let error = refused(|items| {
        let chunk = items.get_mut(&ChunkSpec::data().key()).unwrap();
        chunk[STRIPE_DEVICE + 16] ^= 1;
    });
    assert!(matches!(error, OpenError::StripeDevice { device: 1, .. }), "{error}");
}

/// The offsets in a stripe are those that the test above assumes.
#[test]
fn stripe_fields_are_at_the_assumed_offsets() {
    let chunk = ChunkSpec::data();
    assert_eq!(userbtrfs_image_builder::u64_at(&chunk.build(), STRIPE_DEVICE), 1);
    assert_eq!(userbtrfs_image_builder::u64_at(&chunk.build(), STRIPE_PHYSICAL), chunk.stripes[0]);
}

#[test]
fn profiles_that_are_not_supported_are_named() {
    for (bits, stripes, sub_stripes, profile) in [
        (1 << 3, 2, 1, Profile::Raid0),
        (1 << 4, 2, 1, Profile::Raid1),
        (1 << 6, 4, 2, Profile::Raid10),
        (1 << 7, 3, 1, Profile::Raid5),
        (1 << 8, 4, 1, Profile::Raid6),
        (1 << 9, 3, 1, Profile::Raid1C3),
        (1 << 10, 4, 1, Profile::Raid1C4),
    ] {
        let error = refused(with_data(|chunk| {
            chunk.flags |= bits;
            chunk.sub_stripes = sub_stripes;
            chunk.stripes = vec![0x8_0000; stripes];
        }));
        let OpenError::Profile { logical, profile: found, stripes: count } = error else {
            panic!("{error}")
        };
        assert_eq!((logical, found, count), (Logical(0x40_0000), profile, stripes));
        assert_says(&error, &["chunk at 4194304", profile.name(), "not supported"]);
    }
}

#[test]
fn impossible_chunks_are_errors_of_their_block() {
    for (change, said) in [
        ((|chunk| chunk.len = 0) as fn(&mut ChunkSpec), "length 0"),
        (|chunk| chunk.len = 4097, "length 4097"),
        (|chunk| chunk.logical = Logical(u64::MAX - 4095), "overflows"),
        (|chunk| chunk.stripe_len = 4096, "stripe length 4096"),
        (|chunk| chunk.stripes = vec![], "no stripes"),
        (|chunk| chunk.stripes = vec![0x8_0000; 2], "single with 2 stripes"),
        (|chunk| chunk.flags = 0, "type 0x0 is impossible"),
        (|chunk| chunk.flags |= 1 << 5 | 1 << 4, "is impossible"),
        (|chunk| chunk.flags |= 1 << 40, "is impossible"),
        (|chunk| chunk.flags |= 1 << 1, "is impossible"),
    ] {
        let error = refused(with_data(change));
        assert!(matches!(error, OpenError::ChunkTree(_)), "{error}");
        assert_says(&error, &["chunk tree: tree block 1048576 of tree", said]);
    }
}

#[test]
fn the_device_must_be_the_one_that_the_chunk_tree_lists() {
    let error = refused(|items| {
        items.remove(&DEVICE);
    });
    // Without the device item it is unknown on which device the chunks must be.
    assert!(matches!(error, OpenError::DeviceMissing { id: 1 }), "{error}");
    let error = refused(|items| {
        let second = Key::new(1, ItemKind::DEV_ITEM, 2);
        items.insert(second, device_item(2, IMAGE_LEN, 0));
    });
    assert!(matches!(error, OpenError::Devices { count: 2 }), "{error}");
    let error = refused(|items| items.get_mut(&DEVICE).unwrap()[0x42] ^= 1);
    assert!(matches!(error, OpenError::DeviceMissing { id: 1 }), "{error}");
}

/// Returns the error of opening the image with other system chunks in its superblock.
fn with_array(array: &[u8]) -> OpenError {
    let mut editor = small();
    editor.edit_superblock(|bytes| {
        bytes[field::SYS_CHUNK_ARRAY..][..array.len()].copy_from_slice(array);
        let len = u32::try_from(array.len()).unwrap();
        put_u32(bytes, field::SYS_CHUNK_ARRAY_SIZE, len);
    });
    open_error(&editor)
}

#[test]
fn system_chunks_that_are_garbage_are_refused() {
    let chunk = ChunkSpec::system();
    let pair = Bytes::new().key(chunk.key()).raw(&chunk.build()).build();
    for array in
        [vec![0xff; 2048], vec![0; 97], pair[..pair.len() - 1].to_vec(), [&pair[..], &[0]].concat()]
    {
        let error = with_array(&array);
        assert!(matches!(error, OpenError::SysChunkArray(_)), "{error}");
        assert_says(&error, &["system chunk array: "]);
    }
    let data = ChunkSpec::data();
    let error = with_array(&Bytes::new().key(data.key()).raw(&data.build()).build());
    assert!(matches!(error, OpenError::SysChunkArray(ItemError::Flags { .. })), "{error}");
    let error = with_array(&[&pair[..], &pair[..]].concat());
    assert!(matches!(error, OpenError::ChunkOverlap { .. }), "{error}");
    let elsewhere = ChunkSpec { logical: Logical(0x900_0000), ..chunk };
    let error = with_array(&Bytes::new().key(elsewhere.key()).raw(&elsewhere.build()).build());
    assert_says(&error, &["chunk tree", "1048576", "lies in no chunk"]);
}
