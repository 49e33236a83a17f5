//! Space of golden images: loading, allocation, pins and reservations.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use proptest::prelude::*;
use tempfile::TempDir;
use userbtrfs_device::{FileDevice, FileOptions};
use userbtrfs_format::{BlockGroupFlags, CompatRoFlags, Profile, STRIPE_LEN, TreeId};
use userbtrfs_testkit::golden::Golden;

use super::*;
use crate::roots::TreeRoots;

const MIB: u64 = 1 << 20;
const CACHE: usize = 8 << 20;

/// A golden image, unpacked.
struct Image {
    folder: TempDir,
}

impl Image {
    fn of(golden: &Golden) -> Self {
        let folder = TempDir::new().unwrap();
        golden.unpack(&folder.path().join("image")).unwrap();
        Self { folder }
    }

    /// Returns the trees, if the image is one that this crate reads.
    fn tree_roots(&self) -> Option<TreeRoots> {
        let device = FileDevice::open(self.folder.path().join("image"), FileOptions::default());
        let volume = Volume::open(vec![Arc::new(device.unwrap())]).ok()?;
        Some(TreeRoots::new(Arc::new(volume), CACHE))
    }
}

/// Returns the space of an image that is unpacked once, all of it loaded.
fn loaded(name: &'static str) -> (TreeRoots, Space) {
    static IMAGES: OnceLock<BTreeMap<&str, Image>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| {
        let names = ["dup", "single", "mixed", "fresh"];
        names.map(|name| (name, Image::of(&Golden::named(name)))).into()
    });
    let tree_roots = images[name].tree_roots().unwrap();
    let space = Space::load(&tree_roots).unwrap();
    load_all(&space, &tree_roots);
    (tree_roots, space)
}

fn load_all(space: &Space, tree_roots: &TreeRoots) {
    for kind in SpaceKind::ALL {
        space.ensure_loaded(tree_roots, kind, u64::MAX).unwrap();
        assert_eq!(space.counters.space_info(kind).totals.unloaded, 0);
    }
}

fn node(space: &Space) -> u64 {
    u64::from(space.nodesize)
}

/// Reserves all that can be, in pieces of `bytes` bytes; returns the reason why there is no more,
/// too.
fn reserve_all(space: &Space, bytes: u64) -> (Vec<Reservation>, FlushHint) {
    let mut held = Vec::new();
    loop {
        match space.reserve(bytes) {
            Ok(reservation) => held.push(reservation),
            Err(shortage) => return (held, shortage),
        }
    }
}

#[test]
fn chunk_made_after_space_items_belongs_to_next_transaction() {
    let (_forest, space) = loaded("dup");
    let before = space.listed_chunks();
    while space.free_blocks(SpaceKind::System) >= SYSTEM_BLOCKS {
        space.allocate_block(SpaceKind::System, Logical(0)).unwrap();
    }
    // A thread that reserves is in no transaction.
    let (held, _) = reserve_all(&space, 64 * MIB);
    assert_eq!(space.listed_chunks(), before, "what this superblock lists");
    assert!(space.take_pinned().made.is_empty(), "what is old with it");
    let made = space.take_planned();
    let after = space.listed_chunks();
    assert_eq!(after.system.len(), before.system.len() + 1);
    assert!(after.system.iter().any(|chunk| made.iter().any(|new| new.chunk == *chunk)));
    assert!(after.device_used > before.device_used);
    assert!(!space.take_pinned().made.is_empty());
    drop(held);
}

#[test]
fn space_of_every_readable_image_is_consistent() {
    let mut read = 0;
    for golden in Golden::all().unwrap() {
        let image = Image::of(&golden);
        let Some(tree_roots) = image.tree_roots() else { continue };
        let superblock = tree_roots.store().volume().superblock();
        let space = Space::load(&tree_roots).unwrap();
        load_all(&space, &tree_roots);
        assert_eq!(space.bytes_used(), superblock.bytes_used, "{}", golden.name());
        assert_eq!(space.device_used(), superblock.device.bytes_used, "{}", golden.name());
        compare_sources(&space, &tree_roots, golden.name());
        read += 1;
    }
    assert!(read > 30, "only {read} images were read");
}

