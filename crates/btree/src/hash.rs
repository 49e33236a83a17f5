//! Hashing of short keys: numbers and addresses.
//!
//! 1. A key is mixed with a secret of the process, so that nobody can choose keys that collide.
//! 2. Meant for keys of a few integers; longer keys are hashed eight bytes at a time.

use std::hash::{BuildHasher, Hasher, RandomState};

use userbtrfs_sync::OnceLock;

/// The build hasher of maps with short keys.
#[derive(Clone, Debug)]
pub struct ShortKeys {
    secret: u64,
}

/// The hasher that [`ShortKeys`] builds.
#[derive(Clone, Debug)]
pub struct ShortHasher {
    state: u64,
}

/// Odd numbers with about as many ones as zeros, without a pattern: the fractional parts of the
/// golden ratio and of the square root of two.
const MULTIPLIERS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0x6A09_E667_F3BC_C909];

static SECRET: OnceLock<u64> = OnceLock::new();

impl Default for ShortKeys {
    #[inline]
    fn default() -> Self {
        Self { secret: *SECRET.get_or_init(|| RandomState::new().hash_one(0_u8)) }
    }
}

impl BuildHasher for ShortKeys {
    type Hasher = ShortHasher;

    #[inline]
    fn build_hasher(&self) -> ShortHasher {
        ShortHasher { state: self.secret }
    }
}

impl Hasher for ShortHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(size_of::<u64>()) {
            let mut word = [0; size_of::<u64>()];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.state = folded_product(self.state ^ word, MULTIPLIERS[0]);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn finish(&self) -> u64 {
        folded_product(self.state, MULTIPLIERS[1])
    }
}

/// Multiplies, and XORs the two halves of the 128-bit product.
#[inline]
fn folded_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let [low, high] = [product, product >> 64].map(|half| half & u128::from(u64::MAX));
    u64::try_from(low ^ high).expect("both halves are of 64 bits")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_in_a_row_spread_over_all_bits() {
        let keys = ShortKeys::default();
        for step in [1_u64, 16, 4096, 16384, 1 << 32] {
            let hashes: Vec<u64> = (0..4096).map(|key| keys.hash_one(key * step)).collect();
            let distinct = |part: fn(u64) -> u64| {
                hashes.iter().map(|hash| part(*hash)).collect::<HashSet<_>>().len()
            };
            assert_eq!(distinct(|hash| hash), 4096);
            // Random hashes would take about 4096 * (1 - 1/e) of the 4096 values.
            assert!(distinct(|hash| hash & 0xFFF) > 2300, "low bits, step {step}");
            assert!(distinct(|hash| hash >> 52) > 2300, "high bits, step {step}");
        }
    }

    #[test]
    fn bytes_hash_by_their_content_and_length() {
        let keys = ShortKeys::default();
        let lists: [&[u8]; 5] = [b"", b"\0", b"\0\0", b"abcdefgh", b"abcdefgh\0"];
        let hashes: HashSet<u64> = lists.iter().map(|list| keys.hash_one(list)).collect();
        assert_eq!(hashes.len(), lists.len());
        assert_eq!(ShortKeys::default().hash_one(1_u64), keys.hash_one(1_u64));
    }
}
