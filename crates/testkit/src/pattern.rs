//! File content that is determined by a seed and the offset.
//!
//! 1. Seed 0 makes zeros. Other seeds make no zero bytes, so written data differs from bytes that
//!    were never written.
//! 2. Data of an odd seed does not compress; with an even seed, 512 bytes repeat one word.
//! 3. A file of an even seed is compressed by btrfs only if that is forced: the sample that btrfs
//!    takes looks like noise. From the seed [`COMPRESSIBLE`] on the bytes have few values, so that
//!    the sample looks compressible, too.

/// The first seed with data that btrfs compresses without being forced.
pub const COMPRESSIBLE: u32 = 0xffff_0000;

/// The number of bytes generated at once.
const WORD: usize = 8;
/// The number of equal words in a row for an even seed.
const ALIKE: u64 = 64;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
/// The bits of bytes with few values: half of them, as the lowest bit is always set.
const FEW_BITS: u64 = 0x3f3f_3f3f_3f3f_3f3f;

/// Fills `target` with the bytes of a seed from `offset`.
pub fn fill(seed: u32, offset: u64, target: &mut [u8]) {
    if seed == 0 {
        return target.fill(0);
    }
    let within = usize::try_from(offset % WORD as u64).expect("less than a word");
    let mut number = offset / WORD as u64;
    let (head, rest) = target.split_at_mut(target.len().min((WORD - within) % WORD));
    if !head.is_empty() {
        head.copy_from_slice(&word(seed, number)[within..within + head.len()]);
        number += 1;
    }
    for part in rest.chunks_mut(WORD) {
        part.copy_from_slice(&word(seed, number)[..part.len()]);
        number += 1;
    }
}

/// Returns the bytes of a seed in a range.
pub fn bytes(seed: u32, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill(seed, offset, &mut bytes);
    bytes
}

/// Returns a length of bytes that are in memory.
pub(crate) fn in_memory(length: u64) -> usize {
    usize::try_from(length).expect("a length in memory")
}

fn word(seed: u32, number: u64) -> [u8; WORD] {
    let number = if seed.is_multiple_of(2) { number / ALIKE } else { number };
    let mixed = number.wrapping_add(u64::from(seed) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = if seed >= COMPRESSIBLE { FEW_BITS } else { u64::MAX };
    ((mixed ^ mixed >> 32) & bits | LOW_BITS).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_depends_on_its_seed_and_place_alone() {
        for seed in [1, 2, 3, COMPRESSIBLE + 2, u32::MAX] {
            let all = bytes(seed, 0, 5000);
            for (offset, length) in [(0, 1), (3, 2), (3, 5), (3, 6), (7, 100), (8, 8), (4095, 900)]
            {
                let part = bytes(seed, offset as u64, length);
                assert_eq!(part, all[offset..offset + length], "{length} at {offset}");
            }
            assert!(all.iter().all(|byte| *byte != 0));
            assert_ne!(all[..512], all[512..1024]);
            assert_ne!(all, bytes(seed - 1, 0, 5000));
        }
        assert_eq!(bytes(0, 5, 20), [0; 20]);
    }

    #[test]
    fn an_even_seed_repeats_itself() {
        let words = |seed| {
            let all = bytes(seed, 1024, 512);
            let words: std::collections::BTreeSet<_> = all.chunks(8).map(<[u8]>::to_vec).collect();
            words.len()
        };
        assert_eq!((words(2), words(3)), (1, 64));
        assert_eq!(words(COMPRESSIBLE), 1);
    }

    #[test]
    fn bytes_of_a_compressible_seed_have_few_values() {
        let values = |seed| {
            let all = bytes(seed, 0, 128 << 10);
            all.into_iter().collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!([2, COMPRESSIBLE, u32::MAX].map(values), [128, 32, 32]);
    }
}