/// Checks that both sources of free space agree.
fn compare_sources(space: &Space, tree_roots: &TreeRoots, name: &str) {
    let superblock = tree_roots.store().volume().superblock();
    let both = superblock.compat_ro.contains(CompatRoFlags::FREE_SPACE_TREE_VALID);
    let block_groups = space.block_groups.lock();
    let wanted = |group: &crate::space::block_group::BlockGroup| GroupRange {
        start: group.start(),
        len: group.chunk.len,
        unit: group.unit(),
    };
    let all: Vec<_> = block_groups.groups().map(wanted).collect();
    drop(block_groups);
    for wanted in all {
        let listed = load::free_ranges(tree_roots, wanted).unwrap();
        let left = load::from_extent_tree(tree_roots, wanted).unwrap();
        assert!(listed.iter().eq(left.iter()), "{name} at {} (tree: {both})", wanted.start);
    }
}

#[test]
fn blocks_allocated_in_a_row_lie_in_a_row() {
    let (_forest, space) = loaded("dup");
    let blocks: Vec<_> =
        (0..64).map(|_| space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap().0).collect();
    let breaks = blocks.windows(2).filter(|pair| pair[0] + node(&space) != pair[1]).count();
    assert!(breaks <= 8, "{breaks} breaks in {blocks:?}");
    assert!(blocks.is_sorted());
}

#[test]
fn reserved_space_is_found_to_the_last_block() {
    for name in ["dup", "single", "mixed", "fresh"] {
        let (tree_roots, space) = loaded(name);
        let (held, shortage) = reserve_all(&space, node(&space));
        assert_eq!(shortage, FlushHint::Nothing, "{name}");
        let removals = space.reserve_for_removal(node(&space)).unwrap();
        for block in 0..=held.len() {
            let found = space.allocate_block(SpaceKind::Metadata, Logical(0));
            let logical = found.unwrap_or_else(|_| panic!("{name}: {block} of {}", held.len()));
            assert!(tree_roots.store().volume().map(logical, node(&space)).is_ok());
        }
        for new in space.take_planned() {
            check_new(&tree_roots, &new);
        }
        drop((held, removals));
    }
}

/// Checks that all items of a new chunk agree, and that it avoids the first MiB.
fn check_new(tree_roots: &TreeRoots, new: &NewChunk) {
    let NewChunk { chunk, device_extents, group } = new;
    assert_eq!((group.flags, group.used), (chunk.flags, 0));
    assert_eq!(chunk.flags.profile(), Some(chunk.profile));
    let stripes: Vec<_> = chunk.stripes.iter().map(|stripe| stripe.physical).collect();
    assert_eq!(device_extents.iter().map(|(at, _)| *at).collect::<Vec<_>>(), stripes);
    assert!(stripes.iter().all(|at| at.0 >= MIB && at.0.is_multiple_of(STRIPE_LEN)));
    let whole = |(_, extent): &(_, userbtrfs_format::DeviceExtent)| {
        extent.len == chunk.len && extent.chunk == chunk.logical
    };
    assert!(device_extents.iter().all(whole));
    let volume = tree_roots.store().volume();
    assert!(volume.chunks().contains(chunk));
}

#[test]
fn a_small_image_has_most_of_its_metadata_for_use() {
    let (_forest, space) = loaded("fresh");
    let Usage { total, allocated, global, .. } = space.usage(SpaceKind::Metadata);
    // The 32 MiB lie over a mirror of the superblock.
    assert_eq!((total, global), (32 * MIB - STRIPE_LEN, 2 * MIB));
    let reservation = space.reserve(total - allocated - global).unwrap();
    assert_eq!(space.usage(SpaceKind::Metadata).reserved, reservation.bytes());
}

