//! The command `userbtrfs-bench`.

#![forbid(unsafe_code)]

use std::io::Write as _;

use clap::Parser as _;
use mimalloc::MiMalloc;
use userbtrfs_bench::args::Args;

/// The allocator that the command `userbtrfs` uses.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let text = userbtrfs_bench::run(&args)?;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
