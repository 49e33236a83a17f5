//! Partition tables, which are read only with the feature `partitions`.

#[cfg(feature = "partitions")]
mod reader;

#[cfg(not(feature = "partitions"))]
use std::fs::File;

#[cfg(not(feature = "partitions"))]
use crate::partition::Partition;

#[cfg(feature = "partitions")]
pub(crate) use reader::read_partitions;

/// Fails: without the feature, no table is read, and none is taken for absent.
#[cfg(not(feature = "partitions"))]
pub(crate) fn read_partitions(
    _file: &File,
    _sector: Option<u64>,
) -> Result<Option<Vec<Partition>>, String> {
    Err("partition tables need the feature `partitions`".to_owned())
}