#[test]
fn removals_reach_where_others_do_not() {
    let (_forest, space) = loaded("fresh");
    let (held, _) = reserve_all(&space, node(&space));
    let removal = space.reserve_for_removal(8 * node(&space)).unwrap();
    let global = space.usage(SpaceKind::Metadata).global;
    assert!(space.reserve_for_removal(global).is_err(), "half of it is the commit's");
    drop((held, removal));
    assert_eq!(space.usage(SpaceKind::Metadata).reserved, 0);
}

#[test]
fn a_replay_reaches_where_removals_do_not() {
    let (_forest, space) = loaded("fresh");
    // With many allocated blocks a commit may change more than with a few.
    for _ in 0..1000 {
        space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap();
    }
    let all = |policy| {
        let policy = || space.reserve_with_policy(SpaceKind::Metadata, node(&space), policy).ok();
        std::iter::from_fn(policy).collect::<Vec<_>>()
    };
    let held = all(ReservePolicy::Steal);
    let replays = all(ReservePolicy::Replay);
    let changing = space.usage(SpaceKind::Metadata).allocated / 16 / node(&space);
    let found = replays.len() as u64;
    assert!(found.abs_diff(changing - 32) <= 1, "{found} of {changing} blocks");
    drop((held, replays));
}

#[test]
fn freed_space_is_free_after_the_commit_and_not_before() {
    let (_forest, space) = loaded("dup");
    let block = space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap();
    let before = space.usage(SpaceKind::Metadata);
    space.pin(block, node(&space)).unwrap();
    let (held, shortage) = reserve_all(&space, node(&space));
    assert_eq!(shortage, FlushHint::Pinned);
    let pinned = space.take_pinned();
    assert_eq!(pinned.ranges(), [(block, node(&space))]);
    assert!(space.take_pinned().ranges().is_empty());
    assert_eq!(space.usage(SpaceKind::Metadata).pinned, node(&space));
    space.unpin(pinned);
    let after = space.usage(SpaceKind::Metadata);
    assert_eq!((after.pinned, after.allocated), (0, before.allocated - node(&space)));
    assert!(space.reserve(node(&space)).is_ok());
    drop(held);
}

#[test]
fn accounting_shows_in_the_groups_and_the_superblock() {
    let (_forest, space) = loaded("dup");
    let used = space.bytes_used();
    let len = node(&space);
    let block = space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap();
    assert_eq!(space.take_changed_groups(), []);
    space.account(block, len, true).unwrap();
    let [(start, group_len, item)] = space.take_changed_groups()[..] else { panic!("one group") };
    assert!(start <= block && block.0 < start.0 + group_len);
    assert!(item.flags.contains(BlockGroupFlags::METADATA));
    assert_eq!(space.bytes_used(), used + len);
    space.account(block, len, false).unwrap();
    assert_eq!(space.take_changed_groups().len(), 1);
    assert_eq!((space.take_changed_groups().len(), space.bytes_used()), (0, used));
}

#[test]
fn chunks_are_made_until_device_is_full_and_removed_ones_free_space() {
    let (tree_roots, space) = loaded("single");
    let device = tree_roots.store().volume().superblock().device.clone();
    let mut made = Vec::new();
    while let Ok(new) = space.plan_chunk(SpaceKind::Data) {
        check_new(&tree_roots, &new);
        assert!(new.chunk.len <= device.total_bytes / 10);
        assert_eq!((new.chunk.profile, new.chunk.owner), (Profile::Single, TreeId::EXTENT.0));
        made.push(new.chunk);
    }
    assert!(device.total_bytes - space.device_used() < 2 * MIB);
    assert_eq!(space.empty_groups(), [], "what is new is kept");
    space.unpin(space.take_pinned());
    let empty = space.empty_groups();
    assert!(!empty.is_empty() && empty.len() <= made.len());
    let used = space.device_used();
    let freed: u64 = empty.iter().map(|&start| space.remove_group(start).unwrap().len).sum();
    assert_eq!(space.device_used(), used - freed);
    assert!(space.plan_chunk(SpaceKind::Data).is_err(), "the last commit leads there still");
    assert!(space.has_groups_being_removed(), "but a waiting thread finds space");
    space.unpin(space.take_pinned());
    assert!(!space.has_groups_being_removed());
    let again = space.plan_chunk(SpaceKind::Data).unwrap().chunk;
    assert!(made.iter().all(|chunk| chunk.logical < again.logical), "addresses are not reused");
}

