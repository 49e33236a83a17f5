//! Development verbs of the workspace: `cargo xtask VERB`.
//!
//! This file only names the verbs; each is a module of its own.
#![forbid(unsafe_code)]

mod demo;
mod fuzz;
mod golden;
mod licences;
mod tidy;
mod unpack;

use std::process::ExitCode;

use clap::Parser;

/// Development verbs of userbtrfs.
#[derive(Parser)]
#[command(name = "xtask")]
enum Verb {
    /// Check the style and the layering of the sources.
    Tidy(tidy::Args),
    /// Show the public API of the library, or write it into docs/api.txt.
    Api(tidy::api::Args),
    /// Check the licences and the sources of all dependencies.
    Licences,
    /// Unpack a golden image.
    Unpack(unpack::Args),
    /// Show the command on real images, and verify the files that it reads and writes.
    Demo(demo::Args),
    /// Fuzz the readers, with libFuzzer if it can be built.
    Fuzz(fuzz::Args),
    /// Make the golden images with Linux's own tools (root, loop devices, btrfs in the kernel).
    Golden(golden::Args),
}

fn main() -> ExitCode {
    match run(Verb::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Tidy(args) => tidy::run(&args),
        Verb::Api(args) => tidy::api::run(&args),
        Verb::Licences => licences::run(),
        Verb::Unpack(args) => unpack::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Fuzz(args) => fuzz::run(&args),
        Verb::Golden(args) => golden::run(&args),
    }
}
