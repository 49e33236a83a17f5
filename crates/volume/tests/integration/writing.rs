//! The locations of written ranges, and the handling of errors.

use userbtrfs_device::{Device, Operation};
use userbtrfs_format::{Chunk, Logical, Physical, SUPERBLOCK_OFFSETS};
use userbtrfs_image_builder::ChunkSpec;
use userbtrfs_sync::Arc;
use userbtrfs_volume::{Buffer, OpenError, Range, Volume, WriteError};

use crate::support::{Recorder, image, image_with_room_for_a_mirror, open};

const NODE: u64 = 4096;

fn node(fill: u8) -> Arc<Buffer> {
    Arc::new(Buffer::from(&[fill; 4096][..]))
}

/// Blocks from `start` on, each with different bytes.
fn blocks(start: Logical, count: u8) -> Vec<(Logical, Arc<Buffer>)> {
    (0..count).map(|n| (Logical(start.0 + u64::from(n) * NODE), node(n + 1))).collect()
}

fn assert_holds(device: &Recorder, at: u64, fill: u8) {
    assert!(device.memory.read(at, 4096).unwrap().iter().all(|&byte| byte == fill), "at {at}");
}

/// A chunk with the flags of the data chunk, at another location.
pub(crate) fn chunk(logical: u64, physical: u64, len: u64) -> Chunk {
    let spec =
        ChunkSpec { logical: Logical(logical), len, stripes: vec![physical], ..ChunkSpec::data() };
    Chunk::parse(spec.key(), &spec.build()).unwrap()
}

#[test]
fn every_copy_is_written_and_nothing_else() {
    let (volume, device) = open(Recorder::over(image(|_| {})));
    let before = device.memory.snapshot();
    let metadata = ChunkSpec::metadata();
    volume.write_blocks(blocks(metadata.logical, 10)).unwrap();
    for n in 0..10 {
        for stripe in &metadata.stripes {
            assert_holds(&device, stripe + u64::from(n) * NODE, n + 1);
        }
        let range = Range { logical: metadata.logical, len: 4096 };
        assert_eq!(volume.read(range, 1).unwrap().unwrap()[0], 1);
    }
    let changes = device.changes();
    assert_eq!(changes.len(), 20);
    assert!(changes.iter().all(|c| c.operation == Operation::Write && !c.fua));
    let mut expected = before;
    for change in changes {
        let range = usize::try_from(change.offset).unwrap()..;
        let written = device.memory.read(change.offset, 4096).unwrap();
        expected[range][..4096].copy_from_slice(&written);
    }
    assert!(device.memory.snapshot() == expected);
}

#[test]
fn write_blocks_more_than_fit_in_flight_are_all_written() {
    let (volume, device) = open(Recorder::over(image_with_room_for_a_mirror()));
    let physical = 0x100_0000;
    volume.add_chunk(chunk(0x1000_0000, physical, 0x100_0000)).unwrap();
    let many = blocks(Logical(0x1000_0000), 250);
    volume.write_blocks(many.iter().cloned().chain(blocks(Logical(0x1010_0000), 250))).unwrap();
    for n in 0..250 {
        assert_holds(&device, physical + u64::from(n) * NODE, n + 1);
        assert_holds(&device, physical + 0x10_0000 + u64::from(n) * NODE, n + 1);
    }
    assert_eq!(device.changes().len(), 500);
    volume.write_blocks([]).unwrap();
    assert_eq!(device.changes(), []);
}

#[test]
fn stop_writing_during_write_blocks_stops_all_writes() {
    let (volume, device) = open(Recorder::over(image_with_room_for_a_mirror()));
    let at = Logical(0x1000_0000);
    volume.add_chunk(chunk(at.0, 0x100_0000, 0x100_0000)).unwrap();
    let stopping = blocks(at, 9).into_iter().inspect(|(logical, _)| {
        if logical.0 == at.0 + 5 * NODE {
            volume.stop_writing();
        }
    });
    let mut ends = vec![volume.write_blocks(stopping)];
    assert_eq!(device.changes().len(), 5);
    ends.push(volume.write_blocks(blocks(at, 1)));
    ends.extend(volume.wait_writes(volume.submit_data([(at, node(1).into())])));
    ends.extend([volume.flush(), volume.discard(at, NODE)]);
    ends.extend([
        volume.write_superblock(&volume.superblock()),
        volume.write_log_superblock(at, 0, 0),
    ]);
    let is_stopped = |end: &Result<(), WriteError>| matches!(end, Err(WriteError::Stopped { .. }));
    assert!(ends.len() == 7 && ends.iter().all(is_stopped), "{ends:?}");
    assert_eq!(device.changes(), []);
    assert_eq!(volume.read(Range { logical: at, len: 4096 }, 0).unwrap().unwrap()[0], 1);
}

