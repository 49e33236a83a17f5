//! Layout of the initial chunks, and of the tree blocks in them.
//!
//! 1. Chunks are adjacent from 1 MiB on, both on the device and in logical addresses, in units of
//!    1 MiB; the copies of a chunk are adjacent, too.
//! 2. No tree block overlaps the 64 KiB reserved for a copy of the superblock.

use userbtrfs_format::{
    BlockGroupFlags, Chunk, Logical, Physical, Profile, SECTOR_SIZE, STRIPE_LEN,
    SUPERBLOCK_OFFSETS, Stripe, TreeId,
};
use uuid::Uuid;

use crate::{MkfsError, Options};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Number of bytes at the start of a device that no chunk may use.
pub(crate) const RESERVED: u64 = MIB;

/// The id of the only device.
pub(crate) const DEVICE: u64 = 1;

/// Size of the initial data chunk.
const DATA_LEN: u64 = 8 * MIB;

/// A chunk to be laid out.
struct ChunkPlan {
    kind: BlockGroupFlags,
    profile: Profile,
    len: u64,
}

/// Returns the initial chunks: system, metadata, and data unless the block groups are mixed.
fn planned_chunks(options: &Options, device_bytes: u64) -> Vec<ChunkPlan> {
    let metadata = |kind, len| ChunkPlan { kind, profile: options.metadata, len };
    let system = if options.metadata == Profile::Dup { 8 * MIB } else { 4 * MIB };
    let mut plans = vec![metadata(BlockGroupFlags::SYSTEM, system)];
    if options.mixed {
        let both = BlockGroupFlags::METADATA | BlockGroupFlags::DATA;
        plans.push(metadata(both, metadata_len(device_bytes, 8 * MIB)));
    } else {
        let len = metadata_len(device_bytes, 16 * MIB);
        plans.push(metadata(BlockGroupFlags::METADATA, len));
        let kind = BlockGroupFlags::DATA;
        plans.push(ChunkPlan { kind, profile: options.data, len: DATA_LEN });
    }
    plans
}

/// The length of the metadata chunk: a twentieth of the device, within bounds.
fn metadata_len(device_bytes: u64, least: u64) -> u64 {
    let most = if device_bytes > 50 * GIB { GIB } else { 256 * MIB };
    (device_bytes / 20 / MIB * MIB).clamp(least, most)
}

fn copies(profile: Profile) -> u64 {
    if profile == Profile::Dup { 2 } else { 1 }
}

/// Lays out the initial chunks on a device of `device_bytes`.
pub(crate) fn chunks(
    options: &Options,
    device_bytes: u64,
    device_uuid: Uuid,
) -> Result<Vec<Chunk>, MkfsError> {
    let taken = |plans: &[ChunkPlan]| {
        plans.iter().map(|plan| copies(plan.profile) * plan.len).sum::<u64>() + RESERVED
    };
    let need = taken(&planned_chunks(options, 0));
    if device_bytes < need {
        return Err(MkfsError::TooSmall { need, have: device_bytes });
    }
    let plans = planned_chunks(options, device_bytes);
    assert!(taken(&plans) <= device_bytes, "twice a twentieth and the least bytes fit");
    let mut logical = RESERVED;
    let mut physical = RESERVED;
    let mut place = |&ChunkPlan { kind, profile, len }: &ChunkPlan| {
        let stripes = (0..copies(profile)).map(|copy| Stripe {
            device: DEVICE,
            physical: Physical(physical + copy * len),
            device_uuid,
        });
        let chunk = chunk(kind, profile, Logical(logical), len, stripes.collect());
        logical += len;
        physical += copies(profile) * len;
        chunk
    };
    Ok(plans.iter().map(&mut place).collect())
}

fn chunk(
    kind: BlockGroupFlags,
    profile: Profile,
    logical: Logical,
    len: u64,
    stripes: Vec<Stripe>,
) -> Chunk {
    let align = u32::try_from(STRIPE_LEN).expect("64 KiB fit in 32 bits");
    Chunk {
        logical,
        len,
        owner: TreeId::EXTENT.0,
        stripe_len: STRIPE_LEN,
        flags: kind | profile.flag(),
        profile,
        io_align: align,
        io_width: align,
        sector_size: SECTOR_SIZE,
        sub_stripes: 1,
        stripes,
    }
}

/// The addresses in a chunk that tree blocks may use, ascending.
pub(crate) fn block_places(chunk: &Chunk, nodesize: u32) -> impl Iterator<Item = Logical> {
    let nodesize = u64::from(nodesize);
    (0..chunk.len / nodesize)
        .map(move |block| block * nodesize)
        .filter(move |&offset| !holds_superblock(chunk, offset, nodesize))
        .map(|offset| Logical(chunk.logical.0 + offset))
}

/// Returns true if a copy of `len` bytes at `offset` of a chunk overlaps the area reserved for a
/// superblock.
fn holds_superblock(chunk: &Chunk, offset: u64, len: u64) -> bool {
    let touches = |start: u64, at: Physical| start < at.0 + STRIPE_LEN && at.0 < start + len;
    chunk
        .stripes
        .iter()
        .map(|stripe| stripe.physical.0 + offset)
        .any(|start| SUPERBLOCK_OFFSETS.iter().any(|&at| touches(start, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(options: &Options, device_bytes: u64) -> Result<Vec<Chunk>, MkfsError> {
        chunks(options, device_bytes, Uuid::nil())
    }

    #[test]
    fn chunks_lie_side_by_side_inside_the_device() {
        for options in [Options::default(), Options::mixed()] {
            for device_bytes in [57 * MIB, 1000 * MIB + 4096, 60 * GIB, 1 << 50] {
                let chunks = laid_out(&options, device_bytes).unwrap();
                let mut ranges: Vec<_> = chunks
                    .iter()
                    .flat_map(|c| c.stripes.iter().map(|s| (s.physical.0, s.physical.0 + c.len)))
                    .collect();
                ranges.sort_unstable();
                assert_eq!(ranges[0].0, RESERVED);
                assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0));
                assert!(ranges.last().unwrap().1 <= device_bytes);
                assert!(chunks.windows(2).all(|pair| pair[0].end() == pair[1].logical));
                let parsed = chunks.iter().map(|c| Chunk::parse(c.key(), &c.encode()).unwrap());
                assert!(parsed.eq(chunks.iter().cloned()));
            }
        }
    }

    #[test]
    fn chunks_fit_minimum_size_but_not_a_byte_less() {
        for options in [Options::default(), Options::mixed()] {
            let Err(MkfsError::TooSmall { need, have: 0 }) = laid_out(&options, 0) else {
                panic!("nothing is too small");
            };
            assert!(laid_out(&options, need - 1).is_err());
            assert!(laid_out(&options, need).is_ok());
        }
    }

    #[test]
    fn block_places_skip_superblock_areas() {
        let stripe = |physical| Stripe {
            device: DEVICE,
            physical: Physical(physical),
            device_uuid: Uuid::nil(),
        };
        let stripes = vec![stripe(63 * MIB), stripe(64 * MIB)];
        let system = BlockGroupFlags::SYSTEM;
        let chunk = chunk(system, Profile::Dup, Logical(2 * MIB), 4 * MIB, stripes);
        let places: Vec<_> = block_places(&chunk, 16384).map(|at| at.0 - 2 * MIB).collect();
        assert_eq!(places[0], 64 << 10);
        assert!(places.iter().all(|&at| !(MIB..MIB + (64 << 10)).contains(&at)));
        assert_eq!(places.len(), (4 * MIB / 16384) as usize - 8);
    }
}
