//! The command `userbtrfs`.
//!
//! 1. Errors go to stderr as `userbtrfs: what: why`; the exit status is 0 or 1.
//! 2. A closed pipe ends it quietly.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
