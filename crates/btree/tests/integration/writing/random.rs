//! Random changes, compared with maps of the expected items.

use userbtrfs_testkit::random::{Random, seed};

use super::grove::{Grove, torture};

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
