//! The superblock that ends a commit.
//!
//! 1. It is the previous one, except for the roots, the byte counts, features that were added, a
//!    label or a size of the device that was set, and one of the four backup sets of roots: the one
//!    after the newest.
//! 2. A pending log belongs to the previous commit: it is dropped.
//! 3. Its number is one more than that of the previous one, and the root tree has the same number:
//!    Linux would refuse any other.

use userbtrfs_btree::Root;
use userbtrfs_format::{
    BackupRoot, CompatRoFlags, Logical, Superblock, TreeId, encode_sys_chunk_array,
};

use crate::context::TransactionContext;
use crate::error::{Error, Result};

/// The generation of the space cache that mkfs writes: there is no cache yet.
const NO_CACHE_YET: u64 = u64::MAX;

/// Returns the superblock of transaction `generation`.
pub(super) fn next(context: &TransactionContext, generation: u64) -> Result<Superblock> {
    let volume = context.volume();
    let mut superblock = (*volume.superblock()).clone();
    let before = superblock.generation;
    assert_eq!(before.checked_add(1), Some(generation), "transactions are committed in order");
    superblock.generation = generation;
    superblock.incompat |= volume.added_incompat();
    if let Some(label) = volume.new_label() {
        superblock.label = label;
    }
    let size = volume.next_device_size();
    // The sum over all devices, of which there is one; it may be rounded in another way.
    let others = superblock.total_bytes.saturating_sub(superblock.device.total_bytes);
    superblock.total_bytes = others.saturating_add(size);
    superblock.device.total_bytes = size;
    let root = context.tree_roots.roots().root();
    assert_eq!(root.generation, generation, "the root tree is of the transaction");
    superblock.root = root.logical;
    superblock.root_level = root.level;
    let chunks = context.tree_roots.tree(TreeId::CHUNK)?.root();
    superblock.chunk_root = chunks.logical;
    superblock.chunk_root_level = chunks.level;
    superblock.chunk_root_generation = chunks.generation;
    superblock.log_root = None;
    superblock.log_root_level = 0;
    superblock.log_root_transid = 0;
    superblock.bytes_used = context.space.bytes_used();
    let chunks_listed = context.space.listed_chunks();
    superblock.device.bytes_used = chunks_listed.device_used;
    superblock.sys_chunk_array = encode_sys_chunk_array(&chunks_listed.system);
    if superblock.uuid_tree_generation == before {
        // The UUID tree was valid, and no subvolume was added or removed.
        superblock.uuid_tree_generation = generation;
    }
    if superblock.cache_generation != NO_CACHE_YET {
        // The commit removed the caches. Linux then goes on without them, too.
        superblock.cache_generation = 0;
    }
    if superblock.compat_ro.contains(CompatRoFlags::FREE_SPACE_TREE) {
        // If it was not valid, it was rebuilt.
        superblock.compat_ro |= CompatRoFlags::FREE_SPACE_TREE_VALID;
    }
    let newest =
        superblock.backup_roots.iter().position(|backup| backup.tree_root_generation == before);
    let slot = newest.map_or(0, |newest| (newest + 1) % superblock.backup_roots.len());
    superblock.backup_roots[slot] = backup(context, &superblock, root, chunks)?;
    Ok(superblock)
}

fn backup(
    context: &TransactionContext,
    superblock: &Superblock,
    root: Root,
    chunks: Root,
) -> Result<BackupRoot> {
    let [extent, fs, dev, csum] =
        [TreeId::EXTENT, TreeId::FS, TreeId::DEV, TreeId::CSUM].map(|id| {
            match context.tree_roots.tree(id) {
                Ok(tree) => Ok(tree.root()),
                // The backup of a tree that does not exist is zero.
                Err(Error::NoTree(_)) => Ok(Root { logical: Logical(0), level: 0, generation: 0 }),
                Err(error) => Err(error),
            }
        });
    let extent = extent?;
    let fs = fs?;
    let dev = dev?;
    let csum = csum?;
    Ok(BackupRoot {
        tree_root: root.logical,
        tree_root_generation: root.generation,
        chunk_root: chunks.logical,
        chunk_root_generation: chunks.generation,
        extent_root: extent.logical,
        extent_root_generation: extent.generation,
        fs_root: fs.logical,
        fs_root_generation: fs.generation,
        dev_root: dev.logical,
        dev_root_generation: dev.generation,
        csum_root: csum.logical,
        csum_root_generation: csum.generation,
        total_bytes: superblock.total_bytes,
        bytes_used: superblock.bytes_used,
        num_devices: superblock.num_devices,
        levels: [root, chunks, extent, fs, dev, csum].map(|root| root.level),
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use userbtrfs_device::{FileDevice, FileOptions};
    use userbtrfs_sync::Arc;
    use userbtrfs_testkit::golden::Golden;
    use userbtrfs_volume::Volume;

    use super::*;
    use crate::options::TransactionOptions;
    use crate::roots::TreeRoots;

    /// Makes the superblock that comes `after` the present one, in a transaction that changed
    /// nothing.
    fn make_after(after: u64) {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        Golden::named("fresh").unpack(&image).unwrap();
        let options = FileOptions { writable: true, ..FileOptions::default() };
        let device = FileDevice::open(&image, options).unwrap();
        let volume = Arc::new(Volume::open_for_writing(vec![Arc::new(device)]).unwrap());
        let generation = volume.superblock().generation + after;
        let tree_roots = Arc::new(TreeRoots::new(volume, 8 << 20));
        let context = TransactionContext::open(tree_roots, TransactionOptions::default(), || {});
        let _superblock = next(&context.unwrap(), generation);
    }

    #[test]
    #[should_panic(expected = "transactions are committed in order")]
    fn superblock_that_skips_a_transaction_panics() {
        make_after(2);
    }

    #[test]
    #[should_panic(expected = "the root tree is of the transaction")]
    fn superblock_with_root_of_earlier_transaction_panics() {
        make_after(1);
    }
}
