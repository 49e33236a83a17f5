//! The command `userbtrfs-bench`.

#![forbid(unsafe_code)]

use std::io::Write as _;

use clap::Parser as _;
use mimalloc::MiMalloc;
use userbtrfs_bench::args::{Args, Format};

/// The allocator that the command `userbtrfs` uses.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let report = userbtrfs_bench::run(&args)?;
    let text = match args.format {
        Format::Text => report.to_string(),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
