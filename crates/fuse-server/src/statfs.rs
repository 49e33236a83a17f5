//! The space of the filesystem, as statfs(2) shows it.

use userbtrfs_engine::api::Filesystem;
use userbtrfs_fuse::{Errno, Statistics};

use crate::errno;

/// The unit in which space is counted, in bytes.
const BLOCK: u32 = 4096;
/// The longest name, in bytes.
const NAME_MAX: u32 = 255;

/// Returns the space that is used and free.
pub(crate) fn statfs(filesystem: &Filesystem) -> Result<Statistics, Errno> {
    let left = filesystem.space_left().map_err(errno)?;
    let blocks = |bytes: u64| bytes / u64::from(BLOCK);
    Ok(Statistics {
        blocks: blocks(left.total),
        blocks_free: blocks(left.free),
        blocks_available: blocks(left.available),
        files: 0,
        files_free: 0,
        block_size: BLOCK,
        name_max: NAME_MAX,
        fragment_size: BLOCK,
    })
}
