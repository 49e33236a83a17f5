//! A driver without instrumentation: random inputs from a seed, for a given time.
//!
//! 1. The same seed yields the same inputs in the same order.
//! 2. A failing input is returned to the caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use userbtrfs_image_builder::Random;

use crate::Target;

/// Returns an input of at most `max_len` bytes; short ones are as frequent as long ones.
fn input(random: &mut Random, max_len: usize) -> Vec<u8> {
    let bound = max_len >> random.below(6);
    let len = random.index(bound + 1);
    let words = std::iter::repeat_with(|| random.number().to_le_bytes());
    words.flatten().take(len).collect()
}

/// The result of a run.
#[derive(Debug)]
pub enum Outcome {
    /// The time is over; this number of inputs were run.
    Passed(u64),
    /// This input made the target panic.
    Failed(Vec<u8>),
}

/// Runs a target for this time, or until it fails.
pub fn run(target: &Target, seed: u64, time: Duration) -> Outcome {
    let start = Instant::now();
    let mut random = Random::new(seed);
    let mut count = 0;
    while start.elapsed() < time {
        let input = input(&mut random, target.max_len);
        let result = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        if result.is_err() {
            return Outcome::Failed(input);
        }
        count += 1;
    }
    Outcome::Passed(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CANARY, TARGETS};

    #[test]
    fn canary_fails() {
        let outcome = run(&CANARY, 1, Duration::from_secs(20));
        assert!(matches!(outcome, Outcome::Failed(input) if input[0] == b'!'));
    }

    #[test]
    fn a_seed_repeats_its_inputs() {
        let inputs = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| input(&mut random, 100)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(5), inputs(5));
        assert_ne!(inputs(5), inputs(6));
        assert!(inputs(5).iter().all(|input| input.len() <= 100));
    }

    #[test]
    fn every_target_passes_a_few_inputs() {
        for target in TARGETS {
            (target.run)(&[]);
            let mut random = Random::new(9);
            for _ in 0..20 {
                (target.run)(&input(&mut random, target.max_len));
            }
        }
    }
}
