//! How much memory this process takes at most.

use std::fs;

use anyhow::{Context, Result};

use crate::machine::field;

/// Lets the peak start anew at what is taken now.
pub(crate) fn reset_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("resetting the peak of memory")
}

/// The most that was resident since the last reset, in bytes.
pub(crate) fn peak() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = field(&status, "VmHWM").and_then(|peak| peak.strip_suffix(" kB"));
    Ok(peak.context("no VmHWM")?.trim().parse::<u64>()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_shows_until_the_peak_is_reset() {
        reset_peak().unwrap();
        let before = peak().unwrap();
        let taken = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(peak().unwrap() >= before + (60 << 20));
        drop(taken);
        reset_peak().unwrap();
        assert!(peak().unwrap() < before + (30 << 20));
    }
}
