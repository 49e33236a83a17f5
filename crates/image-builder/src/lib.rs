//! Builds valid and damaged on-disk structures, for tests and fuzzing only.
//!
//! It writes fields at the offsets in `docs/format.md`, not through the structures of the `format`
//! crate, so that wrong offsets there are detected.
//!
//! 1. The structure that a builder returns is valid unless the caller changes a field.
//! 2. Sealing a superblock or tree block sets its checksum, and nothing else.
//! 3. An [`ImageEditor`] changes every copy of a block and seals each. It reads blocks without
//!    verifying them, so that it also works on damaged blocks.
//!
//! It also has what both need that build on it: images and devices in memory, and pseudo-random
//! numbers.
//!
//! Misuse panics, since all callers are tests.

#![forbid(unsafe_code)]

mod block;
mod bytes;
mod chunk;
mod editor;
mod extent;
mod image;
mod inode;
mod random;
mod root;
mod samples;
mod sparse;
mod superblock;

pub use block::{LeafBuilder, NodeBuilder, Place, RawBlock, header, seal_block};
pub use bytes::{Bytes, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
pub use chunk::{ChunkSpec, block_group, device_extent, device_item};
pub use editor::{ImageEditor, ItemPlace};
pub use extent::{
    ExtentSpec, compressed_inline, data_ref, extent_head, inline_extent, shared_data_ref, tree_ref,
};
pub use image::small_image;
pub use inode::{InodeSpec, dir_entry, extrefs, inode_ref};
pub use random::Random;
pub use root::{RootSpec, root_ref};
pub use samples::{Sample, samples};
pub use sparse::{SparseDevice, SparseImage};
pub use superblock::{SuperblockSpec, field, seal_superblock};

use userbtrfs_codec::ChecksumKind;
use userbtrfs_format::Geometry;
use uuid::Uuid;

/// The filesystem id of all structures.
pub const FSID: Uuid = Uuid::from_u128(0x7573_6572_6274_7266_735f_666f_7267_6531);

/// The UUID of the device of all structures.
pub const DEVICE_UUID: Uuid = Uuid::from_u128(0x6465_7669_6365_5f6f_665f_666f_7267_6531);

/// The generation of all structures, unless the caller sets another.
pub const GENERATION: u64 = 7;

/// The length of the small image in bytes.
pub const IMAGE_LEN: u64 = 0xa_0000;

/// The geometry of tree blocks of 4096 bytes with CRC-32C.
pub fn geometry() -> Geometry {
    Geometry { checksum_kind: ChecksumKind::Crc32c, nodesize: 4096, fsid: FSID }
}
