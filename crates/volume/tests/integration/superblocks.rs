//! The order in which the copies of the superblock are replaced, and the state after a failure.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use userbtrfs_device::Operation;
use userbtrfs_format::{Logical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use userbtrfs_volume::{Volume, WriteError};

use crate::support::{Change, Recorder, image, image_with_room_for_a_mirror, open};

fn write(copy: usize, fua: bool) -> Change {
    let offset = SUPERBLOCK_OFFSETS[copy].0;
    let len = SUPERBLOCK_SIZE as u64;
    Change { operation: Operation::Write, offset, len, fua }
}

fn next(volume: &Volume) -> Superblock {
    let mut superblock = Superblock::clone(&volume.superblock());
    superblock.generation += 1;
    superblock
}

#[test]
fn the_primary_is_durable_before_a_mirror_is_written() {
    let (volume, device) = open(Recorder::over(image_with_room_for_a_mirror()));
    let superblock = next(&volume);
    volume.write_superblock(&superblock).unwrap();
    assert_eq!(device.changes(), [write(0, true), write(1, false)]);
    for copy in [0, 1] {
        assert_eq!(device.superblock(copy).generation, superblock.generation);
    }
    let current = volume.superblock();
    assert_eq!(current.generation, superblock.generation);
    assert_eq!(current.checksum, device.superblock(0).checksum);
    assert_eq!(current.physical, SUPERBLOCK_OFFSETS[0]);
}

#[test]
fn only_copies_that_lie_on_the_filesystem_are_written() {
    let (volume, device) = open(Recorder::over(image(|_| {})));
    volume.write_superblock(&next(&volume)).unwrap();
    assert_eq!(device.changes(), [write(0, true)]);

    // The device is longer than the filesystem.
    let mut image = image(|_| {});
    image.resize(usize::try_from(SUPERBLOCK_OFFSETS[1].0).unwrap() + SUPERBLOCK_SIZE, 7);
    let (volume, device) = open(Recorder::over(image));
    volume.write_superblock(&next(&volume)).unwrap();
    assert_eq!(device.changes(), [write(0, true)]);
}

#[test]
fn write_log_superblock_changes_only_log_root_of_primary() {
    let (volume, device) = open(Recorder::over(image_with_room_for_a_mirror()));
    let before = device.superblock(0).encode(SUPERBLOCK_OFFSETS[0]);
    let transaction = volume.superblock().generation + 1;
    volume.write_log_superblock(Logical(0x20_a000), 1, transaction).unwrap();
    assert_eq!(device.changes(), [write(0, true)]);
    assert_eq!(volume.superblock().log_root, None, "what is written next leads to none");
    let mut written = device.superblock(0);
    assert_eq!((written.log_root, written.log_root_level), (Some(Logical(0x20_a000)), 1));
    written.log_root = None;
    written.log_root_level = 0;
    assert!(written.encode(SUPERBLOCK_OFFSETS[0]) == before);
}

#[test]
fn write_superblock_failing_primary_keeps_old_one_and_mirror() {
    let primary = SUPERBLOCK_OFFSETS[0];
    let image = image_with_room_for_a_mirror();
    let (volume, device) = open(Recorder::over(image).failing_at(primary.0));
    let before = volume.superblock().generation;
    let error = volume.write_superblock(&next(&volume)).unwrap_err();
    assert!(matches!(error, WriteError::Superblock { at, .. } if at == primary), "{error}");
    assert_eq!(device.changes(), [write(0, true)]);
    assert_eq!(volume.superblock().generation, before);
}

#[test]
fn write_superblock_failing_mirror_is_named_and_new_one_is_current() {
    let mirror = SUPERBLOCK_OFFSETS[1];
    let image = image_with_room_for_a_mirror();
    let (volume, device) = open(Recorder::over(image).failing_at(mirror.0));
    let superblock = next(&volume);
    let error = volume.write_superblock(&superblock).unwrap_err();
    assert!(matches!(error, WriteError::Superblock { at, .. } if at == mirror), "{error}");
    assert_eq!(device.superblock(0).generation, superblock.generation);
    assert_eq!(volume.superblock().generation, superblock.generation);
}

/// Calls `write` on a volume; panics if it wrote anything, else with the message of `write`.
fn panic_without_write(write: impl FnOnce(&Volume)) {
    let (volume, device) = open(Recorder::over(image(|_| {})));
    let panic = catch_unwind(AssertUnwindSafe(|| write(&volume)));
    assert_eq!(device.changes(), []);
    resume_unwind(panic.expect_err("it panics"));
}

#[test]
#[should_panic(expected = "would replace the newer")]
fn write_superblock_of_earlier_generation_panics() {
    panic_without_write(|volume| {
        let mut superblock = next(volume);
        superblock.generation -= 2;
        let _ = volume.write_superblock(&superblock);
    });
}

#[test]
#[should_panic(expected = "has a chunk root of transaction")]
fn write_superblock_with_newer_chunk_root_panics() {
    panic_without_write(|volume| {
        let mut superblock = next(volume);
        superblock.chunk_root_generation = superblock.generation + 1;
        let _ = volume.write_superblock(&superblock);
    });
}

#[test]
#[should_panic(expected = "a log of the next transaction only")]
fn write_log_superblock_of_another_transaction_panics() {
    panic_without_write(|volume| {
        let transaction = volume.superblock().generation;
        let _ = volume.write_log_superblock(Logical(0x20_a000), 1, transaction);
    });
}
