//! Devices that fail: another mirror is read instead, or the error is reported.

use std::ops::Range;
use std::sync::Arc;

use userbtrfs::device::{
    Access, Completion, Device, DeviceError, MemoryDevice, Operation, Request, Ticket,
};
use userbtrfs::{DataError, Error, Filesystem, MirrorError, OpenOptions, ReadError};
use userbtrfs_image_builder::{ChunkSpec, small_image};

use crate::support::golden::Unpacked;
use crate::support::shown::shown;
use crate::support::{assert_says, open, small, top_level};

/// A device that cannot be read in some ranges.
struct Worn {
    below: MemoryDevice,
    bad: Vec<Range<u64>>,
}

impl Worn {
    fn perform(&self, request: Request) -> Completion {
        let access = request.access();
        let end = access.offset + access.len;
        if self.bad.iter().any(|bad| access.offset < bad.end && end > bad.start) {
            return request.complete(Err(failure(access)));
        }
        self.below.run(request)
    }
}

fn failure(access: Access) -> DeviceError {
    let source = std::io::Error::from_raw_os_error(5);
    DeviceError::Io { device: "worn".into(), access, source }
}

impl Device for Worn {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn name(&self) -> &'static str {
        "worn"
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::completed(batch.into_iter().map(|request| self.perform(request)).collect())
    }
}

/// Opens the small image on a device that cannot be read in these ranges.
fn worn(bad: impl Into<Vec<Range<u64>>>) -> Result<Filesystem, Error> {
    let device = Worn { below: MemoryDevice::from_bytes(small_image()), bad: bad.into() };
    OpenOptions::new().open_devices(vec![Arc::new(device)])
}

/// Returns the range of the sector at `start`.
fn sector(start: u64) -> Vec<Range<u64>> {
    std::iter::once(start..start + 4096).collect()
}

/// Returns the ranges of the mirrors of a chunk of the small image.
fn places(chunk: &ChunkSpec) -> Vec<Range<u64>> {
    chunk.stripes.iter().map(|start| *start..start + chunk.len).collect()
}

#[test]
fn one_readable_mirror_of_metadata_is_enough() {
    let sound = shown(&open(&small()).unwrap()).unwrap();
    let system = places(&ChunkSpec::system());
    let metadata = places(&ChunkSpec::metadata());
    for (system, metadata) in system.into_iter().zip(metadata) {
        let filesystem = worn([system, metadata]).unwrap();
        assert_eq!(shown(&filesystem).unwrap(), sound);
    }
}

#[test]
fn unreadable_superblock_without_mirror_names_the_read() {
    let error = worn(sector(65536)).err().unwrap();
    assert_says(&error, &["primary: worn: read of 4096 bytes at 65536"]);
}

#[test]
fn unreadable_superblock_is_replaced_by_its_mirror() {
    let golden = Unpacked::new("basic");
    let image = std::fs::read(golden.path()).unwrap();
    let device = Worn { below: MemoryDevice::from_bytes(image), bad: sector(65536) };
    let filesystem = OpenOptions::new().open_devices(vec![Arc::new(device)]).unwrap();
    let [warning] = filesystem.warnings() else { panic!("{:?}", filesystem.warnings()) };
    assert_says(warning, &["worn: read of 4096 bytes at 65536", "67108864", "read-only"]);
}

#[test]
fn block_without_readable_mirror_names_both_reads() {
    let error = worn(places(&ChunkSpec::system())).err().unwrap();
    assert_says(&error, &["chunk tree: tree block 1048576", "131072: worn", "196608: worn"]);
    let filesystem = worn(places(&ChunkSpec::metadata()));
    let Some(Error::Read(ReadError::Block { copies, .. })) = filesystem.err() else { panic!() };
    assert!(copies.iter().all(|(_, copy)| matches!(copy, MirrorError::Device(_))));
    assert_eq!(copies.len(), 2);
}

#[test]
fn unreadable_data_names_the_file() {
    let filesystem = worn(sector(0x8_1000)).unwrap();
    let file = filesystem.open_file("/large").unwrap();
    assert_eq!(file.read_at(&mut [0; 4096], 0).unwrap(), 4096);
    assert_eq!(file.read_at(&mut [0; 4096], 8192).unwrap(), 4096);
    let error = file.read_at(&mut [0; 100], 4096).unwrap_err();
    let Error::Data { file, offset: 4096, error: DataError::Device(device) } = &error else {
        panic!("{error}")
    };
    assert_eq!(*file, top_level(258));
    let DeviceError::Io { access: Access { operation, .. }, .. } = device else {
        panic!("{error}")
    };
    assert_eq!(*operation, Operation::Read);
    assert_says(&error, &["inode 258", "offset 4096", "worn: read of 4096 bytes at 528384"]);
}
