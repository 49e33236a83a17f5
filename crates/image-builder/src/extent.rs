//! File extents, and the items of the extent tree.

use userbtrfs_format::{Key, Logical};

use crate::GENERATION;
use crate::bytes::Bytes;

/// The fields of an EXTENT_DATA that is not inline.
#[derive(Clone, Copy, Debug)]
pub struct ExtentSpec {
    /// 0 none, 1 zlib, 2 LZO, 3 zstd.
    pub compression: u8,
    /// 1 regular, 2 preallocated.
    pub kind: u8,
    /// Its address; 0 is a hole.
    pub disk: Logical,
    /// Its bytes on disk.
    pub disk_bytes: u64,
    /// The start of the file's range in the extent.
    pub offset: u64,
    /// The number of bytes of the file that it covers.
    pub bytes: u64,
    /// Its size when decompressed.
    pub ram_bytes: u64,
}

impl ExtentSpec {
    /// An extent that is not compressed and completely used by the file.
    pub fn plain(disk: Logical, bytes: u64) -> Self {
        let ram_bytes = bytes;
        Self { compression: 0, kind: 1, disk, disk_bytes: bytes, offset: 0, bytes, ram_bytes }
    }

    /// A hole.
    pub fn hole(bytes: u64) -> Self {
        Self { disk_bytes: 0, ..Self::plain(Logical(0), bytes) }
    }

    /// The content of the EXTENT_DATA.
    pub fn build(&self) -> Vec<u8> {
        head(self.ram_bytes, self.compression, self.kind)
            .u64(self.disk.0)
            .u64(self.disk_bytes)
            .u64(self.offset)
            .u64(self.bytes)
            .build()
    }
}

fn head(ram_bytes: u64, compression: u8, kind: u8) -> Bytes {
    Bytes::new().u64(GENERATION).u64(ram_bytes).u8(compression).u8(0).u16(0).u8(kind)
}

/// An inline EXTENT_DATA that is not compressed.
pub fn inline_extent(data: &[u8]) -> Vec<u8> {
    let ram_bytes = u64::try_from(data.len()).expect("inline data is short");
    head(ram_bytes, 0, 0).raw(data).build()
}

/// A compressed inline EXTENT_DATA; `compression` is 1 for zlib, 2 for LZO and 3 for zstd.
pub fn compressed_inline(compression: u8, ram_bytes: u64, data: &[u8]) -> Vec<u8> {
    head(ram_bytes, compression, 0).raw(data).build()
}

/// The head of an EXTENT_ITEM or METADATA_ITEM; flags are 1 for data, 2 for a tree block.
pub fn extent_head(refs: u64, flags: u64, block: Option<(Key, u8)>) -> Bytes {
    let bytes = Bytes::new().u64(refs).u64(GENERATION).u64(flags);
    match block {
        Some((first_key, level)) => bytes.key(first_key).u8(level),
        None => bytes,
    }
}

/// An inline reference with one number: kind 172, 176 or 182.
pub fn tree_ref(kind: u8, number: u64) -> Vec<u8> {
    Bytes::new().u8(kind).u64(number).build()
}

/// An EXTENT_DATA_REF without its kind: tree, inode, offset, count.
pub fn data_ref(root: u64, inode: u64, offset: u64, count: u32) -> Vec<u8> {
    Bytes::new().u64(root).u64(inode).u64(offset).u32(count).build()
}

/// An inline SHARED_DATA_REF without its kind.
pub fn shared_data_ref(parent: u64, count: u32) -> Vec<u8> {
    Bytes::new().u64(parent).u32(count).build()
}
