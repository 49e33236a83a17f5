//! A driver without instrumentation: random inputs from a seed, for a given time.
//!
//! 1. The same seed yields the same inputs in the same order.
//! 2. A failing input is returned to the caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::Target;

/// A pseudorandom generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns an input of at most `max_len` bytes; short ones are as frequent as long ones.
    pub fn input(&mut self, max_len: usize) -> Vec<u8> {
        let bound = max_len >> (self.next_u64() % 6);
        let len = usize::try_from(self.next_u64() % (bound as u64 + 1)).expect("within the bound");
        let words = std::iter::repeat_with(|| self.next_u64().to_le_bytes());
        words.flatten().take(len).collect()
    }
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
    let (start, mut random, mut count) = (Instant::now(), Random::new(seed), 0);
    while start.elapsed() < time {
        let input = random.input(target.max_len);
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
            (0..50).map(|_| random.input(100)).collect::<Vec<_>>()
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
                (target.run)(&random.input(target.max_len));
            }
        }
    }
}