/// A thread that reserves is in no transaction, and may do it while a commit removes empty groups.
#[test]
fn group_with_reserved_space_is_not_removed() {
    let (_forest, space) = loaded("single");
    while space.plan_chunk(SpaceKind::Data).is_ok() {}
    space.unpin(space.take_pinned());
    let [first, rest @ ..] = &space.empty_groups()[..] else { panic!("no group is empty") };
    assert!(!rest.is_empty());
    assert!(space.remove_group(*first).is_some());
    let free = space.counters.space_info(SpaceKind::Data).totals.free;
    let reserved = space.reserve_data(free).unwrap();
    assert!(rest.iter().all(|start| space.remove_group(*start).is_none()));
    drop(reserved);
    assert!(rest.iter().all(|start| space.remove_group(*start).is_some()));
}

#[test]
fn frozen_group_is_removed_whatever_is_reserved_elsewhere() {
    let (_forest, space) = loaded("single");
    while space.plan_chunk(SpaceKind::Data).is_ok() {}
    space.unpin(space.take_pinned());
    let empty = space.empty_groups()[0];
    assert!(space.freeze(empty));
    let free = space.counters.space_info(SpaceKind::Data).totals.free;
    let reserved = space.reserve_data(free).unwrap();
    assert!(space.remove_group(empty).is_some());
    drop(reserved);
}

#[test]
fn space_set_aside_beyond_a_limit_moves_below_it() {
    let (_forest, space) = loaded("single");
    let chunk = space.plan_chunk(SpaceKind::Data).unwrap().chunk;
    space.unpin(space.take_pinned());
    let preallocated = || space.counters.space_info(SpaceKind::Metadata).preallocated;
    let mut held = Vec::new();
    while preallocated() == 0 {
        held.push(space.reserve(node(&space)).unwrap());
    }
    assert!(space.remove_group(chunk.logical).is_some());
    space.unpin(space.take_pinned());
    let limit = chunk.stripes[0].physical.0 + chunk.len;
    assert!(!space.set_device_len(limit), "reserved space is beyond");
    space.set_limit(limit);
    assert!(preallocated() > 0);
    assert!(space.set_device_len(limit));
    drop(held);
}

#[test]
fn range_held_over_a_commit_is_freed_by_the_next_one() {
    let (_forest, space) = loaded("single");
    let (at, len) = space.allocate_data(4096, 4096).unwrap();
    let hold = space.hold(TreeId::FS, at, len);
    space.pin(at, len).unwrap();
    assert!(!space.has_pinned(), "as long as it is held");
    space.unpin(space.without_held(space.take_pinned()));
    drop(hold);
    assert!(space.has_pinned());
    space.unpin(space.without_held(space.take_pinned()));
    assert!(!space.has_pinned());
}

#[test]
fn dup_chunks_have_two_places() {
    let (tree_roots, space) = loaded("fresh");
    let new = space.plan_chunk(SpaceKind::Metadata).unwrap();
    check_new(&tree_roots, &new);
    assert_eq!(new.chunk.profile, Profile::Dup);
    let [first, second] = [0, 1].map(|copy: usize| new.chunk.stripes[copy].physical.0);
    assert!(first.abs_diff(second) >= new.chunk.len);
    assert!(new.chunk.flags.contains(BlockGroupFlags::METADATA | BlockGroupFlags::DUP));
}

#[test]
fn groups_that_are_new_serve_only_where_no_other_does() {
    let (_forest, space) = loaded("fresh");
    let old = space.counters.space_info(SpaceKind::Metadata).totals.free;
    space.plan_chunk(SpaceKind::Metadata).unwrap();
    for _ in 0..old / node(&space) {
        space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap();
        assert!(!space.draws_on_new_groups());
    }
    space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap();
    assert!(space.draws_on_new_groups());
    let pinned = space.take_pinned();
    assert!(!space.draws_on_new_groups(), "the superblock on its way names them");
    space.unpin(pinned);
    assert!(!space.draws_on_new_groups());
}

