//! An estimate, from a sample, of whether compressing data is worth the time.
//!
//! 1. The sample is [`SAMPLE`] bytes of each [`STRIDE`] of each part: a sixteenth of the data.
//! 2. Data is worth it if the sample repeats itself, has few different bytes, or consists for the
//!    most part of few of them. It is not if nearly all bytes are equally frequent. Between the
//!    two, the entropy of the bytes decides.
//! 3. A wrong answer costs space or time, and nothing else.

use super::MAX_CONTENT;

/// Bytes of the sample in each stride.
const SAMPLE: usize = 16;

/// The distance between two parts of the sample.
const STRIDE: usize = 256;

/// Fewer different bytes than this can be stored in less than a byte each.
const FEW_BYTES: usize = 64;

/// If the most frequent bytes that make up [`MOST`] percent of the sample are as many as this or
/// more, the data is noise.
const NOISE_BYTES: usize = 200;

/// The percentage of the sample that the most frequent bytes make up.
const MOST: usize = 90;

/// The highest entropy of a byte, in bits, at which coding gains enough.
const ENTROPY_MAX: f64 = 6.4;

/// Tables of counts that take turns: a processor waits if it increments one number twice in a row.
const TABLES: usize = 4;

/// Returns true if data, which is in these parts, will probably become smaller when it is
/// compressed.
pub fn looks_compressible<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let sample = sample(parts);
    if repeats(&sample) {
        return true;
    }
    let mut counts: Vec<u32> = count(&sample).into_iter().filter(|&count| count > 0).collect();
    if counts.len() < FEW_BYTES {
        return true;
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    match frequent(&counts, sample.len()) {
        ..=FEW_BYTES => true,
        NOISE_BYTES.. => false,
        _ => entropy(&counts) <= ENTROPY_MAX,
    }
}

fn sample<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut sample = Vec::with_capacity(MAX_CONTENT / STRIDE * SAMPLE);
    for stretch in parts.into_iter().flat_map(|part| part.chunks(STRIDE)) {
        match stretch.first_chunk::<SAMPLE>() {
            Some(whole) => sample.extend_from_slice(whole),
            None => sample.extend_from_slice(stretch),
        }
    }
    sample
}

/// Returns how often each byte is in a sample.
fn count(sample: &[u8]) -> [u32; 256] {
    let mut tables = [[0_u32; 256]; TABLES];
    for bytes in sample.chunks(TABLES) {
        for (table, byte) in tables.iter_mut().zip(bytes) {
            table[usize::from(*byte)] += 1;
        }
    }
    std::array::from_fn(|byte| tables.iter().map(|table| table[byte]).sum())
}

/// Returns true if the second half of the sample equals the first.
fn repeats(sample: &[u8]) -> bool {
    let (first, second) = sample.split_at(sample.len() / 2);
    first == second
}

/// Returns how many of the most frequent bytes make up most of a sample. `counts` descend.
fn frequent(counts: &[u32], len: usize) -> usize {
    let mut left = u32::try_from(len * MOST / 100).unwrap_or(u32::MAX);
    let needed = |count: &&u32| {
        let is_needed = left > 0;
        left = left.saturating_sub(**count);
        is_needed
    };
    counts.iter().take_while(needed).count()
}

/// Returns the entropy of a byte, in bits.
fn entropy(counts: &[u32]) -> f64 {
    let total = f64::from(counts.iter().sum::<u32>());
    let bits = |&count: &u32| {
        let share = f64::from(count) / total;
        -share * share.log2()
    };
    counts.iter().map(bits).sum()
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

    fn looks(data: &[u8]) -> bool {
        let is_compressible = looks_compressible([data]);
        let parts = data.chunks(STRIDE * 3);
        assert_eq!(looks_compressible(parts), is_compressible, "in parts");
        is_compressible
    }

    #[test]
    fn text_runs_and_repetitions_look_compressible() {
        let text = include_bytes!("tests.rs").repeat(10);
        assert!(looks(&text));
        assert!(looks(&vec![0; 131_072]));
        assert!(looks(&noise(5, 4096).repeat(32)));
        assert!(looks(&[]));
        assert!(looks(b"short"));
    }

    #[test]
    fn noise_does_not_look_compressible() {
        for length in [4096, 8192, 65536, 131_072] {
            assert!(!looks(&noise(3, length)), "{length}");
        }
    }

    #[test]
    fn bytes_between_text_and_noise_are_judged_by_entropy() {
        // A hundred values, equally frequent: 6.6 bits. Three quarters zeros: less than 3.
        let hundred: Vec<u8> = noise(7, 131_072).iter().map(|byte| byte % 100).collect();
        assert!(!looks(&hundred));
        let sparse: Vec<u8> = noise(9, 131_072)
            .chunks(4)
            .flat_map(
                |four| if four[0] % 4 == 0 { [four[0], four[1], four[2], four[3]] } else { [0; 4] },
            )
            .collect();
        assert!(looks(&sparse));
    }
}
