//! The signals that end a mount.

use std::fs;
use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Catches the signals, except those that this process was started to ignore, as by nohup(1); the
/// caller reads them from the result.
pub(super) fn catch_signals() -> io::Result<Signals> {
    let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    Signals::new([SIGHUP, SIGINT, SIGTERM].iter().filter(|signal| !is_in(ignored, **signal)))
}

/// Returns the set of ignored signals in the text of `/proc/PID/status`.
fn ignored(status: &str) -> u64 {
    let digits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

/// Returns true if a set contains a signal; signals are numbered from 1.
fn is_in(set: u64, signal: i32) -> bool {
    set >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_ignored_are_found() {
        let set = ignored("Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000000001\n");
        assert_eq!(
            [SIGHUP, SIGINT, SIGTERM].map(|signal| is_in(set, signal)),
            [true, false, false]
        );
        assert_eq!(ignored("SigIgn:\tnonsense\n"), 0);
    }
}
