//! A partition of a disk.

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