/// A superblock refers to a chunk that an allocation made only once the chunk is written; it may
/// refer earlier to one that was made later.
#[test]
fn groups_that_are_new_are_found_below_those_that_are_named() {
    let (_forest, space) = loaded("fresh");
    while space.allocate_data(128 * MIB, 4096).is_ok() {}
    assert!(space.make_data_chunk());
    space.allocate_data(4096, 4096).unwrap();
    space.plan_chunk(SpaceKind::Metadata).unwrap();
    let pinned = space.take_pinned();
    assert!(space.draws_on_new_groups(), "nothing names the one for data");
    space.unpin(pinned);
    assert!(space.draws_on_new_groups());
}

#[test]
fn data_is_allocated_in_runs_as_long_as_they_are_there() {
    let (_forest, space) = loaded("dup");
    let (_, len) = space.allocate_data(10 * MIB + 5, 4096).unwrap();
    assert_eq!(len, 10 * MIB);
    assert!(space.allocate_data(4095, 1).is_err());
    assert!(allocate_all_data(&space) > 50 * MIB);
    assert_eq!(space.reserve_data(4096).err(), Some(FlushHint::Nothing));
}

/// Allocates all data that fits; returns how many bytes.
fn allocate_all_data(space: &Space) -> u64 {
    let mut total = 0;
    loop {
        while let Ok((_, len)) = space.allocate_data(128 * MIB, 1) {
            assert!(len >= 4096 && len.is_multiple_of(4096));
            total += len;
        }
        if !space.make_data_chunk() {
            return total;
        }
    }
}

#[test]
fn sequential_data_lies_in_a_row_whatever_is_free_before_it() {
    let (_forest, space) = loaded("single");
    let next = || space.allocate_data(64 << 10, 64 << 10).unwrap().0;
    let taken: Vec<_> = (0..8).map(|_| next()).collect();
    assert!(taken.windows(2).all(|pair| pair[0].0 + (64 << 10) == pair[1].0), "{taken:?}");
    space.give_back(taken[2], 64 << 10).unwrap();
    assert_eq!(next().0, taken[7].0 + (64 << 10), "goes on, though there is room before");
}

#[test]
fn fragmented_data_is_found_to_the_last_sector() {
    let (_forest, space) = loaded("single");
    let mut sectors = Vec::new();
    while let Ok((at, _)) = space.allocate_data(4096, 4096) {
        sectors.push(at);
    }
    let even: Vec<_> = sectors.iter().filter(|at| at.0 / 4096 % 2 == 0).collect();
    for at in &even {
        space.give_back(**at, 4096).unwrap();
    }
    let reservation = space.reserve_data(even.len() as u64 * 4096).unwrap();
    assert!(space.allocate_data(8192, 8192).is_err());
    let found = (0..even.len()).map(|_| space.allocate_data(8192, 4096).unwrap());
    assert!(found.into_iter().all(|(_, len)| len == 4096));
    assert!(space.allocate_data(4096, 4096).is_err());
    drop(reservation);
}

#[test]
fn oversized_data_reservation_makes_no_chunks() {
    let (tree_roots, space) = loaded("single");
    let device = tree_roots.store().volume().superblock().device.total_bytes;
    assert_eq!(space.reserve_data(device).err(), Some(FlushHint::Nothing));
    assert_eq!(space.reserve_data(device / 2).err(), Some(FlushHint::Chunk));
    let space = Space::load(&tree_roots).unwrap();
    assert_eq!(space.reserve_data(device).err(), Some(FlushHint::Nothing));
    assert_eq!(space.reserve_data(MIB).err(), Some(FlushHint::Unloaded));
}

/// Data leaves device space to metadata that is nearly out, and only then.
#[test]
fn data_leaves_metadata_that_is_short_a_chunk() {
    let (_forest, space) = loaded("fresh");
    while space.counters.space_info(SpaceKind::Metadata).totals.free > 20 * node(&space) {
        space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap();
    }
    allocate_all_data(&space);
    let (held, _) = reserve_all(&space, node(&space));
    assert!(held.len() > 100, "{} blocks are left to metadata", held.len());
}

