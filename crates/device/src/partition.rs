//! A partition of a disk. Partition tables are read only with the feature `partitions`.

#[cfg(not(feature = "partitions"))]
use std::fs::File;

#[cfg(feature = "partitions")]
pub(crate) use crate::partition_table::read_partitions;

/// A partition of a disk or of the image of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1 on.
    pub number: u32,
    /// The first byte of it.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// Fails: without the feature, no table is read, and none is taken for absent.
#[cfg(not(feature = "partitions"))]
pub(crate) fn read_partitions(
    _file: &File,
    _sector: Option<u64>,
) -> Result<Option<Vec<Partition>>, String> {
    Err("partition tables need the feature `partitions`".to_owned())
}
