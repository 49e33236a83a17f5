//! The peak memory of this process.

use std::fs;

use anyhow::{Context, Result};

use crate::machine::field;

/// Resets the peak to the current usage.
pub(crate) fn reset_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("resetting the peak of memory")
}

/// Returns the peak resident memory since the last reset, in bytes.
pub(crate) fn peak() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = field(&status, "VmHWM").and_then(|peak| peak.strip_suffix(" kB"));
    Ok(peak.context("no VmHWM")?.trim().parse::<u64>()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_includes_freed_memory_until_reset() {
        reset_peak().unwrap();
        let before = peak().unwrap();
        let taken = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(peak().unwrap() >= before + (60 << 20));
        drop(taken);
        reset_peak().unwrap();
        assert!(peak().unwrap() < before + (30 << 20));
    }
}