/// A commit does not change data in mixed groups.
#[test]
fn mixed_data_does_not_raise_the_global_reserve() {
    let (_forest, space) = loaded("mixed");
    let before = space.usage(SpaceKind::Metadata);
    let data = space.allocate_data(MIB, MIB).unwrap();
    let filled = space.usage(SpaceKind::Metadata);
    assert_eq!((filled.allocated, filled.global), (before.allocated + MIB, before.global));
    // But it may change the trees in them.
    space.global_trees_grew(i64::try_from(3 * MIB).unwrap());
    let filled = space.usage(SpaceKind::Metadata);
    assert_eq!(filled.global, before.global.max(3 * MIB).min(before.total / 8));
    assert!(filled.global > before.global);
    space.give_back(data.0, data.1).unwrap();
}

/// Data in mixed groups leaves what metadata has reserved.
#[test]
fn mixed_data_leaves_reservations_alone() {
    let (_forest, space) = loaded("mixed");
    let metadata = space.reserve(2 * MIB).unwrap();
    let mut data = Vec::new();
    while let Ok(mut reservation) = space.reserve_data(MIB) {
        while reservation.bytes() > 0 {
            match space.allocate_data(reservation.bytes(), 4096) {
                Ok((_, len)) => reservation.shrink(len),
                Err(NoSpace) => assert!(space.make_data_chunk(), "it is preallocated"),
            }
        }
        data.push(reservation);
    }
    for _ in 0..metadata.bytes() / node(&space) {
        space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap();
    }
    drop(metadata);
    drop(space.reserve_for_removal(4 * node(&space)).unwrap());
}

#[test]
fn reservation_without_loaded_ranges_hints_at_loading() {
    let (tree_roots, _) = loaded("single");
    let space = Space::load(&tree_roots).unwrap();
    assert_eq!(space.reserve(1).err(), Some(FlushHint::Unloaded));
    space.ensure_loaded(&tree_roots, SpaceKind::Metadata, MIB).unwrap();
    assert!(space.reserve(1).is_ok());
}

#[test]
#[should_panic(expected = "every reservation is used or given back")]
fn a_reservation_that_outlives_the_space_is_an_error() {
    let (_forest, space) = loaded("single");
    let reservation = space.reserve(4096).unwrap();
    std::mem::forget(reservation);
}

#[test]
fn space_may_be_dropped_with_reservations_after_abort() {
    let (_forest, space) = loaded("single");
    let reservation = space.reserve(4096).unwrap();
    space.abort();
    drop(space);
    drop(reservation);
}

#[derive(Clone, Debug)]
enum Step {
    Block,
    Data(u64),
    GiveBack(usize),
    Pin(usize),
    Commit,
    Durable,
    Reserve(u64),
    Removal(u64),
    Split(usize, u64),
    Merge(usize),
    Release(usize),
    Chunk(SpaceKind),
    Clean,
}

fn step() -> impl Strategy<Value = Step> {
    let kind =
        prop_oneof![Just(SpaceKind::Data), Just(SpaceKind::Metadata), Just(SpaceKind::System)];
    prop_oneof![
        4 => Just(Step::Block),
        2 => (1..4000_u64).prop_map(|sectors| Step::Data(sectors * 4096)),
        2 => any::<usize>().prop_map(Step::GiveBack),
        3 => any::<usize>().prop_map(Step::Pin),
        1 => Just(Step::Commit),
        1 => Just(Step::Durable),
        2 => (1..40 * MIB).prop_map(Step::Reserve),
        1 => (1..4 * MIB).prop_map(Step::Removal),
        1 => (any::<usize>(), 1..4 * MIB).prop_map(|(which, bytes)| Step::Split(which, bytes)),
        1 => any::<usize>().prop_map(Step::Merge),
        2 => any::<usize>().prop_map(Step::Release),
        1 => kind.prop_map(Step::Chunk),
        1 => Just(Step::Clean),
    ]
}

