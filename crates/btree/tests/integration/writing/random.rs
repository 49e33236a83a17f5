//! Random changes, compared with maps of the expected items.

use userbtrfs_format::TreeId;
use userbtrfs_testkit::random::{Random, seed};

use super::grove::{Grove, torture};
use super::lengths::{Changes, Lengths};

/// All valid node sizes, in bytes.
const NODE_SIZES: [u32; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

#[test]
fn trees_hold_what_maps_hold() {
    let seed = seed();
    let rounds = if torture() { 40_000 } else { 400 };
    for (nodesize, len_max) in NODE_SIZES.into_iter().zip([300, 700, 1500, 2500, 4000]) {
        let mut grove = Grove::new(nodesize, 64 << 10);
        let mut random = Random::new(seed ^ u64::from(nodesize));
        for round in 0..rounds {
            // The tree alternately grows and shrinks.
            let keys = if round / 100 % 2 == 0 { 5000 } else { 300 };
            grove.change(0, &mut random, keys, len_max);
            if random.one_in(20) {
                grove.commit();
            }
            if random.one_in(100) {
                grove.check();
            }
        }
        grove.check();
    }
}

#[test]
fn trees_that_share_blocks_do_not_see_each_other() {
    let seed = seed();
    let rounds = if torture() { 20_000 } else { 300 };
    for (nodesize, len_max) in NODE_SIZES.into_iter().zip([200, 400, 800, 1500, 2500]) {
        let mut grove = Grove::new(nodesize, 256 << 10);
        let mut random = Random::new(seed ^ u64::from(nodesize));
        for round in 0..rounds {
            let number = random.index(grove.trees.len());
            grove.change(number, &mut random, 1500, len_max);
            if random.one_in(40) && grove.trees.len() < 6 {
                let number = random.index(grove.trees.len());
                if random.one_in(2) {
                    grove.snapshot(number);
                } else {
                    grove.snapshot_now(number);
                }
            }
            if random.one_in(10) {
                grove.commit();
            }
            if round % 50 == 0 {
                grove.check();
            }
        }
        grove.check();
    }
}

/// Full leaves give items to their neighbours, or are split, in all ways that there are.
#[test]
fn trees_hold_items_of_all_lengths() {
    let seed = seed();
    let rounds = if torture() { 3000 } else { 100 };
    for nodesize in NODE_SIZES {
        for (number, lengths) in (0..).zip(Lengths::ALL) {
            for id in [TreeId(1000), TreeId::CSUM] {
                println!("nodes of {nodesize} bytes, {lengths:?}, tree {id}");
                let seed = seed ^ u64::from(nodesize) ^ number << 32 ^ id.0 << 40;
                let mut changes = Changes::new(seed, lengths, nodesize);
                // With the smaller cache, neighbours that did not change are not in memory.
                let cache_bytes = if changes.random.one_in(3) { 64 << 10 } else { 8 << 20 };
                let mut grove = Grove::with_tree(id, nodesize, cache_bytes);
                for _ in 0..rounds {
                    step(&mut grove, &mut changes);
                }
                grove.check();
            }
        }
    }
}

/// Changes one of the trees, which may fail for want of space, and may be a snapshot.
fn step(grove: &mut Grove, changes: &mut Changes) {
    let number = changes.random.index(grove.trees.len());
    let edits = changes.next(grove, number);
    let keeps_some = edits.len() < grove.trees[number].1.len();
    if keeps_some && edits.len() < 20 && changes.random.one_in(8) {
        let blocks = changes.random.below(5);
        for edit in edits {
            grove.apply_without_space(number, edit, blocks);
        }
    } else {
        grove.apply(number, edits);
    }
    if changes.random.one_in(30) && grove.trees.len() < 4 && grove.trees[0].0.id().is_subvolume() {
        if changes.random.one_in(2) {
            grove.snapshot(number);
        } else {
            grove.snapshot_now(number);
        }
    }
    if changes.random.one_in(10) {
        grove.commit();
    }
    if changes.random.one_in(30) {
        grove.check();
    }
}
