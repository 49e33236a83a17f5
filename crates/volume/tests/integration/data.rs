//! Asynchronous data writes: each part has its own result.

use userbtrfs_device::Device;
use userbtrfs_format::{Logical, SECTOR, SUPERBLOCK_OFFSETS};
use userbtrfs_image_builder::ChunkSpec;
use userbtrfs_sync::Arc;
use userbtrfs_volume::{Buffer, Slice, WriteError};

use crate::support::{Recorder, image, image_with_room_for_a_mirror, open};
use crate::writing::chunk;

/// Parts of one buffer, from `start` on, each with different bytes.
fn parts(start: Logical, count: u8) -> Vec<(Logical, Slice)> {
    let bytes: Vec<_> = (0..count).flat_map(|n| [n + 1; 4096]).collect();
    let buffer = Arc::new(Buffer::from(&bytes[..]));
    let part = |n: u8| {
        let skip = usize::from(n) * 4096;
        let slice = Slice::new(Arc::clone(&buffer), skip..skip + 4096);
        (Logical(start.0 + u64::from(n) * SECTOR), slice)
    };
    (0..count).map(part).collect()
}

fn holds(device: &Recorder, at: u64, fill: u8) -> bool {
    device.memory.read(at, 4096).unwrap().iter().all(|&byte| byte == fill)
}

#[test]
fn parts_of_a_buffer_reach_all_copies() {
    let (volume, device) = open(Recorder::over(image(|_| {})));
    let metadata = ChunkSpec::metadata();
    let pending = volume.submit_data(parts(metadata.logical, 5));
    let others = volume.submit_data(parts(ChunkSpec::data().logical, 3));
    assert!(volume.wait_writes(others).iter().all(Result::is_ok));
    assert_eq!(volume.wait_writes(pending).len(), 5);
    for n in 0..5 {
        let offset = u64::from(n) * SECTOR;
        assert!(metadata.stripes.iter().all(|at| holds(&device, at + offset, n + 1)));
    }
    assert_eq!(device.changes().len(), 13);
    assert!(volume.wait_writes(volume.submit_data([])).is_empty());
    assert_eq!(device.changes(), []);
}

#[test]
fn submit_data_bad_copy_fails_only_its_part() {
    let metadata = ChunkSpec::metadata();
    for copy in 0..2 {
        let bad = metadata.stripes[copy] + 2 * SECTOR;
        let (volume, device) = open(Recorder::over(image(|_| {})).failing_at(bad));
        let mut parts = parts(metadata.logical, 5);
        let outside = Logical(0x9000_0000);
        parts[3].0 = outside;
        let ends = volume.wait_writes(volume.submit_data(parts));
        let good: Vec<_> = ends.iter().map(Result::is_ok).collect();
        assert_eq!(good, [true, true, false, false, true]);
        let at = Logical(metadata.logical.0 + 2 * SECTOR);
        assert!(matches!(ends[2], Err(WriteError::Range { logical, .. }) if logical == at));
        assert!(matches!(ends[3], Err(WriteError::Unmapped { logical, .. }) if logical == outside));
        assert!(metadata.stripes.iter().all(|at| holds(&device, at + 4 * SECTOR, 5)));
    }
}

#[test]
fn data_is_never_written_on_a_superblock() {
    let (volume, device) = open(Recorder::over(image_with_room_for_a_mirror()));
    let mirror = SUPERBLOCK_OFFSETS[1].0;
    volume.add_chunk(chunk(0x1000_0000, mirror - 0x1_0000, 0x1_1000)).unwrap();
    let ends = volume.wait_writes(volume.submit_data(parts(Logical(0x1001_0000), 1)));
    assert!(matches!(ends[..], [Err(WriteError::OnSuperblock { .. })]), "{ends:?}");
    assert_eq!(device.changes(), []);
}