/// Allocations, as a list of ranges.
struct Model<'a> {
    space: &'a Space,
    allocated: BTreeMap<Logical, u64>,
    committing: Vec<Pinned>,
    held: Vec<Reservation>,
    before: u64,
}

impl Model<'_> {
    fn run(&mut self, step: &Step) {
        let space = self.space;
        match *step {
            Step::Block => {
                if let Ok(at) = space.allocate_block(SpaceKind::Metadata, Logical(0)) {
                    self.allocated(at, node(space));
                }
            }
            Step::Data(max) => {
                if let Ok((at, len)) = space.allocate_data(max, 4096) {
                    self.allocated(at, len);
                }
            }
            Step::GiveBack(which) => {
                if let Some((at, len)) = self.pick(which) {
                    space.give_back(at, len).unwrap();
                }
            }
            Step::Pin(which) => {
                if let Some((at, len)) = self.pick(which) {
                    space.pin(at, len).unwrap();
                }
            }
            Step::Commit => self.committing.push(space.take_pinned()),
            Step::Durable if self.committing.is_empty() => {}
            Step::Durable => space.unpin(self.committing.remove(0)),
            Step::Reserve(bytes) => self.held.extend(space.reserve(bytes)),
            Step::Removal(bytes) => self.held.extend(space.reserve_for_removal(bytes)),
            Step::Chunk(kind) => drop(space.plan_chunk(kind)),
            Step::Clean => {
                for start in space.empty_groups() {
                    assert!(space.remove_group(start).is_some());
                }
            }
            Step::Split(..) | Step::Merge(_) | Step::Release(_) => self.run_held(step),
        }
    }

    fn run_held(&mut self, step: &Step) {
        if self.held.is_empty() {
            return;
        }
        let count = self.held.len();
        match *step {
            Step::Split(which, bytes) => {
                let part = self.held[which % count].split(bytes);
                self.held.push(part);
            }
            Step::Merge(which) => {
                let other = self.held.swap_remove(which % count);
                match self.held.first_mut() {
                    Some(first) => first.merge(other),
                    None => drop(other),
                }
            }
            Step::Release(which) => drop(self.held.swap_remove(which % count)),
            _ => unreachable!(),
        }
    }

    fn allocated(&mut self, at: Logical, len: u64) {
        let before = self.allocated.range(..Logical(at.0 + len)).next_back();
        assert!(before.is_none_or(|(start, len)| start.0 + len <= at.0), "given out twice");
        self.allocated.insert(at, len);
    }

    fn pick(&mut self, which: usize) -> Option<(Logical, u64)> {
        let count = self.allocated.len().max(1);
        let (&at, &len) = self.allocated.iter().nth(which % count)?;
        self.allocated.remove(&at);
        Some((at, len))
    }

    fn check(&self) {
        let space_infos = [SpaceKind::Data, SpaceKind::Metadata].map(|kind| self.space.usage(kind));
        let allocated: u64 = space_infos.iter().map(|usage| usage.allocated).sum();
        assert_eq!(allocated - self.before, self.allocated.values().sum::<u64>());
        let held: u64 = self.held.iter().map(Reservation::bytes).sum();
        assert_eq!(space_infos[1].reserved, held);
        let block_groups = self.space.block_groups.lock();
        let tallies = block_groups.groups().map(|group| group.totals().total).sum::<u64>();
        let totals = SpaceKind::ALL.map(|kind| self.space.usage(kind).total).iter().sum::<u64>();
        assert_eq!(tallies, totals);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn bytes_are_conserved(steps in prop::collection::vec(step(), 1..200)) {
        let (_forest, space) = loaded("single");
        let used = [SpaceKind::Data, SpaceKind::Metadata].map(|kind| space.usage(kind).allocated);
        let before = used.iter().sum();
        let allocated = BTreeMap::new();
        let committing = Vec::new();
        let held = Vec::new();
        let mut model = Model { space: &space, allocated, committing, held, before };
        for step in &steps {
            model.run(step);
            model.check();
        }
    }
}
