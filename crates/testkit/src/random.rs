//! The seeds of tests, and the numbers, contents and choices that depend only on a seed.

use std::time::SystemTime;

pub use userbtrfs_image_builder::Random;

/// Returns the seed of a test and prints it: `USERBTRFS_SEED` if set, to repeat a run, otherwise
/// one from the time.
pub fn seed() -> u64 {
    let asked = std::env::var("USERBTRFS_SEED").ok();
    let seed = asked.map_or_else(by_time, |asked| asked.parse().expect("a seed is a number"));
    println!("USERBTRFS_SEED={seed}");
    seed
}

fn by_time() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is past 1970");
    u64::from(since.subsec_nanos())
}
