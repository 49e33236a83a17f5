//! The status line of the terminal on stderr, which long work draws again and again.
//!
//! 1. A message is printed by [`without`], so that the line is never a part of it.
//! 2. The line is shorter than the terminal is wide: it never wraps.

use std::io::{Write as _, stderr};
use std::sync::Mutex;

use rustix::termios::tcgetwinsize;

/// The width of a terminal that does not know its own.
const COLUMNS: usize = 80;
/// Moves to the start of the line, and clears it.
const CLEAR: &str = "\r\x1b[K";

/// True while the line is on the terminal.
static IS_SHOWN: Mutex<bool> = Mutex::new(false);

/// Returns the maximum number of characters in the line.
pub(in crate::cli) fn width() -> usize {
    let columns = tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
    let columns = if columns == 0 { COLUMNS } else { columns };
    columns - 1
}

/// Shows a line in place of the one before.
pub(in crate::cli) fn show(line: &str) {
    let line: String = line.chars().take(width()).collect();
    let mut is_shown = IS_SHOWN.lock().expect("no holder panics");
    // An error of stderr cannot be reported.
    let _ = write!(stderr(), "{CLEAR}{line}");
    *is_shown = true;
}

/// Removes the line from the terminal.
pub(in crate::cli) fn clear() {
    without(|| ());
}

/// Prints something by `print` while the line is not on the terminal.
pub(in crate::cli) fn without<T>(print: impl FnOnce() -> T) -> T {
    let mut is_shown = IS_SHOWN.lock().expect("no holder panics");
    if std::mem::take(&mut *is_shown) {
        let _ = write!(stderr(), "{CLEAR}");
    }
    print()
}
