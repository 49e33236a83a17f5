//! So much else in little memory that nothing stays that nobody uses.
//!
//! 1. What waited is merged into the trees, and inodes leave memory, with what is cached of their
//!    content. What does not: directories that the running transaction changed, and files of which
//!    something is still to be written.
//! 2. What takes its place has no name and goes at the end, so that nothing of it is shown, or is
//!    there after a crash.

use anyhow::Result;
use userbtrfs::{Filesystem, OpenOptions, XattrMode};

/// The least memory that a filesystem may be given, in bytes.
const LITTLE: u64 = 4 << 20;

/// How many inodes are more than fit into that, also where each is looked at twice before it goes;
/// how long an attribute of each is, so that more waits than fits; and bytes of a file that are
/// more than fit.
const INODES: usize = 2000;
const VALUE: usize = 400;
const CONTENT: usize = 2 << 20;

/// Options with memory that can be crowded.
pub fn with_little_memory() -> OpenOptions {
    OpenOptions::new().memory(LITTLE).clone()
}

/// Fills the memory of a filesystem that was opened [`with_little_memory`] with something else.
pub fn crowd_out(filesystem: &Filesystem) -> Result<()> {
    let root = filesystem.root();
    let file = root.create_unnamed(0o600)?.open()?;
    file.append(&vec![7; CONTENT])?;
    let come = |_| {
        let inode = root.create_unnamed(0o600)?;
        inode.set_xattr(b"user.crowd", &[0; VALUE], XattrMode::Either)?;
        Ok(inode)
    };
    (0..INODES).map(come).collect::<Result<Vec<_>>>().map(drop)?;
    Ok(file.close()?)
}

#[cfg(test)]
mod tests {
    use userbtrfs::mkfs;
    use userbtrfs_sync::Arc;

    use super::*;
    use crate::devices::SparseDevice;

    #[test]
    fn what_was_in_memory_is_looked_up_in_its_tree() {
        let device = Arc::new(SparseDevice::new(128 << 20));
        mkfs::make(&*device, &mkfs::Options::default()).unwrap();
        let mut options = with_little_memory();
        let filesystem = options.write(true).open_devices(vec![device]).unwrap();
        let file = filesystem.root().create(b"f", 0o644).unwrap().open().unwrap();
        file.append(&[1; 4096]).unwrap();
        file.close().unwrap();
        let nodes = || filesystem.stats().nodes.hits + filesystem.stats().nodes.misses;
        // What the running transaction wrote is not counted.
        let looks = || {
            filesystem.commit().unwrap();
            let before = nodes();
            filesystem.symlink_metadata("/f").unwrap();
            nodes() - before
        };
        assert_eq!(looks(), 0);
        crowd_out(&filesystem).unwrap();
        assert!(looks() > 0);
        filesystem.close().unwrap();
    }
}
