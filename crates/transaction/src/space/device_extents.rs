//! Checks the device extents of the device tree against the stripes of the chunks.
//!
//! 1. Both are the same: each stripe of a chunk has its device extent, and there are no others.
//!    Linux does not mount a filesystem in which they differ.

use std::collections::BTreeMap;

use userbtrfs_btree::ReadAhead;
use userbtrfs_format::{Chunk, DeviceExtent, ItemKind, Key, Logical, Physical, TreeId};

use super::damage::SpaceDamage;
use crate::error::Result;
use crate::roots::TreeRoots;
use crate::units::VERIFIED;

/// The first device extent of the device tree.
const FIRST: Key = Key::new(1, ItemKind::DEV_EXTENT, 0);

/// The stripes of all chunks: by device and address, the chunk and the length.
type Stripes = BTreeMap<(u64, Physical), (Logical, u64)>;

/// Checks that the device tree lists the stripes of these chunks, of which none overlap.
pub(super) fn check(tree_roots: &TreeRoots, chunks: &[Chunk]) -> Result<()> {
    let mut stripes = stripes(chunks);
    let tree = tree_roots.tree(TreeId::DEV)?;
    let mut cursor = tree_roots.cursor(&tree, &FIRST, ReadAhead::Forward)?;
    while let Some(item) = cursor.item() {
        if item.key.kind == ItemKind::DEV_EXTENT {
            let extent = DeviceExtent::parse(item.data).expect(VERIFIED);
            take(&mut stripes, item.key.objectid, Physical(item.key.offset), &extent)?;
        }
        cursor.advance()?;
    }
    match stripes.first_key_value() {
        Some((&(_, physical), &(chunk, _))) => {
            Err(SpaceDamage::NoDeviceExtent { chunk, physical }.into())
        }
        None => Ok(()),
    }
}

fn stripes(chunks: &[Chunk]) -> Stripes {
    let of_chunk = |chunk: &Chunk| {
        let logical = chunk.logical;
        let len = chunk.len;
        let place = move |stripe: &userbtrfs_format::Stripe| (stripe.device, stripe.physical);
        let places: Vec<_> = chunk.stripes.iter().map(place).collect();
        places.into_iter().map(move |place| (place, (logical, len)))
    };
    chunks.iter().flat_map(of_chunk).collect()
}

/// Removes the stripe of a device extent.
fn take(
    stripes: &mut Stripes,
    device: u64,
    physical: Physical,
    extent: &DeviceExtent,
) -> Result<(), SpaceDamage> {
    let &DeviceExtent { chunk, len, .. } = extent;
    match stripes.remove(&(device, physical)) {
        Some((of, chunk_len)) if of == chunk => {
            if len == chunk_len {
                Ok(())
            } else {
                Err(SpaceDamage::DeviceExtentLength { chunk, physical, len, chunk_len })
            }
        }
        _ => Err(SpaceDamage::StrayDeviceExtent { device, physical, chunk }),
    }
}
