//! Items of leaves.

use crate::Key;

/// An item of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Its key.
    pub key: Key,
    /// The start of its data, counted from the end of the header.
    pub offset: u32,
    /// Its data.
    pub data: &'a [u8],
}
