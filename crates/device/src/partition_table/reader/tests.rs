//! Tables of both kinds, sound and damaged, and devices that are partitions.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use gpt::GptConfig;
use gpt::partition_types::LINUX_FS;
use tempfile::tempfile;

use super::*;
use crate::{Device as _, FileDevice, FileOptions, Region};

const MIB: u64 = 1 << 20;

/// Writes an MBR, or a link of a chain: type, first sector and number of sectors of each entry.
fn write_mbr(file: &File, at: u64, entries: &[(u8, u32, u32)]) {
    let mut bytes = [0; 512];
    for (slot, (kind, start, len)) in entries.iter().enumerate() {
        let entry = &mut bytes[446 + 16 * slot..][..16];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&len.to_le_bytes());
    }
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    file.write_all_at(&bytes, at).unwrap();
}

fn disk(len: u64) -> File {
    let file = tempfile().unwrap();
    file.set_len(len).unwrap();
    file
}

/// Writes a GPT with partitions of these sizes in MiB, the first at 1 MiB.
fn write_gpt(file: &File, sector: LogicalBlockSize, sizes: &[u64]) {
    write_mbr(file, 0, &[(PROTECTIVE, 1, u32::MAX)]);
    let mut file = file.try_clone().unwrap();
    let config = GptConfig::new().writable(true).logical_block_size(sector);
    let mut table = config.create_from_device(&mut file, None).unwrap();
    let align = MIB / u64::from(sector);
    for size in sizes {
        table.add_partition("", size * MIB, LINUX_FS, 0, Some(align)).unwrap();
    }
    table.write().unwrap();
}

fn crc32(bytes: &[u8]) -> u32 {
    let bit = |sum: u32| (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| bit(sum)))
}

fn list(file: &File) -> Vec<(u32, u64, u64)> {
    let found = read_partitions(file, None).unwrap().unwrap();
    found.iter().map(|it| (it.number, it.start, it.len)).collect()
}

#[test]
fn gpt_of_either_sector_size_lists_its_partitions() {
    for sector in [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096] {
        let file = disk(32 * MIB);
        write_gpt(&file, sector, &[4, 8]);
        assert_eq!(list(&file), [(1, MIB, 4 * MIB), (2, 5 * MIB, 8 * MIB)]);
        let other = if sector == LogicalBlockSize::Lb512 { 4096 } else { 512 };
        assert!(read_partitions(&file, Some(other)).is_err(), "a device has sectors of one size");
    }
}

#[test]
fn gpt_with_a_damaged_or_wild_header_is_refused() {
    let file = disk(32 * MIB);
    write_gpt(&file, LogicalBlockSize::Lb512, &[4]);
    let wild = |count: u32, size: u32| {
        let mut header = [0; 92];
        file.read_exact_at(&mut header, 512).unwrap();
        header[80..84].copy_from_slice(&count.to_le_bytes());
        header[84..88].copy_from_slice(&size.to_le_bytes());
        header[16..20].fill(0);
        let sum = crc32(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&header, 512).unwrap();
        read_partitions(&file, None).unwrap_err()
    };
    assert!(wild(128, 256).contains("128 entries of 256 bytes"));
    assert!(wild(u32::MAX, 128).contains("4294967295 entries of 128 bytes"));
    file.write_all_at(b"X", 512 + 60).unwrap();
    assert!(read_partitions(&file, None).is_err());
}

#[test]
fn mbr_lists_primary_and_logical_partitions() {
    let file = disk(64 * MIB);
    write_mbr(&file, 0, &[(0x83, 2048, 4096), (0x05, 8192, 65536), (0, 0, 0), (0x83, 90_000, 8)]);
    write_mbr(&file, 8192 * 512, &[(0x83, 2048, 100), (0x05, 4096, 4096)]);
    write_mbr(&file, (8192 + 4096) * 512, &[(0x83, 2048, 200)]);
    let sectors = |number, start: u64, len: u64| (number, start * 512, len * 512);
    let logical = [sectors(5, 10_240, 100), sectors(6, 14_336, 200)];
    let primary = [sectors(1, 2048, 4096), sectors(4, 90_000, 8)];
    assert_eq!(list(&file), [primary, logical].concat());
}

#[test]
fn chain_of_logical_partitions_that_leads_to_itself_ends() {
    let file = disk(MIB);
    write_mbr(&file, 0, &[(0x0f, 1, 100)]);
    write_mbr(&file, 512, &[(0x83, 1, 1), (0x05, 0, 100)]);
    assert_eq!(list(&file).len(), LOGICAL_MAX as usize);
}

#[test]
fn boot_sector_of_a_filesystem_is_no_partition_table() {
    let mut file = disk(MIB);
    assert_eq!(read_partitions(&file, None), Ok(None));
    let mut bytes = [0x90; 512];
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    file.write_all(&bytes).unwrap();
    assert_eq!(read_partitions(&file, None), Ok(None));
}

/// Nothing outside the region is read or written, and offsets count from its start.
#[test]
fn region_of_a_file_is_a_device_of_its_own() {
    let named = tempfile::NamedTempFile::new().unwrap();
    let file = named.as_file();
    file.set_len(16 * MIB).unwrap();
    write_gpt(file, LogicalBlockSize::Lb512, &[4, 4]);
    let open = |region| {
        let options = FileOptions { region, writable: true, ..FileOptions::default() };
        FileDevice::open(named.path(), options)
    };
    let device = open(Region::Partition(2)).unwrap();
    assert_eq!(device.len(), 4 * MIB);
    for (at, len) in [(0, 4096), (4 * MIB - 4096, 4096), (MIB, 1 << 20)] {
        let bytes = crate::Buffer::from(&vec![0x5a; len][..]);
        device.write(at, std::sync::Arc::new(bytes), false).unwrap();
        let mut found = vec![0; len];
        file.read_exact_at(&mut found, 5 * MIB + at).unwrap();
        assert!(found.iter().all(|byte| *byte == 0x5a));
        assert!(device.read(at, len).unwrap().iter().all(|byte| *byte == 0x5a));
    }
    device.discard(MIB, 1 << 20).unwrap();
    assert!(device.read(MIB, 1 << 20).unwrap().iter().all(|byte| *byte == 0));
    assert!(device.read(4 * MIB - 10, 20).is_err(), "it ends where the partition does");
    for around in [5 * MIB - 1, 9 * MIB] {
        let mut byte = [1];
        file.read_exact_at(&mut byte, around).unwrap();
        assert_eq!(byte, [0]);
    }
    drop(device);
    assert_eq!(open(Region::From(10 * MIB)).unwrap().len(), 6 * MIB);
    let refused = [Region::Partition(3), Region::From(16 * MIB), Region::From(u64::MAX)];
    for region in refused {
        assert!(open(region).is_err(), "{region:?}");
    }
}

#[test]
fn partition_beyond_the_end_of_the_image_is_refused() {
    let named = tempfile::NamedTempFile::new().unwrap();
    named.as_file().set_len(MIB).unwrap();
    write_mbr(named.as_file(), 0, &[(0x83, 1, 4096)]);
    let options = FileOptions { region: Region::Partition(1), ..FileOptions::default() };
    let error = FileDevice::open(named.path(), options).expect_err("it is too short");
    assert!(matches!(error, crate::DeviceError::RegionOutside { len: 2_097_152, .. }), "{error}");
}
