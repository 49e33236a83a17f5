//! The command `userbtrfs`.
//!
//! 1. Errors go to stderr as `userbtrfs: what: why`; the exit status is 0 or 1.
//! 2. A closed pipe on stdout is not reported. Output stops, but the operation completes, except
//!    for the rest of the input of `shell`; a failure still makes the exit status 1.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Memory is often freed by another thread than the one that allocated it, and much of it is kept
/// for long: the allocator of the C library is slower then, and takes more memory.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
