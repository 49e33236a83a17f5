//! Partition tables: GPT (UEFI specification, chapter 5) and MBR with its extended partitions.
//!
//! 1. Partitions have the numbers that Linux gives them: the number of the entry, and from 5 on
//!    those of the logical partitions of an MBR, in the order of their chain.
//! 2. What a table says is checked before memory is taken for it: the size and number of its
//!    entries, and the length of the chain.
//! 3. A table may list partitions that lie outside the image; only opening such a one fails.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

use gpt::disk::LogicalBlockSize;
use gpt::header::{HeaderError, read_header_from_arbitrary_device};
use gpt::mbr::{PartRecord, ProtectiveMBR};
use gpt::partition::file_read_partitions;

use crate::partition::Partition;

/// Bytes in a sector of an MBR that is no block device's.
const SECTOR: u64 = 512;
/// The types of partitions that hold a chain of logical ones: CHS, LBA and Linux's own.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The type that protects a GPT.
const PROTECTIVE: u8 = 0xee;
/// Bytes in an entry of a GPT. The specification allows more, which nobody writes.
const ENTRY: u32 = 128;
/// The most entries of a GPT that are read; tables have 128.
const ENTRIES_MAX: u32 = 4096;
/// The most logical partitions that are read.
const LOGICAL_MAX: u32 = 256;
/// The number of the first logical partition.
const FIRST_LOGICAL: u32 = 5;

/// Returns the partitions that the table on `file` lists, in the order of their numbers, or `None`
/// if there is no table. `sector` is the logical sector of a block device, and `None` for an image
/// file, which may be that of any.
///
/// Fails, in words, if there is a table that cannot be read.
pub(crate) fn read_partitions(
    file: &File,
    sector: Option<u64>,
) -> Result<Option<Vec<Partition>>, String> {
    let Some(mbr) = read_mbr(file, 0) else { return Ok(None) };
    if !mbr.iter().any(|record| record.os_type == PROTECTIVE) {
        // A boot sector of a filesystem ends like an MBR, and has anything where the table is.
        let is_table = mbr.iter().all(|record| matches!(record.boot_indicator, 0 | 0x80));
        return Ok(is_table.then(|| read_dos(file, &mbr, sector.unwrap_or(SECTOR))));
    }
    let sizes = [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096];
    let sizes = sizes.into_iter().filter(|size| sector.is_none_or(|it| it == u64::from(*size)));
    for size in sizes {
        if let Some(partitions) = read_gpt(file, size)? {
            return Ok(Some(partitions));
        }
    }
    Err("the MBR announces a GPT, and there is none".to_owned())
}

/// Returns the partitions of a GPT, or `None` if none begins in the second sector of this size.
fn read_gpt(mut file: &File, sector: LogicalBlockSize) -> Result<Option<Vec<Partition>>, String> {
    let header = match read_header_from_arbitrary_device(&mut file, sector) {
        Err(HeaderError::InvalidGptSignature) => return Ok(None),
        header => header.map_err(|error| error.to_string())?,
    };
    if header.part_size != ENTRY || header.num_parts > ENTRIES_MAX {
        let count = header.num_parts;
        let size = header.part_size;
        return Err(format!("{count} entries of {size} bytes are not supported"));
    }
    let entries = file_read_partitions(&mut file, &header, sector);
    let entries = entries.map_err(|error| error.to_string())?;
    let used = entries.into_iter().filter(|(_, entry)| entry.is_used());
    used.map(|(number, entry)| {
        let start = entry.bytes_start(sector).map_err(|error| error.to_string())?;
        let len = entry.bytes_len(sector).map_err(|error| error.to_string())?;
        Ok(Partition { number, start, len })
    })
    .collect::<Result<_, _>>()
    .map(Some)
}

/// Returns the primary partitions and the logical ones.
fn read_dos(file: &File, mbr: &[PartRecord; 4], sector: u64) -> Vec<Partition> {
    let mut partitions = Vec::new();
    for (number, record) in (1..).zip(mbr) {
        if EXTENDED.contains(&record.os_type) {
            partitions.extend(read_logical(file, u64::from(record.lb_start), sector));
        } else if is_used(record) {
            partitions.push(partition(number, 0, record, sector));
        }
    }
    partitions.sort_by_key(|partition| partition.number);
    partitions
}

/// Follows the chain of the extended partition at `first`, in sectors. Each link has an entry for a
/// partition, counted from the link, and one for the next link, counted from `first`.
fn read_logical(file: &File, first: u64, sector: u64) -> Vec<Partition> {
    let mut partitions = Vec::new();
    let mut link = first;
    for number in FIRST_LOGICAL..FIRST_LOGICAL + LOGICAL_MAX {
        let Some(records) = read_mbr(file, link * sector) else { break };
        let found = records.iter().find(|it| is_used(it) && !EXTENDED.contains(&it.os_type));
        partitions.extend(found.map(|record| partition(number, link, record, sector)));
        match records.iter().find(|it| EXTENDED.contains(&it.os_type)) {
            Some(next) => link = first + u64::from(next.lb_start),
            None => break,
        }
    }
    partitions
}

fn is_used(record: &PartRecord) -> bool {
    record.os_type != 0 && record.lb_size != 0
}

fn partition(number: u32, base: u64, record: &PartRecord, sector: u64) -> Partition {
    let start = (base + u64::from(record.lb_start)) * sector;
    Partition { number, start, len: u64::from(record.lb_size) * sector }
}

/// Returns the four records of the MBR, or of the link of a chain, at `offset`, if there is one.
fn read_mbr(mut file: &File, offset: u64) -> Option<[PartRecord; 4]> {
    let mut bytes = [0; 512];
    file.seek(SeekFrom::Start(offset)).ok()?;
    file.read_exact(&mut bytes).ok()?;
    let mbr = ProtectiveMBR::from_bytes(&bytes, LogicalBlockSize::Lb512).ok()?;
    let record = |index| mbr.partition(index);
    Some([record(0)?, record(1)?, record(2)?, record(3)?])
}

#[cfg(test)]
mod tests;
