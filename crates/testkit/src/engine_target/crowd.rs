//! Memory pressure: enough other objects in little memory to evict everything that is unused.
//!
//! 1. Delayed items are merged into the trees, and inodes are evicted together with their cached
//!    content. Not evicted are directories that the running transaction changed, and files with
//!    dirty data.
//! 2. The objects that take their place are unnamed and are deleted at the end, so none of them is
//!    visible, or exists after a crash.

use anyhow::Result;
use userbtrfs::{Filesystem, OpenOptions, XattrMode};

/// The smallest memory limit of a filesystem, in bytes.
const LITTLE: u64 = 4 << 20;

/// More inodes than fit into that even though each gets a second chance before its eviction; the
/// length of an xattr of each, so that more delayed items are pending than fit; and more bytes of
/// file content than fit.
const INODES: usize = 2000;
const VALUE: usize = 400;
const CONTENT: usize = 2 << 20;

/// Returns options with so little memory that [`crowd_out`] evicts everything unused.
pub fn with_little_memory() -> OpenOptions {
    OpenOptions::new().memory(LITTLE).clone()
}

/// Fills the memory of a filesystem opened [`with_little_memory`] with other objects.
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
    fn evicted_inode_is_looked_up_in_its_tree() {
        let device = Arc::new(SparseDevice::new(128 << 20));
        mkfs::make(&*device, &mkfs::Options::default()).unwrap();
        let mut options = with_little_memory();
        let filesystem = options.write(true).open_devices(vec![device]).unwrap();
        let file = filesystem.root().create(b"f", 0o644).unwrap().open().unwrap();
        file.append(&[1; 4096]).unwrap();
        file.close().unwrap();
        let nodes = || filesystem.stats().nodes.hits + filesystem.stats().nodes.misses;
        // Reads of nodes that the running transaction wrote are not counted.
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
