//! Numbers, contents and choices that depend only on a seed.

/// A stream of pseudo-random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// Returns an index or a length below `bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    /// Returns a length from 1 to less than `2 << bits_max`, with a uniform number of bits.
    pub fn length(&mut self, bits_max: u64) -> u64 {
        let bits = self.below(bits_max + 1);
        (1 << bits) + self.below(1 << bits)
    }

    /// Returns true once in `times` on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the elements; `None` if there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.index(from.len())]) }
    }

    /// Shuffles the list.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            list.swap(end, self.index(end + 1));
        }
    }

    /// Returns random bytes, half of the time ones that compress well.
    pub fn bytes(&mut self, length: u64) -> Vec<u8> {
        let length = usize::try_from(length).expect("a length in memory");
        let mask = if self.one_in(2) { u64::MAX } else { 0x0101_0101_0000_0303 };
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&(self.number() & mask).to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_yields_the_published_numbers() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.number(), 6_457_827_717_110_365_317);
        assert_eq!(random.number(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_seed_decides_everything() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            let mut list: Vec<u64> = (0..9).collect();
            random.shuffle(&mut list);
            (random.number(), random.bytes(33), list)
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut random = Random::new(1);
        let below: Vec<u64> = (0..1000).map(|_| random.below(3)).collect();
        assert!((0..3).all(|n| below.contains(&n)) && below.iter().all(|n| *n < 3));
        let lengths: Vec<u64> = (0..1000).map(|_| random.length(2)).collect();
        assert!((1..8).all(|n| lengths.contains(&n)) && lengths.iter().all(|n| (1..8).contains(n)));
        assert_eq!(random.pick::<u8>(&[]), None);
        assert_eq!(random.bytes(3).len(), 3);
    }
}
