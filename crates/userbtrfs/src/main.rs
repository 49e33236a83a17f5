//! The command `userbtrfs`.
//!
//! 1. Errors go to stderr as `userbtrfs: what: why`; the exit status is 0 or 1.
//! 2. A closed pipe ends it quietly: who closed it wants no more of what is printed. What is to be
//!    done is done all the same, but for the rest of a `shell`'s input, and what failed makes the
//!    exit status 1.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// What one thread allocates another one frees, all the time, and much is kept for long: the C
/// library's allocator takes longer for that, and more memory.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
