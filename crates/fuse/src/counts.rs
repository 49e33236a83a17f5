//! Counters of requests, by kind.
//!
//! 1. Each thread has its own counters, which only it writes: counting costs no more than a store.
//! 2. A sum is no consistent snapshot: requests may be counted while it is computed.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

use crate::opcode::Opcode;

/// The highest number of a kind plus one. Unknown kinds count as zero, which no kind uses.
const KINDS: usize = 54;

/// The number of requests of each kind.
pub(crate) struct Counts([AtomicU64; KINDS]);

impl Default for Counts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Counts {
    /// Counts a request. Only for the thread that owns these counters.
    pub(crate) fn count(&self, opcode: Opcode) {
        let kind = self.of(opcode);
        kind.store(kind.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds the counters of another thread, which has ended. Only for one thread at a time.
    pub(crate) fn add(&self, others: &Self) {
        for (kind, other) in self.0.iter().zip(&others.0) {
            kind.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns the number of requests of a kind; all unknown kinds count as one.
    pub(crate) fn get(&self, opcode: Opcode) -> u64 {
        self.of(opcode).load(Ordering::Relaxed)
    }

    fn of(&self, opcode: Opcode) -> &AtomicU64 {
        let number = match opcode {
            Opcode::Unknown(_) => 0,
            known => known.number(),
        };
        &self.0[usize::try_from(number).expect("the number of a known kind is small")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_for_itself() {
        let counts = Counts::default();
        let others = Counts::default();
        let all = || Opcode::ALL.iter().copied().chain([Opcode::Unknown(99), Opcode::Unknown(7)]);
        all().for_each(|opcode| counts.count(opcode));
        others.count(Opcode::Read);
        counts.add(&others);
        assert_eq!(counts.get(Opcode::Unknown(1)), 2);
        assert_eq!((counts.get(Opcode::Read), counts.get(Opcode::Write)), (2, 1));
    }
}
