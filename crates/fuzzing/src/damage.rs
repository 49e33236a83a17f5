//! Damage to blocks, chosen by the input.

use arbitrary::{Result, Unstructured};

/// Boundary values of checks.
const TURNS: [u64; 16] = [
    0,
    1,
    2,
    4095,
    4096,
    8192,
    65536,
    131_072,
    131_073,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    u64::MAX - 256,
    u64::MAX - 4095,
    u64::MAX - 1,
    u64::MAX,
];

/// Changes a few bytes: the input determines how many, where and to what; none if it is used up.
pub(crate) fn damage(input: &mut Unstructured<'_>, bytes: &mut [u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    for _ in 0..input.int_in_range(0..=4)? {
        let at = input.choose_index(bytes.len())?;
        match input.int_in_range(0..=4)? {
            0 => bytes[at] = input.arbitrary()?,
            1 => bytes[at] ^= 1 << input.int_in_range(0..=7)?,
            2 => put(bytes, at, *input.choose(&TURNS)?),
            3 => put(bytes, at, input.arbitrary()?),
            _ => {
                let from = input.choose_index(bytes.len())?;
                let len = input.int_in_range(1..=32)?.min(bytes.len() - from.max(at));
                bytes.copy_within(from..from + len, at);
            }
        }
    }
    Ok(())
}

/// Writes a number, as far as it fits.
fn put(bytes: &mut [u8], at: usize, number: u64) {
    let len = size_of::<u64>().min(bytes.len() - at);
    bytes[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
}