#[test]
fn the_first_error_names_block_and_place() {
    let metadata = ChunkSpec::metadata();
    let bad = metadata.stripes[1] + 3 * NODE;
    let (volume, _) = open(Recorder::over(image(|_| {})).failing_at(bad));
    let mut blocks = blocks(metadata.logical, 10);
    blocks.push((Logical(0x9000_0000), node(1)));
    let error = volume.write_blocks(blocks).unwrap_err();
    let at = Logical(metadata.logical.0 + 3 * NODE);
    assert!(matches!(error, WriteError::Range { logical, .. } if logical == at), "{error}");
    assert!(error.to_string().contains(&format!("write of 4096 bytes at {bad}")), "{error}");
}

#[test]
fn write_blocks_after_error_writes_only_batches_in_flight() {
    let physical = 0x100_0000;
    let device = Recorder::over(image_with_room_for_a_mirror()).failing_at(physical);
    let (volume, device) = open(device);
    volume.add_chunk(chunk(0x1000_0000, physical, 0x100_0000)).unwrap();
    let many = (0..4000).map(|n| (Logical(0x1000_0000 + n * NODE), node(1)));
    let error = volume.write_blocks(many).unwrap_err();
    assert!(matches!(error, WriteError::Range { logical: Logical(0x1000_0000), .. }), "{error}");
    // Three batches of 128 may be in flight while the next is collected.
    assert!(device.changes().len() <= 4 * 128);
}

#[test]
fn write_blocks_unmapped_range_fails_after_earlier_blocks_are_written() {
    let (volume, device) = open(Recorder::over(image(|_| {})));
    let data = ChunkSpec::data();
    let crossing = Logical(data.logical.0 + data.len - 1);
    for outside in [Logical(0x9000_0000), crossing] {
        let error = volume.write_blocks([(data.logical, node(9)), (outside, node(9))]).unwrap_err();
        assert!(matches!(error, WriteError::Unmapped { logical, len: 4096 } if logical == outside));
        assert_holds(&device, data.stripes[0], 9);
        assert_eq!(device.changes().len(), 1);
    }
}

#[test]
fn a_superblock_in_a_chunk_is_never_written_on() {
    let (volume, device) = open(Recorder::over(image_with_room_for_a_mirror()));
    let mirror = SUPERBLOCK_OFFSETS[1].0;
    volume.add_chunk(chunk(0x1000_0000, mirror - 0x1_0000, 0x1_1000)).unwrap();
    let on_it = Logical(0x1001_0000);
    let error = volume.write_blocks([(on_it, node(1))]).unwrap_err();
    assert!(
        matches!(error, WriteError::OnSuperblock { physical: Physical(at), .. } if at == mirror)
    );
    assert_eq!(device.changes(), []);
    volume.write_blocks([(Logical(on_it.0 - NODE), node(1))]).unwrap();

    device.changes();
    volume.discard(Logical(0x1000_0000), 0x1_1000).unwrap();
    let discards: Vec<_> =
        device.changes().iter().map(|c| (c.operation, c.offset, c.len)).collect();
    assert_eq!(discards, [(Operation::Discard, mirror - 0x1_0000, 0x1_0000)]);
}

#[test]
fn discard_reaches_every_copy() {
    let (volume, device) = open(Recorder::over(image(|_| {})));
    let metadata = ChunkSpec::metadata();
    volume.discard(metadata.logical, 2 * NODE).unwrap();
    let discards: Vec<_> =
        device.changes().iter().map(|c| (c.operation, c.offset, c.len)).collect();
    assert_eq!(discards, [0, 1].map(|n| (Operation::Discard, metadata.stripes[n], 2 * NODE)));
    let outside = volume.discard(Logical(0x9000_0000), NODE);
    assert!(matches!(outside, Err(WriteError::Unmapped { .. })));
}

#[test]
fn a_flush_that_fails_is_reported() {
    let (volume, device) = open(Recorder::over(image(|_| {})).failing_at(u64::MAX));
    assert!(matches!(volume.flush(), Err(WriteError::Flush(_))));
    assert_eq!(device.changes().len(), 1);
}

fn is_mapped(volume: &Volume, logical: u64) -> bool {
    volume.map(Logical(logical), NODE).is_ok()
}

#[test]
fn chunks_are_added_and_removed() {
    let (volume, _) = open(Recorder::over(image_with_room_for_a_mirror()));
    let new = chunk(0x1000_0000, 0x100_0000, 0x1_0000);
    assert!(!is_mapped(&volume, 0x1000_0000));
    volume.add_chunk(new.clone()).unwrap();
    assert!(is_mapped(&volume, 0x1000_0000));
    assert!(matches!(volume.add_chunk(new.clone()), Err(OpenError::ChunkOverlap { .. })));
    let outside = chunk(0x2000_0000, volume.device().len() - 4096, 0x1_0000);
    assert!(matches!(volume.add_chunk(outside), Err(OpenError::StripeOutside { .. })));
    assert!(!is_mapped(&volume, 0x2000_0000));

    assert_eq!(volume.remove_chunk(new.logical), Some(new.clone()));
    assert_eq!(volume.remove_chunk(new.logical), None);
    assert!(!is_mapped(&volume, 0x1000_0000));
    volume.add_chunk(new).unwrap();
}
