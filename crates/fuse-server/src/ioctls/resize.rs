//! `BTRFS_IOC_RESIZE`: the argument is a text, as of `btrfs filesystem resize`.
//!
//! 1. The device keeps its size, also if it is a file: a size beyond it fails.

use userbtrfs_engine::api::{Filesystem, ImageLength};
use userbtrfs_fuse::{Caller, Errno};

use crate::errno;
use crate::rights::admit;

/// The field before the text, which is not used.
const DESCRIPTOR_BYTES: usize = 8;

/// Resizes the filesystem.
pub(super) fn resize(
    filesystem: &Filesystem,
    caller: &Caller,
    input: &[u8],
) -> Result<Vec<u8>, Errno> {
    admit(caller)?;
    let field = input.get(DESCRIPTOR_BYTES..).ok_or(Errno::INVAL)?;
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
    if text == "cancel" {
        // There is nothing to cancel: a resize that runs is not interrupted.
        return Err(Errno::NOTCONN);
    }
    let size = filesystem.parse_size(text).map_err(errno)?;
    filesystem.resize(size, ImageLength::Keep).map_err(errno)?;
    Ok(Vec::new())
}
